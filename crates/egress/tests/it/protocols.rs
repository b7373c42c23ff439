//! What passes besides a plain request and its answer.

use crate::harness::{PLACEHOLDER, Proxy, REAL, Setup, allow, credential, upstream};
use crate::upstream::Server;
use cofferdam_model::{Ending, Verdict};
use futures_util::{SinkExt, StreamExt};
use http_body_util::BodyExt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio_tungstenite::tungstenite::Message;

const HOST: &str = "api.example.com";

pub(crate) fn proxy_to(server: &Server) -> Proxy {
    let policy = upstream(HOST, server.address) + &allow("all", HOST, "");
    Setup::new(&policy, &server.ca).credentials(vec![credential(&[HOST])]).start()
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A TLS client through a tunnel to `host`, speaking `alpn` and naming `sni`.
pub(crate) async fn tunnel(
    proxy: &Proxy,
    host: &str,
    sni: &str,
    alpn: &str,
) -> std::io::Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    use rustls::pki_types::pem::PemObject;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut tcp = tokio::net::TcpStream::connect(proxy.address).await?;
    tcp.write_all(format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n").as_bytes()).await?;
    let mut answer = [0; 19];
    tcp.read_exact(&mut answer).await?;
    assert_eq!(&answer, b"HTTP/1.1 200 OK\r\n\r\n");
    let mut roots = rustls::RootCertStore::empty();
    let pem = std::fs::read(proxy.ca()).unwrap();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let name = rustls::pki_types::ServerName::try_from(sni.to_owned()).unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await
}

/// One message of the socket, as text.
async fn heard<S>(socket: &mut S) -> Option<String>
where
    S: futures_util::Stream<Item = Result<Message, tokio_tungstenite::tungstenite::Error>> + Unpin,
{
    socket.next().await?.ok()?.into_text().ok().map(|text| text.as_str().to_owned())
}

#[test]
fn websockets_pass_with_the_credential_and_without_leaks() {
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
            .header("sec-websocket-extensions", "permessage-deflate")
            .header("authorization", format!("Bearer {PLACEHOLDER}"))
            .body(())
            .unwrap();
        let (mut socket, _) = tokio_tungstenite::client_async(request, tls).await.unwrap();
        let first = heard(&mut socket).await.unwrap();
        assert!(first.contains(PLACEHOLDER) && !first.contains(REAL), "{first}");
        assert!(!first.contains("permessage-deflate"), "{first}");
        socket.send(Message::text("hello")).await.unwrap();
        assert_eq!(heard(&mut socket).await.as_deref(), Some("HELLO"));
        // A placeholder in a masked frame is found, and the stream is cut.
        socket.send(Message::text(format!("leak {PLACEHOLDER}"))).await.unwrap();
        assert_eq!(heard(&mut socket).await, None);
    });
    assert!(server.seen.all().contains(REAL));
    let ended = proxy.wait_ended(1);
    assert_eq!(ended[0].ending, Ending::Refused);
    assert!(ended[0].detail.contains("key"), "{ended:?}");
}

#[test]
fn other_upgrades_are_carried_byte_by_byte() {
    let server = Server::plain();
    let policy = upstream("plain.example", server.address) + &allow("all", "plain.example", "");
    let proxy = Setup::new(&policy, &server.ca).start();
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream
        .write_all(b"GET http://plain.example/raw HTTP/1.1\r\nHost: plain.example\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
        .unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 101 Switching Protocols\r\n");
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    let bytes = b"\x00\x01not http\n\n";
    stream.write_all(bytes).unwrap();
    let mut back = [0; 12];
    reader.read_exact(&mut back).unwrap();
    assert_eq!(&back, bytes);
    drop((stream, reader));
    let ended = proxy.wait_ended(1);
    assert_eq!((ended[0].sent, ended[0].received, ended[0].status), (12, 12, Some(101)));
}

#[test]
fn b5_after_an_upgrade_that_was_not_granted_requests_are_still_judged() {
    let server = Server::plain();
    let policy = upstream("plain.example", server.address)
        + &allow("some", "plain.example", "paths = [\"/ok\", \"/404\"]");
    let proxy = Setup::new(&policy, &server.ca).start();
    let out = proxy.raw(
        b"GET http://plain.example/404 HTTP/1.1\r\nHost: plain.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\
          GET http://plain.example/secret HTTP/1.1\r\nHost: plain.example\r\nConnection: close\r\n\r\n",
    );
    assert!(out.contains("404 Not Found") && out.contains("403 Forbidden"), "{out}");
    assert_eq!(server.seen.count(), 1);
}

#[test]
fn events_of_a_stream_come_one_by_one() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    let proxy = proxy_to(&server);
    for version in ["--http1.1", "--http2"] {
        let got = proxy.curl(&[version, "-N", &format!("https://{HOST}/sse")]);
        assert_eq!(got.body.matches("data: tick").count(), 3, "{got:?}");
    }
    // The first event is here while the server is still far from the end of its stream.
    runtime().block_on(async {
        let (mut sender, connection) = h2_client(&proxy).await;
        tokio::spawn(connection);
        let request = http::Request::get(format!("https://{HOST}/endless")).body(String::new()).unwrap();
        let mut answer = sender.send_request(request).await.unwrap();
        let first = answer.body_mut().frame().await.unwrap().unwrap();
        assert!(first.into_data().unwrap().starts_with(b"data: on\n\n"));
    });
}

