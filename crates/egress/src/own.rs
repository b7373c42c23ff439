//! Requests to the proxy itself, which lead nowhere: at the address that clients know it by, in the form that is
//! meant for a server. Someone else says what is answered; here they are read, within a bound, and may wait for a
//! person.

mod line;

pub use line::{Ear, Mouth, Near, line};

use crate::alert::Sighting;
use crate::approvals::{Held, Reply};
use crate::front::gate::Opened;
use crate::http::body::Payload;
use crate::http::flow::Flow;
use crate::rescue::Failure;
use crate::session::Session;
use cofferdam_model::{Answer, NotRecorded, OwnAnswer, OwnRequest};
use cofferdam_policy::Notice;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use std::time::{Duration, Instant};

/// Given what people said, by whom, and how long they took.
pub type Then = Box<dyn FnOnce(Answer, &str, u64) -> Result<OwnAnswer, NotRecorded> + Send>;

pub enum OwnNext {
    Answer(OwnAnswer),
    /// Once people were asked about this event.
    Ask {
        held: Held,
        event: u64,
        then: Then,
    },
    /// Ask again in a moment, for a while.
    NotYet,
}

/// What becomes of a client that wants to go on by WebSocket.
pub enum Talk {
    Refuse(OwnAnswer),
    Begin(Near),
    NotYet,
}

/// Answers what is asked of the proxy itself, from many threads, and keeps none of them waiting.
pub trait Own: Send + Sync {
    /// The longest body that is read.
    fn longest(&self) -> usize;

    fn take(&self, request: &OwnRequest<'_>) -> Result<OwnNext, NotRecorded>;

    fn talk(&self, request: &OwnRequest<'_>) -> Talk;
}

/// How long something that is not there yet is waited for, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(60);
const PACE: Duration = Duration::from_millis(20);

/// A request to us, and how it came.
pub(crate) struct Visit<'a> {
    pub(crate) head: &'a Parts,
    pub(crate) path: &'a str,
    pub(crate) prefix: &'a str,
    /// For a client that wants to change the protocol.
    pub(crate) upgrade: Option<OnUpgrade>,
    pub(crate) opened: &'a Opened,
}

impl Visit<'_> {
    fn request<'a>(&'a self, body: &'a [u8]) -> OwnRequest<'a> {
        let field = |name: HeaderName| self.head.headers.get(name).and_then(|value| value.to_str().ok());
        OwnRequest {
            method: self.head.method.as_str(),
            path: self.path,
            prefix: self.prefix,
            host: field(HOST),
            // One that is no text is one all the same.
            origin: self.head.headers.get(ORIGIN).map(|value| value.to_str().unwrap_or("?")),
            content_type: field(CONTENT_TYPE),
            content_encoding: field(CONTENT_ENCODING),
            body,
        }
    }
}

pub(crate) async fn answer(
    session: &Session,
    own: &dyn Own,
    mut visit: Visit<'_>,
    payload: &mut Payload,
) -> Result<Response<Flow>, Failure> {
    if let (Some(key), Some(client)) = (line::key(visit.head), visit.upgrade.take()) {
        return Ok(talk(own, &visit, &key, client).await);
    }
    let body = payload.collect(own.longest()).await?;
    let until = Instant::now() + PATIENCE;
    let next = loop {
        match own.take(&visit.request(body))? {
            OwnNext::NotYet if Instant::now() < until => tokio::time::sleep(PACE).await,
            next => break next,
        }
    };
    let answer = match next {
        OwnNext::Answer(answer) => answer,
        OwnNext::Ask { held, event, then } => {
            let began = Instant::now();
            let (answer, by) = ask(session, held, event).await;
            then(answer, &by, began.elapsed().as_micros() as u64)?
        }
        OwnNext::NotYet => too_late(),
    };
    Ok(response(answer))
}

async fn talk(own: &dyn Own, visit: &Visit<'_>, key: &str, client: OnUpgrade) -> Response<Flow> {
    let until = Instant::now() + PATIENCE;
    loop {
        match own.talk(&visit.request(&[])) {
            Talk::NotYet if Instant::now() < until => tokio::time::sleep(PACE).await,
            Talk::NotYet => return response(too_late()),
            Talk::Refuse(answer) => return response(answer),
            Talk::Begin(near) => {
                visit.opened.open();
                tokio::spawn(line::carry(client, near));
                return line::accept(key);
            }
        }
    }
}

/// For whoever does not know the way.
pub(crate) fn nothing_here() -> Response<Flow> {
    response(OwnAnswer {
        status: 404,
        content_type: "text/plain; charset=utf-8",
        body: b"not found\n".to_vec(),
    })
}

fn too_late() -> OwnAnswer {
    let body = b"cofferdam: it did not come up in time; the session's trace says why\n".to_vec();
    OwnAnswer { status: 503, content_type: "text/plain; charset=utf-8", body }
}

fn response(answer: OwnAnswer) -> Response<Flow> {
    let mut response = Response::new(Flow::whole(answer.body.into()));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    response
}

/// More than anyone reads is a no.
pub(crate) async fn ask(session: &Session, held: Held, event: u64) -> (Answer, String) {
    let (destination, detail) = (format!("{} {}", held.method, held.url), held.reason.clone());
    let patience = session.patience();
    let Ok(question) = session.approvals.ask(held, patience) else {
        return (Answer::TimedOut, String::new());
    };
    session.alerts.tell(Notice::Held, &session.coffer, || Sighting {
        cause: "review".to_owned(),
        destination,
        detail,
        held: Some(question.number()),
        event: Some(event),
        times: 1,
        ..Sighting::default()
    });
    match question.wait(patience).await {
        Reply::Allowed { by } => (Answer::Allowed, by),
        Reply::Denied { by } => (Answer::Denied, by),
        Reply::TimedOut => (Answer::TimedOut, String::new()),
        Reply::Withdrawn => (Answer::Withdrawn, String::new()),
    }
}
