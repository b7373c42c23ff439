//! What becomes of each message between one client and one server. It is asked message by message and says what
//! to send where; whoever asks carries the bytes, waits for people and keeps the pins.

use super::call::{Call, Kind, content, outcome};
use super::judge::{Judge, Ruling};
use super::listing;
use super::message::{self, Id, Malformed, Message};
use super::pins::Pins;
use super::subject::Subject;
use cofferdam_model::{
    Answer, ApprovalAnswered, Body, Digest, NotRecorded, Record, ToolCalled, ToolFault, ToolOutcome,
    ToolSide, ToolVia, Verdict,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Requests of both sides at a time.
const MOST_CALLS: usize = 1024;
/// Faults that are told one by one; after that, each time they have doubled.
const MOST_FAULTS: u64 = 64;

const INVALID: i32 = -32600;
const PARSE: i32 = -32700;
pub(super) const REFUSED: i32 = -32001;

const REPIN: &str = "look at it, then start the server with --repin";
const UNPIN: &str = "look at it, then have it pinned anew with `cofferdam mcp unpin`";

/// What to do, in this order.
#[derive(Debug, PartialEq)]
pub enum Out {
    ToServer(Vec<u8>),
    ToClient(Vec<u8>),
    /// Ask a person, and tell [`Mediator::answered`].
    Hold(Held),
    /// Nobody needs to be asked any more.
    Withdraw(u64),
    /// Keep these for the next session.
    Pin(Pins),
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its event, by which it is answered.
    pub event: u64,
    pub rule: String,
    pub reason: String,
    pub tool: String,
    /// JSON.
    pub arguments: String,
}

/// What is known of a server's tools; those who speak to one server side by side share it.
#[derive(Debug, Default)]
pub struct Tools {
    pub(super) pins: Pins,
    /// Tools that are kept from the client, with why.
    pub(super) withheld: BTreeMap<String, String>,
    /// Definitions that were told of.
    pub(super) told: BTreeSet<(String, Digest)>,
}

impl Tools {
    /// As they were kept of an earlier session.
    pub fn pinned(pins: Pins) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { pins, ..Self::default() }))
    }
}

pub(super) type Done = Result<Vec<Out>, NotRecorded>;

/// A request by whose it is, in which exchange where ids mean something only there, and its id.
pub(super) type Key = (bool, u64, Id);

pub struct Mediator {
    pub(super) record: Arc<dyn Record>,
    pub(super) judge: Arc<Judge>,
    pub(super) via: ToolVia,
    pub(super) server: String,
    tools: Arc<Mutex<Tools>>,
    /// The event that everything here belongs to, where there is one.
    pub(super) parent: Option<u64>,
    /// Where the ids of a client's requests count: a line has one place, and so has a session by HTTP; without one,
    /// each exchange is its own.
    pub(super) scope: u64,
    /// What a person does who finds that a tool's news are in order.
    pub(super) remedy: &'static str,
    pub(super) calls: BTreeMap<Key, Call>,
    pub(super) cancelled: VecDeque<Key>,
    /// What was said to the server in its client's place, where that takes a request of its own.
    pub(super) said: VecDeque<Vec<u8>>,
    faults: u64,
}

pub(super) fn is_client(side: ToolSide) -> bool {
    side == ToolSide::Client
}

pub(super) fn other(side: ToolSide) -> ToolSide {
    if is_client(side) { ToolSide::Server } else { ToolSide::Client }
}

pub(super) fn to(side: ToolSide, line: Vec<u8>) -> Out {
    if is_client(side) { Out::ToClient(line) } else { Out::ToServer(line) }
}

impl Mediator {
    /// `server` is what it is called on record.
    pub fn new(
        record: Arc<dyn Record>,
        judge: Arc<Judge>,
        via: ToolVia,
        server: String,
        tools: Arc<Mutex<Tools>>,
    ) -> Self {
        Self {
            record,
            judge,
            via,
            server,
            tools,
            parent: None,
            scope: 0,
            remedy: if via == ToolVia::McpHttp { UNPIN } else { REPIN },
            calls: BTreeMap::new(),
            cancelled: VecDeque::new(),
            said: VecDeque::new(),
            faults: 0,
        }
    }

