//! Single values, for whoever wants to do better: with `EVAL_SAY` set every miss is told, and with `EVAL_DUMP` set everything
//! that is known of a value goes to that file, a line each, for `fit_claims.py`.

use crate::claims::{Kind, is_odd};
use crate::data::Dojo;
use cofferdam_compare::claims::{ClaimReport, weigh};
use cofferdam_model::{ActKind, Run};
use serde_json::json;
use std::io::Write;
use std::ops::Range;

/// A value in the last answer of a run, how it came there, and what stood there before.
pub fn value((how, kind): (&str, Kind), dojo: &Dojo, run: &Run, (range, was): (&Range<usize>, &str)) {
    let Some(path) = std::env::var_os("EVAL_DUMP") else { return };
    let said = run.acts.iter().rev().find(|a| a.kind == ActKind::Said && !a.text.trim().is_empty());
    let text = said.map(|a| a.text.as_str()).unwrap_or_default();
    let line = text[..range.start].rfind('\n').map_or(0, |n| n + 1)
        ..text[range.end..].find('\n').map_or(text.len(), |n| range.end + n);
    let here = weigh(run).into_iter().filter(|w| w.bytes.0 < range.end && range.start < w.bytes.1);
    let claims: Vec<_> = here
        .map(|weighed| {
            let of = weighed.candidates.iter().map(|c| json!([c.says, c.seen, c.value, c.fit]));
            json!({ "candidates": of.collect::<Vec<_>>(), "rules": weighed.against })
        })
        .collect();
    let row = json!({
        "how": how, "suite": dojo.suite, "pipeline": dojo.pipeline, "task": dojo.task, "kind": format!("{kind:?}"),
        "odd": is_odd(&dojo.task), "value": &text[range.clone()], "was": was, "line": &text[line], "claims": claims,
    });
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = file.and_then(|mut file| writeln!(file, "{row}")) {
        eprintln!("eval: EVAL_DUMP: {error}");
    }
}

/// With `EVAL_SAY` set, every miss is told with its line, for whoever wants to make it one less.
pub fn say(what: &str, dojo: &Dojo, answer: &str, range: &Range<usize>, report: &ClaimReport) {
    if std::env::var_os("EVAL_SAY").is_none() {
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
