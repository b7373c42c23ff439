//! MCP over streamable HTTP, as it leaves a sandbox: a request is a message, its answer one message or a stream of
//! them. Calls are judged before they go, as on stdio. What streams in is told as it was, and cannot be taken back:
//! a listing is not thinned out here, but what it withholds cannot be called.

use super::declared::Declared;
use super::message::Message;
use super::{Judge, Mediator, Out, Tools};
use crate::body::{decoded, sse};
use cofferdam_model::{
    Answer, Ending, Next, NotRecorded, Outgoing, Question, Record, Reply, Stop, ToolSide, ToolVia, Watcher,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Servers that are known at a time.
const MOST_SERVERS: usize = 256;

/// The MCP servers that a session reaches, each by its address.
pub struct Servers {
    record: Arc<dyn Record>,
    judge: Arc<Judge>,
    tools: Mutex<BTreeMap<String, Arc<Mutex<Tools>>>>,
}

impl Servers {
    pub fn new(record: Arc<dyn Record>, judge: Arc<Judge>) -> Self {
        Self { record, judge, tools: Mutex::default() }
    }

    /// Looks into a request that could be a message; `inner` sees all that passes besides.
    pub(crate) fn follow(
        self: &Arc<Self>,
        request: &Outgoing<'_>,
        inner: Box<dyn Watcher>,
    ) -> Box<dyn Watcher> {
        if let Some(tool) = self.judge.declared(request) {
            let (record, judge) = (self.record.clone(), self.judge.clone());
            return Box::new(Declared::new(record, judge, tool, request, inner));
        }
        let server = format!("{}://{}:{}{}", request.scheme, request.host, request.port, request.path);
        let known = self.known().get(&server).cloned();
        let signs = signs(request);
        if request.method != "POST" || (known.is_none() && signs == Signs::None) {
            return inner;
        }
        let is_certain = known.is_some() || signs == Signs::Sure;
        let tools = known.unwrap_or_default();
        let (record, judge) = (self.record.clone(), self.judge.clone());
        let mut mediator = Mediator::new(record, judge, ToolVia::McpHttp, server.clone(), tools.clone());
        mediator.within(request.event);
        Box::new(Following {
            servers: self.clone(),
            server,
            tools,
            mediator,
            inner,
            is_certain,
            sent: Vec::new(),
            is_message: false,
            is_stopped: false,
            failed: None,
            streams: false,
            coding: String::new(),
            received: Vec::new(),
            too_long: false,
        })
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Mutex<Tools>>>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on everything that is posted there is a message. With too many, the new one is met anew each time.
    fn remember(&self, server: &str, tools: &Arc<Mutex<Tools>>) {
        let mut known = self.known();
        if known.len() < MOST_SERVERS {
            known.entry(server.to_owned()).or_insert_with(|| tools.clone());
        }
    }
}

/// What a request's head tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Signs {
    None,
    /// JSON, from someone who would take a stream.
    Some,
    /// It says so itself.
    Sure,
}

fn signs(request: &Outgoing<'_>) -> Signs {
    let field = |name: &str| {
        let found = request.headers.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| std::str::from_utf8(value).ok()).unwrap_or_default().to_ascii_lowercase()
    };
    if !field("mcp-protocol-version").is_empty() || !field("mcp-session-id").is_empty() {
        return Signs::Sure;
    }
    let is_json = field("content-type").starts_with("application/json");
    if is_json && field("accept").contains("text/event-stream") { Signs::Some } else { Signs::None }
}

struct Following {
    servers: Arc<Servers>,
    server: String,
    tools: Arc<Mutex<Tools>>,
    /// Whatever is posted is a message, or wants to be taken for none.
    is_certain: bool,
    mediator: Mediator,
    inner: Box<dyn Watcher>,
    sent: Vec<u8>,
    is_message: bool,
    is_stopped: bool,
    /// What could not be recorded, told at the end.
    failed: Option<NotRecorded>,
    streams: bool,
    coding: String,
    received: Vec<u8>,
    too_long: bool,
}

