//! Calls of models over a WebSocket, as OpenAI's responses have them: each message of the client's that asks for a
//! response is a call, and the events that follow are its answer, as they would be in a stream of a request of its own. So
//! each stands on record as an exchange with its bytes, and is judged by budgets before it goes.

use crate::body::Capture;
use crate::body::capture::micros;
use crate::budget::Aside;
use crate::exchange::{self, Answering, Request};
use crate::model::{Api, Asked};
use crate::tap::Shared;
use crate::told::{Call, tell};
use cofferdam_model::{Body, Ending, NotRecorded, Outgoing, Stop, Watcher};
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;

/// Whether a request opens a WebSocket.
pub(crate) fn is_one(request: &Outgoing<'_>) -> bool {
    let mut names = request.headers.iter().map(|(name, _)| name);
    request.method == "GET" && names.any(|name| name.eq_ignore_ascii_case("sec-websocket-key"))
}

pub(crate) struct Socket {
    shared: Arc<Shared>,
    event: u64,
    request: Request,
    without_bodies: bool,
    /// The opening itself.
    opening: Option<Answering>,
    headers: Vec<(String, Vec<u8>)>,
    began: Instant,
    /// The call that has no end yet.
    open: Option<Under>,
    failed: Option<NotRecorded>,
}

/// A call under way.
struct Under {
    asked: Asked,
    sent: Capture,
    answer: Answering,
    aside: Option<Aside>,
    began: Instant,
}

impl Socket {
    pub(crate) fn new(shared: Arc<Shared>, request: &Outgoing<'_>) -> Self {
        Self {
            event: request.event,
            request: Request::of(request),
            without_bodies: shared.policy().keeps_no_bodies(request.host),
            opening: None,
            headers: Vec::new(),
            began: Instant::now(),
            open: None,
            failed: None,
            shared,
        }
    }

    /// A message of the client's: the beginning of a call, or something about one.
    fn asks(&mut self, message: &[u8]) -> Result<(), Stop> {
        let is_counted = self.shared.counts(&self.request.host);
        let Ok(value) = serde_json::from_slice::<Value>(message) else {
            return if is_counted { Err(unreadable("no JSON")) } else { Ok(()) };
        };
        if value["type"] != "response.create" {
            return Ok(());
        }
        // Some send what is asked within, some beside the type.
        let body = value.get("response").filter(|inner| inner.is_object()).unwrap_or(&value);
        let mut asked = Api::Responses.asked(&self.request.path, body);
        asked.streamed = true;
        asked.parameters.remove("type");
        if body["generate"] == false {
            // It only warms a cache.
            asked.most = Some(0);
        }
        if self.open.is_some() {
            if is_counted {
                return Err(unreadable("a second call before the first has its answer"));
            }
            self.close(Ending::ClientGone).map_err(|error| self.fail(error))?;
        }
        let aside = match is_counted {
            true => Some(self.shared.set_aside(&asked, &self.request.host, message.len() as u64)?),
            false => None,
        };
        let mut sent = Capture::new(&self.shared.room);
        sent.push(message);
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let answer = Answering::new(101, &headers, 0, &self.shared.room);
        self.open = Some(Under { asked, sent, answer, aside, began: Instant::now() });
        Ok(())
    }

    fn fail(&mut self, error: NotRecorded) -> Stop {
        let stop = Stop { cause: "not-recorded".to_owned(), reason: error.to_string() };
        self.failed = Some(error);
        stop
    }

    /// An event of the answer. It is kept as it would stand in a stream.
    fn says(&mut self, message: &[u8]) -> Result<(), NotRecorded> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if open.answer.first_us == 0 {
            open.answer.first_us = micros(open.began.elapsed()).max(1);
        }
        open.answer.body.push(&[b"data: ", message, b"\n\n"].concat());
        let kind = serde_json::from_slice::<Value>(message).ok();
        let kind = kind.as_ref().and_then(|value| value["type"].as_str()).unwrap_or_default();
        match kind {
            "response.completed" | "response.incomplete" | "response.failed" | "error" => {
                self.close(Ending::Complete)
            }
            _ => Ok(()),
        }
    }

    /// The call has its end.
    fn close(&mut self, ending: Ending) -> Result<(), NotRecorded> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let (record, total_us) = (&*self.shared.record, micros(open.began.elapsed()));
        let fact = exchange::recorded(
            &self.request,
            &mut open.sent,
            Some(&mut open.answer),
            ending,
            self.without_bodies,
            record,
        )?;
        let exchange = record.append(Some(self.event), &Body::ExchangeRecorded(Box::new(fact)))?;
        let call = Call {
            event: self.event,
            exchange,
            api: Api::Responses,
            asked: open.asked,
            request: &self.request,
            sent: &open.sent,
            answer: Some(&open.answer),
            ending,
            total_us,
            without_bodies: self.without_bodies,
        };
        let spent = tell(&self.shared, call)?;
        if let Some(aside) = open.aside {
            let most = aside.amount();
            aside.spend(spent.unwrap_or(most));
        }
        Ok(())
    }
}

/// What cannot be read cannot be counted.
fn unreadable(what: &str) -> Stop {
    let reason = format!(
        "a budget counts calls of models here, and a message is {what}: send one call after the other as JSON"
    );
    Stop { cause: Stop::SPEND_CAP.to_owned(), reason }
}

impl Watcher for Socket {
    fn sent(&mut self, _: &[u8]) {}

    fn answered(&mut self, status: u16, headers: &[(&str, &[u8])]) {
        self.headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
        let first_us = micros(self.began.elapsed());
        self.opening = Some(Answering::new(status, headers, first_us, &self.shared.room));
    }

    fn received(&mut self, chunk: &[u8]) {
        if let Some(opening) = &mut self.opening {
            opening.body.push(chunk);
        }
    }

    fn hears(&self) -> bool {
        true
    }

    fn heard(&mut self, is_sent: bool, message: &[u8]) -> Result<(), Stop> {
        if is_sent {
            return self.asks(message);
        }
        self.says(message).map_err(|error| self.fail(error))
    }

    fn ended(mut self: Box<Self>, ending: Ending) -> Result<(), NotRecorded> {
        self.close(ending)?;
        let mut nothing = Capture::new(&self.shared.room);
        let record = &*self.shared.record;
        let fact = exchange::recorded(
            &self.request,
            &mut nothing,
            self.opening.as_mut(),
            ending,
            self.without_bodies,
            record,
        )?;
        record.append(Some(self.event), &Body::ExchangeRecorded(Box::new(fact)))?;
        self.failed.map_or(Ok(()), Err)
    }
}
