//! The service treated badly: by what is sent, by how it is sent, and by who stops in the middle.

use super::{Service, answer};
use cofferdam_testkit::eventually;
use serde_json::json;
use std::io::{Read, Write};

const SMALL: &str = "[limits]\nbody = \"64K\"\npatience = \"1s\"\nconnections = 4096\n";

#[test]
fn what_is_too_large_too_slow_or_of_another_kind_is_refused() {
    let service = Service::with(Some(SMALL));
    let bearer = format!("authorization: Bearer {}\r\n", service.api_key);
    let json = format!("{bearer}content-type: application/json\r\n");
    let huge = format!("{{\"template\": \"{}\"}}", "x".repeat(100 << 10));
    service.send("POST", "/v1/sessions", &json, huge.as_bytes()).is(413);
    let deep = format!("{{\"metadata\": {}1{}}}", "[".repeat(5000), "]".repeat(5000));
    service.send("POST", "/v1/sessions", &json, deep.as_bytes()).is(400);
    service.send("POST", "/v1/sessions", &format!("{bearer}content-type: text/xml\r\n"), b"<a/>").is(415);
    for bad in
        ["[]", "null", "{", "{\"tmplate\": 1}", "{\"timeout\": -1}", "{\"env\": {\"A=B\": \"\"}}", "\u{0}"]
    {
        service.send("POST", "/v1/sessions", &json, bad.as_bytes()).is(400);
    }
    for path in ["/v1/sessions/../keys", "/v1/sessions/%00", "/v1/nothing", "/v1/sessions/x/files?path=a"] {
        let status = service.send("GET", path, &bearer, b"").status;
        assert!((400..500).contains(&status), "{path}: {status}");
    }
    service.send("PATCH", "/v1/sessions", &bearer, b"").is(405);
    // A head that never ends, and a body that never comes.
    let mut slow = service.connect();
    slow.write_all(b"GET /v1/sessions HTTP/1.1\r\nhost: x\r\n").unwrap();
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).expect("it is closed, and not left open");
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 4"), "it is closed");
    let mut starved = service.connect();
    let head = format!(
        "POST /v1/sessions HTTP/1.1\r\nhost: x\r\n{json}content-length: 10\r\nconnection: close\r\n\r\n{{"
    );
    starved.write_all(head.as_bytes()).unwrap();
    answer(&mut starved).is(408);
    service.api("GET", "/v1/sessions", None).is(200);
}

#[test]
fn a_file_cannot_be_named_out_of_its_sandbox() {
    let service = Service::new();
    let outside = service.site.write("outside.txt", "of the host");
    let id = service.session();
    let run = json!({ "argv": ["sh", "-c", format!("ln -s {} link; ln -s / root", outside.display())] });
    service.api("POST", &format!("/v1/sessions/{id}/execs"), Some(run)).is(200);
    let state = service.site.state();
    for path in [
        "link".to_owned(),
        format!("root{}", outside.display()),
        format!("../../../../../..{}", outside.display()),
        format!("{}/service/keys.json", state.display()),
        "/etc/shadow".to_owned(),
    ] {
        let read = service.api("GET", &format!("/v1/sessions/{id}/files?path={path}"), None);
        assert!((400..500).contains(&read.status), "{path}: {} {}", read.status, read.text);
    }
    service.api("GET", &format!("/v1/sessions/{id}/files?path=a%00b"), None).is(400);
    service.api("GET", &format!("/v1/sessions/{id}/files"), None).is(400);
}

#[test]
fn a_client_that_leaves_takes_its_command_along_and_nothing_else() {
    let service = Service::new();
    let id = service.session();
    let mut client = service.connect();
    let body = r#"{"argv": ["sleep", "1000"]}"#;
    let head = format!(
        "POST /v1/sessions/{id}/execs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\naccept: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        service.api_key,
        body.len()
    );
    client.write_all(head.as_bytes()).unwrap();
    let mut seen = [0u8; 64];
    assert!(client.read(&mut seen).unwrap() > 0);
    let running = || service.api("GET", &format!("/v1/sessions/{id}"), None).json()["running"].as_u64();
    assert_eq!(running(), Some(1));
    drop(client);
    eventually("its command ends", || (running() == Some(0)).then_some(()));
    let still = json!({ "argv": ["true"] });
    service.api("POST", &format!("/v1/sessions/{id}/execs"), Some(still)).is(200);
}

