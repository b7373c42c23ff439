//! `cofferdam escape`: the escape score. One line a check, the reason for each that is open, and for each whose
//! control could not be made here.

use crate::args;
use crate::output::{Failure, Output, Paint};
use crate::story::wrap;
use cofferdam_engine::Engine;
use cofferdam_engine::escape::{self, Check, Checked, Options, TierScore};
use serde_json::json;
use std::path::PathBuf;

const WIDTH: usize = 80;

pub(crate) fn run(home: Option<PathBuf>, args: &args::Escape, output: &Output) -> Result<u8, Failure> {
    let only = chosen(&args.check)?;
    if args.list {
        list(&only, output)?;
        return Ok(0);
    }
    let score = escape::score(&Options { tiers: args.tier.clone(), only, without: args.without.clone() })?;
    // Kept for the evidence of a gate; a host without a place for it is scored all the same.
    if args.check.is_empty() && args.without.is_empty() && args.tier.is_empty() {
        let kept = Engine::open(home).and_then(|engine| engine.keep_escape(&score));
        if let Err(error) = kept {
            output.remark(format!("the score is not kept: {error}"));
        }
    }
    let open = score.tiers.iter().any(|tier| tier.blocked < tier.total);
    match output.json {
        true => output.value(&score)?,
        false => {
            for tier in &score.tiers {
                output.data(&page(tier, output))?;
            }
        }
    }
    Ok(u8::from(open || score.tiers.is_empty()))
}

/// Ids, or scenarios for all of theirs.
fn chosen(asked: &[String]) -> Result<Vec<String>, Failure> {
    let mut ids = Vec::new();
    for word in asked {
        let before = ids.len();
        ids.extend(
            escape::checks().filter(|c| c.id == word || c.scenario() == word).map(|c| c.id.to_owned()),
        );
        if ids.len() == before {
            return Err(Failure::Usage(format!(
                "--check {word}: no such check or scenario; see `cofferdam escape --list`"
            )));
        }
    }
    Ok(ids)
}

fn list(only: &[String], output: &Output) -> Result<(), Failure> {
    let wanted = |check: &&Check| only.is_empty() || only.iter().any(|id| id == check.id);
    let checks: Vec<&Check> = escape::checks().filter(wanted).collect();
    if output.json {
        let rows: Vec<_> = checks
            .iter()
            .map(|c| json!({ "id": c.id, "scenario": c.scenario(), "tries": c.tries, "because": c.because }))
            .collect();
        return output.value(&json!({ "checks": rows }));
    }
    let mut text = String::new();
    for check in checks {
        text.push_str(&format!("{}\n", output.paint(Paint::Bold, check.id)));
        text.push_str(&format!("  tries    {}\n", wrap(check.tries, 11, WIDTH)));
        text.push_str(&format!("  stopped  {}\n", wrap(check.because, 11, WIDTH)));
    }
    output.data(&text)
}

fn page(tier: &TierScore, output: &Output) -> String {
    let mut text = String::new();
    let mut scenario = "";
    for check in &tier.checks {
        if check.scenario != scenario {
            scenario = check.scenario;
            text.push_str(&format!("{}\n", output.paint(Paint::Bold, scenario)));
        }
        text.push_str(&line(check, output));
        if output.verbose {
            text.push_str(&format!("{:29}{}\n", "", wrap(&check.control, 29, WIDTH)));
        }
    }
    let summary = format!(
        "{}: {} of {} blocked; {} proven by a control",
        tier.tier.name(),
        tier.blocked,
        tier.total,
        tier.proven
    );
    text.push_str(&format!("\n{}\n", output.paint(Paint::Bold, summary)));
    section(&mut text, "Open", &tier.checks, |check| (!check.blocked).then_some(&check.why));
    section(&mut text, "No control here", &tier.checks, |check| (!check.proven).then_some(&check.control));
    text
}

fn line(check: &Checked, output: &Output) -> String {
    let word = match (check.blocked, check.proven) {
        (true, true) => output.paint(Paint::Good, "blocked"),
        (true, false) => output.paint(Paint::Care, "blocked"),
        (false, _) => output.paint(Paint::Bad, "OPEN   "),
    };
    let name = check.id.split_once('.').map_or(check.id, |(_, name)| name);
    format!("  {word}  {name:<16}  {}\n", cut(&check.why, WIDTH - 29))
}

/// One line: what does not fit is in `--json`.
fn cut(text: &str, room: usize) -> String {
    match text.chars().count() <= room {
        true => text.to_owned(),
        false => text.chars().take(room - 1).chain(['…']).collect(),
    }
}

fn section<'c>(
    text: &mut String,
    title: &str,
    checks: &'c [Checked],
    say: impl Fn(&'c Checked) -> Option<&'c String>,
) {
    let rows: Vec<(&str, &String)> =
        checks.iter().filter_map(|check| Some((check.id, say(check)?))).collect();
    if rows.is_empty() {
        return;
    }
    text.push_str(&format!("\n{title}\n"));
    for (id, reason) in rows {
        text.push_str(&format!("  {id}\n    {}\n", wrap(reason, 4, WIDTH)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_to_its_room() {
        assert_eq!(cut("short", 10), "short");
        assert_eq!(cut("much too long", 6), "much …");
    }

    #[test]
    fn a_scenario_stands_for_its_checks_and_nothing_else_is_taken() {
        assert!(chosen(&["sys_admin".into()]).unwrap().len() > 3);
        assert_eq!(chosen(&["sys_admin.mount".into()]).unwrap(), ["sys_admin.mount"]);
        assert!(chosen(&["sys_adm".into()]).is_err());
    }
}
