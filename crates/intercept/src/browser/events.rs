//! What the browser tells by itself: pages that come, go and move, worlds of scripts, dialogs, files. Each goes to
//! the client whose session it is of, and what matters is on record whoever listens.

use super::element::{BINDING, Element, WORLD};
use super::mask::MASKED;
use super::mediator::{Mediator, Out};
use super::message::{self, Said};
use super::state::{Ask, Session, US};
use crate::kept::clipped;
use cofferdam_model::{Body, BrowserSeen, NotRecorded, Sight, Verdict};
use serde_json::{Value, json};

/// Files whose beginning was told; several clients hear of one.
const MOST_DOWNLOADS: usize = 1000;

impl Mediator {
    pub(super) fn event(
        &mut self,
        method: &str,
        said: &Said<'_>,
        out: &mut Vec<Out>,
    ) -> Result<(), NotRecorded> {
        let raw = said.params.map_or("{}", |params| params.get());
        let session = said.session_id.as_deref();
        let owner = session.and_then(|session| self.sessions.get(session)).map(|session| session.client);
        let domain = method.split('.').next().unwrap_or_default();
        // Most are of no interest but to whoever listens, and are not even read.
        if matches!(domain, "Target" | "Runtime" | "Browser" | "Page" | "Fetch")
            && let Ok(params) = serde_json::from_str::<Value>(raw)
            && !self.hear(method, session, owner, &params, out)?
        {
            return Ok(());
        }
        if let (Some(session), Some(owner)) = (session, owner.filter(|owner| *owner != US)) {
            let shown = self.shown(owner, session);
            out.push(Out::ToClient(owner, message::event(method, raw, shown.as_deref())));
        }
        Ok(())
    }

    /// Says whether the client gets to hear it.
    fn hear(
        &mut self,
        method: &str,
        session: Option<&str>,
        owner: Option<u64>,
        params: &Value,
        out: &mut Vec<Out>,
    ) -> Result<bool, NotRecorded> {
        let text = |at: &str| params.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let is_eye = owner == Some(US);
        match (method, session) {
            ("Target.targetCreated" | "Target.targetInfoChanged", None) => self.target(params, out)?,
            ("Target.targetDestroyed", None) => self.closed(text("/targetId"), Sight::Closed, out)?,
            ("Target.targetCrashed", None) => self.closed(text("/targetId"), Sight::Crashed, out)?,
            ("Target.attachedToTarget", Some(_)) => {
                if let Some(owner) = owner.filter(|_| self.has_room()) {
                    let (child, target) = (text("/sessionId").to_owned(), text("/targetInfo/targetId"));
                    self.sessions.entry(child).or_insert_with(|| Session::new(owner, target.to_owned()));
                }
            }
            ("Target.detachedFromTarget", _) => self.detached(text("/sessionId"), out)?,
            ("Runtime.executionContextCreated", Some(session)) => return Ok(self.world(session, params)),
            ("Runtime.executionContextDestroyed", Some(session)) => {
                let id = params.get("executionContextId").and_then(Value::as_i64).unwrap_or_default();
                let session = self.sessions.get_mut(session);
                return Ok(session.is_none_or(|session| {
                    session.worlds.remove(&id);
                    !session.hidden.remove(&id)
                }));
            }
            ("Runtime.executionContextsCleared", Some(session)) => {
                if let Some(session) = self.sessions.get_mut(session) {
                    session.worlds.clear();
                    session.hidden.clear();
                }
            }
            ("Runtime.bindingCalled", Some(session)) if text("/name") == BINDING => {
                if is_eye {
                    self.changed(session, text("/payload"))?;
                }
                return Ok(false);
            }
            ("Page.javascriptDialogOpening", Some(session)) if self.is_new_dialog(session) => {
                let said = format!("{}: {}", text("/type"), text("/message"));
                self.sight(session, Sight::Dialog, text("/url").to_owned(), said)?;
            }
            ("Browser.downloadWillBegin", Some(session)) => self.download(session, params, out)?,
            ("Fetch.requestPaused", Some(session)) if is_eye => {
                let session = session.to_owned();
                self.document(&session, params, out)?;
            }
            _ => {}
        }
        Ok(true)
    }

