//! What was asked of the browser, as acts: with the element, the place and what came back. Of what pages did by
//! themselves, what concerns the world: places that they went to or were kept from, files that came down.

use super::Reducer;
use cofferdam_model::{
    Act, ActKind, BrowserActed, BrowserDone, BrowserOutcome, BrowserSeen, Decided, EffectOf, Event, Sight,
    Status, Verdict,
};
use serde_json::{Value, json};

/// What changes nothing beyond the page.
const READS: &[&str] = &["read", "screenshot", "navigate", "scroll", "open", "close", "script", "route"];

impl Reducer<'_> {
    pub(super) fn browser(&mut self, event: &Event, fact: &BrowserActed) {
        let args = self.json(&fact.args);
        let decided = Decided { effect: fact.effect, rule: fact.rule.clone(), reason: fact.reason.clone() };
        let act = self.push(event, ActKind::Browser, fact.action.clone());
        act.args = args;
        act.status = if fact.effect == Verdict::Deny { Status::Refused } else { Status::Unanswered };
        act.decided = Some(decided);
        if READS.contains(&fact.action.as_str()) {
            act.effect = EffectOf::Reads;
        }
    }

    pub(super) fn browser_done(&mut self, event: &Event, fact: &BrowserDone) {
        let text = fact.result.as_ref().map(|result| self.content(result)).unwrap_or_default();
        let Some(act) = self.parent(event) else { return };
        act.status = match fact.outcome {
            BrowserOutcome::Ok => Status::Ok,
            BrowserOutcome::Failed => Status::Failed,
            BrowserOutcome::Refused => Status::Refused,
            BrowserOutcome::Gone => Status::Unanswered,
        };
        // Letters that were typed one by one are told as a text at the end.
        if let (true, Ok(whole), Value::Object(args)) =
            (act.name == "type", serde_json::from_str::<Value>(&text), &mut act.args)
        {
            args.insert("text".into(), whole);
            return;
        }
        act.text = if text.is_empty() { fact.detail.clone() } else { text };
    }

    pub(super) fn browser_seen(&mut self, event: &Event, fact: &BrowserSeen) {
        let name = match fact.what {
            Sight::Download => "download",
            Sight::Navigated if fact.effect.is_some() => "navigate",
            // Where a page went belongs to what was done on it.
            Sight::Navigated => {
                if let Some(act) = self.parent(event) {
                    went(act, &fact.url);
                }
                return;
            }
            _ => return,
        };
        let decided = fact.effect.map(|effect| Decided {
            effect,
            rule: fact.rule.clone(),
            reason: fact.detail.clone(),
        });
        let refused = fact.effect == Some(Verdict::Deny);
        let args = json!({ "url": fact.url, "file": fact.detail });
        let act = self.push(event, ActKind::Browser, name.to_owned());
        act.args = if fact.what == Sight::Download { args } else { json!({ "url": fact.url }) };
        act.status = if refused { Status::Refused } else { Status::Ok };
        act.decided = decided;
    }
}

fn went(act: &mut Act, url: &str) {
    if act.kind == ActKind::Browser && act.text.is_empty() {
        act.text = format!("the page went to {url}");
    }
}
