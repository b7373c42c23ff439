//! From a command that acts to its record: what it is about is looked up, the policy is asked, and only then does
//! the browser hear of it.

use super::element::{self, Element, Look, WORLD};
use super::judge::Ruling;
use super::mask::MASKED;
use super::mediator::{From, Held, Mediator, Out};
use super::state::{Ask, Keeps, Pending, Typing, What};
use super::subject::{Act, Sort};
use crate::kept::clipped;
use cofferdam_model::{
    Answer, ApprovalAnswered, Body, BrowserActed, BrowserDone, BrowserOutcome, Content, NotRecorded, Verdict,
};
use serde_json::{Value, json};
use std::time::Instant;

/// What is longer is kept beside the events.
const SHORT: usize = 4 << 10;
/// A longer result is kept only so far.
const MOST_KEPT: usize = 1 << 20;

impl Mediator {
    /// Looks up what it is about, or decides at once.
    pub(super) fn act(
        &mut self,
        from: From,
        method: &str,
        params: Value,
        act: Act,
        look: Option<Look>,
        out: &mut Vec<Out>,
    ) -> Result<(), NotRecorded> {
        let key = self.new_key();
        let From { client, id, session } = from;
        let pending = Pending {
            client,
            id,
            session,
            method: method.to_owned(),
            params,
            act,
            look: look.clone(),
            element: None,
            event: None,
            words: String::new(),
            rule: String::new(),
        };
        let Some(look) = look else { return self.decided(key, pending, out) };
        if let Some(session) = self.sessions.get_mut(&pending.session) {
            session.busy = true;
        }
        let (session, target) = (pending.session.clone(), self.target_of(&pending));
        self.pending.insert(key, pending);
        if let Look::Object(object) = look {
            let params = json!({
                "functionDeclaration": element::function(),
                "objectId": object,
                "returnByValue": true,
                "silent": true,
            });
            self.ask("Runtime.callFunctionOn", Some(&session), &params, Ask::Element(key), out);
            return Ok(());
        }
        match self.targets.get_mut(&target) {
            Some(page) if page.eye.is_some() => self.look_by(key, &target, out),
            Some(page) if page.eyed => page.waiting.push(key),
            _ => return self.found(key, None, out),
        }
        Ok(())
    }

    fn target_of(&self, pending: &Pending) -> String {
        let named = pending.params.get("targetId").and_then(Value::as_str);
        match named {
            Some(target) => target.to_owned(),
            None => self.sessions.get(&pending.session).map(|s| s.target.clone()).unwrap_or_default(),
        }
    }

    /// By our own session on the page: first a world of ours, which is new in every document.
    pub(super) fn look_by(&mut self, key: u64, target: &str, out: &mut Vec<Out>) {
        let eye = self.targets.get(target).and_then(|page| page.eye.clone());
        let params = json!({ "frameId": target, "worldName": WORLD, "grantUniveralAccess": true });
        self.ask("Page.createIsolatedWorld", eye.as_deref(), &params, Ask::World(key), out);
    }

    pub(super) fn in_world(
        &mut self,
        key: u64,
        world: Option<i64>,
        out: &mut Vec<Out>,
    ) -> Result<(), NotRecorded> {
        let Some(pending) = self.pending.get(&key) else { return Ok(()) };
        let target = self.target_of(pending);
        let eye = self.targets.get(&target).and_then(|page| page.eye.clone());
        let (Some(world), Some(eye), Some(look)) = (world, eye, &pending.look) else {
            return self.found(key, None, out);
        };
        let expression = look.expression();
        let params = json!({
            "expression": expression,
            "contextId": world,
            "returnByValue": true,
            "silent": true,
            "timeout": 2000,
        });
        self.ask("Runtime.evaluate", Some(&eye), &params, Ask::Element(key), out);
        Ok(())
    }

    /// What was found, if anything.
    pub(super) fn found(
        &mut self,
        key: u64,
        element: Option<Element>,
        out: &mut Vec<Out>,
    ) -> Result<(), NotRecorded> {
        let Some(mut pending) = self.pending.remove(&key) else { return Ok(()) };
        pending.element = element;
        let session = pending.session.clone();
        self.decided(key, pending, out)?;
        if !self.pending.contains_key(&key) {
            self.go_on(&session, out)?;
        }
        Ok(())
    }

