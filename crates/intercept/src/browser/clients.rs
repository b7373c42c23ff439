//! Answers on their way back, and clients that come and go.

use super::element::{self, BINDING, Element, WORLD};
use super::mediator::{Done, From, Mediator, Out};
use super::message::{self, Said};
use super::state::{Ask, Session, US, Waiting, What};
use crate::kept::clipped;
use cofferdam_model::{Body, BrowserActed, BrowserOutcome, BrowserStarted, NotRecorded, Verdict};
use serde_json::{Value, json};
use std::time::Instant;

impl Mediator {
    pub(super) fn answer(&mut self, id: u64, said: &Said<'_>, out: &mut Vec<Out>) -> Result<(), NotRecorded> {
        match self.waiting.remove(&id) {
            Some(Waiting::Ours(ask)) => {
                // One that is no text of whole characters is no answer to us.
                let result = said.result.and_then(|raw| serde_json::from_str(raw.get()).ok());
                self.told_us(ask, result, out)
            }
            Some(Waiting::Client { client, id, session, what }) => {
                self.learn(client, what, said)?;
                let (member, value) = match (said.error, said.result) {
                    (Some(error), _) => ("error", error.get()),
                    (None, Some(result)) => ("result", result.get()),
                    (None, None) => ("result", "{}"),
                };
                if let Some(known) = self.clients.get_mut(&client) {
                    known.open = known.open.saturating_sub(1);
                    out.push(Out::ToClient(client, message::answer(id, member, value, session.as_deref())));
                }
                Ok(())
            }
            None => self.fault(US, "unknown-id", format!("an answer to {id}, which nobody asked")),
        }
    }

