//! Our own REST, from the beginning of a session to its end.

use super::Service;
use rustix::process::Signal;
use serde_json::json;

#[test]
fn a_session_from_its_beginning_to_its_end() {
    let service = Service::new();
    let id = service.session();
    let at = |rest: &str| format!("/v1/sessions/{id}{rest}");
    let script = "echo out; echo err >&2; cat; exit 3";
    let ran = json!({ "argv": ["sh", "-c", script], "stdin": "in" });
    let ran = service.api("POST", &at("/execs"), Some(ran)).is(200).json();
    assert_eq!(
        (&ran["stdout"], &ran["stderr"], &ran["exit_code"]),
        (&json!("out\nin"), &json!("err\n"), &json!(3))
    );
    let head = format!("authorization: Bearer {}\r\naccept: text/event-stream\r\n", service.api_key);
    let streamed = service.send("POST", &at("/execs"), &head, br#"{"argv": ["echo", "hi"]}"#).is(200).text;
    let places = ["event: started", "event: stdout", "aGkK", "event: exit"].map(|part| streamed.find(part));
    assert!(places.is_sorted() && places[0].is_some(), "{streamed}");

    let bearer = format!("authorization: Bearer {}\r\n", service.api_key);
    service.send("PUT", &at("/files?path=notes/a.txt"), &bearer, b"text").is(200);
    assert_eq!(service.api("GET", &at("/files?path=notes/a.txt"), None).is(200).text, "text");
    let listed = service.api("GET", &at("/files/list?path=notes"), None).is(200).json();
    assert_eq!(listed["files"][0]["size"], 4, "{listed}");
    service.api("DELETE", &at("/files?path=notes/a.txt"), None).is(204);
    service.api("GET", &at("/files?path=notes/a.txt"), None).is(404);

    assert_eq!(service.api("POST", &at("/transactions"), None).is(201).json()["depth"], 1);
    assert_eq!(service.api("POST", &at("/transactions/rollback"), None).is(200).json()["depth"], 0);
    service.api("POST", &at("/transactions/commit"), None).is(409);

    assert_eq!(service.api("POST", &at("/pause"), None).is(200).json()["state"], "paused");
    assert_eq!(service.api("POST", &at("/resume"), None).is(200).json()["state"], "running");
    let forked = service.api("POST", &at("/fork"), Some(json!({ "count": 2 }))).is(201).json();
    assert_eq!(forked["sessions"].as_array().unwrap().len(), 2);

    let events =
        service.api("GET", &format!("/v1/traces/{id}/events?kind=exec.started"), None).is(200).json();
    assert_eq!(events["events"].as_array().unwrap().len(), 2, "{events}");
    service.api("DELETE", &at(""), None).is(204);
    service.api("GET", &at(""), None).is(404);
    // Its trace stays, and is its tenant's.
    let trace = service.api("GET", &format!("/v1/traces/{id}"), None).is(200).json();
    assert_eq!(trace["state"], "complete");
    let stream = service.api("GET", &format!("/v1/traces/{id}/stream"), None).is(200).text;
    assert!(stream.contains("session.ended"), "{stream}");
}

#[test]
fn the_same_key_gives_the_same_answer_and_makes_one_session() {
    let service = Service::new();
    let head =
        |once: &str| format!("authorization: Bearer {}\r\nidempotency-key: {once}\r\n", service.api_key);
    let made = |once: &str, body: &[u8]| service.send("POST", "/v1/sessions", &head(once), body);
    let one = made("a-1", b"{}").is(201).json();
    assert_eq!(made("a-1", b"{}").is(201).json()["id"], one["id"]);
    assert_ne!(made("a-2", b"{}").is(201).json()["id"], one["id"]);
    made("a-1", br#"{"timeout": 7}"#).is(422);
    made("a b", b"{}").is(400);
    let all = service.api("GET", "/v1/sessions", None).is(200).json();
    assert_eq!(all["sessions"].as_array().unwrap().len(), 2);
}

#[test]
fn a_policy_is_put_in_force_and_a_tenant_cannot_say_where_hosts_are() {
    let service = Service::new();
    let id = service.session();
    let at = format!("/v1/sessions/{id}/policy");
    let policy =
        "[[rule]]\nid = \"docs\"\nreason = \"reading\"\neffect = \"allow\"\nhost = \"docs.example.com\"\n";
    service.api("PUT", &at, Some(json!({ "policy": policy }))).is(200);
    assert!(service.api("GET", &at, None).is(200).text.contains("docs.example.com"));
    let refused = service.api("PUT", &at, Some(json!({ "policy": "[[rule]]\nid = \"x\"\n" }))).is(422).json();
    assert_eq!(refused["code"], "unprocessable", "{refused}");
    let upstream = "[[upstream]]\nhost = \"docs.example.com\"\nconnect = \"127.0.0.1:80\"\n";
    service.api("PUT", &at, Some(json!({ "policy": upstream }))).is(403);
    assert!(
        service.api("GET", &at, None).is(200).text.contains("docs.example.com"),
        "the last good one holds"
    );
}

#[test]
fn a_service_that_is_started_again_has_its_sessions() {
    let mut service = Service::new();
    let kept = service.session();
    let work = json!({ "argv": ["sh", "-c", "echo kept > file"] });
    service.api("POST", &format!("/v1/sessions/{kept}/execs"), Some(work)).is(200);
    service.restart(Signal::TERM);
    let stored = service.api("GET", &format!("/v1/sessions/{kept}"), None).is(200).json();
    assert_eq!(stored["state"], "stored", "{stored}");
    service.api("POST", &format!("/v1/sessions/{kept}/execs"), Some(json!({ "argv": ["true"] }))).is(409);
    let woken = service.api("POST", &format!("/v1/sessions/{kept}/resume"), None).is(200).json();
    assert_eq!((&woken["state"], &woken["id"]), (&json!("running"), &json!(kept)));
    service.api("POST", &format!("/v1/sessions/{kept}/execs"), Some(json!({ "argv": ["true"] }))).is(200);
    assert_eq!(
        service.api("GET", &format!("/v1/sessions/{kept}/files?path=file"), None).is(200).text,
        "kept\n"
    );
    // Killed, it cannot keep anything: that is said, and nothing is half alive.
    service.restart(Signal::KILL);
    let lost = service.api("GET", &format!("/v1/sessions/{kept}"), None).is(200).json();
    assert_eq!(lost["state"], "lost", "{lost}");
    service
        .send("GET", &format!("/sandboxes/{kept}"), &format!("x-api-key: {}\r\n", service.api_key), b"")
        .is(404);
    service.session();
}

#[test]
fn the_document_and_its_page_are_served_to_everybody() {
    let service = Service::new();
    let document = service.send("GET", "/v1/openapi.json", "", b"").is(200).json();
    let page = service.send("GET", "/v1/docs", "", b"").is(200).text;
    assert!(!page.contains("http://") && !page.contains("https://"), "it loads nothing");
    for (path, operations) in document["paths"].as_object().unwrap() {
        assert!(page.contains(path.as_str()), "{path}");
        for method in operations.as_object().unwrap().keys() {
            // Every operation of the document is there: nobody without a key learns more.
            let path = path.replace("{id}", "x").replace("{session}", "x").replace("{name}", "x");
            service.send(&method.to_uppercase(), &path, "", b"").is(401);
        }
    }
}
