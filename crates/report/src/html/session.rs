//! One session: its verdict in a line, and behind it the reasons, the input, both runs and the way to see it again.

use super::act::{Highlights, card};
use super::claims;
use super::lanes::{Lanes, anchor, delta};
use super::text::{block, mark, prose, word};
use crate::Session;
use cofferdam_compare::delta::{Diff, Noise, NoiseKind};
use cofferdam_compare::{Outcome, Reason, Scorer, Side};
use cofferdam_gate::{Input, Measures, SessionVerdict};
use cofferdam_model::Run;
use maud::{Markup, html};

/// Acts of a run that has nothing to stand beside.
const ALONE: usize = 200;
/// Failures that are shown at once; of many, the first tell what the others are.
const OPEN: usize = 5;
/// Differences without a meaning that are listed.
const NOISE: usize = 100;

pub(super) fn section(session: &Session<'_>, number: usize) -> Markup {
    let verdict = session.verdict;
    let open = verdict.outcome == Outcome::Fail && number < OPEN;
    html! {
        details .session .(word(verdict.outcome)) .flaky[verdict.is_flaky()] id={ "session-" (verdict.id) }
            data-outcome=(word(verdict.outcome)) data-why=[why(verdict)] open[open] {
            summary {
                span .badge { span aria-hidden="true" { (mark(verdict.outcome)) } " " (word(verdict.outcome)) }
                " " h2 .id { (verdict.id) }
                @if let Some(first) = first(verdict) { " " span .first { (first.text) } }
            }
            div .body {
                (reasons(&verdict.reasons, number))
                (next(verdict))
                (input(&verdict.input))
                div .numbers { (facts(verdict)) (scores(verdict)) }
                @if let Some(report) = session.comparison.and_then(|c| c.claims.as_ref()) {
                    (claims::table(report, number))
                }
                (runs(session, number))
                @if let Some(diff) = session.comparison.and_then(|c| c.diff.as_ref()) { (noise(diff)) }
            }
        }
    }
}

/// What it is listed under: the code of the first reason, of a session that did not pass.
pub(super) fn why(verdict: &SessionVerdict) -> Option<&str> {
    let told = verdict.reasons.iter().find(|reason| reason.outcome != Outcome::Pass);
    told.filter(|_| verdict.outcome != Outcome::Pass).map(|reason| reason.code.as_str())
}

/// What is told of it while it is folded: of one that passed, nothing has to be looked at.
fn first(verdict: &SessionVerdict) -> Option<&Reason> {
    verdict.reasons.first().filter(|_| verdict.outcome != Outcome::Pass || verdict.is_flaky())
}

/// What to do: see it again, and make it the baseline if it is as it should be.
fn next(verdict: &SessionVerdict) -> Markup {
    let words: Vec<&str> = verdict.reproduce.iter().map(String::as_str).collect();
    let record = match words.as_slice() {
        ["cofferdam", "gate", rest @ ..] if verdict.outcome != Outcome::Pass => {
            Some(["cofferdam", "record"].iter().chain(rest).map(ToString::to_string).collect::<Vec<_>>())
        }
        _ => None,
    };
    html! {
        dl .next {
            @if !words.is_empty() { dt { "see it again" } dd { pre .command { (command(&verdict.reproduce)) } } }
            @if let Some(record) = record {
                dt { "if it is right now" } dd { pre .command { (command(&record)) } }
            }
        }
    }
}

fn reasons(reasons: &[Reason], number: usize) -> Markup {
    html! {
        @if !reasons.is_empty() {
            ol .reasons {
                @for reason in reasons {
                    li .(word(reason.outcome)) {
                        span .scorer { (scorer(reason.scorer)) } " " (prose(&reason.text)) " " code .code { (reason.code) }
                        @for place in &reason.places {
                            " " a href={ "#" (anchor(number, place.side, place.act)) } {
                                @if place.side == Side::Base { "baseline" } @else { "now" } " #" (place.act)
                            }
                        }
                    }
                }
            }
        }
    }
}

fn scorer(scorer: Scorer) -> &'static str {
    match scorer {
        Scorer::Trace => "trace",
        Scorer::Policy => "policy",
        Scorer::Diff => "difference",
        Scorer::Claims => "claim",
        Scorer::Groundedness => "grounds",
        Scorer::Custom => "suite",
    }
}