    fn told_us(&mut self, ask: Ask, result: Option<Value>, out: &mut Vec<Out>) -> Result<(), NotRecorded> {
        let text = |name: &str| {
            let found = result.as_ref().and_then(|result| result.get(name));
            found.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        match ask {
            Ask::Nothing => {}
            Ask::Version => {
                let fact = BrowserStarted {
                    product: clipped(&text("product"), 200),
                    protocol: clipped(&text("protocolVersion"), 40),
                    own_sandbox: self.own_sandbox,
                };
                self.record.append(None, &Body::BrowserStarted(fact))?;
                self.version = result;
            }
            Ask::Root(client) => self.begin(client, text("sessionId"), String::new(), out)?,
            Ask::Page(client, target) => self.begin(client, text("sessionId"), target, out)?,
            Ask::Eye(target) => self.see(&target, text("sessionId"), out)?,
            Ask::World(key) => {
                let world = result.as_ref().and_then(|result| result.get("executionContextId"));
                self.in_world(key, world.and_then(Value::as_i64), out)?;
            }
            Ask::Element(key) => {
                let value = result.as_ref().and_then(|result| result.pointer("/result/value"));
                self.found(key, value.and_then(Element::read), out)?;
            }
        }
        Ok(())
    }

    /// The session that a client speaks in is there: what it said before can go.
    fn begin(
        &mut self,
        client: u64,
        session: String,
        target: String,
        out: &mut Vec<Out>,
    ) -> Result<(), NotRecorded> {
        if session.is_empty() {
            return self.turn_away(client, "no-session", "the browser has no such page any more", out);
        }
        let Some(known) = self.clients.get_mut(&client) else {
            self.ask("Target.detachFromTarget", None, &json!({ "sessionId": session }), Ask::Nothing, out);
            return Ok(());
        };
        known.root = Some(session.clone());
        let early = std::mem::take(&mut known.early);
        self.sessions.insert(session, Session::new(client, target));
        for text in early {
            self.take(client, &text, out)?;
        }
        Ok(())
    }

    /// Our own session on a page: for looking, for what its fields become, and for where it goes.
    fn see(&mut self, target: &str, session: String, out: &mut Vec<Out>) -> Result<(), NotRecorded> {
        let Some(page) = self.targets.get_mut(target) else { return Ok(()) };
        let waiting = std::mem::take(&mut page.waiting);
        if session.is_empty() {
            page.eyed = false;
            for key in waiting {
                self.found(key, None, out)?;
            }
            return Ok(());
        }
        page.eye = Some(session.clone());
        self.sessions.insert(session.clone(), Session::new(US, target.to_owned()));
        let eye = Some(session.as_str());
        self.ask("Page.enable", eye, &json!({}), Ask::Nothing, out);
        self.ask("Runtime.enable", eye, &json!({}), Ask::Nothing, out);
        let binding = json!({ "name": BINDING, "executionContextName": WORLD });
        self.ask("Runtime.addBinding", eye, &binding, Ask::Nothing, out);
        let watcher = json!({ "source": element::watcher(), "worldName": WORLD, "runImmediately": true });
        self.ask("Page.addScriptToEvaluateOnNewDocument", eye, &watcher, Ask::Nothing, out);
        if (self.in_force)().is_some() {
            let documents = json!({ "patterns": [{ "urlPattern": "*", "resourceType": "Document" }] });
            self.ask("Fetch.enable", eye, &documents, Ask::Nothing, out);
        }
        for key in waiting {
            self.look_by(key, target, out);
        }
        Ok(())
    }

    /// What an answer to a client tells us.
    fn learn(&mut self, client: u64, what: What, said: &Said<'_>) -> Result<(), NotRecorded> {
        let result = || said.result.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
        let named = |name: &str| {
            let found = result().and_then(|result| result.get(name).cloned());
            found.and_then(|value| value.as_str().map(str::to_owned))
        };
        match what {
            What::Plain => {}
            What::Attaches(target) => {
                if let Some(session) = named("sessionId") {
                    self.sessions.entry(session).or_insert_with(|| Session::new(client, target));
                }
            }
            What::MakesContext => {
                if let (Some(context), Some(client)) =
                    (named("browserContextId"), self.clients.get_mut(&client))
                {
                    client.contexts.insert(context);
                }
            }
            What::MakesTarget { event, began } => {
                let target = named("targetId").unwrap_or_default();
                if let Some(client) = self.clients.get_mut(&client).filter(|_| !target.is_empty()) {
                    client.targets.insert(target.clone());
                }
                if let Some(target) = self.targets.get_mut(&target) {
                    target.last = Some(event);
                }
                self.ended(event, &target, began, super::state::Keeps::Nothing, said)?;
            }
            What::Act { event, target, began, keeps } => self.ended(event, &target, began, keeps, said)?,
            What::Script { source, page } => self.brought(client, source, page, result())?,
        }
        Ok(())
    }

    fn ended(
        &mut self,
        event: u64,
        target: &str,
        began: Instant,
        keeps: super::state::Keeps,
        said: &Said<'_>,
    ) -> Result<(), NotRecorded> {
        let read = |raw: Option<&serde_json::value::RawValue>| {
            raw.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok())
        };
        let result = read(said.result);
        let words = |value: &Value, at: &str| value.pointer(at).and_then(Value::as_str).map(str::to_owned);
        let failed = match (said.error, &result) {
            (Some(_), _) => {
                read(said.error).and_then(|error| words(&error, "/message")).or(Some(String::new()))
            }
            (None, Some(result)) => words(result, "/errorText")
                .or_else(|| words(result, "/exceptionDetails/exception/description"))
                .or_else(|| words(result, "/exceptionDetails/text")),
            (None, None) => None,
        };
        let outcome = if failed.is_some() { BrowserOutcome::Failed } else { BrowserOutcome::Ok };
        let page = self.targets.get(target).map(|target| target.url.clone()).unwrap_or_default();
        let kept = result.as_ref().filter(|_| failed.is_none()).map(|result| (keeps, result));
        self.done(event, outcome, page, failed.unwrap_or_default(), kept, began)
    }

