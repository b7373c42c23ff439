//! E2B's paths, sent what no SDK would send: by chance, broken off, too slowly, and while the service is killed.

use super::{Service, answer};
use cofferdam_testkit::{eventually, processes_with};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A sandbox and the token of its daemon.
fn sandbox(service: &Service) -> (String, String) {
    let head = format!("x-api-key: {}\r\ncontent-type: application/json\r\n", service.api_key);
    let body = br#"{"templateID": "base", "timeout": 600}"#;
    let made = service.send("POST", "/v2/sandboxes", &head, body).is(201).json();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("sandboxID"), text("envdAccessToken"))
}

const CONTROL: [&str; 14] = [
    "/v2/sandboxes",
    "/sandboxes/ID",
    "/v2/sandboxes/ID/connect",
    "/sandboxes/ID/timeout",
    "/sandboxes/ID/fork",
    "/sandboxes/ID/network",
    "/sandboxes/ID/snapshots",
    "/sandboxes/ID/metrics",
    "/sandboxes/ID/logs",
    "/secrets",
    "/v3/templates",
    "/templates/x/files/y",
    "/snapshots",
    "/templates/aliases/x",
];
const DAEMON: [&str; 13] = [
    "/process.Process/Start",
    "/process.Process/List",
    "/process.Process/Connect",
    "/process.Process/SendInput",
    "/process.Process/StreamInput",
    "/process.Process/SendSignal",
    "/filesystem.Filesystem/Stat",
    "/filesystem.Filesystem/ListDir",
    "/filesystem.Filesystem/Move",
    "/filesystem.Filesystem/CreateWatcher",
    "/files",
    "/metrics",
    "/envs",
];
const KINDS: [&str; 7] = [
    "application/json",
    "application/connect+json",
    "application/proto",
    "application/octet-stream",
    "multipart/form-data; boundary=b",
    "text/plain",
    "\u{7f}",
];