    /// A page that is new, or is now elsewhere.
    fn target(&mut self, params: &Value, out: &mut Vec<Out>) -> Result<(), NotRecorded> {
        let text = |at: &str| params.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let (id, url) = (text("/targetInfo/targetId"), clipped(text("/targetInfo/url"), 4000));
        let is_page = text("/targetInfo/type") == "page";
        if !self.targets.contains_key(id) {
            if !self.has_room() {
                return self.fault(US, "flood", "more pages than are kept apart".to_owned());
            }
            let target = self.targets.entry(id.to_owned()).or_default();
            target.kind = text("/targetInfo/type").to_owned();
            target.context = text("/targetInfo/browserContextId").to_owned();
            target.url.clone_from(&url);
            target.eyed = is_page;
            if is_page {
                let attach = json!({ "targetId": id, "flatten": true });
                self.ask("Target.attachToTarget", None, &attach, Ask::Eye(id.to_owned()), out);
                self.saw(None, Sight::Opened, String::new(), url, String::new(), None)?;
            }
            return Ok(());
        }
        let Some(target) = self.targets.get_mut(id).filter(|target| target.url != url) else { return Ok(()) };
        let (before, last) = (std::mem::replace(&mut target.url, url.clone()), target.last);
        let is_error = target.kept_from.take().is_some_and(|kept_from| kept_from == url);
        if is_page && !is_error {
            self.saw(last, Sight::Navigated, before, url, String::new(), None)?;
        }
        Ok(())
    }

    fn closed(&mut self, id: &str, what: Sight, out: &mut Vec<Out>) -> Result<(), NotRecorded> {
        let Some(target) = self.targets.get_mut(id) else { return Ok(()) };
        let (kind, url, last) = (target.kind.clone(), target.url.clone(), target.last);
        if what == Sight::Closed {
            let waiting = std::mem::take(&mut target.waiting);
            let gone = self.targets.remove(id);
            for key in waiting {
                self.found(key, None, out)?;
            }
            if let Some(eye) = gone.and_then(|target| target.eye) {
                self.sessions.remove(&eye);
            }
        }
        match kind == "page" {
            true => self.saw(last, what, url, String::new(), String::new(), None),
            false => Ok(()),
        }
    }

