//! What tools were offered and called, and which steps the agent told of: a line each, with its end if the trace
//! goes that far.

use super::{Moment, fit, printable};
use crate::output::Paint;
use cofferdam_engine::Told;
use cofferdam_model::{
    Body, Content, Span, StepEnded, StepStarted, ToolCalled, ToolListed, ToolOutcome, ToolReturned, ToolSide,
    Verdict,
};
use std::time::Duration;

/// How much of arguments, results, inputs and outputs is shown.
const SHOWN: usize = 120;

/// The moments of a session's own work, which come in the order of the trace.
pub(super) fn moments(events: &[Told<Body>]) -> Vec<(u64, u64, Moment<'_>)> {
    events.iter().filter_map(|told| Some((told.seq, told.time_us, line(told, events)?))).collect()
}

fn line(told: &Told<Body>, all: &[Told<Body>]) -> Option<Moment<'static>> {
    let (word, paint, text) = match &told.fact {
        Body::ModelCalled(fact) => super::model::called(fact),
        Body::ToolListed(fact) => ("tools", Paint::Dim, listed(fact)),
        Body::ToolRegistered(fact) if !fact.first => {
            ("withheld", Paint::Bad, format!("{}: a tool that was not there before", fact.name))
        }
        Body::ToolChanged(fact) => ("withheld", Paint::Bad, format!("{}: this tool was changed", fact.name)),
        Body::ToolCalled(fact) => called(fact, told.seq, all),
        Body::ToolFault(fact) => {
            let from = if fact.from == ToolSide::Client { "client" } else { "server" };
            ("fault", Paint::Care, format!("the {from} sent what is not passed on: {}", fact.detail))
        }
        Body::BrowserStarted(fact) => {
            let own = if fact.own_sandbox { "its own sandbox is on" } else { "without a sandbox of its own" };
            ("browser", Paint::Dim, format!("{} is up, {own}", fact.product))
        }
        Body::BrowserActed(fact) => super::browser::acted(fact, told.seq, all),
        Body::BrowserSeen(fact) => super::browser::seen(fact),
        Body::BrowserFault(fact) => ("fault", Paint::Care, fact.detail.clone()),
        Body::BrowserEnded(fact) => ("browser", Paint::Dim, format!("it is gone: {}", fact.reason)),
        Body::StepStarted(fact) => started(fact, told.seq, all),
        Body::StepReplanned(fact) => ("replan", Paint::Bold, fact.name.clone()),
        // Told with what they belong to.
        _ => return None,
    };
    Some(Moment::Line(word, paint, printable(&text)))
}

fn listed(fact: &ToolListed) -> String {
    let (hidden, shown): (Vec<_>, Vec<_>) = fact.tools.iter().partition(|tool| !tool.hidden.is_empty());
    let names: Vec<&str> = shown.iter().map(|tool| tool.name.as_str()).collect();
    let hidden: String =
        hidden.iter().map(|tool| format!("; {} is hidden: {}", tool.name, tool.hidden)).collect();
    format!("{}{hidden}", names.join(", "))
}

fn called(fact: &ToolCalled, seq: u64, all: &[Told<Body>]) -> (&'static str, Paint, String) {
    let returned = all.iter().find_map(|told| match &told.fact {
        Body::ToolReturned(fact) if told.parent == Some(seq) => Some(fact),
        _ => None,
    });
    let went = returned.is_none_or(|fact| fact.outcome != ToolOutcome::Refused);
    let rule = match &fact.rule {
        Some(rule) => format!("rule `{rule}`: {}", fact.reason),
        None => fact.reason.clone(),
    };
    let (word, paint) = match (fact.effect, went) {
        (Verdict::Deny, _) => ("denied", Paint::Bad),
        (Verdict::Review, false) => ("held", Paint::Bad),
        _ => ("tool", Paint::Good),
    };
    let mut text = format!("{} {} ({rule})", fact.tool, content(&fact.arguments));
    if let Some(returned) = returned.filter(|_| went) {
        text.push_str(&format!("; {}", outcome(returned)));
    }
    (word, paint, text)
}

fn outcome(fact: &ToolReturned) -> String {
    let word = match fact.outcome {
        ToolOutcome::Ok => "ok",
        ToolOutcome::Failed => "it failed",
        ToolOutcome::Error => "an error",
        ToolOutcome::Refused => "refused",
        ToolOutcome::Cancelled => "taken back",
        ToolOutcome::ServerGone => "the server is gone",
    };
    let result = fact.result.as_ref().map(|result| format!(": {}", content(result))).unwrap_or_default();
    format!("{word} after {}{result}", Span(Duration::from_micros(fact.total_us)))
}

fn started(fact: &StepStarted, seq: u64, all: &[Told<Body>]) -> (&'static str, Paint, String) {
    let ended = all.iter().find_map(|told| match &told.fact {
        Body::StepEnded(fact) if told.parent == Some(seq) => Some(fact),
        _ => None,
    });
    let mut text = fact.name.clone();
    if let Some(input) = &fact.input {
        text.push_str(&format!(" {}", content(input)));
    }
    match (fact.effect, &fact.rule) {
        (Verdict::Deny, rule) => {
            let rule = rule.as_ref().map_or_else(String::new, |rule| format!("rule `{rule}`: "));
            return ("denied", Paint::Bad, format!("step {text} ({rule}{})", fact.reason));
        }
        (_, Some(rule)) => text.push_str(&format!(" (rule `{rule}`)")),
        _ => {}
    }
    if let Some(StepEnded { output, error, .. }) = ended {
        match (error.is_empty(), output) {
            (false, _) => text.push_str(&format!("; it failed: {}", fit(error, SHOWN))),
            (true, Some(output)) => text.push_str(&format!("; {}", content(output))),
            (true, None) => text.push_str("; over"),
        }
    }
    ("step", Paint::Bold, text)
}

pub(super) fn content(content: &Content) -> String {
    match content {
        Content::Text(text) => fit(text, SHOWN),
        Content::Kept(blob) => format!("({} bytes, sha256 {}…)", blob.size, &blob.digest.to_string()[..16]),
    }
}
