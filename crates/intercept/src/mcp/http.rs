//! MCP over streamable HTTP, as it leaves a sandbox: a request is a message, its answer one message or a stream of
//! them, and a stream may be listened to by itself. All of it is judged as on stdio, in both directions: what a
//! server says goes on message by message, once it was read, and what it may not ask is answered in its client's place.

mod back;

use super::declared::Declared;
use super::message::{Id, Message};
use super::{Judge, Mediator, Out, Pins, Tools};
use back::Form;
use cofferdam_model::{
    Answer, Ending, Mended, Next, NotRecorded, Outgoing, Question, Record, Reply, Stop, ToolSide, ToolVia,
    Watcher,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Servers that are known at a time, and sessions with them.
const MOST_SERVERS: usize = 256;
const MOST_LINES: usize = 1024;

/// Where pins are kept between sessions, by a server's address.
pub trait PinStore: Send + Sync {
    fn load(&self, server: &str) -> Result<Pins, Stop>;
    fn store(&self, server: &str, pins: &Pins) -> Result<(), Stop>;
}

/// The MCP servers that a session reaches, each by its address.
pub struct Servers {
    record: Arc<dyn Record>,
    judge: Arc<Judge>,
    /// Without one, pins hold for the session.
    pins: Option<Arc<dyn PinStore>>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    tools: BTreeMap<String, Arc<Mutex<Tools>>>,
    /// By the server and the id that it gave a session, or nothing.
    lines: BTreeMap<(String, String), Line>,
}

/// All that is under way between one client and one server.
type Line = Arc<Mutex<Mediator>>;

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Servers {
    pub fn new(record: Arc<dyn Record>, judge: Arc<Judge>, pins: Option<Arc<dyn PinStore>>) -> Self {
        Self { record, judge, pins, known: Mutex::default() }
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
        let is_known = lock(&self.known).tools.contains_key(&server);
        let (signs, session) = (signs(request), field(request, "mcp-session-id"));
        let listens = match request.method {
            "POST" => false,
            "GET" => true,
            "DELETE" => {
                lock(&self.known).lines.remove(&(server, session));
                return inner;
            }
            _ => return inner,
        };
        let is_certain = is_known || signs == Signs::Sure;
        if !is_certain && (listens || signs == Signs::None) {
            return inner;
        }
        Box::new(Following {
            servers: self.clone(),
            server,
            scope: if session.is_empty() { request.event } else { 0 },
            session,
            event: request.event,
            listens,
            is_certain,
            line: None,
            id: None,
            inner,
            sent: Vec::new(),
            is_stopped: false,
            failed: None,
            status: 0,
            form: Form::default(),
            is_resumable: false,
            asked: Vec::new(),
        })
    }

    /// What is under way with this server in this session. With too many, one is met anew each time.
    fn line(&self, server: &str, session: &str) -> Result<Line, Stop> {
        let mut known = lock(&self.known);
        if let Some(line) = known.lines.get(&(server.to_owned(), session.to_owned())) {
            return Ok(line.clone());
        }
        let tools = match known.tools.get(server) {
            Some(tools) => tools.clone(),
            None => {
                let pins = self.pins.as_ref().map(|pins| pins.load(server)).transpose()?;
                let tools = Tools::pinned(pins.unwrap_or_default());
                if known.tools.len() < MOST_SERVERS {
                    known.tools.insert(server.to_owned(), tools.clone());
                }
                tools
            }
        };
        let (record, judge) = (self.record.clone(), self.judge.clone());
        let mediator = Mediator::new(record, judge, ToolVia::McpHttp, server.to_owned(), tools);
        let line = Arc::new(Mutex::new(mediator));
        if known.lines.len() < MOST_LINES {
            known.lines.insert((server.to_owned(), session.to_owned()), line.clone());
        }
        Ok(line)
    }

    fn pin(&self, server: &str, pins: &Pins) -> Result<(), Stop> {
        let Some(store) = &self.pins else { return Ok(()) };
        store.store(server, pins).inspect_err(|_| {
            // What is not kept is not known either.
            let mut known = lock(&self.known);
            known.tools.remove(server);
            known.lines.retain(|(of, _), _| of != server);
        })
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

fn field(request: &Outgoing<'_>, name: &str) -> String {
    let found = request.headers.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
    found.and_then(|(_, value)| std::str::from_utf8(value).ok()).unwrap_or_default().to_owned()
}

fn signs(request: &Outgoing<'_>) -> Signs {
    let field = |name| field(request, name).to_ascii_lowercase();
    if !field("mcp-protocol-version").is_empty() || !field("mcp-session-id").is_empty() {
        return Signs::Sure;
    }
    let is_json = field("content-type").starts_with("application/json");
    if is_json && field("accept").contains("text/event-stream") { Signs::Some } else { Signs::None }
}

struct Following {
    servers: Arc<Servers>,
    server: String,
    session: String,
    event: u64,
    scope: u64,
    /// It only listens, and says nothing.
    listens: bool,
    /// Whatever is posted is a message, or wants to be taken for none.
    is_certain: bool,
    /// There once it is clear that this is a message.
    line: Option<Line>,
    /// Of what it asks.
    id: Option<Id>,
    inner: Box<dyn Watcher>,
    sent: Vec<u8>,
    is_stopped: bool,
    /// What could not be recorded, told at the end.
    failed: Option<NotRecorded>,
    status: u16,
    form: Form,
    /// An answer that breaks off may be asked for again.
    is_resumable: bool,
    /// Questions to people about what the server asks.
    asked: Vec<u64>,
}

impl Following {
    /// Nothing where this is no message.
    fn mediator(&self) -> Option<MutexGuard<'_, Mediator>> {
        let mut mediator = lock(self.line.as_ref()?);
        mediator.within(self.event, self.scope);
        Some(mediator)
    }

    fn refuse(&mut self, error: NotRecorded) -> Stop {
        self.is_stopped = true;
        let reason = error.to_string();
        self.failed = Some(error);
        Stop { cause: "not-recorded".into(), reason }
    }

    /// What becomes of what the client posts.
    fn next(&mut self, outs: Result<Vec<Out>, NotRecorded>) -> Next {
        let outs = match outs {
            Ok(outs) => outs,
            Err(error) => return Next::Refuse(self.refuse(error)),
        };
        for out in outs {
            match out {
                Out::ToServer(_) => return Next::Forward,
                Out::ToClient(body) => return self.reply(200, body),
                Out::Hold(held) => {
                    let what = format!("{} {}", held.tool, held.arguments);
                    let (event, rule, reason) = (held.event, held.rule, held.reason);
                    return Next::Ask(Question { event, rule, reason, kind: "tool".to_owned(), what });
                }
                Out::Withdraw(_) | Out::Pin(_) => {}
            }
        }
        // It is on record why it goes no further, and there is nothing to be said to it.
        self.reply(202, Vec::new())
    }

    fn reply(&mut self, status: u16, body: Vec<u8>) -> Next {
        self.is_stopped = true;
        let is_json = !body.is_empty();
        let headers = is_json.then(|| ("content-type".to_owned(), b"application/json".to_vec()));
        let parts = if is_json { vec![(Duration::ZERO, body)] } else { Vec::new() };
        Next::Answer(Reply { status, headers: headers.into_iter().collect(), parts })
    }

    /// Whether what was posted is a message; keeps the id of what it asks.
    fn is_message(&mut self, sent: &[u8]) -> bool {
        match Message::read(sent) {
            // To something that a server asked, so one must be known.
            Ok(Message::Answer { .. }) => self.is_certain,
            Ok(Message::Request { method, id, .. }) => {
                self.id = Some(id);
                self.is_certain || is_ours(&method)
            }
            Ok(Message::Notification { method, .. }) => self.is_certain || is_ours(&method),
            Err(_) => self.is_certain || memchr::memmem::find(sent, b"jsonrpc").is_some(),
        }
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
        if !self.listens && !self.is_message(&sent) {
            return Next::Forward;
        }
        match self.servers.line(&self.server, &self.session) {
            Ok(line) => self.line = Some(line),
            Err(stop) => {
                self.is_stopped = true;
                return Next::Refuse(stop);
            }
        }
        if self.listens {
            return Next::Forward;
        }
        let outs = self.mediator().map(|mut mediator| match mediator.has_said(&sent) {
            true => Ok(vec![Out::ToServer(Vec::new())]),
            false => mediator.message(ToolSide::Client, &sent),
        });
        self.next(outs.unwrap_or_else(|| Ok(Vec::new())))
    }

    fn asked(&mut self, question: &Question, answer: Answer, by: &str, waited_us: u64) -> Next {
        let outs = self.mediator().map(|mut line| line.answered(question.event, answer, by, waited_us));
        match outs.unwrap_or_else(|| Ok(Vec::new())) {
            Ok(outs) if outs.is_empty() => {
                self.is_stopped = true;
                let reason = "the call was taken back while it waited".to_owned();
                Next::Refuse(Stop { cause: "withdrawn".to_owned(), reason })
            }
            outs => self.next(outs),
        }
    }

    fn answered(&mut self, status: u16, headers: &[(&str, &[u8])]) {
        self.inner.answered(status, headers);
        self.status = status;
        self.form = Form::of(headers);
    }

    fn received(&mut self, chunk: &[u8]) {
        self.inner.received(chunk);
    }

    fn mends(&self) -> bool {
        self.line.is_some() && !self.is_stopped
    }

    fn mend(&mut self, chunk: &[u8]) -> Mended {
        self.inner.received(chunk);
        self.came(chunk)
    }

    fn mend_asked(&mut self, question: &Question, answer: Answer, by: &str, waited_us: u64) -> Mended {
        self.asked.retain(|event| *event != question.event);
        let outs = self.mediator().map(|mut line| line.answered(question.event, answer, by, waited_us));
        self.mended(outs.unwrap_or_else(|| Ok(Vec::new())), None)
    }

    fn mend_end(&mut self) -> Mended {
        self.over()
    }

    fn ended(mut self: Box<Self>, ending: Ending) -> Result<(), NotRecorded> {
        if self.mends() {
            self.lost()?;
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
