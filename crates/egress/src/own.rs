//! Requests to the proxy itself, which lead nowhere: at the address that clients know it by, in the form that is
//! meant for a server. Someone else says what is answered; here they are read, within a bound, and may wait for a
//! person.

use crate::alert::Sighting;
use crate::approvals::{Held, Reply};
use crate::http::body::Payload;
use crate::http::flow::Flow;
use crate::rescue::Failure;
use crate::session::Session;
use cofferdam_model::{Answer, NotRecorded};
use cofferdam_policy::Notice;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use std::time::Instant;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct OwnRequest<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub content_type: Option<&'a str>,
    pub content_encoding: Option<&'a str>,
    pub body: &'a [u8],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnAnswer {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

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
}

/// Answers what is asked of the proxy itself, from many threads, and keeps none of them waiting.
pub trait Own: Send + Sync {
    /// The longest body that is read.
    fn longest(&self) -> usize;

    fn take(&self, request: &OwnRequest<'_>) -> Result<OwnNext, NotRecorded>;
}

pub(crate) async fn answer(
    session: &Session,
    own: &dyn Own,
    head: &Parts,
    payload: &mut Payload,
) -> Result<Response<Flow>, Failure> {
    let body = payload.collect(own.longest()).await?;
    let field = |name: HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
    let next = own.take(&OwnRequest {
        method: head.method.as_str(),
        path: head.uri.path(),
        content_type: field(CONTENT_TYPE),
        content_encoding: field(CONTENT_ENCODING),
        body,
    })?;
    let answer = match next {
        OwnNext::Answer(answer) => answer,
        OwnNext::Ask { held, event, then } => {
            let began = Instant::now();
            let (answer, by) = ask(session, held, event).await;
            then(answer, &by, began.elapsed().as_micros() as u64)?
        }
    };
    let mut response = Response::new(Flow::whole(answer.body.into()));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    Ok(response)
}

/// More than anyone reads is a no.
pub(crate) async fn ask(session: &Session, held: Held, event: u64) -> (Answer, String) {
    let (destination, detail) = (format!("{} {}", held.method, held.url), held.reason.clone());
    let patience = session.limits.review_time;
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