impl Following {
    fn next(&mut self, outs: Result<Vec<Out>, NotRecorded>) -> Next {
        let outs = match outs {
            Ok(outs) => outs,
            Err(error) => {
                self.is_stopped = true;
                let reason = error.to_string();
                self.failed = Some(error);
                return Next::Refuse(Stop { cause: "not-recorded".into(), reason });
            }
        };
        for out in outs {
            match out {
                Out::ToClient(body) => {
                    self.is_stopped = true;
                    let headers = vec![("content-type".to_owned(), b"application/json".to_vec())];
                    return Next::Answer(Reply { status: 200, headers, parts: vec![(Duration::ZERO, body)] });
                }
                Out::Hold(held) => {
                    let what = format!("{} {}", held.tool, held.arguments);
                    let (event, rule, reason) = (held.event, held.rule, held.reason);
                    return Next::Ask(Question { event, rule, reason, kind: "tool".to_owned(), what });
                }
                Out::ToServer(_) | Out::Withdraw(_) | Out::Pin(_) => {}
            }
        }
        Next::Forward
    }

    /// Each message of what came back.
    fn answers(&mut self) -> Result<(), NotRecorded> {
        let received = std::mem::take(&mut self.received);
        if self.too_long {
            self.mediator.too_long(ToolSide::Server)?;
            return Ok(());
        }
        let Ok(body) = decoded(&received, &self.coding) else { return Ok(()) };
        if self.streams {
            for event in sse::events(&body).filter(|event| !event.data.is_empty()) {
                self.mediator.message(ToolSide::Server, event.data.as_bytes())?;
            }
        } else if !body.trim_ascii().is_empty() {
            self.mediator.message(ToolSide::Server, &body)?;
        }
        Ok(())
    }
}

impl Watcher for Following {
    /// What a call does cannot be taken back, so it is judged before it goes.
    fn holds(&self) -> bool {
        true
    }

    fn sent(&mut self, chunk: &[u8]) {
        self.inner.sent(chunk);
        if self.sent.len() <= super::LONGEST {
            self.sent.extend_from_slice(chunk);
        }
    }

    fn sent_all(&mut self) -> Next {
        let held = self.inner.holds();
        let before = self.inner.sent_all();
        if held && !matches!(before, Next::Forward) {
            self.is_stopped = true;
            return before;
        }
        let sent = std::mem::take(&mut self.sent);
        self.is_message = match Message::read(&sent) {
            // To something that the server asked in another exchange's stream, which is on record there.
            Ok(Message::Answer { .. }) => false,
            Ok(Message::Request { method, .. } | Message::Notification { method, .. }) => {
                self.is_certain || is_ours(&method)
            }
            Err(_) => self.is_certain || memchr::memmem::find(&sent, b"jsonrpc").is_some(),
        };
        if !self.is_message {
            return Next::Forward;
        }
        self.servers.remember(&self.server, &self.tools);
        let outs = self.mediator.message(ToolSide::Client, &sent);
        self.next(outs)
    }

    fn asked(&mut self, question: &Question, answer: Answer, by: &str, waited_us: u64) -> Next {
        let outs = self.mediator.answered(question.event, answer, by, waited_us);
        self.next(outs)
    }

    fn answered(&mut self, status: u16, headers: &[(&str, &[u8])]) {
        self.inner.answered(status, headers);
        let field = |name: &str| {
            let found = headers.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
            found.map(|(_, value)| String::from_utf8_lossy(value).to_ascii_lowercase()).unwrap_or_default()
        };
        self.streams = field("content-type").starts_with("text/event-stream");
        self.coding = field("content-encoding");
    }

    fn received(&mut self, chunk: &[u8]) {
        self.inner.received(chunk);
        if !self.is_message || self.is_stopped {
            return;
        }
        self.too_long |= self.received.len() + chunk.len() > super::LONGEST;
        if !self.too_long {
            self.received.extend_from_slice(chunk);
        }
    }

    fn ended(mut self: Box<Self>, ending: Ending) -> Result<(), NotRecorded> {
        if self.is_message && !self.is_stopped {
            self.answers()?;
            self.mediator.server_gone()?;
        }
        let failed = self.failed.take();
        self.inner.ended(ending)?;
        failed.map_or(Ok(()), Err)
    }
}

/// Methods that no other protocol over JSON-RPC has.
fn is_ours(method: &str) -> bool {
    const FAMILIES: [&str; 10] = [
        "tools/",
        "resources/",
        "prompts/",
        "notifications/",
        "server/discover",
        "subscriptions/listen",
        "completion/complete",
        "logging/setLevel",
        "tasks/",
        "initialize",
    ];
    FAMILIES.iter().any(|family| method.starts_with(family))
}
