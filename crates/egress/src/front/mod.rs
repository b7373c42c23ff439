//! From an accepted stream to requests: what the client speaks, whom it asks for, and whether its bytes have
//! one reading. What is neither HTTP nor TLS does not get further than this.

mod connect;
pub(crate) mod framing;
pub(crate) mod gate;
mod hello;
mod splice;

use crate::http::identify::{Scheme, Target, host_of};
use crate::http::service::{Conn, serve_h1, serve_h2};
use crate::postgres;
use crate::rescue::{self, Failure};
use crate::session::Session;
use crate::ssh;
use crate::stream::{Accepted, Door, Io, Prefixed};
use bytes::BytesMut;
use cofferdam_model::Via;
use connect::Ask;
use hello::{Ech, Hello, Opening};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Why a stream ends before its first request.
#[derive(Debug, Error)]
pub(crate) enum BadOpening {
    #[error("the stream is neither HTTP, TLS, SSH nor Postgres: use https")]
    Unknown,
    #[error("no first bytes came in time: only clients that speak first, HTTP and TLS, are carried")]
    Silent,
    #[error("the TLS hello names `{sni}`, and the connection is to `{host}`: they must be one")]
    OtherName { sni: String, host: Arc<str> },
    #[error("the TLS hello names no host, and the connection is to `{0}`: send the name (SNI)")]
    NoName(Arc<str>),
    #[error("the TLS hello hides its name (ECH): send it in the clear")]
    HiddenName,
    #[error("port {0} is for DNS: ask our own DNS for names")]
    DnsPort(u16),
    #[error("the TLS handshake failed ({0}): does the client trust the session's authority?")]
    Handshake(io::Error),
}

impl BadOpening {
    pub(crate) const fn cause(&self) -> &'static str {
        match self {
            Self::Unknown => "not-http-or-tls",
            Self::Silent => "silent",
            Self::OtherName { .. } => "name-mismatch",
            Self::NoName(_) => "no-name",
            Self::HiddenName => "hidden-name",
            Self::DnsPort(_) => "dns-port",
            Self::Handshake(_) => "handshake",
        }
    }

    /// Whether it would hide where the stream goes; the others are mistakes of honest clients too.
    pub(crate) const fn hides(&self) -> bool {
        match self {
            Self::OtherName { .. } | Self::NoName(_) | Self::HiddenName | Self::DnsPort(_) => true,
            Self::Unknown | Self::Silent | Self::Handshake(_) => false,
        }
    }
}

/// Alerts of TLS, fatal: what a client is told in its own language.
const ACCESS_DENIED: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 49];
const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 112];

/// A stream whose first bytes were looked at.
pub(crate) type Stream = Prefixed<Box<dyn Io>>;

/// Carries a stream to its end. Nothing that happens in it concerns another.
pub(crate) async fn serve(session: Arc<Session>, accepted: Accepted) {
    session.counters.connections.fetch_add(1, Relaxed);
    let Accepted { stream, door, program } = accepted;
    let visit =
        Visit { session, program, via: if door == Door::Proxy { Via::Proxy } else { Via::Transparent } };
    let told = match door {
        Door::Proxy => visit.proxy(stream).await,
        Door::Transparent(to) => visit.transparent(stream, to).await,
    };
    if let Err((failure, destination)) = told {
        visit.session.tell_refused(&failure, visit.from(), destination, String::new());
    }
}

struct Visit {
    session: Arc<Session>,
    program: Option<Arc<str>>,
    via: Via,
}

/// A refusal and what it was about.
type Told = Result<(), (Failure, String)>;

impl Visit {
    /// How it came, and from whom.
    fn from(&self) -> (Via, Option<&str>) {
        (self.via, self.program.as_deref())
    }

