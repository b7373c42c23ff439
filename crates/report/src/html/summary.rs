//! The first screen and the last lines: what was decided, why, over how many; and how to check that it is so.

use super::text::{mark, word};
use cofferdam_compare::Outcome;
use cofferdam_gate::{GateResult, Share};
use maud::{Markup, html};

/// More reasons than this are not read.
const WHY: usize = 3;

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
                @if !result.run.only.is_empty() { " · only " (result.run.only.join(", ")) }
            }
            ul .why { @for why in result.why.iter().take(WHY) { li { (why) } } }
            @if result.why.len() > WHY { p .more { "and " (result.why.len() - WHY) " more" } }
            div .bar role="img" aria-label=(bar_label(result)) {
                @for outcome in [Outcome::Fail, Outcome::Review, Outcome::Pass] {
                    @if of(outcome) > 0 { span .(word(outcome)) style={ "flex-grow:" (of(outcome)) } {} }
                }
            }
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
        }
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
