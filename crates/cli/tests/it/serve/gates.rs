//! Gates by REST: a suite is run on the service's machine, and who asked is told by a webhook that is signed.

use super::Service;
use cofferdam_testkit::{PATIENCE, eventually};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// Takes one request, and says what came: the head's lines and the body.
fn hook(listener: &TcpListener, status: &str) -> (Vec<String>, Vec<u8>) {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim() {
            "" => break,
            line => head.push(line.to_ascii_lowercase()),
        }
    }
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    reader.get_mut().write_all(answer.as_bytes()).unwrap();
    (head, body)
}

/// As another program computes it.
fn signature(key: &str, body: &[u8]) -> String {
    let mut openssl = Command::new("openssl");
    openssl.args(["dgst", "-sha256", "-hmac", key, "-r"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = openssl.spawn().unwrap();
    child.stdin.take().unwrap().write_all(body).unwrap();
    let out = child.wait_with_output().unwrap().stdout;
    String::from_utf8(out).unwrap().split_whitespace().next().unwrap().to_owned()
}

#[test]
fn a_gate_runs_and_its_verdict_is_published_signed() {
    let service = Service::new();
    let suite = "[agent]\ncommand = [\"sh\", \"-c\"]\n[[session]]\nid = \"one\"\ninput = { args = ['''echo good'''] }\n";
    let path = service.site.write("suite.toml", suite);
    service.site.call(&["record", "suite.toml", "-q"]).done().exits(0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let run = |webhook: &str| {
        let asked = json!({ "suite": path, "webhook": webhook, "commit": "0123abc" });
        service.ask("POST", "/v1/gates", &service.admin_key, Some(asked)).is(202).json()
    };
    let gate =
        |id: &str| service.ask("GET", &format!("/v1/gates/{id}"), &service.admin_key, None).is(200).json();
    let begun = run(&url);
    assert_eq!(begun["state"], "running");
    let id = begun["id"].as_str().unwrap();
    // Refused once, it is tried again.
    hook(&listener, "503 Service Unavailable");
    let (head, body) = hook(&listener, "204 No Content");
    let key = std::fs::read_to_string(service.site.state().join("service/webhook.key")).unwrap();
    let signed = format!("x-cofferdam-signature: sha256={}", signature(&key, &body));
    assert!(head.contains(&signed), "{signed} in {head:?}");
    assert!(head[0].starts_with("post /hook "), "{head:?}");
    let told: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&told["id"], &told["state"]), (&json!(id), &json!("pass")), "{told}");
    // What GitHub takes for a check.
    let check = &told["check_run"];
    assert_eq!((&check["conclusion"], &check["head_sha"]), (&json!("success"), &json!("0123abc")), "{check}");
    assert_eq!((&check["status"], &check["external_id"]), (&json!("completed"), &json!(id)), "{check}");
    assert!(check["output"]["title"].is_string() && check["output"]["summary"].is_string());
    assert_eq!(told["result"]["sessions"][0]["id"], "one", "{told}");
    let ended = eventually("it is told that it was published", || {
        let gate = gate(id);
        (!gate["published"].is_null()).then_some(gate)
    });
    assert_eq!(ended["published"], true);
    let out = service.site.state().join("service/gates").join(id);
    assert!(out.join("gate.dsse.json").is_file(), "signed, as on the command line");

    // Another agent, another verdict.
    service.site.write("suite.toml", suite.replace("echo good", "echo bad; exit 1"));
    run(&url);
    let (_, body) = hook(&listener, "200 OK");
    let told: Value = serde_json::from_slice(&body).unwrap();
    assert_ne!(told["state"], "pass", "{told}");
    assert_ne!(told["check_run"]["conclusion"], "success", "{told}");
    // Nobody else may, and what is no suite is refused at once.
    service.api("POST", "/v1/gates", Some(json!({ "suite": path }))).is(403);
    let nothing = json!({ "suite": "/no/such/suite.toml" });
    service.ask("POST", "/v1/gates", &service.admin_key, Some(nothing)).is(422);
    let hooked = json!({ "suite": path, "webhook": "file:///etc/passwd" });
    service.ask("POST", "/v1/gates", &service.admin_key, Some(hooked)).is(422);
}

#[test]
fn what_ran_in_a_sandbox_is_in_its_log() {
    let service = Service::new();
    let id = service.session();
    let run = json!({ "argv": ["sh", "-c", "echo to be found; exit 4"] });
    service.api("POST", &format!("/v1/sessions/{id}/execs"), Some(run)).is(200);
    let key = format!("x-api-key: {}\r\n", service.api_key);
    for path in ["/sandboxes", "/v2/sandboxes"] {
        let logs = service.send("GET", &format!("{path}/{id}/logs"), &key, b"").is(200).json();
        let line = logs["logs"][0]["line"].as_str().unwrap();
        assert!(line.contains("to be found") && line.contains("exit 4"), "{logs}");
        assert_eq!(logs["logEntries"][0]["message"], logs["logs"][0]["line"]);
    }
}
