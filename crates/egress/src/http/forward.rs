//! Sends what was allowed: credentials in their places, on record, over a connection that is used for
//! nothing else; and brings the answer back with the placeholders where the credentials were.

use super::body::{Payload, Scrubbing};
use super::decide::{Cleared, is_denied_now, record_spent};
use super::flow::{Filter, Flow, Home, Rest};
use super::identify::{Scheme, Target, address_to};
use super::mended::{Mending, Way};
use super::prepare::{Prepared, Preparing, prepare};
use super::service::{Conn, Upgrade};
use super::tapped::{Offer, Offered, Seen, fields, play, refused};
use super::upgrade::{Filters, relay};
use super::{hop, mint, websocket};
use crate::exchange::{Exchange, Side};
use crate::rescue::Failure;
use crate::rules::Rules;
use crate::session::Session;
use crate::swap::{Destination, Used};
use crate::upstream::dial::Route;
use crate::upstream::pool::{Key, Sender};
use cofferdam_model::{Ending, Reply};
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode, Version, response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

const ALT_SVC: HeaderName = HeaderName::from_static("alt-svc");

/// A request that has leave to go out.
pub(crate) struct Forwarding<'a> {
    pub(crate) conn: &'a Arc<Conn>,
    pub(crate) rules: &'a Arc<Rules>,
    pub(crate) target: Target,
    pub(crate) head: Parts,
    pub(crate) payload: &'a mut Payload,
    pub(crate) cleared: Cleared,
    /// Whether the policy changed the request.
    pub(crate) rewritten: bool,
    pub(crate) upgrade: Option<Upgrade>,
    pub(crate) began: Instant,
}

pub(crate) async fn forward(mut this: Forwarding<'_>) -> Result<Response<Flow>, Failure> {
    let conn = this.conn;
    let session = &conn.session;
    let is_h2 = this.head.version == Version::HTTP_2;
    let tapped = Seen::of(session, &this.head);
    let authority = this.target.authority();
    if let Some(reply) = mint::answer(session, &this.target, &this.head, this.payload).await? {
        return answered(this, reply);
    }
    let prepared = prepare(Preparing {
        session,
        rules: this.rules,
        to: Destination { host: &this.target.host, port: this.target.port, program: conn.program.as_deref() },
        authority: &authority,
        rewritten: this.rewritten,
        head: &mut this.head,
        payload: &mut *this.payload,
        upgrade: this.upgrade.as_ref().map(|upgrade| &upgrade.protocol),
    });
    let (Prepared { used, mut filter, noticed, doubt, seen }, mut cleared) = (prepared.await?, this.cleared);
    if let Some(doubt) = doubt {
        cleared = cleared.review(session, doubt).await?;
    }
    let policy = this.rules.policy();
    let meter = session.tallies.open(policy.budgets(&this.target.host)).map_err(Failure::OverBudget)?;
    let (seq, event) = cleared.record(session, &used.credentials)?;
    let limits = (meter, policy.large_transfer());
    let exchange = session.live.begin(seq, event, used.credentials.clone(), limits, this.began);
    noticed.into_iter().for_each(|text| exchange.flag(text));
    still_allowed(session, this.rules, &used, &exchange)?;
    let mut way = None;
    if let Some(tapped) = tapped {
        let offer = Offer {
            conn,
            exchange: &exchange,
            event: seq,
            target: &this.target,
            headers: &mut this.head.headers,
            payload: &mut *this.payload,
            seen,
            filter: &mut filter,
            upgrades: this.upgrade.is_some(),
        };
        match tapped.offer(offer).await? {
            Offered::Answered(answer) => return Ok(*answer),
            Offered::Goes(mended) => way = mended,
        }
    }
    record_spent(session, seq, &exchange.asked, &used.credentials).map_err(|e| refused(&exchange, e))?;
    let tls = this.target.scheme == Scheme::Https;
    let key = Key {
        host: this.target.host.clone(),
        port: this.target.port,
        tls,
        h2: is_h2 && tls && this.upgrade.is_none(),
        credentials: fingerprint(&used),
    };
    let rest = Rest::default();
    let (body, up) = outgoing(this.payload.take(), this.upgrade.is_some(), filter, &exchange, &rest);
    if let Some(upgrade) = &this.upgrade {
        ask_upgrade(&mut this.head, upgrade, up.is_some() || hears(&exchange));
    }
    let mut request = Some(Request::from_parts(this.head, body));
    let sending = send(session, &key, this.rules, &this.target, &mut request);
    let sent = tokio::select! {
        biased;
        () = exchange.until_cut(Side::Down) => Err(Failure::Cut(exchange.ending().unwrap_or(Ending::Refused))),
        sent = sending => sent,
    };
    let (response, sender) = sent.map_err(|failure| {
        // What never left, or was refused on its way, is still there to be read to its end.
        let stopped = || rest.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(body) = request.and_then(|request| request.into_body().reclaim()).or_else(stopped) {
            *this.payload = Payload::Live(body);
        }
        ended(&exchange, failure)
    })?;
    let back = Back { conn, exchange, used, key, sender, up, upgrade: this.upgrade, way };
    back.answer(response)
}

