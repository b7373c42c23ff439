//! What a server answers, on its way to the client: message by message.

use super::Following;
use crate::mcp::json::Strict;
use crate::mcp::message::{self, Id};
use crate::mcp::stream::{Event, Events, Piece};
use crate::mcp::{LONGEST, Out};
use cofferdam_model::{Mended, NotRecorded, Question, ToolSide};
use serde_json::Value;

/// Told at the end of an exchange whose answer was not passed on as it came.
const KEPT_BACK: &str = "a part of the answer was kept back";

/// In which an answer comes.
pub(super) enum Form {
    Stream(Events),
    /// One message, or something that is none.
    Whole {
        body: Vec<u8>,
        is_json: bool,
        is_too_long: bool,
    },
    /// Clients would not agree on what it is.
    Doubtful,
}

impl Default for Form {
    fn default() -> Self {
        Self::Whole { body: Vec::new(), is_json: false, is_too_long: false }
    }
}

impl Form {
    pub(super) fn of(headers: &[(&str, &[u8])]) -> Self {
        let mut types = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let (first, second) = (types.next(), types.next());
        if second.is_some() {
            return Self::Doubtful;
        }
        let text = first.map(|(_, value)| String::from_utf8_lossy(value).to_ascii_lowercase());
        let text = text.unwrap_or_default();
        match text.split(';').next().unwrap_or_default().trim() {
            "text/event-stream" => Self::Stream(Events::default()),
            _ if text.contains("text/event-stream") => Self::Doubtful,
            kind => Self::Whole { body: Vec::new(), is_json: kind.contains("json"), is_too_long: false },
        }
    }
}

impl Following {
    /// A part of the answer.
    pub(super) fn came(&mut self, chunk: &[u8]) -> Mended {
        match &mut self.form {
            Form::Stream(events) => {
                let pieces = events.push(chunk);
                let mut mended = Mended::default();
                for piece in pieces {
                    match piece {
                        Piece::Comment => mended.pass.extend_from_slice(b":\n\n"),
                        Piece::Event(event) => add(&mut mended, self.event(&event)),
                    }
                }
                mended
            }
            Form::Whole { body, is_too_long, .. } => {
                *is_too_long |= body.len() + chunk.len() > LONGEST;
                if !*is_too_long {
                    body.extend_from_slice(chunk);
                }
                Mended::default()
            }
            Form::Doubtful => Mended::default(),
        }
    }

    fn event(&mut self, event: &Event) -> Mended {
        self.is_resumable |= event.id.is_some();
        let data = event.data.as_deref();
        let outs = match data.filter(|data| !data.trim_ascii().is_empty() || event.is_too_long) {
            None => return Mended { pass: event.written(data), ..Mended::default() },
            Some(_) if event.is_too_long => self.mediator().map(|mut line| line.too_long(ToolSide::Server)),
            Some(data) => self.mediator().map(|mut line| line.message(ToolSide::Server, data)),
        };
        let mut mended = self.mended(outs.unwrap_or_else(|| Ok(Vec::new())), Some(event));
        if mended.pass.is_empty() {
            // Who comes back later asks for what came after this one.
            mended.pass = event.written(None);
        }
        mended
    }

    /// What is to be done about what the mediator says, in the form that this answer has.
    pub(super) fn mended(&mut self, outs: Result<Vec<Out>, NotRecorded>, event: Option<&Event>) -> Mended {
        let mut mended = Mended::default();
        let outs = match outs {
            Ok(outs) => outs,
            Err(error) => {
                mended.stop = Some(self.refuse(error));
                return mended;
            }
        };
        let mut is_passed = false;
        for out in outs {
            match out {
                Out::ToClient(line) => {
                    is_passed |= event.is_some_and(|event| event.data.as_ref() == Some(&line));
                    let fresh = Event::default();
                    let event = event.filter(|_| mended.pass.is_empty()).unwrap_or(&fresh);
                    match &self.form {
                        Form::Stream(_) => mended.pass.extend_from_slice(&event.written(Some(&line))),
                        _ => mended.pass.extend_from_slice(&line),
                    }
                }
                Out::ToServer(line) => {
                    mended.post.extend(self.mediator().and_then(|mut mediator| mediator.says(line)));
                }
                Out::Hold(held) => {
                    self.asked.push(held.event);
                    let what = format!("{} {}", held.tool, held.arguments);
                    let (event, rule, reason) = (held.event, held.rule, held.reason);
                    mended.ask.push(Question { event, rule, reason, kind: "tool".to_owned(), what });
                }
                Out::Withdraw(event) => mended.withdraw.push(event),
                Out::Pin(pins) => {
                    if let Err(stop) = self.servers.pin(&self.server, &pins) {
                        self.is_stopped = true;
                        mended.stop = Some(stop);
                    }
                }
            }
        }
        if event.is_some() && !is_passed && mended.ask.is_empty() {
            mended.flags.push(KEPT_BACK.to_owned());
        }
        mended
    }

