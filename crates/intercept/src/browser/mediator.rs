//! What becomes of each message between the clients and the browser.

use super::judge::{self, Ruling};
use super::mask::Mask;
use super::message::{self, Command, Said};
use super::state::{Ask, Client, Pending, Session, Target, US, Waiting, What};
use super::{LONGEST, subject::Subject};
use crate::mcp::InForce;
use crate::pace::Pace;
use cofferdam_model::{Body, BrowserEnded, BrowserFault, NotRecorded, Record};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Commands of one client without an answer.
const MOST_OPEN: usize = 4096;
/// What waits behind a command that is being looked at.
const MOST_QUEUED: usize = 8 << 20;
/// Pages and sessions that are known.
const MOST_KNOWN: usize = 10_000;
/// Faults that are told one by one; after that, each time they have doubled.
const MOST_FAULTS: u64 = 64;

pub(super) const REFUSED: i32 = -32000;
const UNKNOWN_SESSION: i32 = -32001;
const PARSE: i32 = -32700;

/// What to do, in this order.
#[derive(Debug, PartialEq)]
pub enum Out {
    ToBrowser(Vec<u8>),
    ToClient(u64, String),
    /// Say goodbye to it.
    Close(u64),
    /// Ask a person, and tell [`Mediator::answered`].
    Hold(Held),
    /// Nobody needs to be asked any more.
    Withdraw(u64),
}

/// An action that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its event, by which it is answered.
    pub event: u64,
    pub rule: String,
    pub reason: String,
    pub action: String,
    /// JSON.
    pub args: String,
}

pub(super) type Done = Result<Vec<Out>, NotRecorded>;

/// One for a session's browser, however often it is started.
pub struct Mediator {
    pub(super) record: Arc<dyn Record>,
    pub(super) in_force: InForce,
    pub(super) own_sandbox: bool,
    /// What the browser says of itself, once it is up.
    pub(super) version: Option<Value>,
    /// Why there is none.
    pub(super) gone: Option<String>,
    pub(super) clients: BTreeMap<u64, Client>,
    pub(super) sessions: BTreeMap<String, Session>,
    pub(super) targets: BTreeMap<String, Target>,
    pub(super) waiting: BTreeMap<u64, Waiting>,
    pub(super) pending: BTreeMap<u64, Pending>,
    pub(super) mask: Mask,
    pub(super) pace: Pace,
    pub(super) sights: Pace,
    pub(super) downloads: VecDeque<String>,
    pub(super) last_read: (String, String),
    next_command: u64,
    next_client: u64,
    next_key: u64,
    faults: u64,
}

impl Mediator {
    /// `own_sandbox` is whether the browser is started with one.
    pub fn new(record: Arc<dyn Record>, in_force: InForce, own_sandbox: bool) -> Self {
        Self {
            record,
            in_force,
            own_sandbox,
            version: None,
            gone: None,
            clients: BTreeMap::new(),
            sessions: BTreeMap::new(),
            targets: BTreeMap::new(),
            waiting: BTreeMap::new(),
            pending: BTreeMap::new(),
            mask: Mask::default(),
            pace: Pace::default(),
            sights: Pace::default(),
            downloads: VecDeque::new(),
            last_read: Default::default(),
            next_command: 0,
            next_client: 0,
            next_key: 0,
            faults: 0,
        }
    }

    /// A browser was started: what to say to it first.
    pub fn begins(&mut self) -> Vec<Out> {
        let mut out = Vec::new();
        self.gone = None;
        self.ask("Browser.getVersion", None, &json!({}), Ask::Version, &mut out);
        self.ask("Target.setDiscoverTargets", None, &json!({ "discover": true }), Ask::Nothing, &mut out);
        out
    }

    pub fn is_up(&self) -> bool {
        self.version.is_some()
    }

    /// Why there is no browser, where there is none any more.
    pub fn why_gone(&self) -> Option<&str> {
        self.gone.as_deref()
    }

    pub(super) fn ask(
        &mut self,
        method: &str,
        session: Option<&str>,
        params: &Value,
        ask: Ask,
        out: &mut Vec<Out>,
    ) {
        self.next_command += 1;
        self.waiting.insert(self.next_command, Waiting::Ours(ask));
        out.push(Out::ToBrowser(message::command(self.next_command, method, session, &params.to_string())));
    }

    /// A client came by this path; nothing where there is nothing at it.
    pub fn open(&mut self, path: &str) -> Option<(u64, Vec<Out>)> {
        let rest = path.strip_prefix("/devtools/")?;
        let (kind, id) = rest.split_once('/')?;
        self.version.as_ref()?;
        let mut out = Vec::new();
        let client = self.next_client + 1;
        match kind {
            "browser" => {
                self.ask("Target.attachToBrowserTarget", None, &json!({}), Ask::Root(client), &mut out);
            }
            "page" if self.targets.contains_key(id) => {
                let params = json!({ "targetId": id, "flatten": true });
                self.ask("Target.attachToTarget", None, &params, Ask::Page(client, id.into()), &mut out);
            }
            _ => return None,
        }
        self.next_client = client;
        self.clients.insert(client, Client::default());
        Some((client, out))
    }