    pub(super) fn tools(&self) -> MutexGuard<'_, Tools> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What comes now belongs to this event.
    pub(super) fn within(&mut self, event: u64, scope: u64) {
        (self.parent, self.scope) = (Some(event), scope);
    }

    pub(super) fn key(&self, of: ToolSide, id: Id) -> Key {
        (is_client(of), if is_client(of) { self.scope } else { 0 }, id)
    }

    /// One message of either side, without its line end.
    pub fn message(&mut self, from: ToolSide, line: &[u8]) -> Done {
        let read = if line.len() > super::LONGEST { Err(Malformed::TooLong) } else { Message::read(line) };
        match read {
            Ok(Message::Request { id, method, params }) => self.request(from, id, &method, &params, line),
            Ok(Message::Notification { method, params }) => self.notification(from, &method, &params, line),
            Ok(Message::Answer { id, result }) => self.answer(from, id, result, line),
            Err(malformed) => self.malformed(from, &malformed),
        }
    }

    /// A message that was not even collected.
    pub fn too_long(&mut self, from: ToolSide) -> Done {
        self.malformed(from, &Malformed::TooLong)
    }

    fn malformed(&mut self, from: ToolSide, malformed: &Malformed) -> Done {
        self.fault(from, malformed.cause(), malformed.to_string())?;
        if is_client(from) {
            let code = if matches!(malformed, Malformed::NotJson(_)) { PARSE } else { INVALID };
            let text = format!("cofferdam: this message is not passed on: {malformed}");
            return Ok(vec![Out::ToClient(message::error(None, code, &text))]);
        }
        // Whose answer it was cannot be known, and that one will not come again.
        match malformed {
            Malformed::TooLong if self.via == ToolVia::McpStdio => {
                self.lose("the server's answer was longer than what is passed on")
            }
            _ => Ok(Vec::new()),
        }
    }

    pub(super) fn fault(&mut self, from: ToolSide, cause: &str, detail: String) -> Result<(), NotRecorded> {
        self.faults += 1;
        let fault = |detail| ToolFault {
            via: self.via,
            server: self.server.clone(),
            from,
            cause: cause.to_owned(),
            detail,
        };
        let body = match self.faults {
            1..=MOST_FAULTS => Body::ToolFault(fault(detail)),
            many if many.is_power_of_two() => {
                Body::ToolFault(fault(format!("{detail}; {many} faults by now")))
            }
            _ => return Ok(()),
        };
        self.record.append(self.parent, &body)?;
        Ok(())
    }

    fn request(&mut self, from: ToolSide, id: Id, method: &str, params: &Value, line: &[u8]) -> Done {
        let key = self.key(from, id);
        if self.calls.contains_key(&key) {
            self.fault(from, "id-in-use", format!("id {} is of a request that has no answer yet", key.2))?;
            let text = "cofferdam: this id is of a request that has no answer yet";
            return Ok(vec![to(from, message::error(None, INVALID, text))]);
        }
        if self.calls.len() >= MOST_CALLS {
            let text = format!("cofferdam: {MOST_CALLS} requests have no answer yet; wait for some");
            return Ok(vec![to(from, message::error(Some(&key.2), REFUSED, &text))]);
        }
        let kind = match Subject::of(method, params) {
            Err(malformed) => {
                let method: String = method.chars().take(40).collect();
                self.fault(from, malformed.cause(), format!("{method}: {malformed}"))?;
                let text = format!("cofferdam: this request is not passed on: {malformed}");
                return Ok(vec![to(from, message::error(Some(&key.2), INVALID, &text))]);
            }
            Ok(Subject::Passes) => Kind::Plain,
            Ok(Subject::ListsTools) if is_client(from) => Kind::Listing,
            Ok(Subject::ListsTools) => Kind::Plain,
            Ok(Subject::Calls { name, args }) => {
                let is_tool = is_client(from) && method == "tools/call";
                return self.call(from, key.2, (name, &args, is_tool), line);
            }
        };
        let call = Call { from, id: key.2.clone(), began: Instant::now(), kind };
        self.calls.insert(key, call);
        Ok(vec![to(other(from), line.to_vec())])
    }