/// The body as it leaves, and what looks at what follows a change of protocol.
fn outgoing(
    payload: Payload,
    upgrades: bool,
    filter: Option<Box<dyn Filter>>,
    exchange: &Arc<Exchange>,
    rest: &Rest,
) -> (Flow, Option<Box<dyn Filter>>) {
    let exchange = exchange.clone();
    match payload {
        Payload::Whole(bytes) => (Flow::collected(bytes, exchange), filter),
        // What the filter is for comes after the change of protocol.
        Payload::Live(body) if upgrades => (Flow::live(body, Side::Up, exchange, None, None), filter),
        Payload::Live(body) => {
            (Flow::live(body, Side::Up, exchange, filter, None).leaving(rest.clone()), None)
        }
        Payload::Begun(begun) => (Flow::begun(begun, exchange, filter).leaving(rest.clone()), None),
    }
}

/// An answer of our own, on record like any other.
fn answered(this: Forwarding<'_>, reply: Reply) -> Result<Response<Flow>, Failure> {
    let (session, policy) = (&this.conn.session, this.rules.policy());
    let meter = session.tallies.open(policy.budgets(&this.target.host)).map_err(Failure::OverBudget)?;
    let (seq, event) = this.cleared.record(session, &[])?;
    let exchange = session.live.begin(seq, event, Vec::new(), (meter, policy.large_transfer()), this.began);
    still_allowed(session, this.rules, &Used::default(), &exchange)?;
    exchange.flag("answered here: a token stays outside".to_owned());
    play(reply, &this.head.method, exchange, None)
}

/// The exchange's end for a request that got no answer.
fn ended(exchange: &Exchange, failure: Failure) -> Failure {
    match exchange.ending() {
        // Whoever cut it knows why; that the sending failed is a consequence.
        Some(Ending::Refused) => Failure::Stopped(exchange.detail().unwrap_or_default().to_owned()),
        Some(why) if exchange.is_cut() => Failure::Cut(why),
        _ => {
            exchange.explain(failure.to_string());
            exchange.end(Ending::UpstreamFailed);
            failure
        }
    }
}

/// Between the look at rules and credentials and the list of what is under way, someone may have changed
/// them: from here on a change finds the exchange in the list.
pub(crate) fn still_allowed(
    session: &Session,
    rules: &Arc<Rules>,
    used: &Used,
    exchange: &Exchange,
) -> Result<(), Failure> {
    let now = session.rules.load();
    if !session.coffer.is_current(used) {
        exchange.cut(Ending::Revoked);
    } else if session.is_open().is_err() {
        exchange.cut(Ending::Paused);
    } else if !Arc::ptr_eq(&now, rules) && is_denied_now(&exchange.asked, &now) {
        exchange.cut(Ending::PolicyChanged);
    }
    match exchange.ending() {
        Some(why) => Err(Failure::Cut(why)),
        None => Ok(()),
    }
}

fn fingerprint(used: &Used) -> u64 {
    if used.credentials.is_empty() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    for credential in &used.credentials {
        (&*credential.name, credential.generation).hash(&mut hasher);
    }
    hasher.finish()
}

/// Whether someone listens to what follows a change of protocol.
fn hears(exchange: &Exchange) -> bool {
    exchange.watch(|watcher| watcher.hears()) == Some(true)
}

fn ask_upgrade(head: &mut Parts, upgrade: &Upgrade, looked_into: bool) {
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    head.headers.insert(header::UPGRADE, upgrade.protocol.clone());
    if looked_into {
        // Compressed messages could not be looked into.
        head.headers.remove(header::SEC_WEBSOCKET_EXTENSIONS);
    }
}

/// Over a kept connection if there is one; a request that never left it is sent over a new one. What could
/// not be sent at all stays in `request`.
async fn send(
    session: &Session,
    key: &Key,
    rules: &Rules,
    target: &Target,
    request: &mut Option<Request<Flow>>,
) -> Result<(Response<Incoming>, Sender), Failure> {
    while let Some(sender) = session.pool.kept(key).await {
        if let Some(answer) = send_over(sender, target, request).await? {
            return Ok(answer);
        }
    }
    let route =
        Route { host: target.host.clone(), port: target.port, fixed: rules.fixed(&target.host).cloned() };
    let sender = session.pool.fresh(key, &route).await?;
    let answer = send_over(sender, target, request).await?;
    answer.ok_or_else(|| Failure::BrokeOff(target.host.clone()))
}

