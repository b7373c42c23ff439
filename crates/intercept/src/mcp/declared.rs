//! Plain requests that a policy declares to be calls of a tool: the same judge, the same events. Arguments are the
//! parameters of the query and the fields of a JSON body; a name that stands in both is in doubt, and so denied.

use super::call::content;
use super::json::{Strict, is_certain};
use super::judge::{Judge, Ruling};
use crate::body::decoded;
use cofferdam_model::{
    Answer, ApprovalAnswered, Body, Ending, Next, NotRecorded, Outgoing, Question, Record, Stop, ToolCalled,
    ToolOutcome, ToolReturned, ToolVia, Verdict, Watcher,
};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Instant;

/// The longest answer that is told with the call; its bytes are kept with the exchange anyhow.
const LONGEST: usize = 1 << 20;

pub(super) struct Declared {
    record: Arc<dyn Record>,
    judge: Arc<Judge>,
    inner: Box<dyn Watcher>,
    tool: String,
    server: String,
    query: String,
    parent: u64,
    credentials: Vec<String>,
    sent: Vec<u8>,
    args: Value,
    /// Its event and the rule that fired, once it was judged.
    call: Option<(u64, Option<String>)>,
    is_stopped: bool,
    failed: Option<NotRecorded>,
    status: Option<u16>,
    coding: String,
    received: Vec<u8>,
    began: Instant,
}

impl Declared {
    pub(super) fn new(
        record: Arc<dyn Record>,
        judge: Arc<Judge>,
        tool: String,
        request: &Outgoing<'_>,
        inner: Box<dyn Watcher>,
    ) -> Self {
        Self {
            record,
            judge,
            inner,
            tool,
            server: format!("{}://{}:{}{}", request.scheme, request.host, request.port, request.path),
            query: request.query.unwrap_or_default().to_owned(),
            parent: request.event,
            credentials: request.credentials.to_vec(),
            sent: Vec::new(),
            args: Value::Null,
            call: None,
            is_stopped: false,
            failed: None,
            status: None,
            coding: String::new(),
            received: Vec::new(),
            began: Instant::now(),
        }
    }

    fn decide(&mut self) -> Result<Next, NotRecorded> {
        let sent = std::mem::take(&mut self.sent);
        let ruling = match arguments(&self.query, &sent) {
            Ok(args) => {
                self.args = args;
                self.judge.decide(&self.tool, &self.args)
            }
            Err(why) => Ruling::no(why.to_owned()),
        };
        let arguments = self.args.to_string();
        let fact = ToolCalled {
            via: ToolVia::Http,
            server: self.server.clone(),
            tool: self.tool.clone(),
            call: String::new(),
            arguments: content(self.record.as_ref(), &arguments)?,
            effect: ruling.effect,
            rule: ruling.rule.clone(),
            reason: ruling.reason.clone(),
            credentials: self.credentials.clone(),
        };
        let event = self.record.append(Some(self.parent), &Body::ToolCalled(Box::new(fact)))?;
        self.call = Some((event, ruling.rule.clone()));
        Ok(match ruling.effect {
            Verdict::Allow => self.go(),
            Verdict::Deny => self.refuse(&ruling.words),
            Verdict::Review => Next::Ask(Question {
                event,
                rule: ruling.rule.unwrap_or_default(),
                reason: ruling.reason,
                kind: "tool".to_owned(),
                what: format!("{} {arguments}", self.tool),
            }),
        })
    }

    fn go(&mut self) -> Next {
        let rule = self.call.as_ref().and_then(|(_, rule)| rule.as_deref());
        self.judge.goes(&self.tool, rule);
        Next::Forward
    }

    fn refuse(&mut self, words: &str) -> Next {
        self.is_stopped = true;
        Next::Refuse(Stop { cause: "tool-denied".to_owned(), reason: format!("tool {}: {words}", self.tool) })
    }

    fn or_stop(&mut self, next: Result<Next, NotRecorded>) -> Next {
        next.unwrap_or_else(|error| {
            let next = self.refuse(&error.to_string());
            self.failed = Some(error);
            next
        })
    }

    fn answer(&self, question: &Question, told: ApprovalAnswered) -> Result<Option<String>, NotRecorded> {
        let answer = told.answer;
        self.record.append(Some(question.event), &Body::ApprovalAnswered(told))?;
        let ruling = self.judge.decide(&self.tool, &self.args);
        Ok(match answer {
            // Whatever was switched while it waited holds.
            Answer::Allowed if ruling.effect == Verdict::Deny => Some(ruling.words),
            Answer::Allowed => None,
            Answer::Denied => Some("a person said no".to_owned()),
            _ => Some("nobody answered in time".to_owned()),
        })
    }
}