type H2 = (
    hyper::client::conn::http2::SendRequest<String>,
    hyper::client::conn::http2::Connection<
        hyper_util::rt::TokioIo<tokio_rustls::client::TlsStream<tokio::net::TcpStream>>,
        String,
        hyper_util::rt::TokioExecutor,
    >,
);

pub(crate) async fn h2_client(proxy: &Proxy) -> H2 {
    let tls = tunnel(proxy, HOST, HOST, "h2").await.unwrap();
    let io = hyper_util::rt::TokioIo::new(tls);
    hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), io).await.unwrap()
}

#[test]
fn grpc_shapes_pass_with_trailers_and_a_denial_is_a_grpc_status() {
    let server = Server::tls(&[HOST], &["h2"]);
    let policy = upstream(HOST, server.address) + &allow("all", HOST, "paths = [\"/trailers\"]");
    let proxy = Setup::new(&policy, &server.ca).credentials(vec![credential(&[HOST])]).start();
    runtime().block_on(async {
        let (mut sender, connection) = h2_client(&proxy).await;
        tokio::spawn(connection);
        let request = |path: &str| {
            http::Request::post(format!("https://{HOST}{path}"))
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .header("authorization", format!("Bearer {PLACEHOLDER}"))
                .body("\0\0\0\0\x02ok".to_owned())
                .unwrap()
        };
        let answer =
            sender.send_request(request("/trailers")).await.unwrap().into_body().collect().await.unwrap();
        assert_eq!(answer.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(&answer.to_bytes()[..], b"\0\0\0\0\x02hi");
        let denied = sender.send_request(request("/other")).await.unwrap();
        assert_eq!(
            (denied.status().as_u16(), &denied.headers()["grpc-status"]),
            (200, &"7".parse().unwrap())
        );
    });
    let seen = server.seen.all();
    assert!(seen.contains("te: trailers") && seen.contains("HTTP/2.0") && seen.contains(REAL), "{seen}");
}

#[test]
fn continue_trailers_and_http_1_0() {
    let server = Server::plain();
    let policy =
        upstream("plain.example", server.address) + &allow("all", "plain.example", "paths = [\"/ok\"]");
    let proxy = Setup::new(&policy, &server.ca).start();
    let expect = |path: &str| {
        proxy.raw_until(
            format!("PUT http://plain.example{path} HTTP/1.1\r\nHost: plain.example\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
                .as_bytes(),
            "\r\n\r\n",
        )
    };
    // Asked for once it is allowed, and not before.
    assert!(expect("/ok").starts_with("HTTP/1.1 100 Continue\r\n"));
    assert!(expect("/no").starts_with("HTTP/1.1 403 Forbidden\r\n"));
    let old = proxy.raw(b"GET http://plain.example/ok HTTP/1.0\r\n\r\n");
    assert!(old.starts_with("HTTP/1.0 200 OK\r\n") && old.contains("GET /ok HTTP/1.1"), "{old}");
    let trailers = proxy.raw(
        b"PUT http://plain.example/ok HTTP/1.1\r\nHost: plain.example\r\nConnection: close\r\nTE: trailers\r\nTrailer: x-sum\r\n\
          Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 42\r\n\r\n",
    );
    assert!(trailers.contains("abc") && trailers.contains("x-sum: 42"), "{trailers}");
}

#[test]
fn pass_through_is_spliced_checked_and_counted() {
    let server = Server::tls(&["pinned.example"], &["http/1.1"]);
    let policy = "[tls]\npass_through = [\"pinned.example\"]\n\n".to_owned()
        + &upstream("pinned.example", server.address)
        + &allow("pinned", "pinned.example", "");
    let proxy = Setup::new(&policy, &server.ca).credentials(vec![credential(&["pinned.example"])]).start();
    let anchor = proxy.dir.path().join("upstream.pem");
    std::fs::write(&anchor, &server.ca).unwrap();
    let bearer = format!("authorization: Bearer {PLACEHOLDER}");
    let got = proxy.curl(&["--cacert", anchor.to_str().unwrap(), "-H", &bearer, "https://pinned.example/x"]);
    assert_eq!(got.status, 200, "{got:?}");
    // Nothing is swapped where nothing is seen.
    assert!(server.seen.all().contains(PLACEHOLDER) && !server.seen.all().contains(REAL));
    let decided = &proxy.decided()[0];
    assert_eq!((decided.scheme.as_str(), decided.effect, decided.path.as_str()), ("tls", Verdict::Allow, ""));
    let ended = proxy.wait_ended(1);
    assert!(ended[0].sent > 100 && ended[0].received > 100, "{ended:?}");
    // The same server behind interception is not trusted by this client: it does see another certificate.
    let unpinned = proxy_to(&server);
    let got = unpinned.curl(&["--cacert", anchor.to_str().unwrap(), &format!("https://{HOST}/x")]);
    assert_eq!(got.status, 0, "{got:?}");
}

#[test]
fn bodies_that_rules_look_at_are_collected_within_a_bound() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    let policy = upstream(HOST, server.address)
        + &allow("small", HOST, "methods = [\"POST\"]\nwhen = \"request.body.amount <= 5\"");
    let proxy = Setup::new(&policy, &server.ca).limits(|limits| limits.body = 1000).start();
    let url = format!("https://{HOST}/x");
    let post = |body: &str| proxy.curl(&["-H", "content-type: application/json", "-d", body, &url]).status;
    assert_eq!(post(r#"{"amount": 5}"#), 200);
    assert_eq!(post(r#"{"amount": 6}"#), 403);
    assert_eq!(post(&format!(r#"{{"amount": 5, "more": "{}"}}"#, "x".repeat(1000))), 413);
    assert_eq!(server.seen.count(), 1);
    assert_eq!(server.seen.body_bytes.load(Relaxed), 0);
}

#[test]
fn rewrites_change_what_was_allowed() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    let policy = upstream(HOST, server.address)
        + &allow("all", HOST, "")
        + &format!(
            "[[rewrite]]\nid = \"tag\"\nhost = \"{HOST}\"\n\
             headers = {{ set = {{ x-team = \"red\" }}, remove = [\"x-debug\"] }}\n\
             json = {{ set = {{ \"metadata.user\" = \"agent\" }} }}\n"
        );
    let proxy = Setup::new(&policy, &server.ca).start();
    let url = format!("https://{HOST}/x");
    let got =
        proxy.curl(&["-H", "x-debug: 1", "-H", "content-type: application/json", "-d", r#"{"a":1}"#, &url]);
    assert!(got.body.contains("x-team: red") && !got.body.contains("x-debug"), "{got:?}");
    assert!(got.body.contains(r#"{"a":1,"metadata":{"user":"agent"}}"#), "{got:?}");
}

#[test]
fn names_that_no_rule_knows_do_not_exist() {
    use hickory_proto::op::{Message as Dns, MessageType, OpCode, Query, ResponseCode};
    use hickory_proto::rr::{Name, RecordType};
    let server = Server::plain();
    let mut setup = Setup::new(&allow("all", "known.example", ""), &server.ca);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    setup.dns = Some(socket);
    let names = setup.names.clone();
    let proxy = setup.start();
    let ask = |name: &str| {
        let mut question = Dns::new(7, MessageType::Query, OpCode::Query);
        question.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        client.send_to(&question.to_vec().unwrap(), address).unwrap();
        let mut buffer = [0; 512];
        let n = client.recv(&mut buffer).unwrap();
        Dns::from_vec(&buffer[..n]).unwrap()
    };
    let known = ask("known.example.");
    let expected = names.address_of("known.example").unwrap().to_string();
    assert_eq!(known.answers.iter().map(|r| r.data.to_string()).collect::<Vec<_>>(), [expected]);
    let unknown = ask("unknown.example.");
    assert_eq!((unknown.metadata.response_code, unknown.answers.len()), (ResponseCode::NXDomain, 0));
    let told = |body| if let cofferdam_model::Body::NameAsked(asked) = body { Some(asked) } else { None };
    let asked = cofferdam_testkit::eventually("the question on record", || {
        proxy.events().into_iter().filter_map(told).find(|asked| asked.answer.is_none())
    });
    assert_eq!(
        (asked.name.trim_end_matches('.'), asked.record.as_str(), asked.answer),
        ("unknown.example", "A", None)
    );
    // What was answered is on record too, once.
    ask("known.example.");
    let named: Vec<_> =
        proxy.events().into_iter().filter_map(told).filter(|asked| asked.answer.is_some()).collect();
    let address = names.address_of("known.example").unwrap().to_string();
    assert_eq!(named.len(), 1);
    assert_eq!((named[0].name.as_str(), named[0].answer.as_deref()), ("known.example", Some(&*address)));
}