/// None if the connection was gone before anything was sent.
async fn send_over(
    mut sender: Sender,
    target: &Target,
    request: &mut Option<Request<Flow>>,
) -> Result<Option<(Response<Incoming>, Sender)>, Failure> {
    let Some(whole) = request.take() else { return Ok(None) };
    let (mut head, body) = whole.into_parts();
    address_to(target, &mut head, sender.is_h2())?;
    match sender.send(Request::from_parts(head, body)).await {
        Ok(response) => Ok(Some((response, sender))),
        Err(not_sent) => match not_sent.request {
            Some(back) => {
                *request = Some(back);
                Ok(None)
            }
            None => Err(Failure::Upstream { host: target.host.clone(), source: not_sent.error }),
        },
    }
}

/// What is needed on the way back.
struct Back<'a> {
    conn: &'a Arc<Conn>,
    exchange: Arc<Exchange>,
    used: Used,
    key: Key,
    sender: Sender,
    up: Option<Box<dyn Filter>>,
    upgrade: Option<Upgrade>,
    /// Where someone says what goes on of the answer.
    way: Option<Box<Way>>,
}

impl Back<'_> {
    fn answer(mut self, response: Response<Incoming>) -> Result<Response<Flow>, Failure> {
        let (mut head, body) = response.into_parts();
        self.exchange.answered(head.status.as_u16());
        let scrubber = self.conn.session.coffer.response(&self.used, &mut head).map_err(|error| {
            let reason = error.to_string();
            ended(&self.exchange, Failure::Unreadable { host: self.key.host.clone(), reason })
        })?;
        let filter = scrubber.map(|scrubber| {
            Box::new(Scrubbing { scrubber, host: self.key.host.clone(), told: 0 }) as Box<dyn Filter>
        });
        let answered = hop::upgrade(&head.headers);
        hop::strip(&mut head.headers);
        // It would lead the client around us.
        head.headers.remove(ALT_SVC);
        head.version = Version::HTTP_11;
        let (mut filter, mut mending) = (filter, None);
        if let Some(way) = self.way.take() {
            let switches = head.status == StatusCode::SWITCHING_PROTOCOLS;
            let reason = "it changes the protocol of what is spoken with a server of tools".to_owned();
            let made = match switches {
                true => Err(Failure::Unreadable { host: self.key.host.clone(), reason }),
                false => Mending::new(way, self.exchange.clone(), filter.take(), &mut head.headers),
            };
            mending = Some(made.map_err(|failure| ended(&self.exchange, failure))?);
        }
        self.exchange.watch(|watcher| watcher.answered(head.status.as_u16(), &fields(&head.headers)));
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return self.switch(head, body, answered, filter);
        }
        let home = match self.sender {
            Sender::H1(sender) => Some(Home { pool: self.conn.session.pool.clone(), key: self.key, sender }),
            Sender::H2(_) => None,
        };
        let flow = Flow::live(body, Side::Down, self.exchange, filter, home).mended_by(mending);
        Ok(Response::from_parts(head, flow))
    }

    /// Both sides leave HTTP, if that is what both meant.
    fn switch(
        self,
        mut head: response::Parts,
        body: Incoming,
        answered: Option<HeaderValue>,
        down: Option<Box<dyn Filter>>,
    ) -> Result<Response<Flow>, Failure> {
        let (Some(upgrade), Some(protocol)) = (self.upgrade, answered) else {
            let reason = "it changes a protocol that nobody asked to change".to_owned();
            let failure = Failure::Unreadable { host: self.key.host.clone(), reason };
            return Err(ended(&self.exchange, failure));
        };
        let is_websocket = protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
        head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        head.headers.insert(header::UPGRADE, protocol);
        let mut response = Response::from_parts(head, body);
        let upstream = hyper::upgrade::on(&mut response);
        self.conn.opened.open();
        let (exchange, filters) = (self.exchange, Filters { up: self.up, down });
        tokio::spawn(async move {
            let (Ok(client), Ok(upstream)) = tokio::join!(upgrade.client, upstream) else { return };
            let (client, upstream) = (TokioIo::new(client), TokioIo::new(upstream));
            if is_websocket && (filters.any() || hears(&exchange)) {
                websocket::relay(client, upstream, exchange, filters).await;
            } else {
                relay(client, upstream, exchange, filters).await;
            }
        });
        Ok(response.map(|_| Flow::whole(bytes::Bytes::new())))
    }
}
