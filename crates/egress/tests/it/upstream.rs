//! Servers of our own for shapes that ordinary ones do not have: HTTP/1 and HTTP/2 with TLS or without,
//! which tell what they got.

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// What a server has seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// Method, path and fields of each request, in order.
    pub(crate) heads: Mutex<Vec<String>>,
    pub(crate) connections: AtomicUsize,
    pub(crate) body_bytes: AtomicUsize,
}

impl Seen {
    pub(crate) fn count(&self) -> usize {
        self.heads.lock().unwrap().len()
    }

    pub(crate) fn all(&self) -> String {
        self.heads.lock().unwrap().join("\n")
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) ca: String,
    pub(crate) seen: Arc<Seen>,
    _runtime: tokio::runtime::Runtime,
}

pub(crate) fn certificate(names: &[&str]) -> (String, rustls::ServerConfig) {
    let ca_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "the authority of the tests");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = Issuer::new(params, ca_key);
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    (ca.pem(), config)
}

impl Server {
    /// With TLS for these names, speaking what `alpn` lists.
    pub(crate) fn tls(names: &[&str], alpn: &[&str]) -> Self {
        let (ca, mut config) = certificate(names);
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self::start(ca, Some(Arc::new(config)))
    }

    pub(crate) fn plain() -> Self {
        Self::start(certificate(&["unused.example"]).0, None)
    }

    fn start(ca: String, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let shared = seen.clone();
        runtime.spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Relaxed);
                tcp.set_nodelay(true).unwrap();
                tokio::spawn(serve_one(tcp, tls.clone(), shared.clone()));
            }
        });
        Self { address, ca, seen, _runtime: runtime }
    }
}

async fn serve_one(tcp: TcpStream, tls: Option<Arc<rustls::ServerConfig>>, seen: Arc<Seen>) {
    let service = service_fn(move |request| handle(request, seen.clone()));
    let h1 = hyper::server::conn::http1::Builder::new();
    match tls {
        None => drop(h1.serve_connection(TokioIo::new(tcp), service).with_upgrades().await),
        Some(config) => {
            let Ok(stream) = tokio_rustls::TlsAcceptor::from(config).accept(tcp).await else { return };
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                let h2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = h2.serve_connection(TokioIo::new(stream), service).await;
            } else {
                let _ = h1.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
            }
        }
    }
}

async fn handle(mut request: Request<Incoming>, seen: Arc<Seen>) -> Result<Reply, Infallible> {
    let head = told(&request);
    seen.heads.lock().unwrap().push(head.clone());
    let path = request.uri().path().to_owned();
    let upgrade = request.headers().contains_key("upgrade").then(|| hyper::upgrade::on(&mut request));
    let method = request.method().clone();
    let mut body = request.into_body();
    let collected = match path.as_str() {
        "/drop" | "/sse" | "/endless" | "/ws" | "/raw" | "/big" | "/pieces" => Bytes::new(),
        "/count" => {
            let mut total = 0;
            while let Some(Ok(frame)) = body.frame().await {
                total += frame.data_ref().map_or(0, Bytes::len);
                seen.body_bytes.store(total, Relaxed);
            }
            Bytes::from(total.to_string())
        }
        _ => match body.collect().await {
            Ok(all) => {
                let trailers = all.trailers().map(fields).unwrap_or_default();
                [all.to_bytes(), Bytes::from(trailers)].concat().into()
            }
            Err(_) => return Ok(reply(400, "the body broke off")),
        },
    };
    Ok(match path.as_str() {
        "/sse" => stream(3, b"data: tick\n\n", Duration::from_millis(20), "text/event-stream"),
        "/endless" => stream(usize::MAX, b"data: on\n\n", Duration::from_millis(5), "text/event-stream"),
        "/big" => stream(16 * 1024, &[b'x'; 65536], Duration::ZERO, "application/octet-stream"),
        "/pieces" => pieces(&head),
        "/trailers" => with_trailers(),
        "/redirect" => Response::builder()
            .status(302)
            .header("location", "https://evil.example/")
            .body(whole(""))
            .unwrap(),
        "/alt" => Response::builder()
            .header("alt-svc", "h3=\":443\"")
            .header("x-kept", "1")
            .body(whole("ok"))
            .unwrap(),
        "/ws" => websocket(&head, upgrade),
        "/raw" => raw_upgrade(upgrade),
        "/404" => reply(404, "nothing here"),
        _ if method == "HEAD" => Response::builder().header("content-length", "5").body(whole("")).unwrap(),
        _ => reply(200, &format!("{head}\n{}", String::from_utf8_lossy(&collected))),
    })
}

