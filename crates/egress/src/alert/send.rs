//! The ways out of this machine, each once: no retry, no queue, no reading of more than the answer's status.

use crate::upstream::trust::{Trust, TrustError};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::fs::OFlags;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket, UnixDatagram};
use tokio_rustls::TlsConnector;

#[derive(Debug, Error)]
pub(super) enum SendError {
    #[error("no answer in time: is it up?")]
    Late,
    #[error("{0}: is it up, and may we reach it?")]
    Io(#[from] io::Error),
    #[error("it is not trusted or speaks no TLS ({0}): check its certificate")]
    Handshake(io::Error),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("{0}: does it speak HTTP?")]
    Http(#[from] hyper::Error),
    #[error("{0}: the address is not one of a request")]
    Request(#[from] http::Error),
    #[error("it answers {0}: check the address")]
    Status(StatusCode),
}

impl SendError {
    /// Whether it may go better another time.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Late | Self::Io(_) | Self::Http(_) => true,
            Self::Status(status) => {
                let busy = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
                status.is_server_error() || busy.contains(status)
            }
            Self::Handshake(_) | Self::Trust(_) | Self::Request(_) => false,
        }
    }
}

/// When, and a code over that and the body: who has the key can tell ours from others', and new from old.
pub(super) fn signature(seconds: u64, code: [u8; 32]) -> String {
    let hex: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={seconds},v1={hex}")
}

pub(super) struct Post<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) target: &'a str,
    /// None without TLS.
    pub(super) trust: Option<&'a Trust>,
    pub(super) signature: Option<String>,
}

impl Post<'_> {
    pub(super) async fn send(self, body: Vec<u8>) -> Result<(), SendError> {
        let stream = connect(self.host, self.port).await?;
        match self.trust {
            None => self.exchange(stream, body).await,
            Some(trust) => {
                let failed = |error: rustls::pki_types::InvalidDnsNameError| {
                    SendError::Handshake(io::Error::new(io::ErrorKind::InvalidInput, error))
                };
                let name = rustls::pki_types::ServerName::try_from(self.host.to_owned()).map_err(failed)?;
                let connector = TlsConnector::from(trust.h1.clone());
                let stream = connector.connect(name, stream).await.map_err(SendError::Handshake)?;
                self.exchange(stream, body).await
            }
        }
    }

    async fn exchange<T>(self, stream: T, body: Vec<u8>) -> Result<(), SendError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_owned() };
        let mut request = Request::post(self.target)
            .header(HOST, format!("{host}:{}", self.port))
            .header(USER_AGENT, concat!("cofferdam/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json");
        if let Some(signature) = self.signature {
            request = request.header("cofferdam-signature", signature);
        }
        let request = request.body(Full::new(Bytes::from(body)))?;
        // The connection lives as long as the question: dropping both closes it.
        let mut answer = std::pin::pin!(sender.send_request(request));
        let answer = tokio::select! {
            answer = &mut answer => answer,
            _ = connection => answer.await,
        };
        let status = answer?.status();
        if status.is_success() { Ok(()) } else { Err(SendError::Status(status)) }
    }
}

async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    TcpStream::connect((host, port)).await
}

pub(super) async fn local(path: &str, line: &[u8]) -> Result<(), SendError> {
    let socket = UnixDatagram::unbound()?;
    socket.send_to(line, path).await?;
    Ok(())
}

pub(super) async fn udp(host: &str, port: u16, line: &[u8]) -> Result<(), SendError> {
    let nowhere = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let to = tokio::net::lookup_host((host, port)).await?.next().ok_or_else(nowhere)?;
    let any: std::net::IpAddr = if to.is_ipv4() {
        std::net::Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    UdpSocket::bind((any, 0)).await?.send_to(line, to).await?;
    Ok(())
}

pub(super) async fn tcp(host: &str, port: u16, line: &[u8]) -> Result<(), SendError> {
    let mut stream = connect(host, port).await?;
    stream.write_all(line).await?;
    stream.shutdown().await?;
    Ok(())
}

/// Appends one line. Whatever lies there under that name must be a file: not a link, nor a pipe without a reader.
pub(super) async fn file(path: String, line: Vec<u8>) -> Result<(), SendError> {
    let append = move || {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut options = std::fs::OpenOptions::new();
        options.create(true).append(true).mode(0o600).custom_flags(flags.bits() as i32);
        options.open(&path)?.write_all(&line)
    };
    let done = tokio::task::spawn_blocking(append).await;
    Ok(done.map_err(io::Error::other)??)
}