    /// What waited behind it.
    pub(super) fn go_on(&mut self, session: &str, out: &mut Vec<Out>) -> Result<(), NotRecorded> {
        if let Some(found) = self.sessions.get_mut(session) {
            found.busy = false;
        }
        loop {
            let Some(found) = self.sessions.get_mut(session).filter(|found| !found.busy) else {
                return Ok(());
            };
            let Some(text) = found.queue.pop_front() else { return Ok(()) };
            found.queued -= text.len();
            let client = found.client;
            self.take(client, &text, out)?;
        }
    }

    /// What a rule and the record get to see of it, and its page.
    fn seen(&mut self, pending: &Pending) -> (Value, String, String) {
        let page = self.targets.get(&self.target_of(pending)).map(|t| t.url.clone()).unwrap_or_default();
        let url = pending.act.url.clone().unwrap_or_else(|| page.clone());
        let mut args = pending.act.args.clone();
        if let Some(element) = &pending.element {
            for (name, value) in
                [("role", &element.role), ("name", &element.name), ("selector", &element.selector)]
            {
                args.entry(name).or_insert_with(|| self.mask.cover(value.clone()).into());
            }
        }
        if let Sort::Text(text) | Sort::Key(text) = &pending.act.sort {
            // A field that could not be looked at may be one for secrets.
            let secret = pending.element.as_ref().is_none_or(|element| element.secret);
            if secret && matches!(pending.act.sort, Sort::Text(_)) {
                self.mask.remember(text);
            }
            let text = if secret { MASKED.to_owned() } else { self.mask.cover(clipped(text, 100_000)) };
            args.insert("text".into(), text.into());
        }
        args.insert("url".into(), clipped(&url, 4000).into());
        (Value::Object(args), page, url)
    }

    fn decided(&mut self, key: u64, pending: Pending, out: &mut Vec<Out>) -> Result<(), NotRecorded> {
        let from = From { client: pending.client, id: pending.id, session: pending.session.clone() };
        if !self.pace.takes(1) {
            self.refuse(&from, "actions come too fast: wait a second", out);
            return Ok(());
        }
        let (args, page, url) = self.seen(&pending);
        let ruling = self.decide(&pending.act.action, &url, &args);
        if self.goes_on_typing(&pending, &page, &ruling) {
            let params = pending.params.to_string();
            self.forward(&from, &pending.method, &params, What::Plain, out);
            return Ok(());
        }
        self.end_typing(&pending.session)?;
        let event = self.acted(&pending, &page, &args, &ruling)?;
        let target = self.target_of(&pending);
        if let Some(known) = self.targets.get_mut(&target) {
            known.last = Some(event);
        }
        match ruling.effect {
            Verdict::Allow => self.let_go(pending, event, out),
            Verdict::Deny => return self.denied(&from, &pending, event, &ruling.words, out),
            Verdict::Review => {
                if let Some(session) = self.sessions.get_mut(&pending.session) {
                    session.busy = true;
                }
                let rule = ruling.rule.unwrap_or_default();
                out.push(Out::Hold(Held {
                    event,
                    rule: rule.clone(),
                    reason: ruling.reason,
                    action: pending.act.action.clone(),
                    args: args.to_string(),
                }));
                let pending = Pending { event: Some(event), words: ruling.words, rule, ..pending };
                self.pending.insert(key, pending);
            }
        }
        Ok(())
    }

    /// Whether it is one more letter of a text that is on record.
    fn goes_on_typing(&mut self, pending: &Pending, page: &str, ruling: &Ruling) -> bool {
        let (Sort::Key(letter), Some(element)) = (&pending.act.sort, &pending.element) else { return false };
        let here = self.targets.get(&self.target_of(pending)).is_some_and(|target| target.url == page);
        let session = self.sessions.get_mut(&pending.session);
        let Some(typing) = session.and_then(|session| session.typing.as_mut()) else { return false };
        let same = here && typing.selector == element.selector && typing.secret == element.secret;
        if !same || ruling.effect != Verdict::Allow || typing.text.len() > 64 << 10 {
            return false;
        }
        typing.text.push_str(letter);
        true
    }