    /// The answer is there to its end.
    pub(super) fn over(&mut self) -> Mended {
        let mut mended = match &mut self.form {
            Form::Stream(events) => {
                let last = events.finish();
                last.map(|event| self.event(&event)).unwrap_or_default()
            }
            Form::Whole { body, is_json, is_too_long } => {
                let (body, is_strict) = (std::mem::take(body), *is_json && self.status < 400);
                let is_too_long = *is_too_long;
                let body = match &self.id {
                    Some(id) if self.status >= 400 => adopted(body, id),
                    _ => body,
                };
                self.whole(body, is_strict && self.id.is_some(), is_too_long)
            }
            Form::Doubtful => {
                let why = "it does not say clearly what it is (content-type)".to_owned();
                let told = self.mediator().map(|mut line| line.fault(ToolSide::Server, "bad-answer", why));
                match told {
                    Some(Err(error)) => Mended { stop: Some(self.refuse(error)), ..Mended::default() },
                    _ => Mended { flags: vec![KEPT_BACK.to_owned()], ..Mended::default() },
                }
            }
        };
        if let (Some(id), false) = (self.id.take(), self.is_resumable) {
            let is_empty = mended.pass.is_empty() && self.status < 400;
            let why = "the server's answer ended without one that can be passed on";
            let outs = self.mediator().map(|mut line| line.lose_one(&id, why));
            let lost = self.mended(outs.unwrap_or_else(|| Ok(Vec::new())), None);
            if is_empty || matches!(self.form, Form::Stream(_)) {
                add(&mut mended, lost);
            }
        }
        mended
    }

    /// An answer in one piece. Where a client reads no message, it need not be one.
    fn whole(&mut self, body: Vec<u8>, is_strict: bool, is_too_long: bool) -> Mended {
        if body.trim_ascii().is_empty() && !is_too_long {
            return Mended { pass: body, ..Mended::default() };
        }
        if !is_strict && !is_too_long && is_harmless(&body) {
            return Mended { pass: body, ..Mended::default() };
        }
        let outs = self.mediator().map(|mut line| match is_too_long {
            true => line.too_long(ToolSide::Server),
            false => line.message(ToolSide::Server, &body),
        });
        let event = Event { data: Some(body), ..Event::default() };
        self.mended(outs.unwrap_or_else(|| Ok(Vec::new())), Some(&event))
    }

    /// Nobody listens any more.
    pub(super) fn lost(&mut self) -> Result<(), NotRecorded> {
        let (asked, id) = (std::mem::take(&mut self.asked), self.id.take().filter(|_| !self.is_resumable));
        let Some(mut line) = self.mediator() else { return Ok(()) };
        for event in asked {
            line.withdrawn(event)?;
        }
        if let Some(id) = id {
            line.lose_one(&id, "")?;
        }
        Ok(())
    }
}

/// The error of a server that could not or would not read whose request it was: it can only be this one.
fn adopted(body: Vec<u8>, id: &Id) -> Vec<u8> {
    let Ok(Strict(Value::Object(map))) = serde_json::from_slice(&body) else { return body };
    let is_error = map.keys().all(|name| ["jsonrpc", "id", "error"].contains(&name.as_str()));
    match (map.get("jsonrpc").and_then(Value::as_str), map.get("error")) {
        (Some("2.0"), Some(error)) if is_error => message::error_value(id, error),
        _ => body,
    }
}

fn add(all: &mut Mended, more: Mended) {
    all.pass.extend(more.pass);
    all.post.extend(more.post);
    all.ask.extend(more.ask);
    all.withdraw.extend(more.withdraw);
    all.flags.extend(more.flags);
    all.stop = all.stop.take().or(more.stop);
}

/// Whether nobody could take it for a message.
fn is_harmless(body: &[u8]) -> bool {
    fn speaks(value: &Value) -> bool {
        match value {
            Value::Object(map) => map
                .keys()
                .any(|name| ["jsonrpc", "method", "result"].iter().any(|of| name.eq_ignore_ascii_case(of))),
            Value::Array(all) => all.iter().any(speaks),
            _ => false,
        }
    }
    match serde_json::from_slice(body) {
        Ok(value) => !speaks(&value),
        // Text, or what only some take for JSON.
        Err(_) => !body.to_ascii_lowercase().windows(7).any(|part| part == b"jsonrpc"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_that_it_is_a_message_is_taken_for_one() {
        for harmless in ["Unauthorized", r#"{"error":"invalid_token"}"#, "[]", "null", "<html>", ""] {
            assert!(is_harmless(harmless.as_bytes()), "{harmless}");
        }
        for message in [
            r#"{"jsonrpc":"2.0","id":1,"error":{}}"#,
            r#"{"\u006asonrpc":"2.0"}"#,
            r#"[{"Method":"m"}]"#,
            "{'jsonrpc': NaN}",
        ] {
            assert!(!is_harmless(message.as_bytes()), "{message}");
        }
    }
}
