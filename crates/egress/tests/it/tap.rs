//! What a tap sees of an exchange, and what comes of what it says.

use crate::harness::{PLACEHOLDER, Proxy, REAL, Setup, allow, credential, upstream};
use crate::upstream::Server;
use cofferdam_model::{Body, Ending, Next, NotRecorded, Outgoing, Reply, Stop, Tap, Watcher};
use cofferdam_testkit::eventually;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HOST: &str = "api.example.com";

/// Writes down all that it is told, and says what it was made to say.
struct Scribe {
    lines: Mutex<Vec<String>>,
    holds: bool,
    says: Say,
}

#[derive(Clone)]
enum Say {
    Nothing,
    Stop,
    Refuse,
    Answer(Reply),
    Forget,
}

impl Scribe {
    fn new(holds: bool, says: Say) -> Arc<Self> {
        Arc::new(Self { lines: Mutex::default(), holds, says })
    }

    fn all(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    fn count(&self, what: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|line| line.starts_with(what)).count()
    }

    fn note(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }
}

fn stop() -> Stop {
    Stop { cause: "spend-cap".into(), reason: "the budget `models` is used up: ask for more".into() }
}

struct Taps(Arc<Scribe>);
struct Following(Arc<Scribe>);

impl Tap for Taps {
    fn open(&self, request: &Outgoing<'_>) -> Result<Option<Box<dyn Watcher>>, Stop> {
        let Outgoing { event, scheme, host, port, method, path, query, .. } = request;
        let query = query.unwrap_or_default();
        self.0.note(format!("open {event} {method} {scheme}://{host}:{port}{path}?{query}"));
        for (name, value) in request.headers {
            self.0.note(format!("sent {name}: {}", String::from_utf8_lossy(value)));
        }
        self.0.note(format!("rule {:?}, credentials {:?}", request.rule, request.credentials));
        match self.0.says {
            Say::Stop => Err(stop()),
            _ => Ok(Some(Box::new(Following(self.0.clone())))),
        }
    }
}

impl Watcher for Following {
    fn holds(&self) -> bool {
        self.0.holds
    }

    fn sent(&mut self, chunk: &[u8]) {
        self.0.note(format!("up {}", String::from_utf8_lossy(chunk)));
    }

    fn sent_all(&mut self) -> Next {
        self.0.note("up-end".into());
        match &self.0.says {
            Say::Refuse => Next::Refuse(stop()),
            Say::Answer(reply) => Next::Answer(reply.clone()),
            _ => Next::Forward,
        }
    }

    fn answered(&mut self, status: u16, headers: &[(&str, &[u8])]) {
        self.0.note(format!("status {status}, {} fields", headers.len()));
    }

    fn received(&mut self, chunk: &[u8]) {
        self.0.note(format!("down {}", String::from_utf8_lossy(chunk)));
    }

    fn ended(self: Box<Self>, ending: Ending) -> Result<(), NotRecorded> {
        self.0.note(format!("ended {ending:?}"));
        match self.0.says {
            Say::Forget => Err(NotRecorded::bytes("the disk is full")),
            _ => Ok(()),
        }
    }
}

fn start(server: &Server, scribe: &Arc<Scribe>) -> Proxy {
    let policy = upstream(HOST, server.address) + &allow("all", HOST, "");
    let setup = Setup::new(&policy, &server.ca).credentials(vec![credential(&[HOST])]);
    setup.limits(|limits| limits.body = 256 << 10).tap(Arc::new(Taps(scribe.clone()))).start()
}

fn post(proxy: &Proxy, version: &str, body: &str) -> crate::harness::Curled {
    let bearer = format!("authorization: Bearer {PLACEHOLDER}");
    let url = format!("https://{HOST}/echo?a=1");
    proxy.curl(&[version, "-H", &bearer, "-H", "content-type: application/json", "-d", body, &url])
}

#[test]
fn it_sees_what_the_sandbox_sees() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    for (version, holds) in [("--http1.1", false), ("--http1.1", true), ("--http2", false), ("--http2", true)]
    {
        let scribe = Scribe::new(holds, Say::Nothing);
        let proxy = start(&server, &scribe);
        let got = post(&proxy, version, "{\"q\":1}");
        assert_eq!(got.status, 200, "{got:?}");
        assert!(server.seen.all().contains(REAL));
        eventually("the watcher to hear the end", || (scribe.count("ended Complete") == 1).then_some(()));
        let all = scribe.all();
        assert!(all.contains(&format!("open 0 POST https://{HOST}:443/echo?a=1")), "{all}");
        assert!(all.contains(&format!("sent authorization: Bearer {PLACEHOLDER}")), "{all}");
        assert!(all.contains("up {\"q\":1}\nup-end\nstatus 200"), "{all}");
        assert!(all.contains("rule Some(\"all\"), credentials [\"key\"]"), "{all}");
        // The server tells what it got, which is covered on the way back, for the watcher too.
        assert!(all.contains("\ndown POST ") && all.contains("\nauthorization: Bearer sk_fake"), "{all}");
        assert!(!all.contains(REAL), "{all}");
        assert_eq!(scribe.count("up-end"), 1);
        assert!(proxy.wait_ended(1)[0].flags.is_empty());
    }
}

#[test]
fn a_stream_passes_part_by_part() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    let scribe = Scribe::new(false, Say::Nothing);
    let proxy = start(&server, &scribe);
    assert_eq!(proxy.curl(&[&format!("https://{HOST}/sse")]).status, 200);
    proxy.wait_ended(1);
    assert_eq!((scribe.count("down data: tick"), scribe.count("up-end")), (3, 1), "{}", scribe.all());
}

