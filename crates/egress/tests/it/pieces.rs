//! What comes back in pieces, and what leaves in places where nobody expects a key.

use crate::harness::{PLACEHOLDER, REAL, Setup, allow, credential, upstream};
use crate::protocols::{proxy_to, runtime, tunnel};
use crate::upstream::Server;
use cofferdam_model::{Body, Ending, Verdict};
use cofferdam_testkit::eventually;
use futures_util::{SinkExt, StreamExt};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;
use tokio_tungstenite::tungstenite::Message;

const HOST: &str = "api.example.com";
const FOREIGN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

fn bearer() -> String {
    format!("authorization: Bearer {PLACEHOLDER}")
}

/// The texts of a model's deltas, put together as an agent does.
fn told(body: &str) -> String {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: {"));
    data.map(|json| serde_json::from_str::<serde_json::Value>(&format!("{{{json}")).unwrap())
        .map(|event| event["delta"]["text"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn d5_a_secret_in_the_pieces_of_an_event_stream_is_a_placeholder_again() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    let proxy = proxy_to(&server);
    for version in ["--http1.1", "--http2"] {
        let got = proxy.curl(&[version, "-N", "-H", &bearer(), &format!("https://{HOST}/pieces")]);
        assert_eq!(told(&got.body), PLACEHOLDER, "{}", got.body);
        assert!(
            got.body.starts_with(": hello\n\n") && got.body.ends_with("data: [DONE]\n\n"),
            "{}",
            got.body
        );
    }
    assert!(proxy.wait_ended(2).iter().all(|ended| ended.scrubbed == 1));
    // The control: what the server sends does hold it.
    let direct = crate::harness::curl(&[
        "-sk",
        "-H",
        &format!("authorization: Bearer {REAL}"),
        &format!("https://{}/pieces", server.address),
    ]);
    assert_eq!(told(&direct.body), REAL);
}

#[test]
fn d12_a_secret_in_two_messages_of_a_websocket_is_a_placeholder_again() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    let proxy = proxy_to(&server);
    runtime().block_on(async {
        let tls = tunnel(&proxy, HOST, HOST, "http/1.1").await.unwrap();
        let request = http::Request::builder()
            .uri(format!("wss://{HOST}/ws"))
            .header("host", HOST)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("authorization", format!("Bearer {PLACEHOLDER}"))
            .body(())
            .unwrap();
        let (mut socket, _) = tokio_tungstenite::client_async(request, tls).await.unwrap();
        socket.next().await.unwrap().unwrap();
        socket.send(Message::text("pieces")).await.unwrap();
        let mut said = Vec::new();
        while said.len() < 3 {
            said.push(socket.next().await.unwrap().unwrap().into_text().unwrap().as_str().to_owned());
        }
        assert_eq!(said, [&PLACEHOLDER[..13], &PLACEHOLDER[13..], "."]);
        // A message whose end could be the start of a value is not held for ever.
        socket.send(Message::text("x sk_")).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap().into_text().unwrap().as_str(), "X SK_");
    });
}

/// A key of someone else's in a header, a query or a path is seen, also where it is encoded.
#[test]
fn keys_of_others_do_not_leave_in_a_head() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    let proxy = proxy_to(&server);
    let url = |rest: &str| format!("https://{HOST}/{rest}");
    let basic = format!("me:{FOREIGN}");
    let escaped: String = FOREIGN.bytes().map(|b| format!("%{b:02x}")).collect();
    let header = format!("x-note: {FOREIGN}");
    for args in [
        vec!["-H", &header, &url("")],
        vec!["-u", &basic, &url("")],
        vec![&url(&format!("find?token={FOREIGN}"))],
        vec![&url(&format!("find?q={escaped}"))],
        vec![&url(&format!("repo/{FOREIGN}/x"))],
    ] {
        let got = proxy.curl(&args);
        assert!(got.status == 403 && got.body.contains("github-token"), "{args:?} {got:?}");
    }
    assert_eq!(server.seen.count(), 0);
    let refused = proxy.refused();
    assert!(refused.iter().all(|refused| refused.cause == "secret" && refused.alarm), "{refused:?}");
    assert!(!format!("{:?}", proxy.events()).contains(FOREIGN), "the record holds it");
    // The control: the session's own placeholder, which looks like a key too, and plain words.
    assert_eq!(proxy.curl(&["-H", &bearer(), &url("find?q=ghp_short")]).status, 200);
}

#[test]
fn what_a_policy_lets_pass_or_flags_in_a_head_passes() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    let policy = upstream(HOST, server.address)
        + &allow("all", HOST, "")
        + "[guard]\nvcs = \"flag\"\n[[guard.allow]]\nhost = \"api.example.com\"\nclass = [\"llm\"]\nreason = \"its own\"\n";
    let proxy = Setup::new(&policy, &server.ca).start();
    let got = proxy.curl(&["-H", &format!("x-note: {FOREIGN}"), &format!("https://{HOST}/")]);
    assert_eq!(got.status, 200, "{got:?}");
    assert!(proxy.wait_ended(1)[0].flags.iter().any(|flag| flag.contains("header `x-note`: github-token")));
}