fn facts(verdict: &SessionVerdict) -> Markup {
    let (base, new) = (verdict.base.unwrap_or_default(), verdict.new.unwrap_or_default());
    type Row = (&'static str, fn(&Measures) -> u64);
    let rows: [Row; 6] = [
        ("acts", |m| m.acts),
        ("model calls", |m| m.model_calls),
        ("tool calls", |m| m.tool_calls),
        ("refused", |m| m.refused),
        ("tokens in", |m| m.tokens_in),
        ("tokens out", |m| m.tokens_out),
    ];
    let rows: Vec<&Row> = rows.iter().filter(|(_, of)| of(&base) + of(&new) > 0).collect();
    let costs = base.cost_micros + new.cost_micros > 0;
    html! {
        @if verdict.new.is_some() {
            table .facts {
                thead { tr {
                    th scope="col" {}
                    @for (name, _) in &rows { th scope="col" { (name) } }
                    @if costs { th scope="col" { "cost" } }
                } }
                tbody {
                    @if verdict.base.is_some() {
                        tr {
                            th scope="row" { "baseline" }
                            @for (_, of) in &rows { td { (of(&base)) } }
                            @if costs { td { (dollars(base.cost_micros)) } }
                        }
                    }
                    tr {
                        th scope="row" { "now" }
                        @for (_, of) in &rows {
                            td .differs[verdict.base.is_some() && of(&base) != of(&new)] { (of(&new)) }
                        }
                        @if costs { td { (dollars(new.cost_micros)) } }
                    }
                }
            }
        }
        @if verdict.attempts.len() > 1 {
            p { "Passed " (verdict.passed()) " of " (verdict.attempts.len()) " times." }
        }
    }
}

/// What the suite's own scorers and its judge said, whatever came of it.
fn scores(verdict: &SessionVerdict) -> Markup {
    html! {
        @if !verdict.scores.is_empty() {
            table .facts {
                tr { th scope="col" { "scorer" } th scope="col" { "says" } th scope="col" { "score" } }
                @for scored in &verdict.scores {
                    tr {
                        th scope="row" { (scored.scorer) }
                        td .differs[scored.outcome != Outcome::Pass] { (word(scored.outcome)) }
                        td { @if let Some(score) = scored.score { (format!("{score:.3}")) } @else { "–" } }
                    }
                }
            }
        }
    }
}

fn dollars(micros: u64) -> String {
    format!("${:.4}", micros as f64 / 1e6)
}

fn input(input: &Input) -> Markup {
    let is_empty = input.args.is_empty() && input.stdin.is_empty();
    html! {
        @if !is_empty {
            h3 { "Input" }
            @if !input.args.is_empty() { pre .text { (command(&input.args)) } }
            @if !input.stdin.is_empty() { (block(&input.stdin, &[])) }
            @if let Some(file) = &input.file { p .about { "from " code { (file) } } }
        }
    }
}

fn runs(session: &Session<'_>, number: usize) -> Markup {
    let diff = session.comparison.and_then(|comparison| comparison.diff.as_ref());
    let reasons = &session.verdict.reasons;
    html! {
        @match (session.base, session.new, diff) {
            (Some(base), Some(new), Some(diff)) => {
                h3 { "What it did" }
                (Lanes::new(number, base, new, diff, reasons).markup())
            }
            (_, Some(new), _) => { h3 { "What it did" } (alone(new, number)) }
            _ => {}
        }
    }
}

fn alone(run: &Run, number: usize) -> Markup {
    html! {
        div .alone {
            @for (at, act) in run.acts.iter().enumerate().take(ALONE) {
                (card(act, at, &anchor(number, Side::New, at), &Highlights::default()))
            }
            @if run.acts.len() > ALONE { p { "and " (run.acts.len() - ALONE) " more acts, in the trace" } }
        }
    }
}

fn noise(diff: &Diff) -> Markup {
    html! {
        @if !diff.noise.is_empty() {
            details .noise {
                summary { (diff.noise.len()) " differences without a meaning: ids, times, other ways to write the same" }
                ul {
                    @for Noise { kind, change } in diff.noise.iter().take(NOISE) {
                        li { span .scorer { (noise_word(*kind)) } " " (change.name) ul { (delta(change)) } }
                    }
                    @if diff.noise.len() > NOISE { li { "and " (diff.noise.len() - NOISE) " more" } }
                }
            }
        }
    }
}

fn noise_word(kind: NoiseKind) -> &'static str {
    match kind {
        NoiseKind::Id => "id",
        NoiseKind::Random => "random",
        NoiseKind::Time => "time",
        NoiseKind::Port => "port",
        NoiseKind::Notation => "notation",
        NoiseKind::Tolerated => "tolerated",
        NoiseKind::Structure => "structure",
    }
}

/// As a shell reads it back.
fn command(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted() {
        let words = ["cofferdam", "gate", "it's", ""].map(String::from);
        assert_eq!(command(&words), r"cofferdam gate 'it'\''s' ''");
    }
}
