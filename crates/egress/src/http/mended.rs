//! An answer of which someone who understands it says what goes on: it may keep parts back, put others in their
//! place, hold one until a person was asked, and have something said to the server in return. It sees an answer
//! after credentials are taken out of it, and decompressed.

use super::body::Payload;
use super::flow::{Filter, Flow};
use super::identify::Target;
use super::service::{Conn, let_out};
use super::tapped::held;
use crate::exchange::Exchange;
use crate::own;
use crate::rescue::Failure;
use crate::scrub::CodingError;
use crate::scrub::coding::Decoder;
use bytes::Bytes;
use cofferdam_model::{Answer, Mended, Question};
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::BodyExt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Questions of one answer that wait for people; more are a no.
const MOST_ASKED: usize = 64;
/// Things that wait to be said in return. A server that asks faster than it listens gets no more of them.
const MOST_POSTS: usize = 256;
/// How long what was said in return may take to be taken.
const POST_TIME: Duration = Duration::from_secs(30);
const MOST_DRAINED: usize = 64 << 10;

/// The way a request went, so that something can be said to the same server by the same rules.
pub(super) struct Way {
    pub(super) conn: Arc<Conn>,
    pub(super) target: Target,
    pub(super) uri: Uri,
    /// As they came from inside, with placeholders.
    pub(super) headers: HeaderMap,
}

/// What someone said of a question, once they do.
type Said = Pin<Box<dyn Future<Output = (Answer, String)> + Send>>;

struct Asking {
    question: Question,
    began: Instant,
    said: Said,
}

pub(super) struct Mending {
    exchange: Arc<Exchange>,
    /// Takes credentials out of it.
    first: Option<Box<dyn Filter>>,
    decoder: Option<Box<Decoder>>,
    way: Option<Box<Way>>,
    conn: Arc<Conn>,
    posts: Option<mpsc::Sender<Bytes>>,
    asking: Vec<Asking>,
    flags: Vec<String>,
}

impl Mending {
    /// Makes the head tell of what will come: something else than what the server sends.
    pub(super) fn new(
        way: Box<Way>,
        exchange: Arc<Exchange>,
        first: Option<Box<dyn Filter>>,
        headers: &mut HeaderMap,
    ) -> Result<Self, Failure> {
        let unreadable = |error: CodingError| Failure::Unreadable {
            host: way.target.host.clone(),
            reason: error.to_string(),
        };
        let decoder = Decoder::of(headers).map_err(unreadable)?;
        for name in [header::CONTENT_ENCODING, header::CONTENT_LENGTH, header::ETAG, header::ACCEPT_RANGES] {
            headers.remove(name);
        }
        let (conn, posts, asking, flags) = (way.conn.clone(), None, Vec::new(), Vec::new());
        Ok(Self { exchange, first, decoder, way: Some(way), conn, posts, asking, flags })
    }

    fn decoded(&mut self, chunk: Bytes) -> Result<Bytes, Box<Failure>> {
        let Some(decoder) = &mut self.decoder else { return Ok(chunk) };
        if chunk.is_empty() {
            return Ok(chunk);
        }
        match decoder.push(&chunk) {
            Ok(plain) => Ok(plain.into()),
            Err(error) => {
                let host = self.exchange.asked.host.as_str().into();
                Err(Box::new(Failure::Unreadable { host, reason: error.to_string() }))
            }
        }
    }

    fn mend(&mut self, chunk: Bytes) -> Result<Bytes, Box<Failure>> {
        let plain = self.decoded(chunk)?;
        if plain.is_empty() {
            return Ok(plain);
        }
        let mended = self.exchange.watch(|watcher| watcher.mend(&plain));
        self.take(mended.unwrap_or_default())
    }

    /// Does what was said of a part, and gives what goes on of it.
    fn take(&mut self, mended: Mended) -> Result<Bytes, Box<Failure>> {
        let Mended { mut pass, post, ask, withdraw, flags, stop } = mended;
        self.flags.extend(flags);
        for body in post {
            self.post(body.into());
        }
        self.asking.retain(|asking| !withdraw.contains(&asking.question.event));
        for question in ask {
            if self.asking.len() >= MOST_ASKED {
                let told = self.exchange.watch(|w| w.mend_asked(&question, Answer::TimedOut, "", 0));
                pass.extend_from_slice(&self.take(told.unwrap_or_default())?);
                continue;
            }
            let (conn, held, event) = (self.conn.clone(), held(&question, &self.exchange), question.event);
            let said = Box::pin(async move { own::ask(&conn.session, held, event).await });
            self.asking.push(Asking { question, began: Instant::now(), said });
        }
        match stop {
            Some(stop) => Err(Box::new(stop.into())),
            None => Ok(pass.into()),
        }
    }