    /// One message of a client.
    pub fn from_client(&mut self, client: u64, text: &str) -> Done {
        let mut out = Vec::new();
        self.take(client, text, &mut out)?;
        Ok(out)
    }

    pub(super) fn take(&mut self, client: u64, text: &str, out: &mut Vec<Out>) -> Result<(), NotRecorded> {
        let Some(known) = self.clients.get_mut(&client) else { return Ok(()) };
        if text.len() > LONGEST {
            return self.turn_away(client, "too-long", "a message is longer than what is passed on", out);
        }
        let Some(root) = known.root.clone() else {
            known.early_bytes += text.len();
            if known.early_bytes > MOST_QUEUED {
                return self.turn_away(client, "flood", "too much before the browser answers", out);
            }
            known.early.push(text.to_owned());
            return Ok(());
        };
        let command: Command<'_> = match serde_json::from_str(text) {
            Ok(command) => command,
            Err(error) => {
                self.fault(client, "malformed", crate::kept::clipped(&error.to_string(), 200))?;
                let words =
                    json!({ "code": PARSE, "message": format!("cofferdam: this is not passed on: {error}") });
                out.push(Out::ToClient(client, json!({ "error": words }).to_string()));
                return Ok(());
            }
        };
        let shown = command.session_id.as_deref().map(str::to_owned);
        let session = shown.clone().unwrap_or(root);
        let Some(found) = self.sessions.get_mut(&session).filter(|found| found.client == client) else {
            let words = "Session with given id not found.";
            out.push(Out::ToClient(
                client,
                message::error(command.id, UNKNOWN_SESSION, words, shown.as_deref()),
            ));
            return Ok(());
        };
        if found.busy {
            found.queued += text.len();
            if found.queued > MOST_QUEUED || found.queue.len() > MOST_OPEN {
                return self.turn_away(client, "flood", "too much behind a command that waits", out);
            }
            found.queue.push_back(text.to_owned());
            return Ok(());
        }
        if known_open(&self.clients, client) >= MOST_OPEN {
            let words = format!("cofferdam: {MOST_OPEN} commands have no answer yet; wait for some");
            out.push(Out::ToClient(client, message::error(command.id, REFUSED, &words, shown.as_deref())));
            return Ok(());
        }
        self.command(client, session, &command, out)
    }

    fn command(
        &mut self,
        client: u64,
        session: String,
        command: &Command<'_>,
        out: &mut Vec<Out>,
    ) -> Result<(), NotRecorded> {
        let raw = command.params.map_or("{}", |params| params.get());
        let from = From { client, id: command.id, session };
        let Ok(params) = serde_json::from_str::<Value>(raw) else {
            self.refuse(&from, "its parameters cannot be read", out);
            return Ok(());
        };
        let worlds = self.sessions.get(&from.session).map(|session| session.worlds.clone());
        let is_own = |world: i64| worlds.as_ref().is_some_and(|worlds| worlds.get(&world) == Some(&false));
        let method = command.method.as_ref();
        match Subject::of(method, &params, is_own) {
            Subject::Passes => self.pass(&from, method, &params, raw, out),
            Subject::Never(why) => self.refuse(&from, why, out),
            Subject::MakesContext => self.forward(&from, method, raw, What::MakesContext, out),
            Subject::Attaches(target) => self.forward(&from, method, raw, What::Attaches(target), out),
            Subject::Closes => self.close(&from, out),
            Subject::Releases => {
                let session = self.sessions.get_mut(&from.session);
                match session.is_some_and(|session| std::mem::take(&mut session.refused_press)) {
                    true => self.refuse(&from, "its press was refused", out),
                    false => self.forward(&from, method, raw, What::Plain, out),
                }
            }
            Subject::Script(source) => return self.script(&from, method, &params, source, out),
            Subject::Acts(act, look) => return self.act(from, method, params, act, look, out),
        }
        Ok(())
    }

    /// What only keeps things going. A client may not end what is another's.
    fn pass(&mut self, from: &From, method: &str, params: &Value, raw: &str, out: &mut Vec<Out>) {
        let named = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
        let client = self.clients.get(&from.client);
        let is_its_own = match method {
            "Target.detachFromTarget" => {
                self.sessions.get(named("sessionId")).is_some_and(|session| session.client == from.client)
            }
            "Target.disposeBrowserContext" => {
                client.is_some_and(|client| client.contexts.contains(named("browserContextId")))
            }
            _ => true,
        };
        match is_its_own {
            true => self.forward(from, method, raw, What::Plain, out),
            false => self.refuse(from, "it is not this client's", out),
        }
    }

    pub(super) fn forward(
        &mut self,
        from: &From,
        method: &str,
        params: &str,
        what: What,
        out: &mut Vec<Out>,
    ) {
        self.next_command += 1;
        let session = self.shown(from.client, &from.session);
        let waiting = Waiting::Client { client: from.client, id: from.id, session, what };
        self.waiting.insert(self.next_command, waiting);
        if let Some(client) = self.clients.get_mut(&from.client) {
            client.open += 1;
        }
        out.push(Out::ToBrowser(message::command(self.next_command, method, Some(&from.session), params)));
    }

    /// A client's name for a session: none for the one that it came in.
    pub(super) fn shown(&self, client: u64, session: &str) -> Option<String> {
        let root = self.clients.get(&client).and_then(|client| client.root.as_deref());
        (root != Some(session)).then(|| session.to_owned())
    }

    pub(super) fn refuse(&self, from: &From, why: &str, out: &mut Vec<Out>) {
        let session = self.shown(from.client, &from.session);
        let words = format!("cofferdam: {why}. Nothing was done.");
        out.push(Out::ToClient(from.client, message::error(from.id, REFUSED, &words, session.as_deref())));
    }

    pub(super) fn decide(&self, action: &str, url: &str, args: &Value) -> Ruling {
        judge::decide(&self.in_force, action, url, args)
    }

    pub(super) fn new_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    /// One message of the browser, without its end.
    pub fn from_browser(&mut self, bytes: &[u8]) -> Done {
        let mut out = Vec::new();
        let said: Said<'_> = match serde_json::from_slice(bytes) {
            Ok(said) => said,
            Err(error) => {
                self.fault(US, "malformed", crate::kept::clipped(&error.to_string(), 200))?;
                return Ok(out);
            }
        };
        match (said.id, &said.method) {
            (Some(id), _) => self.answer(id, &said, &mut out)?,
            (None, Some(method)) => self.event(method, &said, &mut out)?,
            (None, None) => self.fault(US, "malformed", "neither an answer nor an event".to_owned())?,
        }
        Ok(out)
    }

    /// A message of the browser that was not even collected.
    pub fn too_long(&mut self) -> Done {
        self.fault(US, "too-long", "an answer is longer than what is passed on".to_owned())?;
        Ok(Vec::new())
    }

    pub(super) fn has_room(&self) -> bool {
        self.targets.len() < MOST_KNOWN && self.sessions.len() < MOST_KNOWN
    }

    pub(super) fn turn_away(
        &mut self,
        client: u64,
        cause: &str,
        why: &str,
        out: &mut Vec<Out>,
    ) -> Result<(), NotRecorded> {
        self.fault(client, cause, why.to_owned())?;
        out.push(Out::Close(client));
        out.extend(self.left(client)?);
        Ok(())
    }

    pub(super) fn fault(&mut self, client: u64, cause: &str, detail: String) -> Result<(), NotRecorded> {
        self.faults += 1;
        let detail = match self.faults {
            1..=MOST_FAULTS => detail,
            many if many.is_power_of_two() => format!("{detail}; {many} faults by now"),
            _ => return Ok(()),
        };
        let fact = BrowserFault { client, cause: cause.to_owned(), detail };
        self.record.append(None, &Body::BrowserFault(fact))?;
        Ok(())
    }

    /// The browser is no more.
    pub fn gone(&mut self, reason: &str) -> Done {
        let mut out = Vec::new();
        let sessions: Vec<String> = self.sessions.keys().cloned().collect();
        for session in &sessions {
            self.end_typing(session)?;
        }
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            if let Waiting::Client { what: What::Act { event, target, began, .. }, .. } = waiting {
                self.done_gone(event, &target, began)?;
            }
        }
        for (_, pending) in std::mem::take(&mut self.pending) {
            out.extend(pending.event.map(Out::Withdraw));
        }
        out.extend(std::mem::take(&mut self.clients).into_keys().map(Out::Close));
        self.sessions.clear();
        self.targets.clear();
        self.version = None;
        self.gone = Some(reason.to_owned());
        self.record.append(None, &Body::BrowserEnded(BrowserEnded { reason: reason.to_owned() }))?;
        Ok(out)
    }
}

fn known_open(clients: &BTreeMap<u64, Client>, client: u64) -> usize {
    clients.get(&client).map_or(0, |client| client.open)
}

/// Whose command it is.
#[derive(Debug, Clone)]
pub(super) struct From {
    pub(super) client: u64,
    pub(super) id: i64,
    pub(super) session: String,
}