/// Values under the names that are looked for, of any type and depth.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z./\u{0}~é]{0,12}".prop_map(Value::from),
        Just(Value::from("../../../etc/passwd")),
        Just(Value::from("SIGNAL_SIGKILL")),
    ];
    let name = prop::sample::select(vec![
        "process",
        "cmd",
        "args",
        "envs",
        "cwd",
        "pty",
        "size",
        "rows",
        "pid",
        "tag",
        "stdin",
        "input",
        "start",
        "data",
        "path",
        "source",
        "destination",
        "depth",
        "signal",
        "templateID",
        "timeout",
        "metadata",
        "envVars",
        "network",
        "allowOut",
        "rules",
        "count",
        "name",
        "value",
        "steps",
        "mcp",
        "iam",
        "autoPause",
    ]);
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..5)
                .prop_map(|all| Value::Object(all.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let text = || value().prop_map(|value| value.to_string().into_bytes());
    let envelope = (any::<u8>(), any::<Option<u32>>(), text()).prop_map(|(flags, size, body)| {
        let size = size.unwrap_or(body.len() as u32);
        [&[flags & 3][..], &size.to_be_bytes(), &body].concat()
    });
    let part = prop::collection::vec(any::<u8>(), 0..60).prop_map(|bytes| {
        [b"--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"".as_slice(), &bytes].concat()
    });
    prop_oneof![text(), envelope, part, prop::collection::vec(any::<u8>(), 0..80)]
}

#[test]
fn nothing_that_is_sent_by_chance_breaks_the_service_or_the_sandbox() {
    let service = Service::with(Some("[limits]\nrate = 100000\nbody = \"64K\"\npatience = \"2s\"\n"));
    let (id, token) = sandbox(&service);
    let question = (
        prop::sample::select(vec!["GET", "POST", "PUT", "DELETE"]),
        prop_oneof![prop::sample::select(&CONTROL[..]), prop::sample::select(&DAEMON[..])],
        "(\\?[a-zA-Z]{0,8}=[%0-9a-f/.]{0,20})?",
        prop::sample::select(&KINDS[..]),
        body(),
    );
    let mut runner = TestRunner::new(Config { cases: 600, failure_persistence: None, ..Config::default() });
    let asked = runner.run(&question, |(method, path, query, kind, body)| {
        // The sandbox itself stays.
        prop_assume!(!(method == "DELETE" && path == "/sandboxes/ID"));
        let daemon = DAEMON.contains(&path);
        let who = match daemon {
            true => format!("e2b-sandbox-id: {id}\r\ne2b-sandbox-port: 49983\r\nx-access-token: {token}\r\n"),
            false => format!("x-api-key: {}\r\n", service.api_key),
        };
        let head = format!("{who}content-type: {kind}\r\n");
        let path = format!("{}{query}", path.replace("ID", &id));
        let answer = service.send(method, &path, &head, &body);
        // 501 is Connect's word for a call that there is not; a head that is none is answered by the connection's end.
        let fine = (200..500).contains(&answer.status) || answer.status == 501 || answer.head.is_empty();
        prop_assert!(fine, "{} {}: {} {}", method, path, answer.status, answer.text);
        Ok(())
    });
    asked.unwrap_or_else(|error| panic!("{error}\n{}", log(&service)));
    let still =
        service.api("POST", &format!("/v1/sessions/{id}/execs"), Some(json!({ "argv": ["echo", "on"] })));
    // Unless chance has ended it by its own timeout, it goes on.
    assert!(still.status == 404 || still.is(200).json()["stdout"] == "on\n");
    assert!(!log(&service).contains("panicked"), "{}", log(&service));
    service.session();
}

fn log(service: &Service) -> String {
    std::fs::read_to_string(service.site.state().with_extension("log")).unwrap_or_default()
}

/// What begins a call of the daemon's: its head, for a body of this length.
fn head(id: &str, token: &str, path: &str, kind: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ne2b-sandbox-id: {id}\r\ne2b-sandbox-port: 49983\r\nx-access-token: {token}\r\n\
         content-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    )
}

#[test]
fn who_is_slow_breaks_off_or_hangs_up_half_way_holds_nothing() {
    let service = Service::with(Some("[limits]\npatience = \"1s\"\n"));
    let (id, token) = sandbox(&service);
    let start = r#"{"process":{"cmd":"/bin/sh","args":["-c","sleep 1000"]},"stdin":false}"#;
    let envelope = [&[0u8][..], &(start.len() as u32).to_be_bytes(), start.as_bytes()].concat();
    let connected = "application/connect+json";
    // A body that stops coming, on every kind of call.
    for (path, kind) in [
        ("/process.Process/Start", connected),
        ("/process.Process/List", "application/json"),
        ("/filesystem.Filesystem/WatchDir", connected),
        ("/filesystem.Filesystem/Stat", "application/json"),
        ("/files?path=slow", "application/octet-stream"),
        ("/files?path=slow", "multipart/form-data; boundary=b"),
    ] {
        let mut slow = service.connect();
        slow.write_all(head(&id, &token, path, kind, 500).as_bytes()).unwrap();
        slow.write_all(&envelope[..20]).unwrap();
        // It is answered, or closed, and not kept waiting with it.
        let told = answer(&mut slow);
        assert!(
            told.status == 200 || (400..500).contains(&told.status),
            "{path}: {} {}",
            told.status,
            told.text
        );
        // Half of a body, and then no more to come.
        let mut half = service.connect();
        half.write_all(head(&id, &token, path, kind, 500).as_bytes()).unwrap();
        half.write_all(&envelope[..20]).unwrap();
        half.shutdown(Shutdown::Write).unwrap();
        let told = answer(&mut half);
        assert!(told.status < 500, "{path}: {} {}", told.status, told.text);
    }
    let files = service.api("GET", &format!("/v1/sessions/{id}/files/list?path=."), None).is(200).json();
    assert_eq!(files["files"], json!([]), "nothing is left of files that did not come whole");
    // A client that goes in the middle of a stream leaves its command running, as E2B's does, and nothing else.
    let running =
        || service.api("GET", &format!("/v1/sessions/{id}"), None).is(200).json()["running"].as_u64();
    assert_eq!(running(), Some(0), "what was not whole was not started");
    let mut client = service.connect();
    client
        .write_all(head(&id, &token, "/process.Process/Start", connected, envelope.len()).as_bytes())
        .unwrap();
    client.write_all(&envelope).unwrap();
    let mut seen = [0u8; 64];
    assert!(client.read(&mut seen).unwrap() > 0);
    drop(client);
    assert_eq!(running(), Some(1));
    let listed = head(&id, &token, "/process.Process/List", "application/json", 2);
    let mut again = service.connect();
    again.write_all(format!("{listed}{{}}").as_bytes()).unwrap();
    assert!(answer(&mut again).is(200).text.contains("sleep 1000"));
}

#[test]
fn a_sandbox_whose_time_is_over_is_gone_in_the_words_that_sdks_look_for() {
    let service = Service::new();
    let (id, token) = sandbox(&service);
    let start = r#"{"process":{"cmd":"/bin/sh","args":["-c","sleep 1000"]},"stdin":false}"#;
    let envelope = [&[0u8][..], &(start.len() as u32).to_be_bytes(), start.as_bytes()].concat();
    let mut client = service.connect();
    let asked = head(&id, &token, "/process.Process/Start", "application/connect+json", envelope.len());
    client.write_all(&[asked.as_bytes(), &envelope].concat()).unwrap();
    let mut seen = [0u8; 64];
    assert!(client.read(&mut seen).unwrap() > 0);
    let key = format!("x-api-key: {}\r\n", service.api_key);
    service.send("POST", &format!("/sandboxes/{id}/timeout"), &key, br#"{"timeout": 0}"#).is(204);
    // The stream is broken off, without the message that would end it.
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&rest));
    let daemon = format!("e2b-sandbox-id: {id}\r\ne2b-sandbox-port: 49983\r\nx-access-token: {token}\r\n");
    let gone = eventually("it is gone", || {
        let answer = service.send("GET", "/health", &daemon, b"");
        (answer.status == 502).then(|| answer.json())
    });
    let expected = json!({ "sandboxId": id, "message": "The sandbox was not found", "code": 502 });
    assert_eq!(gone, expected);
    service.send("GET", &format!("/sandboxes/{id}"), &key, b"").is(404);
    service.send("DELETE", &format!("/sandboxes/{id}"), &key, b"").is(404);
}