    fn post(&mut self, body: Bytes) {
        if let Some(way) = self.way.take() {
            let (sender, receiver) = mpsc::channel(MOST_POSTS);
            self.posts = Some(sender);
            tokio::spawn(deliver(*way, receiver));
        }
        if let Some(posts) = &self.posts
            && posts.try_send(body).is_err()
        {
            self.flags.push("the server asks faster than it can be answered".to_owned());
        }
    }

    fn answered(&mut self, asking: &Asking, answer: Answer, by: &str) -> Result<Bytes, Box<Failure>> {
        let waited = asking.began.elapsed().as_micros() as u64;
        let mended = self.exchange.watch(|w| w.mend_asked(&asking.question, answer, by, waited));
        self.take(mended.unwrap_or_default())
    }
}

impl Filter for Mending {
    fn pass(&mut self, chunk: Bytes) -> Result<Bytes, Box<Failure>> {
        let chunk = match &mut self.first {
            Some(first) => first.pass(chunk)?,
            None => chunk,
        };
        self.mend(chunk)
    }

    fn idle(&mut self) -> Result<Bytes, Box<Failure>> {
        let Some(first) = &mut self.first else { return Ok(Bytes::new()) };
        let chunk = first.idle()?;
        self.mend(chunk)
    }

    fn is_waiting(&self) -> bool {
        self.first.as_ref().is_some_and(|first| first.is_waiting())
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Box<Failure>>> {
        for at in 0..self.asking.len() {
            if let Poll::Ready((answer, by)) = self.asking[at].said.as_mut().poll(cx) {
                let asking = self.asking.swap_remove(at);
                return Poll::Ready(self.answered(&asking, answer, &by));
            }
        }
        Poll::Pending
    }

    fn finish(&mut self) -> Result<Bytes, Box<Failure>> {
        let mut last = Vec::new();
        if let Some(first) = &mut self.first {
            let rest = first.finish()?;
            last.extend_from_slice(&self.mend(rest)?);
        }
        // Who asked has stopped listening.
        for asking in std::mem::take(&mut self.asking) {
            last.extend_from_slice(&self.answered(&asking, Answer::Withdrawn, "")?);
        }
        let mended = self.exchange.watch(|watcher| watcher.mend_end());
        last.extend_from_slice(&self.take(mended.unwrap_or_default())?);
        Ok(last.into())
    }

    fn trailers(&mut self, trailers: &mut HeaderMap) -> Result<(), Box<Failure>> {
        self.first.as_mut().map_or(Ok(()), |first| first.trailers(trailers))
    }

    fn replaced(&mut self) -> u64 {
        self.first.as_mut().map_or(0, |first| first.replaced())
    }

    fn noticed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.flags)
    }
}

/// Says one thing after the other, each judged and recorded like a request that comes from inside.
async fn deliver(way: Way, mut bodies: mpsc::Receiver<Bytes>) {
    while let Some(body) = bodies.recv().await {
        let mut head = Request::new(()).into_parts().0;
        (head.method, head.uri, head.headers) = (Method::POST, way.uri.clone(), way.headers.clone());
        for name in ["last-event-id", "content-encoding", "transfer-encoding", "expect", "range"] {
            head.headers.remove(name);
        }
        head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let both = HeaderValue::from_static("application/json, text/event-stream");
        head.headers.insert(header::ACCEPT, both);
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        let mut payload = Payload::Whole(body);
        let conn = way.conn.clone();
        let said = async {
            // What fails is on record like any request's failure; nobody here waits for it.
            if let Ok(answer) = let_out(conn, way.target.clone(), head, &mut payload).await {
                drain(answer.into_body()).await;
            }
        };
        let _ = tokio::time::timeout(POST_TIME, said).await;
    }
}

/// Reads an answer that nobody wants, so that its connection can be used again.
async fn drain(mut answer: Flow) {
    let mut left = MOST_DRAINED;
    while let Some(Ok(frame)) = answer.frame().await {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        if left == 0 {
            return;
        }
    }
}