    fn detached(&mut self, session: &str, out: &mut Vec<Out>) -> Result<(), NotRecorded> {
        self.end_typing(session)?;
        self.sessions.remove(session);
        let keys: Vec<u64> =
            self.pending.iter().filter(|(_, p)| p.session == session).map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(event) = self.pending.remove(&key).and_then(|pending| pending.event) {
                self.done_gone(event, "", std::time::Instant::now())?;
                out.push(Out::Withdraw(event));
            }
        }
        Ok(())
    }

    /// A world of ours is nobody else's business.
    fn world(&mut self, session: &str, params: &Value) -> bool {
        let Some(session) = self.sessions.get_mut(session) else { return true };
        let id = params.pointer("/context/id").and_then(Value::as_i64).unwrap_or_default();
        if params.pointer("/context/name").and_then(Value::as_str) == Some(WORLD) {
            session.hidden.insert(id);
            return false;
        }
        let default = params.pointer("/context/auxData/isDefault").and_then(Value::as_bool).unwrap_or(true);
        session.worlds.insert(id, default);
        true
    }

    /// All sessions on a page tell of its dialogs, in any order, and each is on record once: by whoever tells first, so that
    /// no client can answer one before.
    fn is_new_dialog(&mut self, session: &str) -> bool {
        let Some(session) = self.sessions.get_mut(session) else { return false };
        session.dialogs += 1;
        let told = session.dialogs;
        let Some(target) = self.targets.get_mut(&session.target).filter(|target| target.dialogs < told)
        else {
            return false;
        };
        target.dialogs = told;
        true
    }

    fn sight(&mut self, session: &str, what: Sight, url: String, detail: String) -> Result<(), NotRecorded> {
        let target = self.sessions.get(session).and_then(|session| self.targets.get(&session.target));
        let (page, last) = target.map(|target| (target.url.clone(), target.last)).unwrap_or_default();
        self.saw(last, what, page, url, detail, None)
    }

    fn changed(&mut self, session: &str, payload: &str) -> Result<(), NotRecorded> {
        let Ok(told) = serde_json::from_str::<Value>(payload) else { return Ok(()) };
        let Some(element) = Element::read(&told) else { return Ok(()) };
        let value = told.get("value").and_then(Value::as_str).unwrap_or_default();
        let value = if element.secret { MASKED.to_owned() } else { clipped(value, 500) };
        let detail = json!({
            "role": element.role,
            "name": element.name,
            "selector": element.selector,
            "value": value,
        });
        self.sight(session, Sight::Changed, String::new(), detail.to_string())
    }

    /// A file that comes down: by its own rule, as it was nobody's command.
    fn download(&mut self, session: &str, params: &Value, out: &mut Vec<Out>) -> Result<(), NotRecorded> {
        let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
        let guid = text("guid").to_owned();
        if self.downloads.contains(&guid) {
            return Ok(());
        }
        self.downloads.push_back(guid.clone());
        if self.downloads.len() > MOST_DOWNLOADS {
            self.downloads.pop_front();
        }
        let target = self.targets.get(text("frameId"));
        let (page, last, context) = target
            .map(|target| (target.url.clone(), target.last, target.context.clone()))
            .unwrap_or_default();
        let (url, file) = (clipped(text("url"), 4000), clipped(text("suggestedFilename"), 400));
        let ruling = self.decide("download", &url, &json!({ "file": file, "url": url }));
        let decided = (ruling.effect, ruling.rule);
        // Nobody can be asked in time.
        let effect = if decided.0 == Verdict::Allow { Verdict::Allow } else { Verdict::Deny };
        self.saw(last, Sight::Download, page, url, file, Some((effect, decided.1)))?;
        if effect == Verdict::Deny {
            let cancel = match context.is_empty() {
                true => json!({ "guid": guid }),
                false => json!({ "guid": guid, "browserContextId": context }),
            };
            self.ask("Browser.cancelDownload", Some(session), &cancel, Ask::Nothing, out);
        }
        Ok(())
    }

    /// A document that is about to be asked for, whoever wants it: a script, a link, a redirect.
    fn document(&mut self, eye: &str, params: &Value, out: &mut Vec<Out>) -> Result<(), NotRecorded> {
        let text = |at: &str| params.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let (request, url) = (text("/requestId"), clipped(text("/request/url"), 4000));
        let id = self.sessions.get(eye).map(|session| session.target.clone()).unwrap_or_default();
        let target = self.targets.get_mut(&id);
        let leave = target.as_ref().is_some_and(|target| target.leave.as_deref() == Some(url.as_str()));
        let (page, last) = target.map(|target| (target.url.clone(), target.last)).unwrap_or_default();
        let ruling = self.decide("navigate", &url, &json!({ "url": url }));
        if ruling.effect == Verdict::Allow || (leave && ruling.effect == Verdict::Review) {
            let go = json!({ "requestId": request });
            self.ask("Fetch.continueRequest", Some(eye), &go, Ask::Nothing, out);
            return Ok(());
        }
        if let Some(target) = self.targets.get_mut(&id) {
            target.kept_from = Some(url.clone());
        }
        let no = json!({ "requestId": request, "errorReason": "AccessDenied" });
        self.ask("Fetch.failRequest", Some(eye), &no, Ask::Nothing, out);
        self.saw(last, Sight::Navigated, page, url, ruling.words, Some((Verdict::Deny, ruling.rule)))
    }

    fn saw(
        &mut self,
        parent: Option<u64>,
        what: Sight,
        page: String,
        url: String,
        detail: String,
        decided: Option<(Verdict, Option<String>)>,
    ) -> Result<(), NotRecorded> {
        // Pages do what they like; what they do is bounded here.
        if !self.sights.takes(1) {
            return self.fault(US, "flood", "pages do more than is told one by one".to_owned());
        }
        let (effect, rule) = decided.map_or((None, None), |(effect, rule)| (Some(effect), rule));
        let detail = clipped(&self.mask.cover(detail), 2000);
        let (page, url) = (self.mask.cover(page), self.mask.cover(url));
        let fact = BrowserSeen { what, page, url, detail, effect, rule };
        self.record.append(parent, &Body::BrowserSeen(Box::new(fact)))?;
        Ok(())
    }
}
