//! `[[alert]]` from end to end: a program inside is refused or held, someone outside is told, and an answer from
//! outside lets it go on.

use crate::{each, site};
use cofferdam_testkit::{Site, eventually};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// One request: its head and its body.
fn post(stream: &mut TcpStream) -> (String, String) {
    let mut got = String::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).unwrap();
        got.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
        let Some((head, body)) = got.split_once("\r\n\r\n") else { continue };
        let lower = head.to_lowercase();
        let length: usize =
            lower.split_once("content-length: ").unwrap().1.lines().next().unwrap().parse().unwrap();
        if body.len() >= length {
            stream.write_all(b"HTTP/1.1 204 no content\r\n\r\n").unwrap();
            return (head.to_owned(), body.to_owned());
        }
    }
}

fn url(listener: &TcpListener) -> String {
    format!("http://{}/alerts", listener.local_addr().unwrap())
}

fn run(site: &Site, policy: &str, script: &str) -> Vec<Value> {
    let policy = site.write("../agent.toml", policy);
    site.sh(script).with(&["--policy", policy.to_str().unwrap()]).exits(0);
    site.bodies("alert.sent")
}

const CURL: &str = "curl -s -o /dev/null --max-time 30";

#[test]
fn a_refusal_is_told_to_all_who_want_to_hear() {
    each(|site| {
        let hook = TcpListener::bind("127.0.0.1:0").unwrap();
        let (socket, file) = (site.root().join("log"), site.state().join("alerts.jsonl"));
        let log = UnixDatagram::bind(&socket).unwrap();
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
        log.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        site.write("../hook.key", "a key of the operator's\n");
        let policy = format!(
            "[[alert]]\nid = \"hook\"\nto = \"{}\"\nkey = \"hook.key\"\non = \"denied\"\n\
             [[alert]]\nid = \"siem\"\nto = \"syslog:{}\"\nformat = \"ocsf\"\non = [\"alarm\"]\n\
             [[alert]]\nid = \"file\"\nto = \"file:{}\"\n",
            url(&hook),
            socket.display(),
            file.display()
        );
        let posted = std::thread::spawn(move || post(&mut hook.accept().unwrap().0));
        let sent = run(
            site,
            &policy,
            &format!("{CURL} http://evil.example/take; {CURL} http://169.254.169.254/latest; true"),
        );
        let (head, body) = posted.join().unwrap();
        let told: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&told["about"], &told["request"]), (&"denied".into(), &"GET /take".into()), "{told}");
        assert_eq!(told["session"], *site.traces().last().unwrap());
        assert!(told["program"].as_str().unwrap().ends_with("/curl"), "{told}");
        // Whoever has the key can check it.
        let lower = head.to_lowercase();
        let signature = lower.split_once("cofferdam-signature: t=").unwrap().1.lines().next().unwrap();
        let (seconds, code) = signature.split_once(",v1=").unwrap();
        assert_eq!(code, hmac("a key of the operator's", &format!("{seconds}.{body}")));
        assert_ne!(code, hmac("a key of someone else's", &format!("{seconds}.{body}")));
        let mut buffer = [0; 1 << 16];
        let n = log.recv(&mut buffer).unwrap();
        let line = std::str::from_utf8(&buffer[..n]).unwrap();
        let finding: Value = serde_json::from_str(line.split_once("] ").unwrap().1).unwrap();
        assert_eq!(
            (&finding["class_uid"], &finding["action"]),
            (&2004.into(), &"Denied".into()),
            "{finding}"
        );
        assert!(line.contains("about=\"forbidden-address\""), "{line}");
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), sent.iter().filter(|sent| sent["alert"] == "file").count());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(sent.len() >= 4 && sent.iter().all(|sent| sent.get("error").is_none()), "{sent:?}");
        let enforcement = &site.bodies("enforcement")[0];
        assert!(enforcement.to_string().contains("alerts to 3 places"), "{enforcement}");
        let shown = site.call(&["trace", "show", site.traces().last().unwrap()]).exits(0);
        assert!(shown.out().contains("alerted   `hook` to webhook 127.0.0.1:"), "{}", shown.out());
    });
}

/// By another's hand than ours.
fn hmac(key: &str, text: &str) -> String {
    let script =
        "import hmac, sys; print(hmac.new(sys.argv[1].encode(), sys.argv[2].encode(), 'sha256').hexdigest())";
    let python = cofferdam_testkit::program("python3").expect("python3 is missing: apt-get install python3");
    let out = std::process::Command::new(python).args(["-c", script, key, text]).output().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_held_request_goes_on_by_the_line_that_was_told() {
    let site = site();
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let policy = format!(
        "[[alert]]\nid = \"hook\"\nto = \"{}\"\non = \"held\"\n\
         [[upstream]]\nhost = \"api.example.com\"\nconnect = \"{}\"\n\
         [[rule]]\nid = \"ask\"\nreason = \"money leaves\"\neffect = \"review\"\nhost = \"api.example.com\"\n",
        url(&hook),
        upstream.local_addr().unwrap()
    );
    let policy = site.write("../agent.toml", policy);
    std::thread::spawn(move || {
        let (mut stream, _) = upstream.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
    });
    let script = "curl -s --max-time 60 -X POST http://api.example.com/refund";
    let running = site.sh(script).with(&["--policy", policy.to_str().unwrap()]).start();
    let (_, body) = post(&mut hook.accept().unwrap().0);
    let told: Value = serde_json::from_str(&body).unwrap();
    let line = told["approval"]["allow"].as_str().unwrap();
    let words: Vec<&str> = line.strip_prefix("cofferdam ").unwrap().split(' ').collect();
    site.call(&words).exits(0);
    assert_eq!(running.finish().exits(0).out(), "ok");
    let sent = eventually("the alert to be on record", || site.bodies("alert.sent").pop());
    assert_eq!((&sent["about"], &sent["times"]), (&"held".into(), &1.into()));
}

#[test]
fn a_webhook_that_is_gone_neither_stops_nor_holds_up_a_session() {
    let site = site();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = url(&gone);
    drop(gone);
    let policy = format!("[[alert]]\nid = \"hook\"\nto = \"{to}\"\n");
    let sent = run(&site, &policy, &format!("{CURL} http://evil.example/; true"));
    assert!(!sent.is_empty() && sent.iter().all(|sent| sent["error"].is_string()), "{sent:?}");
}

#[test]
fn an_alert_that_cannot_be_made_ready_stops_the_start() {
    let site = site();
    for (more, expected) in [
        ("key = \"nowhere.key\"", "[[alert]] `hook`: cannot read `nowhere.key`"),
        ("key = \"short.key\"", "has 5 bytes: write at least 16"),
        ("ca = \"short.key\"", "[[alert]] `hook`"),
    ] {
        site.write("../short.key", "short\n");
        let text = format!("[[alert]]\nid = \"hook\"\nto = \"https://hooks.example/\"\n{more}\n");
        let policy = site.write("../agent.toml", text);
        let done = site.sh("touch ran").with(&["--policy", policy.to_str().unwrap()]).done();
        assert!(done.code() != 0 && done.err().contains(expected), "{}", done.err());
        assert!(!site.work().join("ran").exists());
    }
}