#[test]
fn what_it_stops_does_not_leave() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    for (says, holds) in [(Say::Stop, false), (Say::Refuse, true)] {
        let scribe = Scribe::new(holds, says);
        let proxy = start(&server, &scribe);
        let got = post(&proxy, "--http1.1", "{}");
        assert_eq!(got.status, 403);
        assert!(got.head.contains("x-cofferdam-refused: spend-cap"), "{got:?}");
        assert!(got.body.contains("the budget `models` is used up: ask for more"), "{got:?}");
        let refused = proxy.refused();
        assert_eq!((refused.len(), refused[0].cause.as_str()), (1, "spend-cap"));
        assert_eq!(proxy.wait_ended(1)[0].ending, Ending::Refused);
        assert!(!proxy.events().iter().any(|body| matches!(body, Body::CredentialUsed(_))));
    }
    assert_eq!(server.seen.count(), 0);
    // Without a hold its word comes too late, by its own choice.
    let proxy = start(&server, &Scribe::new(false, Say::Refuse));
    assert_eq!(post(&proxy, "--http1.1", "{}").status, 200);
    assert!(proxy.events().iter().any(|body| matches!(body, Body::CredentialUsed(_))));
}

#[test]
fn what_is_held_is_bounded() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    let long = "x".repeat(300 << 10);
    for (holds, expected) in [(true, 413), (false, 200)] {
        let scribe = Scribe::new(holds, Say::Nothing);
        let proxy = start(&server, &scribe);
        let file = proxy.dir.path().join("long").to_string_lossy().into_owned();
        std::fs::write(&file, &long).unwrap();
        let got = post(&proxy, "--http1.1", &format!("@{file}"));
        assert_eq!(got.status, expected, "{got:?}");
        let by_chunks =
            ["-H", "transfer-encoding: chunked", "-d", &format!("@{file}"), &format!("https://{HOST}/echo")];
        assert_eq!(proxy.curl(&by_chunks).status, expected);
    }
}

fn reply(parts: &[(u64, &str)]) -> Reply {
    Reply {
        status: 201,
        headers: vec![
            ("content-type".into(), b"text/event-stream".to_vec()),
            ("connection".into(), b"close".to_vec()),
            ("bad name".into(), b"x".to_vec()),
        ],
        parts: parts
            .iter()
            .map(|(ms, part)| (Duration::from_millis(*ms), part.as_bytes().to_vec()))
            .collect(),
    }
}

#[test]
fn an_answer_from_a_recording_comes_from_nowhere() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    for version in ["--http1.1", "--http2"] {
        let scribe = Scribe::new(true, Say::Answer(reply(&[(0, "one "), (10, "two")])));
        let proxy = start(&server, &scribe);
        let got = post(&proxy, version, "{}");
        assert_eq!((got.status, got.body.as_str()), (201, "one two"), "{got:?}");
        assert!(got.head.contains("text/event-stream") && !got.head.contains("connection"), "{got:?}");
        let ended = proxy.wait_ended(1).remove(0);
        assert_eq!((ended.ending, ended.received, ended.status), (Ending::Complete, 7, Some(201)));
        assert_eq!(ended.flags, ["replayed"]);
        assert!(!proxy.events().iter().any(|body| matches!(body, Body::CredentialUsed(_))));
        assert_eq!((scribe.count("down one "), scribe.count("down two")), (1, 1));
    }
    assert_eq!(server.seen.connections.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn a_recorded_length_is_kept_only_if_it_is_right() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    for (claimed, is_kept) in [("3", true), ("70", false), ("x", false)] {
        let mut answer = reply(&[(0, "one")]);
        answer.headers.push(("content-length".into(), claimed.into()));
        let proxy = start(&server, &Scribe::new(true, Say::Answer(answer)));
        let got = post(&proxy, "--http1.1", "{}");
        assert_eq!(got.body, "one", "{got:?}");
        assert_eq!(got.head.contains("content-length: 3"), is_kept, "{got:?}");
    }
}

#[test]
fn what_is_held_or_played_can_be_cut() {
    let server = Server::plain();
    let host = "plain.example";
    let policy = upstream(host, server.address) + &allow("all", host, "");
    let scribe = Scribe::new(true, Say::Answer(reply(&[(0, "one "), (600_000, "never")])));
    let proxy = Setup::new(&policy, &server.ca).tap(Arc::new(Taps(scribe.clone()))).start();
    let ask = |length: usize| {
        let mut client = TcpStream::connect(proxy.address).unwrap();
        let head =
            format!("POST http://{host}/x HTTP/1.1\r\nhost: {host}\r\ncontent-length: {length}\r\n\r\n{{}}");
        client.write_all(head.as_bytes()).unwrap();
        client
    };
    let (mut played, mut held) = (ask(2), ask(200 << 10));
    eventually("one to be played and one held", || {
        (scribe.count("down one") == 1 && scribe.count("open") == 2).then_some(())
    });
    assert_eq!(proxy.handle.pause("a test").unwrap(), 2);
    let mut text = String::new();
    let _ = played.read_to_string(&mut text);
    assert!(text.contains("one ") && !text.contains("never"), "{text}");
    let mut text = String::new();
    let _ = held.read_to_string(&mut text);
    assert!(text.starts_with("HTTP/1.1 503"), "{text}");
    let ended = proxy.wait_ended(2);
    assert!(ended.iter().all(|end| end.ending == Ending::Paused), "{ended:?}");
}

#[test]
fn what_it_cannot_record_is_the_last_thing_that_happens() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    let proxy = start(&server, &Scribe::new(false, Say::Forget));
    assert_eq!(post(&proxy, "--http1.1", "{}").status, 200);
    proxy.wait_ended(1);
    assert_eq!(post(&proxy, "--http1.1", "{}").status, 503);
    assert_eq!(server.seen.count(), 1);
}