/// A body is looked through before anything of the request leaves, also where it comes in chunks and without a length.
#[test]
fn nothing_of_a_request_leaves_before_its_body_was_looked_through() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    let proxy = proxy_to(&server);
    let file = proxy.dir.path().join("late");
    for (end, seen) in [(FOREIGN, 0), (PLACEHOLDER, 0), ("nothing", 1)] {
        std::fs::write(&file, format!("{}{end}", "filling ".repeat(100_000))).unwrap();
        let path = file.display().to_string();
        let before = server.seen.count();
        for (version, how) in [
            ("--http1.1", vec!["--data-binary", &format!("@{path}")]),
            ("--http1.1", vec!["-H", "transfer-encoding: chunked", "--data-binary", &format!("@{path}")]),
            ("--http2", vec!["-T", &path]),
        ] {
            let url = format!("https://{HOST}/count");
            let args: Vec<&str> = [&[version][..], &how, &[&url]].concat();
            let got = proxy.curl(&args);
            assert_eq!(got.status, if seen == 1 { 200 } else { 403 }, "{version} {how:?} {got:?}");
        }
        assert_eq!(server.seen.count() - before, 3 * seen, "{end}");
    }
    // Over the bound it is looked through on its way, and cut.
    std::fs::write(&file, format!("{}{FOREIGN}", "filling ".repeat(400_000))).unwrap();
    let got = proxy.curl(&[
        "--http1.1",
        "--data-binary",
        &format!("@{}", file.display()),
        &format!("https://{HOST}/count"),
    ]);
    assert_eq!(got.status, 403, "{got:?}");
    assert!(server.seen.body_bytes.load(Relaxed) < 400_000 * 8 + FOREIGN.len());
}

#[test]
fn keys_do_not_leave_in_another_protocol() {
    let server = Server::plain();
    let policy = upstream("plain.example", server.address) + &allow("all", "plain.example", "");
    let proxy = Setup::new(&policy, &server.ca).start();
    let open = || {
        let mut stream = TcpStream::connect(proxy.address).unwrap();
        stream
            .write_all(b"GET http://plain.example/raw HTTP/1.1\r\nHost: plain.example\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
            .unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        (stream, reader)
    };
    let (mut stream, mut reader) = open();
    // What may be the start of a key is let go when nothing follows.
    stream.write_all(b"hello ghp_01").unwrap();
    let mut back = [0; 12];
    reader.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello ghp_01");
    drop((stream, reader));
    let (mut stream, mut reader) = open();
    stream.write_all(format!("take {FOREIGN} ").as_bytes()).unwrap();
    let mut back = String::new();
    let _ = reader.read_to_string(&mut back);
    assert!(!back.contains("ghp_"), "{back}");
    let ended = proxy.wait_ended(2);
    assert!(
        ended.iter().any(|ended| ended.ending == Ending::Refused && ended.detail.contains("github-token"))
    );
}

#[test]
fn a_flood_of_refusals_makes_few_events_that_count_all() {
    let server = Server::plain();
    let policy = upstream("plain.example", server.address) + &allow("all", "plain.example", "");
    let proxy = Setup::new(&policy, &server.ca).start();
    let many = b"TRACE http://plain.example/ HTTP/1.1\r\nHost: plain.example\r\n\r\n".repeat(500);
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream.write_all(&many).unwrap();
    eventually("all of them to be refused", || (proxy.handle.stats().refused >= 500).then_some(()));
    let kept = proxy.kept.clone();
    proxy.handle.shutdown();
    let events = kept.events.lock().unwrap();
    let refused: Vec<u64> = events
        .iter()
        .filter_map(
            |(_, body)| if let Body::EgressRefused(refused) = body { Some(refused.times) } else { None },
        )
        .collect();
    assert_eq!(refused, [1, 499]);
}

#[test]
fn a_held_request_tells_which_credential_it_would_spend() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    let policy = upstream(HOST, server.address)
        + "[defaults]\nreview_timeout = \"1s\"\n"
        + &format!("[[rule]]\nid = \"ask\"\nreason = \"money\"\neffect = \"review\"\nhost = \"{HOST}\"\n");
    let proxy = Setup::new(&policy, &server.ca).credentials(vec![credential(&[HOST])]).start();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| proxy.curl(&["-H", &bearer(), &format!("https://{HOST}/pay")]));
        let held = eventually("the request to be held", || proxy.handle.approvals().pending().pop());
        assert_eq!(held.credentials, ["key"]);
        // The policy says how long: it is denied by itself.
        assert_eq!(held.until - held.since, 1);
        assert_eq!(client.join().unwrap().status, 403);
    });
    let decided = proxy.decided();
    assert_eq!((decided[0].effect, &decided[0].credentials[..]), (Verdict::Review, &["key".to_owned()][..]));
    assert_eq!(server.seen.count(), 0);
}
