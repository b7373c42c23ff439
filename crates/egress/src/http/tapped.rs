//! Lets a layer that understands traffic look at an exchange, and act on what it says: let it go, refuse it, or
//! answer it from a recording, in which case nothing leaves. It sees what the sandbox sees: the request before
//! credentials are put in, the answer after they are taken out.

use super::body::Payload;
use super::flow::{Filter, Flow};
use super::hop;
use super::identify::Target;
use super::mended::{Mending, Way};
use super::service::Conn;
use crate::approvals::Held;
use crate::exchange::{Exchange, Side};
use crate::own;
use crate::rescue::Failure;
use crate::session::Session;
use bytes::Bytes;
use cofferdam_model::{Ending, Next, Outgoing, Question, Reply, Tap};
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// The flag under which an answer from a recording stands in the record.
const REPLAYED: &str = "replayed";

/// A request's head as it came from inside, kept until there is an event to tell it under.
pub(super) struct Seen {
    tap: Arc<dyn Tap>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

/// What is under way, and what may still be changed of it.
pub(super) struct Offer<'a> {
    pub(super) conn: &'a Arc<Conn>,
    pub(super) exchange: &'a Arc<Exchange>,
    pub(super) event: u64,
    pub(super) target: &'a Target,
    pub(super) headers: &'a mut HeaderMap,
    pub(super) payload: &'a mut Payload,
    /// The body before credentials were put in, where it is here already.
    pub(super) seen: Option<Bytes>,
    pub(super) filter: &'a mut Option<Box<dyn Filter>>,
    pub(super) upgrades: bool,
}

/// What becomes of a request that was offered.
pub(super) enum Offered {
    /// It goes its way; and how it went, where someone will say what comes back of its answer.
    Goes(Option<Box<Way>>),
    Answered(Box<Response<Flow>>),
}

impl Seen {
    /// Nothing if nobody looks.
    pub(super) fn of(session: &Session, head: &Parts) -> Option<Self> {
        let tap = session.tap.clone()?;
        Some(Self { tap, method: head.method.clone(), uri: head.uri.clone(), headers: head.headers.clone() })
    }

    /// Offers the exchange to the tap, and gives the answer if that does not come from the upstream.
    pub(super) async fn offer(self, offer: Offer<'_>) -> Result<Offered, Failure> {
        let (exchange, mut offer) = (offer.exchange.clone(), offer);
        let (conn, target) = (offer.conn.clone(), offer.target.clone());
        let mut later = None;
        if offer.upgrades {
            // It is for what comes after the change of protocol.
            offer.filter = &mut later;
        }
        let held = tokio::select! {
            biased;
            () = exchange.until_cut(Side::Down) => Err(Failure::Cut(exchange.ending().unwrap_or(Ending::Refused))),
            held = self.decide(offer) => held,
        };
        let mends = exchange.watch(|watcher| watcher.mends()) == Some(true);
        let Self { method, uri, headers, .. } = self;
        let way = mends.then(|| Box::new(Way { conn, target, uri, headers }));
        match held {
            Ok(Next::Forward) => Ok(Offered::Goes(way)),
            Ok(Next::Answer(reply)) => {
                exchange.flag(REPLAYED.to_owned());
                Ok(Offered::Answered(Box::new(play(reply, &method, exchange, way)?)))
            }
            Ok(Next::Refuse(stop)) => Err(refused(&exchange, stop.into())),
            // Only what is held can ask, and that was answered.
            Ok(Next::Ask(_)) => Err(refused(&exchange, Failure::Paused)),
            Err(failure) => Err(refused(&exchange, failure)),
        }
    }

    async fn decide(&self, offer: Offer<'_>) -> Result<Next, Failure> {
        let Offer { conn, exchange, event, target, headers, payload, seen, filter, .. } = offer;
        let (session, fields) = (&*conn.session, fields(&self.headers));
        let watcher = self.tap.open(&Outgoing {
            event,
            scheme: target.scheme.name(),
            host: &target.host,
            port: target.port,
            method: self.method.as_str(),
            path: self.uri.path(),
            query: self.uri.query(),
            headers: &fields,
            rule: exchange.asked.rule.as_deref(),
            credentials: &exchange.asked.credentials,
        })?;
        let Some(watcher) = watcher else { return Ok(Next::Forward) };
        let holds = watcher.holds();
        exchange.watched_by(watcher);
        let whole = match (seen, &*payload) {
            (Some(bytes), _) => bytes,
            (None, Payload::Live(_) | Payload::Begun(_)) if !holds && !payload.is_empty() => {
                return Ok(Next::Forward);
            }
            (None, _) => collect(session, headers, payload, filter).await?,
        };
        let mut next = exchange.watch(|watcher| {
            if !whole.is_empty() {
                watcher.sent(&whole);
            }
            watcher.sent_all()
        });
        while let (true, Some(Next::Ask(question))) = (holds, &next) {
            let (question, began) = (question.clone(), Instant::now());
            let (answer, by) = own::ask(session, held(&question, exchange), question.event).await;
            // Whatever was switched while it waited holds.
            session.is_open()?;
            let waited = began.elapsed().as_micros() as u64;
            next = exchange.watch(|watcher| watcher.asked(&question, answer, &by, waited));
        }
        if exchange.watch(|watcher| watcher.mends()) == Some(true) {
            // What is compressed would have to be decompressed to be read.
            headers.remove(header::ACCEPT_ENCODING);
        }
        Ok(next.filter(|_| holds).unwrap_or(Next::Forward))
    }
}