fn told(request: &Request<Incoming>) -> String {
    let line = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
    line + &fields(request.headers())
}

fn fields(headers: &HeaderMap) -> String {
    headers.iter().map(|(n, v)| format!("{n}: {}\n", String::from_utf8_lossy(v.as_bytes()))).collect()
}

fn whole(text: &str) -> UnsyncBoxBody<Bytes, std::io::Error> {
    http_body_util::Full::new(Bytes::from(text.to_owned())).map_err(|e| match e {}).boxed_unsync()
}

fn reply(status: u16, text: &str) -> Reply {
    Response::builder().status(status).body(whole(text)).unwrap()
}

fn stream(times: usize, piece: &[u8], pause: Duration, kind: &str) -> Reply {
    let piece = Bytes::copy_from_slice(piece);
    let stream = futures_util::stream::unfold(0, move |n| {
        let piece = piece.clone();
        async move {
            if n >= times {
                return None;
            }
            if n > 0 && !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            Some((Ok(Frame::data(piece)), n + 1))
        }
    });
    Response::builder().header("content-type", kind).body(StreamBody::new(stream).boxed_unsync()).unwrap()
}

fn with_trailers() -> Reply {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    let frames = [Ok(Frame::data(Bytes::from_static(b"\0\0\0\0\x02hi"))), Ok(Frame::trailers(trailers))];
    Response::builder()
        .header("content-type", "application/grpc")
        .header("trailer", "grpc-status")
        .body(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync())
        .unwrap()
}

/// Answers each message with the same, upper case, and tells the head first.
fn websocket(head: &str, upgrade: Option<hyper::upgrade::OnUpgrade>) -> Reply {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
    use tokio_tungstenite::tungstenite::{Message, protocol::Role};
    let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap_or_default();
    let accept = derive_accept_key(key.as_bytes());
    let Some(upgrade) = upgrade else { return reply(426, "a websocket, please") };
    let head = head.to_owned();
    tokio::spawn(async move {
        let Ok(io) = upgrade.await else { return };
        let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(io), Role::Server, None).await;
        let _ = socket.send(Message::text(head.clone())).await;
        while let Some(Ok(message)) = socket.next().await {
            if matches!(&message, Message::Text(text) if text.as_str() == "pieces") {
                let (one, other) = token(&head).split_at(13);
                for piece in [one, other, "."] {
                    let _ = socket.send(Message::text(piece)).await;
                }
            } else if let Message::Text(text) = message {
                let _ = socket.send(Message::text(text.as_str().to_uppercase())).await;
            }
        }
    });
    Response::builder()
        .status(101)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-accept", accept)
        .body(whole(""))
        .unwrap()
}

/// The token of a head, which a server should never give back.
fn token(head: &str) -> &str {
    head.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap_or_default()
}

/// Tells the token, three characters to an event, with what a model's stream has around them.
fn pieces(head: &str) -> Reply {
    let token = token(head).to_owned().into_bytes();
    let mut parts: Vec<Bytes> = vec![Bytes::from_static(b": hello\n\n")];
    for piece in token.chunks(3) {
        let piece = String::from_utf8_lossy(piece);
        parts.push(format!("event: delta\ndata: {{\"i\":0,\"delta\":{{\"text\":\"{piece}\"}}}}\n\n").into());
    }
    parts.push(Bytes::from_static(b"data: [DONE]\n\n"));
    let frames = parts.into_iter().map(|part| Ok(Frame::data(part)));
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync())
        .unwrap()
}

/// Gives every byte back.
fn raw_upgrade(upgrade: Option<hyper::upgrade::OnUpgrade>) -> Reply {
    let Some(upgrade) = upgrade else { return reply(426, "an upgrade, please") };
    tokio::spawn(async move {
        let Ok(io) = upgrade.await else { return };
        let (mut io, mut buffer) = (TokioIo::new(io), [0; 1024]);
        while let Ok(n) = io.read(&mut buffer).await {
            if n == 0 || io.write_all(&buffer[..n]).await.is_err() || io.flush().await.is_err() {
                return;
            }
        }
    });
    Response::builder()
        .status(101)
        .header("connection", "upgrade")
        .header("upgrade", "echo")
        .body(whole(""))
        .unwrap()
}
