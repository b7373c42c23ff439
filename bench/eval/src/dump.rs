//! Single values, for whoever wants to do better: with `EVAL_SAY` set every miss is told, and with `EVAL_DUMP` set everything
//! that is known of a value goes to that file, a line each, for `fit_claims.py`.

use crate::claims::{is_blind, is_odd};
use crate::data::Dojo;
use crate::swap::Kind;
use cofferdam_compare::claims::{ClaimReport, Weighed, weigh};
use cofferdam_model::{ActKind, Run};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Range;

/// A value in the last answer of a changed run, how it came there, and where in the true answer its place is.
pub fn value(
    (how, kind): (&str, Kind),
    dojo: &Dojo,
    (run, range): (&Run, &Range<usize>),
    place: &Range<usize>,
    (open, flagged): (bool, bool),
) {
    let Some(path) = std::env::var_os("EVAL_DUMP") else { return };
    let answer = |run: &Run| {
        let said = run.acts.iter().rev().find(|a| a.kind == ActKind::Said && !a.text.trim().is_empty());
        said.map(|a| a.text.clone()).unwrap_or_default()
    };
    let (text, truth) = (answer(run), answer(&dojo.run));
    let line = text[..range.start].rfind('\n').map_or(0, |n| n + 1)
        ..text[range.end..].find('\n').map_or(text.len(), |n| range.end + n);
    let here = |run: &Run, range: &Range<usize>| {
        let all = weigh(run).into_iter();
        all.filter(|w| w.bytes.0 < range.end && range.start < w.bytes.1).collect::<Vec<Weighed>>()
    };
    // what belongs there, by the numbers that equal values have
    let meant: BTreeSet<u64> = here(&dojo.run, place)
        .iter()
        .flat_map(|w| w.candidates.iter().filter(|c| c.says).map(|c| c.value))
        .collect();
    let claims: Vec<_> = here(run, range)
        .iter()
        .map(|weighed| {
            let of = weighed
                .candidates
                .iter()
                .map(|c| json!([c.says, meant.contains(&c.value), c.value, c.fit.as_slice()]));
            json!({ "candidates": of.collect::<Vec<_>>(), "rules": weighed.against })
        })
        .collect();
    // of the blind tasks nobody reads a word
    let read = |text: &str| if is_blind(&dojo.task) { String::new() } else { text.to_owned() };
    let row = json!({
        "how": how, "suite": dojo.suite, "pipeline": dojo.pipeline, "task": dojo.task, "kind": format!("{kind:?}"),
        "odd": is_odd(&dojo.task), "value": read(&text[range.clone()]), "was": read(&truth[place.clone()]),
        "open": open, "flagged": flagged, "line": read(&text[line]), "claims": claims,
    });
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = file.and_then(|mut file| writeln!(file, "{row}")) {
        eprintln!("eval: EVAL_DUMP: {error}");
    }
}

/// With `EVAL_SAY` set, every miss is told with its line, for whoever wants to make it one less.
pub fn say(what: &str, dojo: &Dojo, (run, answer): (&Run, &str), range: &Range<usize>, report: &ClaimReport) {
    if std::env::var_os("EVAL_SAY").is_none() {
        return;
    }
    // single cases of the blind tasks are nobody's to read: of those it is told which rule spoke, and no more
    if is_blind(&dojo.task) {
        let claim = report.claims.iter().find(|c| c.bytes.0 < range.end && range.start < c.bytes.1);
        let why = claim.map(|c| (c.kind, c.status, json!(c.why)["reason"].to_string()));
        let at = |w: &&Weighed| w.bytes.0 < range.end && range.start < w.bytes.1;
        let rules: Vec<&str> = weigh(run).iter().filter(at).flat_map(|w| w.against.clone()).collect();
        eprintln!("[blind, {what}] {why:?} {}", rules.join(" "));
        return;
    }
    let line = answer[..range.start].rfind('\n').map_or(0, |n| n + 1)
        ..answer[range.end..].find('\n').map_or(answer.len(), |n| range.end + n);
    let claim = report.claims.iter().find(|c| c.bytes.0 < range.end && range.start < c.bytes.1);
    eprintln!(
        "[{what}] {}/{}/{} `{}` in `{}`\n      {}",
        dojo.suite,
        dojo.pipeline,
        dojo.task,
        &answer[range.clone()],
        &answer[line],
        claim.map_or("no claim".into(), |c| format!(
            "{:?} {:?} {:?} {:?}",
            c.kind,
            c.status,
            c.why,
            c.evidence.first()
        ))
    );
}
