//! What was asked of the browser, and what its pages did: a line each.

use super::fit;
use super::work::content;
use crate::output::Paint;
use cofferdam_engine::Told;
use cofferdam_model::{Body, BrowserActed, BrowserOutcome, BrowserSeen, Content, Sight, Verdict};
use serde_json::Value;

const SHOWN: usize = 120;

pub(super) fn acted(fact: &BrowserActed, seq: u64, all: &[Told<Body>]) -> (&'static str, Paint, String) {
    let done = all.iter().find_map(|told| match &told.fact {
        Body::BrowserDone(fact) if told.parent == Some(seq) => Some(fact),
        _ => None,
    });
    let went = done.is_none_or(|done| done.outcome != BrowserOutcome::Refused);
    let (word, paint) = match (fact.effect, went) {
        (Verdict::Deny, _) => ("denied", Paint::Bad),
        (Verdict::Review, false) => ("held", Paint::Bad),
        _ => ("browser", Paint::Good),
    };
    let rule = match &fact.rule {
        Some(rule) => format!("rule `{rule}`: {}", fact.reason),
        None => fact.reason.clone(),
    };
    let mut text = format!("{} {} ({rule})", fact.action, told(&fact.args));
    if let Some(done) = done.filter(|_| went) {
        let how = match done.outcome {
            BrowserOutcome::Ok => "",
            BrowserOutcome::Failed => "; it failed",
            BrowserOutcome::Refused => "; refused",
            BrowserOutcome::Gone => "; without an answer",
        };
        text.push_str(how);
        if !done.detail.is_empty() {
            text.push_str(&format!(": {}", fit(&done.detail, SHOWN)));
        }
        if let Some(result) = &done.result {
            text.push_str(&format!("; {}", content(result)));
        }
    }
    (word, paint, text)
}

/// `button "Buy now" "text"`, and where.
fn told(args: &Content) -> String {
    let Content::Text(text) = args else { return content(args) };
    let Ok(Value::Object(args)) = serde_json::from_str::<Value>(text) else { return fit(text, SHOWN) };
    let of = |name: &str| args.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut words = Vec::new();
    if !of("role").is_empty() {
        let name = if of("name").is_empty() { of("selector") } else { of("name") };
        words.push(format!("{} \"{}\"", of("role"), fit(name, 60)));
    }
    for name in ["text", "key", "values", "script", "files", "how", "what", "accept"] {
        match args.get(name) {
            Some(Value::String(text)) if !text.is_empty() => words.push(fit(text, SHOWN)),
            Some(Value::Null | Value::String(_)) | None => {}
            Some(other) => words.push(fit(&other.to_string(), SHOWN)),
        }
    }
    words.push(fit(of("url"), SHOWN));
    words.join(" ")
}

pub(super) fn seen(fact: &BrowserSeen) -> (&'static str, Paint, String) {
    let denied = fact.effect == Some(Verdict::Deny);
    let what = match fact.what {
        Sight::Opened => "a page opened",
        Sight::Navigated if denied => "the page was kept from",
        Sight::Navigated => "the page went to",
        Sight::Closed => "a page closed:",
        Sight::Crashed => "a page crashed:",
        Sight::Dialog => "the page asks:",
        Sight::Download if denied => "a file was kept out:",
        Sight::Download => "a file comes down:",
        Sight::Changed => "a field of the page became",
    };
    let at = if fact.url.is_empty() { &fact.page } else { &fact.url };
    let detail = match fact.detail.is_empty() {
        true => fit(at, SHOWN),
        false => format!("{} ({})", fit(&fact.detail, SHOWN), fit(at, SHOWN)),
    };
    (
        if denied { "denied" } else { "page" },
        if denied { Paint::Bad } else { Paint::Dim },
        format!("{what} {detail}"),
    )
}