    /// Something that does something: decided, on record, and only then on its way.
    fn call(&mut self, from: ToolSide, id: Id, what: (&str, &Value, bool), line: &[u8]) -> Done {
        let (tool, args, is_tool) = what;
        let withheld = if is_tool { self.withheld_because(tool) } else { None };
        let ruling = withheld.map_or_else(|| self.judge.decide(tool, args), Ruling::no);
        let arguments = args.to_string();
        let event = self.tell_call(self.parent, &id, (tool, &arguments), &ruling)?;
        let (tool, rule) = (tool.to_owned(), ruling.rule.clone());
        let mut call = Call { from, id, began: Instant::now(), kind: Kind::Plain };
        let out = match ruling.effect {
            Verdict::Allow => {
                self.judge.goes(&tool, rule.as_deref());
                call.kind = Kind::Judged { event, is_tool };
                to(other(from), line.to_vec())
            }
            Verdict::Deny => {
                call.kind = Kind::Judged { event, is_tool };
                return self.refuse(&call, &ruling.words);
            }
            Verdict::Review => {
                let held = Held {
                    event,
                    rule: rule.clone().unwrap_or_default(),
                    reason: ruling.reason,
                    tool: tool.clone(),
                    arguments,
                };
                let (line, words) = (line.to_vec(), ruling.words);
                call.kind = Kind::Held { event, tool, rule, is_tool, line, words };
                Out::Hold(held)
            }
        };
        self.calls.insert(self.key(from, call.id.clone()), call);
        Ok(vec![out])
    }

    fn tell_call(
        &self,
        parent: Option<u64>,
        id: &Id,
        (tool, arguments): (&str, &str),
        ruling: &Ruling,
    ) -> Result<u64, NotRecorded> {
        let fact = ToolCalled {
            via: self.via,
            server: self.server.clone(),
            tool: tool.to_owned(),
            call: id.to_string(),
            arguments: content(self.record.as_ref(), arguments)?,
            effect: ruling.effect,
            rule: ruling.rule.clone(),
            reason: ruling.reason.clone(),
            credentials: self.judge.credentials.clone(),
        };
        self.record.append(parent, &Body::ToolCalled(Box::new(fact)))
    }

    fn withheld_because(&self, tool: &str) -> Option<String> {
        let tools = self.tools();
        if let Some(why) = tools.withheld.get(tool) {
            return Some(why.clone());
        }
        let known = tools.pins.tools.contains_key(tool);
        (!known).then(|| "the server has not listed such a tool; list its tools first".to_owned())
    }

    /// The answer to a call that is not carried out: for a tool, one that its model gets to read.
    pub(super) fn refuse(&self, call: &Call, words: &str) -> Done {
        let text = format!("cofferdam: {words}. Nothing was done.");
        let line = match &call.kind {
            Kind::Judged { is_tool: true, .. } | Kind::Held { is_tool: true, .. } => {
                let result = json!({
                    "content": [{ "type": "text", "text": text }],
                    "isError": true,
                    "resultType": "complete",
                });
                call.returned(self.record.as_ref(), ToolOutcome::Refused, Some(&result))?;
                message::result(&call.id, &result)
            }
            _ => {
                call.returned(self.record.as_ref(), ToolOutcome::Refused, Some(&Value::from(text.as_str())))?;
                message::error(Some(&call.id), REFUSED, &text)
            }
        };
        Ok(vec![to(call.from, line)])
    }

    /// What a person said of a held call, or that nobody did.
    pub fn answered(&mut self, event: u64, answer: Answer, by: &str, waited_us: u64) -> Done {
        let held = |call: &Call| matches!(&call.kind, Kind::Held { event: of, .. } if *of == event);
        let Some(key) = self.calls.iter().find(|(_, call)| held(call)).map(|(key, _)| key.clone()) else {
            return Ok(Vec::new());
        };
        let told = ApprovalAnswered { answer, by: by.to_owned(), waited_us };
        self.record.append(Some(event), &Body::ApprovalAnswered(told))?;
        let Some(mut call) = self.calls.remove(&key) else { return Ok(Vec::new()) };
        let kind = std::mem::replace(&mut call.kind, Kind::Plain);
        let Kind::Held { event, tool, rule, is_tool, line, words } = kind else { return Ok(Vec::new()) };
        let since = if answer == Answer::Allowed { self.denied_since(&line) } else { None };
        if let Some(words) = since {
            call.kind = Kind::Judged { event, is_tool };
            return self.refuse(&call, &format!("{words}; the policy changed while it waited"));
        }
        if answer == Answer::Allowed {
            self.judge.goes(&tool, rule.as_deref());
            let out = to(other(call.from), line);
            call.kind = Kind::Judged { event, is_tool };
            self.calls.insert(key, call);
            return Ok(vec![out]);
        }
        let why = match answer {
            Answer::Denied => "a person said no",
            Answer::TimedOut => "nobody answered in time",
            _ => "it was taken back",
        };
        call.kind = Kind::Judged { event, is_tool };
        self.refuse(&call, &format!("{why}; {words}"))
    }

