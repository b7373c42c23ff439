//! One act as a card: what it was, with what, what came back, and what was decided about it.

use super::json;
use super::text::{Mark, block};
use cofferdam_model::{Act, ActKind, Decided, EffectOf, Status, Verdict};
use maud::{Markup, html};

/// What is to be seen in it besides itself.
#[derive(Default)]
pub(super) struct Highlights<'a> {
    /// Pointers into its arguments, with how they are set apart.
    pub(super) args: Vec<(&'a str, &'static str)>,
    /// Ranges of its text.
    pub(super) text: Vec<(usize, usize, Mark)>,
}

/// `at` is the act's index, by which reasons speak of it.
pub(super) fn card(act: &Act, at: usize, anchor: &str, seen: &Highlights<'_>) -> Markup {
    html! {
        article #(anchor) .act .(kind(act.kind)) {
            p .what {
                span .kind { (kind(act.kind)) } " "
                @if !act.name.is_empty() { span .name { (act.name) } }
                " " a .at href={ "#" (anchor) } { "#" (at) }
                @if act.effect == EffectOf::Changes { " " span .tag .effect title="changes the world" { "effect" } }
                @if let Some(word) = status(act.status) { " " span .tag .bad { (word) } }
            }
            @if let Some(decided) = &act.decided { (decision(decided)) }
            (json::lines(&act.args, &seen.args))
            @if !act.text.is_empty() { (block(&act.text, &seen.text)) }
        }
    }
}

fn decision(decided: &Decided) -> Markup {
    let (class, word) = match decided.effect {
        Verdict::Allow => ("allow", "allowed"),
        Verdict::Deny => ("bad", "denied"),
        Verdict::Review => ("held", "held for a person"),
    };
    html! {
        p .decided .(class) {
            (word)
            @if let Some(rule) = &decided.rule { " by " code { (rule) } }
            @if !decided.reason.is_empty() && decided.effect != Verdict::Allow { ": " (decided.reason) }
        }
    }
}

pub(super) fn kind(kind: ActKind) -> &'static str {
    match kind {
        ActKind::Instructed => "instructed",
        ActKind::Told => "told",
        ActKind::Said => "said",
        ActKind::Model => "model",
        ActKind::Tool => "tool",
        ActKind::Egress => "request",
        ActKind::Exec => "exec",
        ActKind::File => "file",
        ActKind::Browser => "browser",
        ActKind::Step => "step",
    }
}

fn status(status: Status) -> Option<&'static str> {
    match status {
        Status::Ok => None,
        Status::Failed => Some("failed"),
        Status::Refused => Some("refused"),
        Status::Unanswered => Some("never carried out"),
    }
}
