//! What all contenders are asked for: one TLS server on loopback, HTTP/1.1. It makes the certificates of the
//! whole bench, its own and the authority that the peers intercept with, and prints where it listens.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};
use tokio_rustls::TlsAcceptor;

/// What the upstream takes for the credential; the client never has it.
const REAL: &str = "Bearer sk_live_4eC39HqLyjWDarjtT1zdp7dcRealReal";
/// 90 bytes.
const SMALL: &[u8] =
    br#"{"id":"ch_1","object":"charge","amount":2000,"currency":"usd","paid":true,"status":"ok1"}"#;
const EVENT: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"tick\"}}]}\n\n";
const CHUNK: &[u8] = &[b'x'; 64 << 10];
const NAMES: [&str; 3] = ["localhost", "plain.test", "store.test"];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("give a directory for the certificates")?);
    let acceptor = TlsAcceptor::from(Arc::new(certificates(&dir)?));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (tcp, _) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let server = hyper::server::conn::http1::Builder::new();
            let _ = server.serve_connection(TokioIo::new(tls), service_fn(answer)).await;
        });
    }
}

fn certificates(dir: &Path) -> Result<ServerConfig, Box<dyn Error>> {
    let authority = |name: &str| -> Result<_, Box<dyn Error>> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        std::fs::write(dir.join(format!("{name}.pem")), certificate.pem())?;
        std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem())?;
        Ok((Issuer::new(params, key), certificate))
    };
    authority("proxy-ca")?;
    let (issuer, _) = authority("upstream-ca")?;
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new(NAMES.map(str::to_owned))?.signed_by(&key, &issuer)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())?)
}

type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

async fn answer(request: Request<Incoming>) -> Result<Reply, hyper::Error> {
    let path = request.uri().path().to_owned();
    let is_real = request.headers().get("authorization").is_some_and(|value| value == REAL);
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    let (kind, body) = match path.as_str() {
        "/real" => {
            let mut reply = Response::new(Empty::new().boxed_unsync());
            *reply.status_mut() = if is_real { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            return Ok(reply);
        }
        "/sse" => ("text/event-stream", Ticks::new(2, Duration::from_millis(20)).boxed_unsync()),
        "/endless" => ("text/event-stream", Ticks::new(u64::MAX, Duration::from_millis(100)).boxed_unsync()),
        _ => match path.strip_prefix("/bytes/").and_then(|n| n.parse().ok()) {
            Some(left) => ("application/octet-stream", Filler { left }.boxed_unsync()),
            None => ("application/json", Full::new(Bytes::from_static(SMALL)).boxed_unsync()),
        },
    };
    let mut reply = Response::new(body);
    reply.headers_mut().insert("content-type", http::HeaderValue::from_static(kind));
    Ok(reply)
}

/// Events at a pace; the first at once.
struct Ticks {
    left: u64,
    pace: Duration,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Ticks {
    fn new(left: u64, pace: Duration) -> Self {
        Self { left, pace, pause: None }
    }
}

impl Body for Ticks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
        }
        self.left -= 1;
        self.pause = Some(Box::pin(sleep(self.pace)));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(EVENT)))))
    }
}

/// So many bytes, as fast as they are taken.
struct Filler {
    left: u64,
}

impl Body for Filler {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let n = self.left.min(CHUNK.len() as u64);
        self.left -= n;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(CHUNK).slice(..n as usize)))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
