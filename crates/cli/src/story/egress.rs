//! What of a session's traffic is worth a line: each request with its end, each refusal, each change of what may
//! leave. Names that were looked up and credentials that were put in are told where they belong.

use super::{Moment, printable};
use crate::output::Paint;
use cofferdam_engine::Told;
use cofferdam_model::{
    AlertSent, Answer, ApprovalAnswered, Body, Bytes, ControlChanged, EgressDecided, EgressEnded,
    EgressRefused, Ending, NameAsked, Span, SqlDecided, StrayPacket, Verdict,
};
use std::time::Duration;

/// The moments of a session's egress events, which come in the order of the trace.
pub(super) fn moments(events: &[Told<Body>]) -> Vec<(u64, u64, Moment<'_>)> {
    events.iter().filter_map(|told| Some((told.seq, told.time_us, line(told, events)?))).collect()
}

fn line(told: &Told<Body>, all: &[Told<Body>]) -> Option<Moment<'static>> {
    let (word, paint, text) = match &told.fact {
        Body::EgressDecided(fact) => decided(fact, told.seq, all),
        Body::SqlDecided(fact) => statement(fact, told.seq, all),
        Body::EgressRefused(fact) => refused(fact),
        Body::ControlChanged(fact) => ("changed", Paint::Bold, changed(fact)),
        Body::NameAsked(fact) if fact.answer.is_none() => ("no name", Paint::Care, name(fact)),
        Body::StrayPacket(fact) => ("dropped", Paint::Care, stray(fact)),
        Body::AlertSent(fact) => alerted(fact),
        Body::ReplayStarted(fact) => super::replay::started(fact),
        Body::ReplayMissed(fact) => super::replay::missed(fact),
        // Told with the request that they belong to.
        _ => return None,
    };
    Some(Moment::Line(word, paint, printable(&text)))
}

/// A request, what was decided, and how it ended if the trace goes that far.
fn decided(fact: &EgressDecided, seq: u64, all: &[Told<Body>]) -> (&'static str, Paint, String) {
    let mut answer = None;
    let mut end = None;
    for told in all.iter().filter(|told| told.parent == Some(seq)) {
        match &told.fact {
            Body::ApprovalAnswered(fact) => answer = Some(fact),
            Body::EgressEnded(fact) => end = Some(fact),
            _ => {}
        }
    }
    let rule = fact.rule.as_ref().map_or_else(|| "no rule".to_owned(), |rule| format!("rule `{rule}`"));
    let (word, paint, verdict) = match (fact.effect, answer.map(|fact| fact.answer)) {
        (Verdict::Allow, _) => ("egress", Paint::Good, rule),
        (Verdict::Deny, _) => ("denied", Paint::Bad, format!("{rule}: {}", fact.reason)),
        (Verdict::Review, Some(Answer::Allowed)) => ("egress", Paint::Good, rule),
        (Verdict::Review, _) => ("held", Paint::Bad, rule),
    };
    let mut text = request(fact);
    text.push_str(&format!(" ({verdict}"));
    if !fact.credentials.is_empty() {
        text.push_str(&format!(", with {}", fact.credentials.join(", ")));
    }
    text.push(')');
    if let Some(fact) = answer {
        text.push_str(&format!("; {}", answered(fact)));
    }
    if let Some(fact) = end {
        text.push_str(&format!("; {}", ended(fact)));
    }
    (word, paint, text)
}

/// A statement for a database, what was decided, and what came of it.
fn statement(fact: &SqlDecided, seq: u64, all: &[Told<Body>]) -> (&'static str, Paint, String) {
    let rule = fact.rule.as_ref().map_or_else(|| "no rule".to_owned(), |rule| format!("rule `{rule}`"));
    let (mut answer, mut end) = (None, None);
    for told in all.iter().filter(|told| told.parent == Some(seq)) {
        match &told.fact {
            Body::ApprovalAnswered(fact) => answer = Some(fact),
            Body::SqlEnded(fact) => end = Some(fact),
            _ => {}
        }
    }
    let (word, paint, verdict) = match (fact.effect, answer.map(|fact| fact.answer)) {
        (Verdict::Deny, _) => ("denied", Paint::Bad, format!("{rule}: {}", fact.reason)),
        (Verdict::Allow, _) | (Verdict::Review, Some(Answer::Allowed)) => ("sql", Paint::Good, rule),
        (Verdict::Review, _) => ("held", Paint::Bad, rule),
    };
    let statement: String = fact.statement.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: String = statement.chars().take(160).collect();
    let mut text = format!("{shown} ({verdict}; {})", fact.acts.join(", "));
    if let Some(fact) = answer {
        text.push_str(&format!("; {}", answered(fact)));
    }
    match end {
        Some(end) if !end.error.is_empty() => text.push_str(&format!("; error {}", end.error)),
        Some(end) if !end.tag.is_empty() => text.push_str(&format!("; {}", end.tag)),
        _ => {}
    }
    (word, paint, text)
}