/// Killed while sessions are made, used and ended; then there is none that is half alive.
#[test]
fn killed_under_load_it_comes_back_with_sessions_that_are_lost_or_whole() {
    let mut service = Service::with(Some("[limits]\nrate = 100000\n"));
    let stored = service.session();
    service.api("POST", &format!("/v1/sessions/{stored}/pause"), Some(json!({ "files_only": true }))).is(200);
    let (over, marker) = (Arc::new(AtomicBool::new(false)), format!("load-{}", std::process::id()));
    let told = std::thread::scope(|scope| {
        let (service, over, marker) = (&service, &over, &marker);
        let client = move || {
            let mut told = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let made = service.api("POST", "/v1/sessions", Some(json!({ "timeout": 600 })));
                if made.status != 201 {
                    continue;
                }
                let id = made.json()["id"].as_str().unwrap().to_owned();
                let left = format!("sh -c 'sleep 1000; : {marker}' >/dev/null 2>&1 & echo began");
                let run = json!({ "argv": ["sh", "-c", left] });
                service.api("POST", &format!("/v1/sessions/{id}/execs"), Some(run));
                if told.len() % 3 == 0 {
                    service.api(
                        "POST",
                        &format!("/v1/sessions/{id}/pause"),
                        Some(json!({ "files_only": true })),
                    );
                }
                told.push(id);
            }
            told
        };
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(client)).collect();
        let enough = || {
            let all = std::fs::read_dir(service.site.state().join("service/sandboxes")).unwrap().count();
            (all >= 12).then_some(())
        };
        eventually("there is a load", enough);
        rustix::process::kill_process(service.pid(), Signal::KILL).unwrap();
        over.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<Vec<String>>()
    });
    service.child.get_mut().unwrap().wait().unwrap();
    eventually("nothing runs on", || processes_with(&marker).is_empty().then_some(()));
    let (child, again) = super::start(&service.site, None);
    service.url = again["url"].as_str().unwrap().to_owned();
    service.child = std::sync::Mutex::new(child);
    let all = service.api("GET", "/v1/sessions?limit=1000", None).is(200).json();
    let all = all["sessions"].as_array().unwrap();
    // Every session whose making was told is told of, and so is nothing that is neither lost nor whole.
    for id in told.iter().chain([&stored]) {
        assert!(all.iter().any(|one| one["id"] == json!(id)), "{id} is not told of");
    }
    let mut whole = 0;
    for one in all {
        let (id, state) = (one["id"].as_str().unwrap(), one["state"].as_str().unwrap());
        let woken = service.api("POST", &format!("/v1/sessions/{id}/resume"), None);
        let run = json!({ "argv": ["echo", "on"] });
        match state {
            "stored" => {
                assert_eq!(woken.is(200).json()["state"], "running");
                let ran = service.api("POST", &format!("/v1/sessions/{id}/execs"), Some(run)).is(200).json();
                assert_eq!(ran["stdout"], "on\n");
                whole += 1;
            }
            "lost" => {
                woken.is(404);
                service.api("POST", &format!("/v1/sessions/{id}/execs"), Some(run)).is(409);
                let key = format!("x-api-key: {}\r\n", service.api_key);
                service.send("GET", &format!("/sandboxes/{id}"), &key, b"").is(404);
                let trace = service.api("GET", &format!("/v1/traces/{id}"), None).is(200).json();
                assert_ne!(trace["state"], "running", "{trace}");
            }
            other => panic!("{id} is {other}"),
        }
        service.api("DELETE", &format!("/v1/sessions/{id}"), None).is(204);
    }
    assert!(whole >= 1, "what was stored is whole");
    service.session();
}
