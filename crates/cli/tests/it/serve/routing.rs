//! Requests for what is in a sandbox: by headers, by host, by token and by signed link. None of them leads anywhere that
//! its sender has no right to, and none to the host.

use super::{Answer, Service};
use cofferdam_testkit::eventually;
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpListener;

/// A sandbox as its maker knows it.
struct Made {
    id: String,
    token: String,
    traffic: Option<String>,
}

fn make(service: &Service, key: &str, more: Value) -> Made {
    let mut asked = json!({ "templateID": "base", "timeout": 600 });
    asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let head = format!("x-api-key: {key}\r\ncontent-type: application/json\r\n");
    let made = service.send("POST", "/v2/sandboxes", &head, asked.to_string().as_bytes()).is(201).json();
    let text = |name: &str| made[name].as_str().map(str::to_owned);
    let (id, token) = (text("sandboxID").unwrap(), text("envdAccessToken").unwrap());
    Made { id, token, traffic: text("trafficAccessToken") }
}

/// To a port of a sandbox, with more of a head.
fn to(service: &Service, method: &str, path: &str, id: &str, port: u16, head: &str) -> Answer {
    let head = format!("e2b-sandbox-id: {id}\r\ne2b-sandbox-port: {port}\r\n{head}");
    service.send(method, path, &head, b"")
}

fn run(service: &Service, id: &str, script: &str) -> Value {
    let asked = json!({ "argv": ["sh", "-c", script] });
    service.api("POST", &format!("/v1/sessions/{id}/execs"), Some(asked)).is(200).json()
}

fn write(service: &Service, made: &Made, path: &str, text: &str) {
    let head = format!(
        "e2b-sandbox-id: {}\r\nx-access-token: {}\r\ncontent-type: application/octet-stream\r\n",
        made.id, made.token
    );
    service.send("POST", &format!("/files?path={path}"), &head, text.as_bytes()).is(200);
}

#[test]
fn a_token_opens_its_own_sandbox_and_no_other() {
    let service = Service::new();
    let (one, two) =
        (make(&service, &service.api_key, json!({})), make(&service, &service.api_key, json!({})));
    write(&service, &one, "a.txt", "of one");
    let read = |id: &str, head: &str| to(&service, "GET", "/files?path=a.txt", id, 49983, head);
    let with = |token: &str| format!("x-access-token: {token}\r\n");
    assert_eq!(read(&one.id, &with(&one.token)).is(200).text, "of one");
    // Neither another sandbox's token, nor a part of the right one, nor the API key, nor none.
    let (first, _) = one.token.split_at(one.token.len() - 1);
    for wrong in [with(&two.token), with(first), with(""), with(&service.api_key), String::new()] {
        read(&one.id, &wrong).is(401);
    }
    let key = format!("x-api-key: {0}\r\nauthorization: Bearer {0}\r\n", service.admin_key);
    read(&one.id, &key).is(401);
    // By the token alone it is the sandbox that the token is of, whatever else is asked for.
    let own = service.send("GET", "/files?path=a.txt", &with(&one.token), b"");
    assert_eq!(own.is(200).text, "of one");
    service.send("GET", "/files?path=a.txt", &with(&two.token), b"").is(404);
    // What only the operator of E2B's own daemon asks for is not there.
    for path in ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw"] {
        to(&service, "POST", path, &one.id, 49983, &with(&one.token)).is(404);
        to(&service, "POST", path, &one.id, 49983, "").is(401);
    }
}