/// Ten thousand of them, where this machine lets a process have so many.
#[test]
fn connections_that_only_stay_hold_up_nobody() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    // Other tests of this program need some too, and so does what the service has besides.
    let room = maximum.map_or(usize::MAX, |most| usize::try_from(most).unwrap().saturating_sub(4_000));
    let wanted = room.min(10_000);
    if wanted < 10_000 {
        eprintln!("only {wanted} connections are tried: a process here has at most {maximum:?} open files");
    }
    let service = Service::with(Some("[limits]\npatience = \"10m\"\nconnections = 16384\n"));
    let idle: Vec<_> = (0..wanted).map(|_| service.connect()).collect();
    service.api("GET", "/v1/sessions", None).is(200);
    let counted = eventually("all of them", || {
        let metrics = service.ask("GET", "/metrics", &service.admin_key, None).is(200).text;
        let counted = metrics.lines().find_map(|line| line.strip_prefix("cofferdam_connections "));
        counted.unwrap().parse::<usize>().ok().filter(|counted| *counted > wanted)
    });
    let session = service.session();
    let ran =
        service.api("POST", &format!("/v1/sessions/{session}/execs"), Some(json!({ "argv": ["true"] })));
    ran.is(200);
    drop(idle);
    assert!(counted > wanted);
}

#[test]
fn traffic_for_a_sandbox_that_is_not_there_says_so_in_the_words_that_sdks_look_for() {
    let service = Service::new();
    for id in ["nosuch", "00000000000000000000"] {
        let head = format!("e2b-sandbox-id: {id}\r\ne2b-sandbox-port: 49983\r\n");
        let gone = service.send("GET", "/health", &head, b"").is(502).json();
        assert!(gone["message"].as_str().unwrap().contains("was not found"), "{gone}");
    }
    let id = service.session();
    let head = format!("e2b-sandbox-id: {id}\r\ne2b-sandbox-port: 3000\r\n");
    let closed = service.send("GET", "/", &head, b"").is(502).json();
    assert!(closed["message"].as_str().unwrap().contains("port is not open"), "{closed}");
    assert_eq!(closed["port"], 3000);
}

/// The mark that ends a request may come after the whole answer to it, and the next request after that: a client that
/// was not told otherwise uses its connection again.
#[test]
fn a_connection_is_kept_for_who_ends_a_request_after_its_answer() {
    let service = Service::with(Some(SMALL));
    let key = format!("x-api-key: {}\r\ncontent-type: application/json\r\n", service.api_key);
    let made = service.send("POST", "/v2/sandboxes", &key, br#"{"templateID": "base", "timeout": 600}"#);
    let made = made.is(201).json();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let (id, token) = (text("sandboxID"), text("envdAccessToken"));
    let start = r#"{"process":{"cmd":"/bin/echo","args":["said"]},"stdin":false}"#;
    let envelope = [&[0u8][..], &(start.len() as u32).to_be_bytes(), start.as_bytes()].concat();
    let head = |path: &str, kind: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ne2b-sandbox-id: {id}\r\ne2b-sandbox-port: 49983\r\n\
             x-access-token: {token}\r\ncontent-type: {kind}\r\n"
        )
    };
    let mut stream = service.connect();
    for _ in 0..3 {
        let head = head("/process.Process/Start", "application/connect+json");
        let asked = format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n", envelope.len());
        stream.write_all(&[asked.as_bytes(), &envelope, b"\r\n"].concat()).unwrap();
        let (mut all, mut part) = (Vec::new(), [0; 4096]);
        while !all.ends_with(b"0\r\n\r\n") {
            let count = stream.read(&mut part).unwrap();
            assert!(count > 0, "closed after {}", String::from_utf8_lossy(&all));
            all.extend_from_slice(&part[..count]);
        }
        assert!(all.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&all));
        // Longer than the patience with a head that is begun: what ends a request begins none.
        stream.write_all(b"0\r\n").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(600));
        stream.write_all(b"\r\n").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
    // Of what is refused for its length nothing more is read, and the answer says that this was the last.
    let head = head("/nowhere", "application/json");
    stream.write_all(format!("{head}content-length: 1000000\r\n\r\n{{").as_bytes()).unwrap();
    let refused = answer(&mut stream);
    assert!(refused.status == 404 && refused.head.contains("connection: close"), "{}", refused.head);
}
