//! The first screen and the last lines: what was decided, why, over how many; and how to check that it is so.

use super::session::why;
use super::text::{mark, prose, word};
use cofferdam_compare::Outcome;
use cofferdam_gate::{GateResult, Share};
use maud::{Markup, html};
use std::collections::BTreeMap;

/// More reasons than this are not read.
const WHY: usize = 3;
/// Kinds of reasons that are listed.
const CAUSES: usize = 6;

pub(super) fn top(result: &GateResult) -> Markup {
    let counts = &result.counts;
    let of = |outcome: Outcome| match outcome {
        Outcome::Pass => counts.pass,
        Outcome::Review => counts.review,
        Outcome::Fail => counts.fail,
    };
    html! {
        header .(word(result.outcome)) {
            p .verdict { span .mark aria-hidden="true" { (mark(result.outcome)) } " " (headline(result.outcome)) }
            h1 { (result.suite.name) }
            p .about {
                (version(result))
                @if let Some(shard) = result.run.shard { " · part " (shard.index) " of " (shard.of) }
                @if !result.run.only.is_empty() { " · only " (picked(&result.run.only)) }
            }
            ul .why { @for why in result.why.iter().take(WHY) { li { (why) } } }
            @if result.why.len() > WHY { p .more { "and " (result.why.len() - WHY) " more" } }
            div .bar role="img" aria-label=(bar_label(result)) {
                @for outcome in [Outcome::Fail, Outcome::Review, Outcome::Pass] {
                    @if of(outcome) > 0 { span .(word(outcome)) style={ "flex-grow:" (of(outcome)) } {} }
                }
            }
            (causes(result))
            p .rates {
                (share("passed", &result.rates.passed)) " · " (share("failed", &result.rates.failed))
                " · " (share("for review", &result.rates.reviewed))
            }
        }
        nav aria-label="Sessions" {
            (filter("all", "all", counts.sessions, "true"))
            (filter("fail", "fail", counts.fail, "false"))
            (filter("review", "review", counts.review, "false"))
            (filter("pass", "pass", counts.pass, "false"))
            @if counts.flaky > 0 { (filter("flaky", "flaky", counts.flaky, "false")) }
            input #search type="search" placeholder="search (press /)" aria-label="Search in sessions" autocomplete="off";
            span .keys { kbd { "j" } kbd { "k" } " session " kbd { "n" } kbd { "p" } " difference" }
            p #shown role="status" {}
        }
    }
}

/// Why sessions did not pass, each reason once with how many it stopped and what the first of them says: of a hundred
/// failures it is read here that they are one.
fn causes(result: &GateResult) -> Markup {
    let mut found: BTreeMap<String, (u64, Outcome, String)> = BTreeMap::new();
    // The gravest come first, so that the first of a kind is what is told of it.
    for session in result.sessions.to_look_at() {
        let Some(code) = why(&session) else { continue };
        if let Some((count, ..)) = found.get_mut(code) {
            *count += 1;
            continue;
        }
        let text = session.reasons.iter().find(|reason| reason.code == code).map(|one| one.text.clone());
        found.insert(code.to_owned(), (1, session.outcome, text.unwrap_or_default()));
    }
    let mut causes: Vec<_> = found.into_iter().collect();
    causes.sort_by(|(a, (many, grave, _)), (b, (more, graver, _))| {
        (graver, more).cmp(&(grave, many)).then_with(|| a.cmp(b))
    });
    html! {
        @if !causes.is_empty() {
            ul .causes {
                @for (code, (count, outcome, text)) in causes.iter().take(CAUSES) {
                    li .(word(*outcome)) {
                        button type="button" data-why=(code) aria-pressed="false" {
                            span .count { (count) " ×" } " " (code)
                        }
                        " " span .example { (prose(text)) }
                    }
                }
                @if causes.len() > CAUSES { li .more { "and " (causes.len() - CAUSES) " other reasons" } }
            }
        }
    }
}

fn picked(only: &[String]) -> String {
    match only {
        [few @ .., _] if few.len() >= WHY => {
            format!("{} and {} more", only[..WHY].join(", "), only.len() - WHY)
        }
        all => all.join(", "),
    }
}

fn headline(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "pass",
        Outcome::Review => "a person has to look",
        Outcome::Fail => "fail",
    }
}

fn version(result: &GateResult) -> String {
    let command = result.agent.command.join(" ");
    let commit = result.agent.commit.as_deref().map(|commit| commit.chars().take(12).collect::<String>());
    match (commit, result.agent.modified) {
        (Some(commit), true) => format!("{command} at {commit}, with changes that are not committed"),
        (Some(commit), false) => format!("{command} at {commit}"),
        (None, _) => command,
    }
}

fn bar_label(result: &GateResult) -> String {
    let counts = &result.counts;
    format!("{} failed, {} for review, {} passed", counts.fail, counts.review, counts.pass)
}

fn share(what: &str, share: &Share) -> Markup {
    let percent = |value: f64| format!("{:.0}", value * 100.0);
    html! {
        (share.hits) " of " (share.n) " " (what) " "
        span .interval title="95 % interval" { "(" (percent(share.low)) "–" (percent(share.high)) " %)" }
    }
}

fn filter(name: &str, text: &str, count: u64, pressed: &str) -> Markup {
    html! {
        button type="button" data-filter=(name) aria-pressed=(pressed) { (text) " " span .count { (count) } }
    }
}

pub(super) fn bottom(result: &GateResult) -> Markup {
    let materials = std::iter::once(&result.suite).chain(&result.policy);
    html! {
        footer {
            p { "This page shows what " code { "gate.json" } " says. What proves it is " code { "gate.dsse.json" } ":" }
            pre { "cofferdam verify gate.dsse.json --key PUBLIC-KEY" }
            table {
                @for material in materials {
                    tr { th scope="row" { (material.name) } td { code { (material.digest) } } }
                }
            }
            p { "Made by " (result.run.by) "." }
        }
    }
}
