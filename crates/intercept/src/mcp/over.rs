//! How things end that are not answered: what is told and needs no answer, what is taken back, and what is lost.

use super::call::{Call, Kind};
use super::mediator::{Done, Mediator, Out, is_client, other, to};
use super::message::{self, Id, Message};
use cofferdam_model::{Answer, NotRecorded, ToolOutcome, ToolSide};
use serde_json::Value;

/// Ids of calls that were taken back, whose answers may still come.
const MOST_CANCELLED: usize = 256;
/// Words of ours that have not been seen on their way yet.
const MOST_SAID: usize = 256;

const GONE: i32 = -32002;

impl Mediator {
    pub(super) fn notification(&mut self, from: ToolSide, method: &str, params: &Value, line: &[u8]) -> Done {
        if method == "notifications/cancelled" {
            return self.cancel(from, params, line);
        }
        if !method.starts_with("notifications/") {
            // A request without an id is still done by a server that does not look.
            let method: String = method.chars().take(40).collect();
            self.fault(from, "not-a-notification", format!("{method} without an id"))?;
            return Ok(Vec::new());
        }
        Ok(vec![to(other(from), line.to_vec())])
    }

    fn cancel(&mut self, from: ToolSide, params: &Value, line: &[u8]) -> Done {
        let Some(id) = Id::member(params, "requestId") else { return Ok(Vec::new()) };
        let key = self.key(from, id);
        let Some(call) = self.calls.remove(&key) else {
            // Whose it is cannot be found out where ids count within an exchange; to take something back does nothing.
            let is_elsewhere = is_client(from) && self.scope != 0;
            return Ok(if is_elsewhere { vec![to(other(from), line.to_vec())] } else { Vec::new() });
        };
        call.returned(self.record.as_ref(), ToolOutcome::Cancelled, None)?;
        if let Kind::Held { event, .. } = call.kind {
            return Ok(vec![Out::Withdraw(event)]);
        }
        self.cancelled.push_back(key);
        if self.cancelled.len() > MOST_CANCELLED {
            self.cancelled.pop_front();
        }
        Ok(vec![to(other(from), line.to_vec())])
    }

    /// The server is no more: whoever still waits for it is told.
    pub fn server_gone(&mut self) -> Done {
        self.lose("the server has ended")
    }

    pub(super) fn lose(&mut self, why: &str) -> Done {
        let mut out = Vec::new();
        for (_, call) in std::mem::take(&mut self.calls) {
            out.extend(self.lost(&call, why)?);
        }
        Ok(out)
    }

    /// The client's request of this id gets no answer any more, if it had none.
    pub(super) fn lose_one(&mut self, id: &Id, why: &str) -> Done {
        let key = self.key(ToolSide::Client, id.clone());
        match self.calls.remove(&key) {
            Some(call) => self.lost(&call, why),
            None => Ok(Vec::new()),
        }
    }

    fn lost(&self, call: &Call, why: &str) -> Done {
        let mut out = Vec::new();
        if !is_client(call.from) {
            return Ok(out);
        }
        call.returned(self.record.as_ref(), ToolOutcome::ServerGone, None)?;
        if let Kind::Held { event, .. } = call.kind {
            out.push(Out::Withdraw(event));
        }
        let text = format!("cofferdam: there is no answer: {why}");
        out.push(Out::ToClient(message::error(Some(&call.id), GONE, &text)));
        Ok(out)
    }

    /// Nobody is there any more whom this could be told.
    pub(super) fn withdrawn(&mut self, event: u64) -> Result<(), NotRecorded> {
        self.answered(event, Answer::Withdrawn, "", 0).map(drop)
    }

    /// An answer of ours to something that the server asked, which is about to be seen on its way to it. Only what
    /// answers something can be sent at all.
    pub(super) fn says(&mut self, line: Vec<u8>) -> Option<Vec<u8>> {
        let is_answer = matches!(Message::read(&line), Ok(Message::Answer { .. }));
        if is_answer && self.said.len() < MOST_SAID {
            self.said.push_back(line.clone());
        }
        is_answer.then_some(line)
    }

    /// Whether this is one of those.
    pub(super) fn has_said(&mut self, line: &[u8]) -> bool {
        let at = self.said.iter().position(|said| said == line);
        at.and_then(|at| self.said.remove(at)).is_some()
    }
}
