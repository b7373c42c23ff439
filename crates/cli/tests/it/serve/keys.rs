//! Who may ask.

use super::Service;
use serde_json::json;

#[test]
fn a_wrong_key_is_refused_in_the_shape_of_each_api() {
    let service = Service::new();
    for key in ["", "e2b_0000000000000000000000000000000000000000", "nonsense"] {
        let e2b = service.send("GET", "/v2/sandboxes", &format!("x-api-key: {key}\r\n"), b"").is(401).json();
        assert_eq!(e2b["code"], 401, "{e2b}");
        let ours = service.ask("GET", "/v1/sessions", key, None).is(401).json();
        assert_eq!(ours["code"], "unauthorized", "{ours}");
        assert!(ours["hint"].as_str().unwrap().contains("apikey create"));
    }
    // The negative control: the right one is let in.
    service.api("GET", "/v1/sessions", None).is(200);
    service.send("GET", "/v2/sandboxes", &format!("x-api-key: {}\r\n", service.api_key), b"").is(200);
}

#[test]
fn a_key_that_is_revoked_is_refused_at_once_and_tenants_do_not_see_each_other() {
    let service = Service::new();
    let other = service.site.call(&["apikey", "create", "--tenant", "other", "--json"]).done().exits(0);
    let other: serde_json::Value = serde_json::from_str(&other.out()).unwrap();
    let (id, key) = (other["id"].as_str().unwrap(), other["key"].as_str().unwrap());
    let session = service.session();
    service.ask("GET", "/v1/sessions", key, None).is(200);
    for path in ["", "/usage", "/policy", "/execs"] {
        service.ask("GET", &format!("/v1/sessions/{session}{path}"), key, None).is(404);
        service.ask("GET", &format!("/v1/sessions/{session}{path}"), &service.admin_key, None).is(200);
    }
    service.ask("GET", &format!("/v1/traces/{session}"), key, None).is(404);
    service.ask("DELETE", &format!("/v1/sessions/{session}"), key, None).is(404);
    service.send("DELETE", &format!("/sandboxes/{session}"), &format!("x-api-key: {key}\r\n"), b"").is(404);
    let lent = Some(json!({ "secrets": ["github"] }));
    service.api("POST", "/v1/sessions", lent).is(403);
    service.api("GET", "/v1/secrets", None).is(403);
    service.site.call(&["apikey", "revoke", id]).done().exits(0);
    service.ask("GET", "/v1/sessions", key, None).is(401);
    let listed = service.site.call(&["apikey", "ls"]).done().exits(0).out();
    assert!(listed.contains("revoked") && !listed.contains(key), "{listed}");
    let state = std::fs::read_to_string(service.site.state().join("service/keys.json")).unwrap();
    assert!(!state.contains(key) && !state.contains(&service.admin_key), "only digests are kept");
}

#[test]
fn a_start_that_fails_makes_no_keys() {
    let site = crate::site();
    site.call(&["session", "create", "--name", "held"]).exits(0);
    let refused = site.call(&["serve", "--listen", "127.0.0.1:0"]).exits(2).err();
    assert!(refused.contains("holds the sessions"), "{refused}");
    assert_eq!(site.call(&["apikey", "ls", "--json"]).exits(0).out().trim(), "[]");
    site.call(&["session", "kill", "held"]).exits(0);
}