    async fn proxy(&self, mut stream: Box<dyn Io>) -> Told {
        let mut seen = BytesMut::new();
        let limit = self.session.limits.head_time;
        let ask = match timeout(limit, connect::read_ask(&mut stream, &mut seen)).await {
            Ok(Ok(ask)) => ask,
            // Gone without a word: nothing was asked for.
            Ok(Err(_)) => return Ok(()),
            Err(_) => return Err((BadOpening::Silent.into(), "the proxy".to_owned())),
        };
        match ask {
            Ok(Ask::Requests) => {
                self.plain(Prefixed::new(seen.freeze(), stream), None).await;
                Ok(())
            }
            Ok(Ask::Tunnel { host, port }) => {
                let destination = format!("{host}:{port}");
                if let Err(failure) = self.may_tunnel(&host, port) {
                    refuse_tunnel(&mut stream, &failure).await;
                    return Err((failure, destination));
                }
                if stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.is_err() {
                    return Ok(());
                }
                self.open(stream, seen, host, port).await.map_err(|failure| (failure, destination))
            }
            Err(failure) => {
                refuse_tunnel(&mut stream, &failure).await;
                Err((failure, "the proxy".to_owned()))
            }
        }
    }

    async fn transparent(&self, stream: Box<dyn Io>, to: SocketAddr) -> Told {
        let host = match self.session.names.name_of(to.ip()) {
            Some(name) => name,
            None => to.ip().to_canonical().to_string().into(),
        };
        let destination = format!("{host}:{}", to.port());
        if let Err(failure) = self.may_tunnel(&host, to.port()) {
            self.session.tell_refused(&failure, self.from(), destination, String::new());
            self.explain(stream, &failure).await;
            return Ok(());
        }
        let told = |failure| (failure, destination);
        self.open(stream, BytesMut::new(), host, to.port()).await.map_err(told)
    }

    /// Tells a client that knows of no proxy why nothing comes of it, in the language that it speaks.
    async fn explain(&self, mut stream: Box<dyn Io>, failure: &Failure) {
        let mut seen = BytesMut::new();
        match timeout(self.session.limits.head_time, hello::peek(&mut stream, &mut seen)).await {
            Ok(Ok(Opening::Http)) => refuse_tunnel(&mut stream, failure).await,
            Ok(Ok(Opening::Tls(_))) => drop(stream.write_all(&ACCESS_DENIED).await),
            _ => {}
        }
    }

    /// What can be refused before the client has said what it wants.
    fn may_tunnel(&self, host: &str, port: u16) -> Result<(), Failure> {
        if matches!(port, 53 | 853) {
            return Err(BadOpening::DnsPort(port).into());
        }
        self.session.coffer.check_name(host)?;
        self.session.rules.load().may_lead_to(host)
    }

    /// A stream to a known destination: find out what it speaks.
    async fn open(
        &self,
        mut stream: Box<dyn Io>,
        mut seen: BytesMut,
        host: Arc<str>,
        port: u16,
    ) -> Result<(), Failure> {
        let limit = self.session.limits.head_time;
        let opening = match timeout(limit, hello::peek(&mut stream, &mut seen)).await {
            Ok(Ok(Opening::Other)) if seen.is_empty() => return Ok(()),
            Ok(Ok(opening)) => opening,
            Ok(Err(_)) => return Ok(()),
            Err(_) => return Err(BadOpening::Silent.into()),
        };
        if matches!(opening, Opening::Other) && self.is_postgres(&mut stream, &mut seen).await {
            let visit = postgres::Visit {
                session: self.session.clone(),
                via: self.via,
                program: self.program.clone(),
                host,
                port,
            };
            let done = visit.serve(Box::new(Prefixed::new(seen.freeze(), stream))).await;
            // The others stand on record by themselves.
            return done.or_else(|failure| if failure.is_own_event() { Err(failure) } else { Ok(()) });
        }
        if seen.starts_with(ssh::FIRST) {
            let visit = ssh::Visit {
                session: self.session.clone(),
                via: self.via,
                program: self.program.clone(),
                host,
                port,
            };
            return visit.serve(Prefixed::new(seen.freeze(), stream)).await;
        }
        let stream = Prefixed::new(seen.freeze(), stream);
        match opening {
            Opening::Tls(hello) => self.tls(stream, hello, host, port).await,
            Opening::Http => {
                self.plain(stream, Some(Target { scheme: Scheme::Http, host, port })).await;
                Ok(())
            }
            Opening::Other => Err(BadOpening::Unknown.into()),
        }
    }

