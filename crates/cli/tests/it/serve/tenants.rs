//! Two tenants of one service: what one has, the other cannot see, change or end, whichever way it asks.

use super::{Answer, Service};
use serde_json::{Value, json};

/// The routes of E2B's control plane, as the service has them: one that is added is walked too.
const ROUTER: &str = include_str!("../../../../server/src/e2b/mod.rs");

/// A second tenant's key.
fn other(service: &Service) -> String {
    let made = service.site.call(&["apikey", "create", "--tenant", "other", "--json"]).done().exits(0);
    let made: Value = serde_json::from_str(&made.out()).unwrap();
    made["key"].as_str().unwrap().to_owned()
}

fn e2b(service: &Service, method: &str, path: &str, key: &str, body: &str) -> Answer {
    let head = format!("x-api-key: {key}\r\ncontent-type: application/json\r\n");
    service.send(method, path, &head, body.as_bytes())
}

/// What the first tenant has: each of these words in an answer to the other would give something away.
struct Had {
    session: String,
    names: Vec<(&'static str, String)>,
}

fn furnish(service: &Service) -> Had {
    let session = service.session();
    let at = |rest: &str| format!("/v1/sessions/{session}{rest}");
    let bearer = format!("authorization: Bearer {}\r\n", service.api_key);
    service.send("PUT", &at("/files?path=mine.txt"), &bearer, b"of the first tenant").is(200);
    service.api("POST", &at("/snapshots"), Some(json!({ "name": "kept-by-one" }))).is(201);
    service.api("POST", "/v1/volumes", Some(json!({ "name": "kept-by-one" }))).is(201);
    let secret = json!({ "name": "token-of-one", "value": "v-of-one", "metadata": { "hosts": "a.example" } });
    let secret = e2b(service, "POST", "/secrets", &service.api_key, &secret.to_string()).is(201).json();
    let names = vec![
        ("{id}", session.clone()),
        ("{session}", session.clone()),
        ("{name}", "kept-by-one".to_owned()),
        ("{alias}", "kept-by-one".to_owned()),
        ("{secret}", secret["secretID"].as_str().unwrap().to_owned()),
        ("{hash}", "0".repeat(64)),
        ("{build}", "0".repeat(32)),
        ("{word}", "0".repeat(40)),
        ("{*rest}", "tags".to_owned()),
    ];
    Had { session, names }
}

impl Had {
    fn filled(&self, path: &str) -> String {
        let own = [("/secrets/", "{secret}"), ("/volumes/", "{name}"), ("/volumecontent/", "{name}")];
        let own = own.iter().find(|(start, _)| path.starts_with(start));
        let path = own.map_or_else(|| path.to_owned(), |(_, name)| path.replace("{id}", name));
        self.names.iter().fold(path, |path, (name, value)| path.replace(name, value))
    }