fn request(fact: &EgressDecided) -> String {
    let usual = matches!((fact.scheme.as_str(), fact.port), ("https" | "tls", 443) | ("http", 80));
    let port = if usual { String::new() } else { format!(":{}", fact.port) };
    let query = fact.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
    let method = if fact.method.is_empty() { "pass-through" } else { &fact.method };
    format!("{method} {}://{}{port}{}{query}", fact.scheme, fact.host, fact.path)
}

fn answered(fact: &ApprovalAnswered) -> String {
    let waited = Span(Duration::from_micros(fact.waited_us));
    match fact.answer {
        Answer::Allowed => format!("allowed by {} after {waited}", fact.by),
        Answer::Denied => format!("denied by {} after {waited}", fact.by),
        Answer::TimedOut => format!("nobody answered in {waited}"),
        Answer::Withdrawn => format!("its client left after {waited}"),
    }
}

fn ended(fact: &EgressEnded) -> String {
    let status = fact.status.map(|status| format!("{status}, ")).unwrap_or_default();
    let took = Span(Duration::from_micros(fact.total_us));
    let mut text = format!("{status}{} up, {} down, {took}", Bytes(fact.sent), Bytes(fact.received));
    let why = match fact.ending {
        Ending::Complete => "",
        Ending::ClientGone => "the client left",
        Ending::UpstreamFailed => "the other side failed",
        Ending::Revoked => "cut: its credential was taken back",
        Ending::Paused => "cut: egress was switched off",
        Ending::PolicyChanged => "cut: the policy has changed",
        Ending::OverBudget => "cut: the budget was spent",
        Ending::Refused => "cut: something in it must not pass",
        Ending::SessionEnded => "cut: the session ended",
    };
    if !why.is_empty() {
        text.push_str(&format!("; {why}"));
    }
    if !fact.detail.is_empty() {
        text.push_str(&format!(" ({})", fact.detail));
    }
    if !fact.flags.is_empty() {
        text.push_str(&format!("; flagged: {}", fact.flags.join(", ")));
    }
    if fact.scrubbed > 0 {
        let what = if fact.scrubbed == 1 { "secret" } else { "secrets" };
        text.push_str(&format!("; {} {what} put back to placeholders", fact.scrubbed));
    }
    text
}

fn refused(fact: &EgressRefused) -> (&'static str, Paint, String) {
    let what = if fact.request.is_empty() { String::new() } else { format!("{} to ", fact.request) };
    let times = if fact.times > 1 { format!(", {} times", fact.times) } else { String::new() };
    let text = format!("{what}{}{times}: {}", fact.destination, fact.detail);
    (if fact.alarm { "ALARM" } else { "refused" }, Paint::Bad, text)
}

fn changed(fact: &ControlChanged) -> String {
    let detail = if fact.detail.is_empty() { String::new() } else { format!(" {}", fact.detail) };
    let cut = if fact.cut > 0 { format!("; {} requests cut", fact.cut) } else { String::new() };
    format!("{}{detail} by {}{cut}", fact.what, fact.by)
}

fn name(fact: &NameAsked) -> String {
    let times = if fact.times > 1 { format!(", {} times", fact.times) } else { String::new() };
    format!("{} ({}){times}: {}", fact.name, fact.record, fact.reason)
}

fn stray(fact: &StrayPacket) -> String {
    let times = if fact.times > 1 { format!(", {} times", fact.times) } else { String::new() };
    format!("{} to {}{times}: {}", fact.protocol, fact.destination, fact.reason)
}

fn alerted(fact: &AlertSent) -> (&'static str, Paint, String) {
    let times = if fact.times > 1 { format!(", {} times", fact.times) } else { String::new() };
    let text = format!("`{}` to {}: {}{times}", fact.alert, fact.to, fact.about);
    match fact.error.as_str() {
        "" => ("alerted", Paint::Bold, text),
        error => ("UNTOLD", Paint::Bad, format!("{text}; not delivered: {error}")),
    }
}