    /// Whether the first bytes are those of a client of Postgres.
    async fn is_postgres(&self, stream: &mut Box<dyn Io>, seen: &mut BytesMut) -> bool {
        let read = async {
            loop {
                match postgres::wire::is_opening(seen) {
                    Some(known) => return known,
                    // A length that begins otherwise is none of theirs.
                    None if !seen.starts_with(&[0]) => return false,
                    None => {}
                }
                if !matches!(stream.read_buf(seen).await, Ok(n) if n > 0) {
                    return false;
                }
            }
        };
        timeout(self.session.limits.head_time, read).await.unwrap_or(false)
    }

    async fn plain(&self, stream: Stream, bound: Option<Target>) {
        serve_h1(self.conn(bound, None), stream).await;
    }

    async fn tls(&self, mut stream: Stream, hello: Hello, host: Arc<str>, port: u16) -> Result<(), Failure> {
        if let Err(bad) = agree(&hello, &host) {
            let _ = stream.write_all(&UNRECOGNIZED_NAME).await;
            return Err(bad);
        }
        if self.session.rules.load().policy().passes_through(&host) {
            // An outer hello may stand before an inner one for another host, and here nobody would see it.
            if hello.ech != Ech::None {
                return Err(BadOpening::HiddenName.into());
            }
            return splice::splice(&self.session, stream, self.via, self.program.clone(), host, port).await;
        }
        let config = self.session.ca.server_for(&host).map_err(|e| handshake(io::Error::other(e)))?;
        let accept = TlsAcceptor::from(config).accept(stream);
        let stream = match timeout(self.session.limits.head_time, accept).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(handshake(error)),
            Err(_) => return Err(handshake(io::ErrorKind::TimedOut.into())),
        };
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let conn = self.conn(Some(Target { scheme: Scheme::Https, host, port }), hello.sni);
        if is_h2 {
            serve_h2(conn, stream).await;
        } else {
            serve_h1(conn, stream).await;
        }
        Ok(())
    }

    fn conn(&self, bound: Option<Target>, sni: Option<String>) -> Arc<Conn> {
        Arc::new(Conn::new(self.session.clone(), self.via, self.program.clone(), bound, sni))
    }
}

fn handshake(error: io::Error) -> Failure {
    BadOpening::Handshake(error).into()
}

/// The hello must name the destination; only an address has no name to send.
fn agree(hello: &Hello, host: &Arc<str>) -> Result<(), Failure> {
    if hello.ech == Ech::Inner {
        return Err(BadOpening::HiddenName.into());
    }
    match &hello.sni {
        Some(sni) if host_of(sni).is_ok_and(|name| name == *host) => Ok(()),
        Some(sni) => {
            let sni = sni.chars().take(80).collect();
            Err(BadOpening::OtherName { sni, host: host.clone() }.into())
        }
        None if host.parse::<std::net::IpAddr>().is_ok() => Ok(()),
        None => Err(BadOpening::NoName(host.clone()).into()),
    }
}

/// Answers a CONNECT that leads nowhere, in plain words.
async fn refuse_tunnel<W: AsyncWrite + Unpin>(stream: &mut W, failure: &Failure) {
    let text = rescue::text(failure);
    let status = failure.status();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nx-cofferdam-refused: {}\r\nconnection: close\r\n\r\n{text}",
        text.len(),
        failure.cause(),
    );
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.shutdown().await;
}