    fn acted(
        &mut self,
        pending: &Pending,
        page: &str,
        args: &Value,
        ruling: &Ruling,
    ) -> Result<u64, NotRecorded> {
        let fact = BrowserActed {
            client: pending.client,
            action: pending.act.action.clone(),
            command: clipped(&pending.method, 100),
            page: self.mask.cover(clipped(page, 4000)),
            args: self.content(&args.to_string())?,
            effect: ruling.effect,
            rule: ruling.rule.clone(),
            reason: ruling.reason.clone(),
        };
        self.record.append(None, &Body::BrowserActed(Box::new(fact)))
    }

    fn let_go(&mut self, pending: Pending, event: u64, out: &mut Vec<Out>) {
        let target = self.target_of(&pending);
        let from = From { client: pending.client, id: pending.id, session: pending.session.clone() };
        let what = match &pending.act.sort {
            Sort::Key(letter) => {
                let typing = Typing {
                    event,
                    selector: pending.element.as_ref().map(|e| e.selector.clone()).unwrap_or_default(),
                    secret: pending.element.as_ref().is_none_or(|element| element.secret),
                    text: letter.clone(),
                    began: Instant::now(),
                };
                if let Some(session) = self.sessions.get_mut(&pending.session) {
                    session.typing = Some(typing);
                }
                What::Plain
            }
            _ if pending.method == "Target.createTarget" => {
                What::MakesTarget { event, began: Instant::now() }
            }
            _ => What::Act { event, target, began: Instant::now(), keeps: pending.act.keeps },
        };
        // What was decided on is what goes, to the last member.
        let params = pending.params.to_string();
        self.forward(&from, &pending.method, &params, what, out);
    }

    fn denied(
        &mut self,
        from: &From,
        pending: &Pending,
        event: u64,
        words: &str,
        out: &mut Vec<Out>,
    ) -> Result<(), NotRecorded> {
        if let (Sort::Press, Some(session)) = (&pending.act.sort, self.sessions.get_mut(&pending.session)) {
            session.refused_press = true;
        }
        let page = self.targets.get(&self.target_of(pending)).map(|t| t.url.clone()).unwrap_or_default();
        self.done(event, BrowserOutcome::Refused, page, words.to_owned(), None, Instant::now())?;
        self.refuse(from, &format!("{} is {words}", pending.act.action), out);
        Ok(())
    }

    /// What a person said of a held action, or that nobody did.
    pub fn answered(
        &mut self,
        event: u64,
        answer: Answer,
        by: &str,
        waited_us: u64,
    ) -> Result<Vec<Out>, NotRecorded> {
        let mut out = Vec::new();
        let held = self.pending.iter().find(|(_, pending)| pending.event == Some(event));
        let Some(key) = held.map(|(key, _)| *key) else { return Ok(out) };
        let told = ApprovalAnswered { answer, by: by.to_owned(), waited_us };
        self.record.append(Some(event), &Body::ApprovalAnswered(told))?;
        let Some(pending) = self.pending.remove(&key) else { return Ok(out) };
        let session = pending.session.clone();
        let from = From { client: pending.client, id: pending.id, session: session.clone() };
        // Whatever was switched while it waited holds.
        let (args, _, url) = self.seen(&pending);
        let now = self.decide(&pending.act.action, &url, &args);
        match answer {
            Answer::Allowed if now.effect != Verdict::Deny => {
                let target = self.target_of(&pending);
                if let (Some(target), Some(url)) = (self.targets.get_mut(&target), &pending.act.url) {
                    target.leave = Some(url.clone());
                }
                self.let_go(pending, event, &mut out);
            }
            _ => {
                let why = match answer {
                    Answer::Allowed => "the policy changed while it waited",
                    Answer::Denied => "a person said no",
                    Answer::TimedOut => "nobody answered in time",
                    _ => "it was taken back",
                };
                let words = format!("{why}; held by rule {}: {}", pending.rule, pending.words);
                self.denied(&from, &pending, event, &words, &mut out)?;
            }
        }
        self.go_on(&session, &mut out)?;
        Ok(out)
    }

