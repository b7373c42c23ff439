//! Connections: taken, bounded in number, and ended when they only hold a place. A connection may rest as long as the
//! SDKs rest theirs; but who has begun a request has to finish its head in time.

use crate::asked::Whole;
use crate::serve::Door;
use axum::body::Body;
use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::Watcher;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is known of a connection while it lasts.
struct Pulse {
    began: Instant,
    /// Milliseconds from then on: the last byte, and the first of a request whose head is not whole.
    last: AtomicU64,
    head: AtomicU64,
    /// Requests whose answer is not out.
    open: AtomicUsize,
    /// It has become something that has no heads.
    free: AtomicBool,
}

/// No request has begun.
const NONE: u64 = u64::MAX;

impl Pulse {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            last: AtomicU64::new(0),
            head: AtomicU64::new(NONE),
            open: AtomicUsize::new(0),
            free: AtomicBool::new(false),
        })
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn heard(&self) {
        let now = self.now();
        self.last.store(now, Ordering::Relaxed);
        if self.open.load(Ordering::Relaxed) == 0 && !self.free.load(Ordering::Relaxed) {
            let _ = self.head.compare_exchange(NONE, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn asked(self: &Arc<Self>, version: Version) -> Arc<Asking> {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.head.store(NONE, Ordering::Relaxed);
        // Its frames are no heads; its own limits hold for it.
        if version == Version::HTTP_2 {
            self.free.store(true, Ordering::Relaxed);
        }
        Arc::new(Asking(self.clone()))
    }

    /// How long it may still go on as it is; nothing once it may not.
    fn rest(&self, patience: Duration, idle: Duration) -> Option<Duration> {
        let since = |at: u64| Duration::from_millis(self.now().saturating_sub(at));
        let head = self.head.load(Ordering::Relaxed);
        let rest = if self.open.load(Ordering::Relaxed) > 0 {
            patience
        } else if head != NONE {
            patience.checked_sub(since(head))?
        } else {
            idle.checked_sub(since(self.last.load(Ordering::Relaxed)))?
        };
        (!rest.is_zero()).then_some(rest)
    }
}

/// Held until a request is read and the answer to it is out.
struct Asking(Arc<Pulse>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.last.store(self.0.now(), Ordering::Relaxed);
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body that says when it is over.
struct Answer {
    body: Body,
    _asking: Arc<Asking>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream whose bytes are noticed.
struct Heard<S> {
    stream: S,
    pulse: Arc<Pulse>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before {
            self.pulse.heard();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Serves one connection to its end.
pub(crate) async fn connection<S>(door: Door, stream: S, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let pulse = Pulse::new();
    let (patience, idle) = (door.app.config.limits.patience.0, door.app.config.limits.idle.0);
    let heard = Heard { stream, pulse: pulse.clone() };
    let asked = pulse.clone();
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (door, asking) = (door.clone(), asked.asked(request.version()));
        let pulse = asked.clone();
        async move {
            let (one_by_one, expects) =
                (request.version() < Version::HTTP_2, request.headers().contains_key(EXPECT));
            let (parts, body) = request.into_parts();
            // Who waits for leave to send a body is not given it by somebody who drops it. Where requests do not follow
            // one another, nothing stands in the way of the next.
            let (body, left) = if one_by_one && !expects {
                let (body, left) = Whole::new(body, asking.clone(), patience);
                (Body::new(body), Some(left))
            } else {
                (Body::new(body), None)
            };
            let mut response: Response<Body> = door.answer(Request::from_parts(parts, body)).await;
            if left.is_some_and(|left| left.is_too_much()) {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                pulse.free.store(true, Ordering::Relaxed);
            }
            Ok::<_, std::convert::Infallible>(response.map(|body| Answer { body, _asking: asking }))
        }
    });
    let builder = Builder::new(TokioExecutor::new());
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(heard), service);
    let serving = watcher.watch(serving.into_owned());
    tokio::pin!(serving);
    loop {
        let Some(rest) = pulse.rest(patience, idle) else { return };
        tokio::select! {
            _ = &mut serving => return,
            // Looked at again soon: what is heard meanwhile may shorten it.
            () = tokio::time::sleep(rest.min(patience)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_is_begun_must_end_and_a_rest_may_be_long() {
        let (patience, idle) = (Duration::ZERO, Duration::from_secs(600));
        let pulse = Pulse::new();
        assert!(pulse.rest(patience, idle).is_some(), "nothing was begun");
        pulse.heard();
        assert!(pulse.rest(patience, idle).is_none(), "a head was begun");
        let asking = pulse.asked(Version::HTTP_11);
        pulse.heard();
        assert!(pulse.rest(Duration::from_secs(1), Duration::ZERO).is_some(), "it is being answered");
        drop(asking);
        assert!(pulse.rest(patience, idle).is_some(), "it rests");
        assert!(pulse.rest(patience, Duration::ZERO).is_none(), "it rests too long");
    }
}