    /// Nothing of it is in an answer, but for what the question itself named.
    #[track_caller]
    fn gives_nothing_away(&self, asked: &str, answer: &Answer) {
        for word in [&self.session, "kept-by-one", "mine.txt", "of the first tenant", "token-of-one"] {
            let echoed = asked.contains(word) && (400..500).contains(&answer.status);
            assert!(echoed || !answer.text.contains(word), "{asked}: {}", answer.text);
        }
        // 501 is for ways of building templates that nobody has here.
        assert!(answer.status < 500 || answer.status == 501, "{asked}: {} {}", answer.status, answer.text);
    }
}

/// A body with which its owner would be let do it.
fn body(id: &str) -> Option<Value> {
    Some(match id {
        "extendSession" => json!({ "timeout": 60 }),
        "takeSnapshot" | "restoreSession" => json!({ "name": "kept-by-one" }),
        "exec" => json!({ "argv": ["rm", "-rf", "/home/user/mine.txt"] }),
        "setPolicy" => json!({ "policy": "" }),
        "answerApproval" => json!({ "allow": true }),
        "addSecret" => json!({ "name": "x", "value": "x", "hosts": ["a.example"] }),
        "runGate" => json!({ "suite": "/nowhere" }),
        _ => json!({}),
    })
}

#[test]
fn no_route_of_ours_gives_a_tenant_anything_of_another() {
    let service = Service::new();
    let (had, stranger) = (furnish(&service), other(&service));
    let document = service.send("GET", "/v1/openapi.json", "", b"").is(200).json();
    let mut walked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, about) in operations.as_object().unwrap() {
            let id = about["operationId"].as_str().unwrap();
            let query = if path.contains("/files") { "?path=mine.txt" } else { "" };
            let asked = format!("{}{query}", had.filled(path));
            let answer =
                service.ask(&method.to_uppercase(), &asked, &stranger, body(id).filter(|_| method != "get"));
            had.gives_nothing_away(&format!("{method} {asked}"), &answer);
            // What names something of the first tenant's is not there for the second.
            let admin = about["description"].as_str().is_some_and(|text| text.contains("administrator"));
            let expected = if admin { 403 } else { 404 };
            assert!(!path.contains('{') || answer.status == expected, "{method} {asked}: {}", answer.text);
            walked += 1;
        }
    }
    assert!(walked >= 39, "only {walked} operations were walked");
    untouched(&service, &had);
}

#[test]
fn no_route_of_e2b_gives_a_tenant_anything_of_another() {
    let service = Service::new();
    let (had, stranger) = (furnish(&service), other(&service));
    let routes = ROUTER.split(".route(\"").skip(1).filter_map(|rest| rest.split_once('"'));
    let mut walked = 0;
    for (path, rest) in routes {
        let asked = had.filled(path);
        let methods = rest.split(".route(").next().unwrap();
        for method in ["get", "post", "put", "patch", "delete", "any"] {
            if !methods.contains(&format!("{method}(")) {
                continue;
            }
            let sent = if method == "any" { "POST".to_owned() } else { method.to_uppercase() };
            let body = match path {
                "/sandboxes" | "/v2/sandboxes" if method == "post" => {
                    json!({ "templateID": "kept-by-one" }).to_string()
                }
                "/templates/tags" => {
                    let named = "kept-by-one";
                    json!({ "target": named, "name": named, "tags": ["default"] }).to_string()
                }
                "/sandboxes/{id}/timeout" => json!({ "timeout": 0 }).to_string(),
                _ => String::new(),
            };
            let answer = e2b(&service, &sent, &asked, &stranger, &body);
            walked += 1;
            if path == "/templates/{id}/files/{hash}" {
                // Files for a build are kept by tenant and digest, whatever it is called: this is a place of one's own.
                assert_eq!(answer.is(201).json()["present"], false);
                continue;
            }
            had.gives_nothing_away(&format!("{sent} {asked} {body}"), &answer);
            if path.contains('{') || !body.is_empty() {
                assert!(
                    (400..500).contains(&answer.status) || answer.status == 501,
                    "{sent} {asked}: {}",
                    answer.text
                );
            }
        }
    }
    assert!(walked >= 35, "only {walked} routes were walked");
    untouched(&service, &had);
}

/// The control: its owner finds all of it as it was.
fn untouched(service: &Service, had: &Had) {
    let at = |rest: &str| format!("/v1/sessions/{}{rest}", had.session);
    let session = service.api("GET", &at(""), None).is(200).json();
    assert_eq!(session["state"], "running", "{session}");
    assert_eq!(service.api("GET", &at("/files?path=mine.txt"), None).is(200).text, "of the first tenant");
    assert!(service.api("GET", "/v1/snapshots", None).is(200).text.contains("kept-by-one"));
    service.api("GET", "/v1/volumes/kept-by-one", None).is(200);
    let secrets = e2b(service, "GET", "/secrets", &service.api_key, "").is(200).text;
    assert!(secrets.contains("token-of-one") && !secrets.contains("v-of-one"), "{secrets}");
    assert!(
        service.api("GET", &format!("/v1/traces/{}", had.session), None).is(200).text.contains("running")
    );
}