    /// Whatever was switched while it waited holds.
    fn denied_since(&self, line: &[u8]) -> Option<String> {
        let Ok(Message::Request { method, params, .. }) = Message::read(line) else { return None };
        let Ok(Subject::Calls { name, args }) = Subject::of(&method, &params) else { return None };
        let ruling = self.judge.decide(name, &args);
        (ruling.effect == Verdict::Deny).then_some(ruling.words)
    }

    fn answer(&mut self, from: ToolSide, id: Id, result: Result<Value, Value>, line: &[u8]) -> Done {
        let key = self.key(other(from), id);
        let sent = self.calls.get(&key).is_some_and(|call| !matches!(call.kind, Kind::Held { .. }));
        let Some(call) = sent.then(|| self.calls.remove(&key)).flatten() else {
            if let Some(at) = self.cancelled.iter().position(|gone| *gone == key) {
                self.cancelled.remove(at);
                return Ok(Vec::new());
            }
            self.fault(
                from,
                "unknown-id",
                format!("an answer to {}, which nobody asked or which has one", key.2),
            )?;
            return Ok(Vec::new());
        };
        let back = call.from;
        match (&call.kind, result) {
            (Kind::Listing, Ok(result)) => {
                let mut out = Vec::new();
                match listing::read(self, result, &mut out)? {
                    listing::Shown::AsItIs => out.push(to(back, line.to_vec())),
                    listing::Shown::Without(result) => out.push(to(back, message::result(&call.id, &result))),
                    listing::Shown::Unreadable(why) => {
                        self.fault(from, "bad-listing", why.to_owned())?;
                        let text = format!("cofferdam: the server's list of tools cannot be read: {why}");
                        out.push(to(back, message::error(Some(&call.id), REFUSED, &text)));
                    }
                }
                Ok(out)
            }
            (Kind::Judged { event, .. }, Ok(result)) if result.get("inputRequests").is_some() => {
                match self.wanted_in_return(&call, *event, &result)? {
                    Some(words) => self.refuse(&call, &words),
                    None => {
                        call.returned(self.record.as_ref(), ToolOutcome::Ok, Some(&result))?;
                        Ok(vec![to(back, line.to_vec())])
                    }
                }
            }
            (_, result) => {
                let told = match &result {
                    Ok(value) | Err(value) => value,
                };
                call.returned(self.record.as_ref(), outcome(&result), Some(told))?;
                Ok(vec![to(back, line.to_vec())])
            }
        }
    }

    /// A server may answer with requests of its own (for a person's words, or a model's), which the client is to
    /// fulfil before it asks again. Each is judged like one that it sends; why not, if one may not be.
    fn wanted_in_return(
        &self,
        call: &Call,
        event: u64,
        result: &Value,
    ) -> Result<Option<String>, NotRecorded> {
        let Some(Value::Object(wanted)) = result.get("inputRequests") else {
            return Ok(Some("denied: the server asks for something in a way that cannot be read".to_owned()));
        };
        for request in wanted.values() {
            let Some(method) = request.get("method").and_then(Value::as_str) else {
                return Ok(Some(
                    "denied: the server asks for something in a way that cannot be read".to_owned(),
                ));
            };
            let params = request.get("params").unwrap_or(&Value::Null);
            let ruling = match Subject::of(method, params) {
                Ok(Subject::Passes) => continue,
                Ok(_) => self.judge.decide(method, params),
                Err(malformed) => Ruling::no(malformed.to_string()),
            };
            self.tell_call(Some(event), &call.id, (method, &params.to_string()), &ruling)?;
            if ruling.effect != Verdict::Allow {
                return Ok(Some(format!("the server's own request `{method}` is {}", ruling.words)));
            }
            self.judge.goes(method, ruling.rule.as_deref());
        }
        Ok(None)
    }
}