#[test]
fn no_port_of_the_host_or_of_the_service_is_reached_through_a_sandbox() {
    let service = Service::new();
    let made = make(&service, &service.api_key, json!({}));
    let host = TcpListener::bind("127.0.0.1:0").unwrap();
    host.set_nonblocking(true).unwrap();
    let port = host.local_addr().unwrap().port();
    let own: u16 = service.address().rsplit(':').next().unwrap().parse().unwrap();
    // The last three are where the inside finds its way out: who is let there spends what only the inside may.
    for port in [port, own, 22, 65535, 3128, 53, 1] {
        let answer = to(&service, "GET", "/v1/sessions", &made.id, port, "").is(502).json();
        assert!(answer["message"].as_str().unwrap().contains("port is not open"), "{answer}");
        let named = format!("host: {port}-{}.sbx.example\r\n", made.id);
        let head = format!("GET / HTTP/1.1\r\n{named}connection: close\r\n\r\n");
        let mut stream = service.connect();
        stream.write_all(head.as_bytes()).unwrap();
        super::answer(&mut stream).is(502);
    }
    for id in ["127.0.0.1", "localhost", "../..", "%2e%2e", "*", "", &made.id.to_uppercase()] {
        let answer = to(&service, "GET", "/", id, port, "");
        assert_eq!(answer.status, 502, "{id}: {}", answer.text);
        assert!(answer.text.contains("was not found"), "{id}: {}", answer.text);
    }
    assert!(host.accept().is_err(), "nobody came");
    // The control: it could have been reached from here.
    drop(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
    eventually("it is reached", || host.accept().ok());
}

/// Serves what it is asked and tells what it saw.
const ECHO: &str = r#"nohup python3 -c '
import http.server
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = str(self.headers).encode()
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", 3000), Echo).serve_forever()' >/dev/null 2>&1 &"#;

#[test]
fn a_sandbox_that_is_not_public_needs_its_traffic_token_which_stays_outside() {
    let service = Service::new();
    let private = json!({ "network": { "allowPublicTraffic": false } });
    let (made, other) =
        (make(&service, &service.api_key, private.clone()), make(&service, &service.api_key, private));
    let (token, wrong) = (made.traffic.clone().unwrap(), other.traffic.unwrap());
    run(&service, &made.id, ECHO);
    let get = |head: &str| to(&service, "GET", "/", &made.id, 3000, head);
    let with = |token: &str| {
        let (key, own) = (&service.api_key, &made.token);
        format!("e2b-traffic-access-token: {token}\r\nx-api-key: {key}\r\nx-access-token: {own}\r\n")
    };
    let seen = eventually("it serves", || {
        let answer = get(&with(&token));
        (answer.status == 200).then_some(answer.text)
    });
    for kept in [&token, &service.api_key, &made.token] {
        assert!(!seen.contains(kept.as_str()), "{seen}");
    }
    for refused in [with(&wrong), with(""), with(&made.token), String::new()] {
        let answer = get(&refused).is(403).json();
        assert_eq!(answer["code"], 403, "{answer}");
    }
    // One that is public needs none.
    let public = make(&service, &service.api_key, json!({}));
    run(&service, &public.id, ECHO);
    eventually("it serves", || (to(&service, "GET", "/", &public.id, 3000, "").status == 200).then_some(()));
}

/// As the SDKs sign: SHA-256 over path, operation, user, token and time, told in base64 without padding.
fn sign(path: &str, operation: &str, token: &str, expires: Option<u64>) -> String {
    let mut text = format!("{path}:{operation}::{token}");
    if let Some(expires) = expires {
        text = format!("{text}:{expires}");
    }
    let script = "import sys,hashlib,base64;print('v1_'+base64.b64encode(hashlib.sha256(sys.argv[1].encode()).digest()).decode().rstrip('='))";
    let out = std::process::Command::new("python3").args(["-c", script, &text]).output().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().replace('+', "%2B").replace('/', "%2F")
}

#[test]
fn a_signed_link_is_for_one_file_one_way_and_its_time() {
    let service = Service::new();
    let (made, other) =
        (make(&service, &service.api_key, json!({})), make(&service, &service.api_key, json!({})));
    write(&service, &made, "a.txt", "signed for");
    write(&service, &made, "b.txt", "not signed for");
    write(&service, &other, "a.txt", "of the other");
    let later = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 600;
    let signed = sign("a.txt", "read", &made.token, Some(later));
    let link = |path: &str, until: u64| {
        format!("/files?path={path}&signature={signed}&signature_expiration={until}")
    };
    // Without a header, it finds its sandbox by itself.
    assert_eq!(service.send("GET", &link("a.txt", later), "", b"").is(200).text, "signed for");
    let named = format!("e2b-sandbox-id: {}\r\n", made.id);
    assert_eq!(service.send("GET", &link("a.txt", later), &named, b"").is(200).text, "signed for");
    // Another file, another time, another way, another user, another sandbox: none.
    let octets = format!("{named}content-type: application/octet-stream\r\n");
    service.send("GET", &link("b.txt", later), &named, b"").is(401);
    service.send("GET", &link("./a.txt", later), &named, b"").is(401);
    service.send("GET", &link("a.txt", later + 1), &named, b"").is(401);
    service.send("GET", &format!("/files?path=a.txt&signature={signed}"), &named, b"").is(401);
    service.send("GET", &format!("{}&username=root", link("a.txt", later)), &named, b"").is(401);
    service.send("POST", &link("a.txt", later), &octets, b"overwritten").is(401);
    let foreign = format!("e2b-sandbox-id: {}\r\n", other.id);
    service.send("GET", &link("a.txt", later), &foreign, b"").is(401);
    // One whose time is over says so, in the words that the SDKs look for.
    let old = sign("a.txt", "read", &made.token, Some(1));
    let over = format!("/files?path=a.txt&signature={old}&signature_expiration=1");
    let over = service.send("GET", &over, "", b"").is(401).json();
    assert_eq!(over, json!({ "code": 401, "message": "signature is already expired" }));
    assert_eq!(service.send("GET", &link("a.txt", later), "", b"").is(200).text, "signed for", "as it was");
    // A link to write does that, and cannot read.
    let writes = sign("c.txt", "write", &made.token, None);
    let link = format!("/files?path=c.txt&signature={writes}");
    service.send("POST", &link, "content-type: application/octet-stream\r\n", b"written").is(200);
    service.send("GET", &link, "", b"").is(401);
}

#[test]
fn no_name_of_an_upload_leads_out_of_its_sandbox() {
    let service = Service::new();
    let made = make(&service, &service.api_key, json!({}));
    let outside = service.site.write("outside.txt", "of the host");
    let head = format!(
        "e2b-sandbox-id: {}\r\nx-access-token: {}\r\ncontent-type: multipart/form-data; boundary=b\r\n",
        made.id, made.token
    );
    let up = "../".repeat(20);
    run(&service, &made.id, &format!("ln -s {} link; ln -s / root", outside.display()));
    for name in [
        format!("{up}{}", outside.display()),
        outside.display().to_string(),
        "link".to_owned(),
        format!("root{}", outside.display()),
        format!("{up}etc/cofferdam-was-here"),
    ] {
        let form = format!(
            "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\nchanged\r\n--b--\r\n"
        );
        let answer = service.send("POST", "/files", &head, form.as_bytes());
        assert!(answer.status < 500, "{name}: {} {}", answer.status, answer.text);
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "of the host", "{name}");
    }
    assert!(!std::path::Path::new("/etc/cofferdam-was-here").exists());
    let nul =
        "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a%00b\0c\"\r\n\r\nx\r\n--b--\r\n";
    let answer = service.send("POST", "/files", &head, nul.as_bytes());
    assert!((400..500).contains(&answer.status), "{} {}", answer.status, answer.text);
}