impl Watcher for Declared {
    fn holds(&self) -> bool {
        true
    }

    fn sent(&mut self, chunk: &[u8]) {
        self.inner.sent(chunk);
        self.sent.extend_from_slice(chunk);
    }

    fn sent_all(&mut self) -> Next {
        let held = self.inner.holds();
        let before = self.inner.sent_all();
        if held && !matches!(before, Next::Forward) {
            self.is_stopped = true;
            return before;
        }
        let next = self.decide();
        self.or_stop(next)
    }

    fn asked(&mut self, question: &Question, answer: Answer, by: &str, waited_us: u64) -> Next {
        let told = ApprovalAnswered { answer, by: by.to_owned(), waited_us };
        let next = match self.answer(question, told) {
            Ok(None) => Ok(self.go()),
            Ok(Some(why)) => Ok(self.refuse(&format!("{why}; held by rule {}", question.rule))),
            Err(error) => Err(error),
        };
        self.or_stop(next)
    }

    fn answered(&mut self, status: u16, headers: &[(&str, &[u8])]) {
        self.inner.answered(status, headers);
        self.status = Some(status);
        let coding = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-encoding"));
        self.coding =
            coding.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default();
    }

    fn received(&mut self, chunk: &[u8]) {
        self.inner.received(chunk);
        let room = LONGEST.saturating_sub(self.received.len());
        self.received.extend_from_slice(chunk.get(..room).unwrap_or(chunk));
    }

    fn ended(self: Box<Self>, ending: Ending) -> Result<(), NotRecorded> {
        if let Some((event, _)) = &self.call {
            let outcome = match (self.is_stopped, self.status, ending) {
                (true, ..) => ToolOutcome::Refused,
                (_, Some(status), Ending::Complete) if status < 400 => ToolOutcome::Ok,
                (_, Some(_), _) => ToolOutcome::Failed,
                (_, None, Ending::ClientGone) => ToolOutcome::Cancelled,
                (_, None, _) => ToolOutcome::ServerGone,
            };
            let body = decoded(&self.received, &self.coding).unwrap_or_default();
            let text = String::from_utf8_lossy(&body);
            let result = match text.is_empty() {
                true => None,
                false => Some(content(self.record.as_ref(), &text)?),
            };
            let total_us = self.began.elapsed().as_micros() as u64;
            let fact = ToolReturned { outcome, result, total_us };
            self.record.append(Some(*event), &Body::ToolReturned(fact))?;
        }
        self.inner.ended(ending)?;
        self.failed.map_or(Ok(()), Err)
    }
}

/// The parameters and fields of a request, or why they cannot be told.
fn arguments(query: &str, body: &[u8]) -> Result<Value, &'static str> {
    let mut args = match body.trim_ascii().is_empty() {
        true => Map::new(),
        false => match serde_json::from_slice(body) {
            Ok(Strict(Value::Object(map))) => map,
            Ok(Strict(other)) => Map::from_iter([("body".to_owned(), other)]),
            Err(error) if error.is_data() => return Err("its body has a name twice"),
            // No JSON: as it is, where it is text.
            Err(_) => match std::str::from_utf8(body) {
                Ok(text) => Map::from_iter([("body".to_owned(), Value::from(text))]),
                Err(_) => return Err("its body is neither JSON nor text"),
            },
        },
    };
    for (name, value) in cofferdam_policy::parameters(query).ok_or("its query cannot be read")? {
        if args.insert(name, Value::from(value)).is_some() {
            return Err("a name stands twice in its query and body");
        }
    }
    let args = Value::Object(args);
    if is_certain(&args) { Ok(args) } else { Err("two names of its arguments differ by case only") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_come_from_the_query_and_the_body() {
        let told = |query: &str, body: &str| arguments(query, body.as_bytes());
        assert_eq!(told("a=1&b=x%20y", r#"{"amount": 5}"#), Ok(json!({"a": "1", "b": "x y", "amount": 5})));
        assert_eq!(told("", "plain"), Ok(json!({"body": "plain"})));
        assert_eq!(told("", "[1]"), Ok(json!({"body": [1]})));
        assert_eq!(told("", ""), Ok(json!({})));
        for (query, body) in [
            ("a=1&a=2", ""),
            ("a=1", r#"{"a": 2}"#),
            ("", r#"{"a":1,"a":2}"#),
            ("A=1&a=2", ""),
            ("a=%zz", ""),
        ] {
            assert!(told(query, body).is_err(), "{query} {body}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_request_has_arguments_or_not(query in "\\PC{0,60}", body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = arguments(&query, &body);
        }
    }
}