    /// A script of a library's own: judged like any, and told only where it must not run or brings something back.
    pub(super) fn script(
        &mut self,
        from: &From,
        method: &str,
        params: &Value,
        source: String,
        out: &mut Vec<Out>,
    ) -> Result<(), NotRecorded> {
        let target = self.sessions.get(&from.session).map(|s| s.target.clone()).unwrap_or_default();
        let page = self.targets.get(&target).map(|target| target.url.clone()).unwrap_or_default();
        let args = json!({ "script": clipped(&source, 200), "url": page });
        let ruling = self.decide("script", &page, &args);
        if ruling.effect == Verdict::Allow {
            let what = What::Script { source: clipped(&source, 200), page };
            self.forward(from, method, &params.to_string(), what, out);
            return Ok(());
        }
        // A person cannot be asked about each of the many that a click takes.
        let words = match ruling.effect {
            Verdict::Review => format!("denied: nobody is asked about single scripts; {}", ruling.words),
            _ => ruling.words.clone(),
        };
        let fact = BrowserActed {
            client: from.client,
            action: "script".to_owned(),
            command: clipped(method, 100),
            page: clipped(&page, 4000),
            args: self.content(&args.to_string())?,
            effect: Verdict::Deny,
            rule: ruling.rule,
            reason: ruling.reason,
        };
        let event = self.record.append(None, &Body::BrowserActed(Box::new(fact)))?;
        self.done(event, BrowserOutcome::Refused, page, words.clone(), None, Instant::now())?;
        self.refuse(from, &format!("script is {words}"), out);
        Ok(())
    }

    pub(super) fn done(
        &self,
        event: u64,
        outcome: BrowserOutcome,
        page: String,
        detail: String,
        result: Option<(Keeps, &Value)>,
        began: Instant,
    ) -> Result<(), NotRecorded> {
        let mut fact = BrowserDone {
            outcome,
            page: self.mask.cover(clipped(&page, 4000)),
            result: None,
            picture: None,
            detail: clipped(&self.mask.cover(detail), 1000),
            total_us: began.elapsed().as_micros() as u64,
        };
        match result {
            Some((Keeps::Value, value)) => {
                let told = value.pointer("/result/value").or_else(|| value.pointer("/result/description"));
                fact.result = told.map(|told| self.content(&told.to_string())).transpose()?;
            }
            Some((Keeps::Whole, value)) => fact.result = Some(self.content(&value.to_string())?),
            Some((Keeps::Picture, value)) => {
                let data = value.get("data").and_then(Value::as_str);
                fact.picture = data.map(|data| cofferdam_seal::digest(data.as_bytes()));
            }
            Some((Keeps::Nothing, _)) | None => {}
        }
        self.record.append(Some(event), &Body::BrowserDone(Box::new(fact)))?;
        Ok(())
    }

    pub(super) fn done_gone(&self, event: u64, target: &str, began: Instant) -> Result<(), NotRecorded> {
        let page = self.targets.get(target).map(|target| target.url.clone()).unwrap_or_default();
        self.done(event, BrowserOutcome::Gone, page, String::new(), None, began)
    }

    /// A text that was typed letter by letter is told as a whole.
    pub(super) fn end_typing(&mut self, session: &str) -> Result<(), NotRecorded> {
        let Some(found) = self.sessions.get_mut(session) else { return Ok(()) };
        let Some(typing) = found.typing.take() else { return Ok(()) };
        let page = self.targets.get(&found.target).map(|target| target.url.clone()).unwrap_or_default();
        let text = match typing.secret {
            true => {
                self.mask.remember(&typing.text);
                MASKED.to_owned()
            }
            false => self.mask.cover(typing.text),
        };
        let fact = BrowserDone {
            outcome: BrowserOutcome::Ok,
            page: clipped(&page, 4000),
            result: Some(self.content(&Value::from(text).to_string())?),
            picture: None,
            detail: String::new(),
            total_us: typing.began.elapsed().as_micros() as u64,
        };
        self.record.append(Some(typing.event), &Body::BrowserDone(Box::new(fact)))?;
        Ok(())
    }

    pub(super) fn content(&self, text: &str) -> Result<Content, NotRecorded> {
        let text = self.mask.cover(clipped(text, MOST_KEPT));
        match text.len() <= SHORT {
            true => Ok(Content::Text(text)),
            false => Ok(Content::Kept(self.record.keep(text.as_bytes())?)),
        }
    }
}
