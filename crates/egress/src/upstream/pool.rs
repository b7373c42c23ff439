//! Connections that are kept. What is kept for one destination, protocol and set of credentials is used for
//! nothing else, so that a server can never mix up two of ours; and a pool belongs to one session.

use super::dial::{DialError, Dialer, Route};
use crate::http::flow::Flow;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};

/// Idle connections to one destination, and destinations.
const IDLE_PER_KEY: usize = 32;
const IDLE: usize = 256;
const IDLE_TIME: Duration = Duration::from_secs(60);
/// Ours for what comes back: large enough for a fast server, small enough for many streams.
const WINDOW: u32 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
    pub(crate) tls: bool,
    pub(crate) h2: bool,
    /// Stands for the credentials in use and their generations.
    pub(crate) credentials: u64,
}

pub(crate) enum Sender {
    H1(http1::SendRequest<Flow>),
    H2(http2::SendRequest<Flow>),
}

/// A request that did not go out comes back, so that it can be tried on another connection.
pub(crate) struct NotSent {
    pub(crate) request: Option<Request<Flow>>,
    pub(crate) error: hyper::Error,
}

impl Sender {
    pub(crate) async fn send(&mut self, request: Request<Flow>) -> Result<Response<Incoming>, Box<NotSent>> {
        let sent = match self {
            Self::H1(sender) => sender.try_send_request(request).await,
            Self::H2(sender) => sender.try_send_request(request).await,
        };
        sent.map_err(|mut error| {
            Box::new(NotSent { request: error.take_message(), error: error.into_error() })
        })
    }

    pub(crate) fn is_h2(&self) -> bool {
        matches!(self, Self::H2(_))
    }
}

#[derive(Default)]
struct Kept {
    idle: Vec<(http1::SendRequest<Flow>, Instant)>,
    shared: Option<(http2::SendRequest<Flow>, Instant)>,
    /// It was asked for HTTP/2 and has none.
    h1_only: bool,
    /// Held while the one connection of HTTP/2 is made, so that many streams do not make many.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
pub(crate) struct Pool {
    kept: Mutex<HashMap<Key, Kept>>,
    dialer: Dialer,
}

impl Pool {
    /// Of no connections.
    pub(crate) fn offline() -> Self {
        Self { dialer: Dialer::offline(), ..Self::default() }
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// A connection that was kept, if there is one that still lives.
    pub(crate) async fn kept(&self, key: &Key) -> Option<Sender> {
        if key.h2
            && let Some(sender) = self.shared(key)
        {
            return Some(Sender::H2(sender));
        }
        loop {
            let mut sender = self.lock().get_mut(key)?.idle.pop()?.0;
            // It came back at the end of its answer; its own task may need a moment more to be ready.
            if !sender.is_closed() && sender.ready().await.is_ok() {
                return Some(Sender::H1(sender));
            }
        }
    }

    fn shared(&self, key: &Key) -> Option<http2::SendRequest<Flow>> {
        let mut all = self.lock();
        let kept = all.get_mut(key)?;
        kept.shared.take_if(|(sender, _)| sender.is_closed());
        let (sender, used) = kept.shared.as_mut()?;
        *used = Instant::now();
        Some(sender.clone())
    }

    pub(crate) async fn fresh(&self, key: &Key, route: &Route) -> Result<Sender, DialError> {
        if !key.h2 {
            return self.connect(key, route).await;
        }
        let turn = {
            let mut all = self.lock();
            make_room(&mut all);
            let kept = all.entry(key.clone()).or_default();
            (!kept.h1_only).then(|| kept.turn.clone())
        };
        let Some(turn) = turn else { return self.connect(key, route).await };
        let _turn = turn.lock().await;
        if let Some(sender) = self.shared(key) {
            return Ok(Sender::H2(sender));
        }
        let sender = self.connect(key, route).await?;
        let mut all = self.lock();
        let kept = all.entry(key.clone()).or_default();
        match &sender {
            Sender::H1(_) => kept.h1_only = true,
            Sender::H2(sender) => kept.shared = Some((sender.clone(), Instant::now())),
        }
        drop(all);
        Ok(sender)
    }

    async fn connect(&self, key: &Key, route: &Route) -> Result<Sender, DialError> {
        let failed = |e: hyper::Error| DialError::Connect {
            host: route.host.to_string(),
            source: std::io::Error::other(e),
        };
        if !key.tls {
            let tcp = self.dialer.tcp(route).await?;
            return shake_h1(tcp).await.map(Sender::H1).map_err(failed);
        }
        let tls = self.dialer.tls(route, key.h2).await?;
        if tls.get_ref().1.alpn_protocol() == Some(b"h2") {
            shake_h2(tls).await.map(Sender::H2).map_err(failed)
        } else {
            shake_h1(tls).await.map(Sender::H1).map_err(failed)
        }
    }

    /// Takes a connection back whose answer was read to its end.
    pub(crate) fn keep(&self, key: Key, sender: http1::SendRequest<Flow>) {
        if sender.is_closed() {
            return;
        }
        let mut all = self.lock();
        make_room(&mut all);
        let kept = all.entry(key).or_default();
        if kept.idle.len() < IDLE_PER_KEY {
            kept.idle.push((sender, Instant::now()));
        }
    }

    /// Closes what was idle for too long.
    pub(crate) fn sweep(&self) {
        sweep(&mut self.lock());
    }

    /// Closes everything that is not in use.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for one more destination: those not in use go first, then all, which costs them a new connection.
fn make_room(all: &mut HashMap<Key, Kept>) {
    if all.len() >= IDLE {
        sweep(all);
    }
    if all.len() >= IDLE {
        all.clear();
    }
}

fn sweep(all: &mut HashMap<Key, Kept>) {
    all.retain(|_, kept| {
        kept.idle.retain(|(sender, since)| !sender.is_closed() && since.elapsed() < IDLE_TIME);
        // Streams that are under way keep their connection; only nothing new goes over it.
        kept.shared.take_if(|(sender, used)| sender.is_closed() || used.elapsed() >= IDLE_TIME);
        !kept.idle.is_empty() || kept.shared.is_some() || Arc::strong_count(&kept.turn) > 1
    });
}

async fn shake_h1<T>(io: T) -> hyper::Result<http1::SendRequest<Flow>>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::Builder::new()
        .preserve_header_case(true)
        .max_headers(crate::front::framing::MAX_FIELDS)
        .handshake(TokioIo::new(io))
        .await?;
    tokio::spawn(connection.with_upgrades());
    Ok(sender)
}

async fn shake_h2<T>(io: T) -> hyper::Result<http2::SendRequest<Flow>>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .max_header_list_size(crate::front::framing::MAX_HEAD as u32)
        .timer(TokioTimer::new())
        .handshake(TokioIo::new(io))
        .await?;
    tokio::spawn(connection);
    Ok(sender)
}