pub(super) fn held(question: &Question, exchange: &Exchange) -> Held {
    Held {
        id: 0,
        rule: question.rule.clone(),
        reason: question.reason.clone(),
        method: question.kind.clone(),
        url: question.what.clone(),
        program: exchange.asked.program.clone(),
        credentials: exchange.asked.credentials.clone(),
        since: 0,
        until: 0,
    }
}

/// Brings a body into memory that would have streamed; what looks through it looks through it now.
async fn collect(
    session: &Session,
    headers: &mut HeaderMap,
    payload: &mut Payload,
    filter: &mut Option<Box<dyn Filter>>,
) -> Result<Bytes, Failure> {
    if payload.is_empty() {
        *payload = Payload::Whole(Bytes::new());
        return Ok(Bytes::new());
    }
    // What has begun to pass was looked through.
    let (first, limit) = (payload.take_first(), session.limits.body);
    let left = limit.checked_sub(first.len()).ok_or(Failure::TooLarge { limit })?;
    let body = payload.collect(left).await?;
    if let Some(mut filter) = filter.take() {
        let passed = filter.pass(std::mem::take(body)).map_err(|failure| *failure)?;
        let rest = filter.finish().map_err(|failure| *failure)?;
        *body = if rest.is_empty() { passed } else { [passed, rest].concat().into() };
    }
    if !first.is_empty() {
        *body = [first, std::mem::take(body)].concat().into();
    }
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    Ok(body.clone())
}

/// The exchange's end for a request that did not leave.
pub(super) fn refused(exchange: &Exchange, failure: Failure) -> Failure {
    exchange.explain(failure.to_string());
    exchange.end(match &failure {
        Failure::Body(_) => Ending::ClientGone,
        _ => Ending::Refused,
    });
    failure
}

pub(super) fn fields(headers: &HeaderMap) -> Vec<(&str, &[u8])> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

/// An answer that comes from nowhere outside, on its way like any other.
pub(super) fn play(
    reply: Reply,
    method: &Method,
    exchange: Arc<Exchange>,
    way: Option<Box<Way>>,
) -> Result<Response<Flow>, Failure> {
    let mut headers = HeaderMap::new();
    for (name, value) in &reply.headers {
        let pair = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value));
        if let (Ok(name), Ok(value)) = pair {
            headers.append(name, value);
        }
    }
    hop::strip(&mut headers);
    let bytes: usize = reply.parts.iter().map(|(_, part)| part.len()).sum();
    let claimed = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    // A wrong length would make the answer unreadable; one that goes without a body tells of another's.
    if claimed != Some(bytes) && *method != Method::HEAD {
        headers.remove(header::CONTENT_LENGTH);
    }
    let mending = way.map(|way| Mending::new(way, exchange.clone(), None, &mut headers)).transpose();
    let mending = mending.map_err(|failure| refused(&exchange, failure))?;
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::BAD_GATEWAY);
    exchange.uploaded();
    exchange.answered(status.as_u16());
    exchange.watch(|watcher| watcher.answered(status.as_u16(), &fields(&headers)));
    let left = (claimed == Some(bytes) && mending.is_none()).then_some(bytes);
    let parts = reply.parts.into_iter().map(|(wait, part)| (wait, part.into())).collect();
    let mut response = Response::new(Flow::played(Played { parts, left, wait: None }, exchange, mending));
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    Ok(response)
}

/// The parts of a recorded body, each after its wait.
pub(super) struct Played {
    parts: VecDeque<(Duration, Bytes)>,
    /// What is to come, where the head tells it.
    left: Option<usize>,
    wait: Option<Pin<Box<Sleep>>>,
}

impl Played {
    pub(super) fn is_over(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn left(&self) -> Option<usize> {
        self.left
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some((wait, _)) = self.parts.front().filter(|(wait, _)| !wait.is_zero()) {
            let wait = *wait;
            ready!(self.wait.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait))).as_mut().poll(cx));
            self.wait = None;
        }
        let part = self.parts.pop_front().map(|(_, part)| part);
        if let (Some(left), Some(part)) = (&mut self.left, &part) {
            *left = left.saturating_sub(part.len());
        }
        Poll::Ready(part)
    }
}