    /// What a library's script read of a page. What it says to itself on the way is no reading.
    fn brought(
        &mut self,
        client: u64,
        source: String,
        page: String,
        result: Option<Value>,
    ) -> Result<(), NotRecorded> {
        let Some(value) = result.as_ref().and_then(|result| result.pointer("/result/value")) else {
            return Ok(());
        };
        let told = (source.clone(), value.to_string());
        if is_chatter(value) || self.last_read == told || !self.pace.takes(1) {
            return Ok(());
        }
        let args = json!({ "script": source, "url": page }).to_string();
        let fact = BrowserActed {
            client,
            action: "read".to_owned(),
            command: "Runtime.callFunctionOn".to_owned(),
            page: clipped(&page, 4000),
            args: self.content(&args)?,
            effect: Verdict::Allow,
            rule: None,
            reason: "as a script".to_owned(),
        };
        let event = self.record.append(None, &Body::BrowserActed(Box::new(fact)))?;
        self.last_read = told;
        let kept = result.as_ref().map(|result| (super::state::Keeps::Value, result));
        self.done(event, BrowserOutcome::Ok, page, String::new(), kept, Instant::now())
    }

    /// A client says that the browser may end: what it made goes, the browser is the session's.
    pub(super) fn close(&mut self, from: &From, out: &mut Vec<Out>) {
        let Some(client) = self.clients.get_mut(&from.client) else { return };
        let (contexts, targets) = (std::mem::take(&mut client.contexts), std::mem::take(&mut client.targets));
        for target in targets {
            self.ask("Target.closeTarget", None, &json!({ "targetId": target }), Ask::Nothing, out);
        }
        for context in contexts {
            let params = json!({ "browserContextId": context });
            self.ask("Target.disposeBrowserContext", None, &params, Ask::Nothing, out);
        }
        let session = self.shown(from.client, &from.session);
        out.push(Out::ToClient(from.client, message::answer(from.id, "result", "{}", session.as_deref())));
        out.push(Out::Close(from.client));
    }

    /// A client is gone.
    pub fn left(&mut self, client: u64) -> Done {
        let mut out = Vec::new();
        let Some(known) = self.clients.remove(&client) else { return Ok(out) };
        let its: Vec<String> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.client == client)
            .map(|(id, _)| id.clone())
            .collect();
        for session in &its {
            self.end_typing(session)?;
            self.sessions.remove(session);
        }
        let keys: Vec<u64> =
            self.pending.iter().filter(|(_, p)| p.client == client).map(|(key, _)| *key).collect();
        for key in keys {
            let event = self.pending.remove(&key).and_then(|pending| pending.event);
            if let Some(event) = event {
                self.done_gone(event, "", Instant::now())?;
                out.push(Out::Withdraw(event));
            }
        }
        if let Some(root) = known.root {
            self.ask("Target.detachFromTarget", None, &json!({ "sessionId": root }), Ask::Nothing, &mut out);
        }
        Ok(out)
    }
}

/// Whether it is what a library tells itself: that something is done, which element was found, how large it is.
fn is_chatter(value: &Value) -> bool {
    const WORDS: &[&str] =
        &["done", "needsinput", "", "error:notconnected", "--playwright--no--result--value--"];
    const KEYS: &[&str] =
        &["log", "success", "box", "visible", "attached", "width", "height", "state", "matches", "received"];
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => WORDS.contains(&text.as_str()) || text.starts_with("JSHandle@"),
        Value::Array(all) => all.iter().all(is_chatter),
        Value::Object(map) => match map.get("o").and_then(Value::as_array) {
            // Playwright's way to write an object.
            Some(members) => members.iter().all(|member| {
                let key = member.get("k").and_then(Value::as_str).unwrap_or_default();
                KEYS.contains(&key) || member.get("v").is_none_or(is_chatter)
            }),
            None => match map.get("v").or_else(|| map.get("a")) {
                Some(inner) => is_chatter(inner) || inner == "undefined" || inner == "null",
                None => map.iter().all(|(key, value)| KEYS.contains(&key.as_str()) || is_chatter(value)),
            },
        },
    }
}
