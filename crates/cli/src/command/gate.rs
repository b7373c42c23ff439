//! `cofferdam gate`: run a suite, compare, decide; merge shards; look back; approve.

use crate::args::{Gate, GateCommand, GateRun};
use crate::command::run::BY;
use crate::output::{Failure, Output, Paint};
use crate::progress::Progress;
use crate::story::printable;
use cofferdam_engine::gate::{GateResult, Gated, History, Options, Verdict};
use cofferdam_engine::{Engine, Stop, suite, until_signalled};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Stopped by a person before there was a verdict; what a shell would say of an interrupted program.
const STOPPED: u8 = 130;

pub(crate) fn run(home: Option<PathBuf>, gate: Gate, output: &Output) -> Result<u8, Failure> {
    match (gate.command, gate.run) {
        (Some(GateCommand::Run(run)), _) | (None, Some(run)) => gate_run(home, run, output),
        (Some(GateCommand::Merge { dirs, out, key }), _) => {
            let result = Engine::open(home)?.merge_gates(&dirs, &out, key.as_deref())?;
            report(&result, Some(&out), output)
        }
        (Some(GateCommand::History { dirs }), _) => history(home, &dirs, output),
        (Some(GateCommand::Approve { dir, by, why, key }), _) => {
            approve(home, &dir, &by, &why, key.as_deref(), output)
        }
        (None, None) => Err(Failure::Usage("name the suite, as in `cofferdam gate suite.toml`".into())),
    }
}

fn gate_run(home: Option<PathBuf>, args: GateRun, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    let suite = suite::load(&args.suite)?;
    let options = Options {
        out: args.out,
        at_once: args.concurrency,
        baseline: args.baseline,
        shard: args.shard,
        only: args.only,
        retries: args.retries,
        judged: args.judged,
        key: args.key,
        by: BY.into(),
    };
    let (stop, progress) = (Stop::new()?, Progress::new(output));
    let gated = until_signalled(&stop, || engine.gate(&suite, &options, &stop, &|note| progress.note(note)))?;
    progress.end();
    match gated? {
        Gated::Decided(result) => report(&result, Some(&options.out), output),
        Gated::Stopped { finished, sessions } => {
            if output.json {
                output.value(&json!({ "stopped": true, "finished": finished, "sessions": sessions }))?;
            } else {
                output.remark(format!("stopped; {finished} of {sessions} sessions are finished, and the same command goes on from there"));
            }
            Ok(STOPPED)
        }
    }
}

/// The verdict and why, with where to look; the code is the verdict's.
pub(crate) fn report(result: &GateResult, out: Option<&Path>, output: &Output) -> Result<u8, Failure> {
    if output.json {
        output.value(result)?;
    } else if !output.quiet {
        output.data(&told(result, out, output))?;
    }
    Ok(code(result.outcome))
}

pub(crate) const fn code(outcome: Verdict) -> u8 {
    match outcome {
        Verdict::Pass => 0,
        Verdict::Fail => 1,
        Verdict::Review => 3,
    }
}

pub(crate) fn painted(outcome: Verdict, output: &Output) -> String {
    let paint = match outcome {
        Verdict::Pass => Paint::Good,
        Verdict::Fail => Paint::Bad,
        Verdict::Review => Paint::Care,
    };
    output.paint(paint, outcome)
}

fn told(result: &GateResult, out: Option<&Path>, output: &Output) -> String {
    const SESSIONS: usize = 20;
    const REASONS: usize = 3;
    let mut text = String::new();
    for session in result.sessions.to_look_at().take(SESSIONS) {
        text.push_str(&format!(
            "{}  {}\n",
            painted(session.outcome, output),
            output.paint(Paint::Bold, &session.id)
        ));
        for reason in session.reasons.iter().take(REASONS) {
            text.push_str(&format!("      {}\n", printable(&reason.text)));
        }
        if session.reasons.len() > REASONS {
            text.push_str(&format!("      … and {} more\n", session.reasons.len() - REASONS));
        }
        text.push_str(&format!("      {}\n", output.paint(Paint::Dim, session.reproduce.join(" "))));
    }
    let more = result.sessions.count_to_look_at().saturating_sub(SESSIONS);
    if more > 0 {
        text.push_str(&format!("… and {more} more sessions\n"));
    }
    text.push_str(&format!("{}: {}\n", painted(result.outcome, output), result.why.join("; ")));
    if let Some(out) = out {
        text.push_str(&format!("see {}\n", out.join("report.html").display()));
    }
    text
}

fn history(home: Option<PathBuf>, dirs: &[PathBuf], output: &Output) -> Result<u8, Failure> {
    let history = Engine::open(home)?.gate_history(dirs)?;
    if output.json {
        output.value(&history)?;
    } else {
        output.data(&looked_back(&history, output))?;
    }
    Ok(code(history.outcome))
}

fn looked_back(history: &History, output: &Output) -> String {
    const NAMED: usize = 20;
    let mut text = String::new();
    for version in &history.versions {
        let share = version.passed;
        let percent = 100.0 * share.hits as f64 / (share.n.max(1)) as f64;
        let commit: String = version.commit.as_deref().unwrap_or("no commit").chars().take(12).collect();
        text.push_str(&format!(
            "{:<6}  {:>4} of {:<4} passed ({percent:.1} %)  {}  {}\n",
            version.outcome.to_string(),
            share.hits,
            share.n,
            printable(&commit),
            version.dir.display()
        ));
    }
    let paired = &history.paired;
    text.push_str(&format!(
        "the last beside the one before: {} lost, {} won, {} passed in both, {} in neither (p = {:.3})\n",
        paired.lost, paired.won, paired.both_pass, paired.neither, paired.p
    ));
    history.lost.iter().take(NAMED).for_each(|id| text.push_str(&format!("      lost: {}\n", printable(id))));
    if history.lost.len() > NAMED {
        text.push_str(&format!("      … and {} more\n", history.lost.len() - NAMED));
    }
    match &history.drift {
        Some(drift) => text.push_str(&format!(
            "from one version to the next the share of passes changes by {:+.1} points (p = {:.3})\n",
            100.0 * drift.slope,
            drift.p
        )),
        None => text.push_str("no drift can be told: fewer than three results, or nothing varies\n"),
    }
    let why = match history.outcome {
        Verdict::Pass => "nothing was lost, and nothing goes down beyond chance",
        Verdict::Review => "look at what was lost, or at where it goes",
        Verdict::Fail => "more was lost than chance explains",
    };
    text.push_str(&format!("{}: {why}\n", painted(history.outcome, output)));
    text
}

fn approve(
    home: Option<PathBuf>,
    dir: &Path,
    by: &str,
    why: &str,
    key: Option<&Path>,
    output: &Output,
) -> Result<u8, Failure> {
    let approved = Engine::open(home)?.approve_gate(dir, by, why, key)?;
    if output.json {
        output.value(&approved.approval)?;
    } else {
        let (by, was) = (printable(&approved.approval.by), approved.approval.outcome);
        output.remark(format!("approved by {by} (it was: {was}); signed in {}", approved.file.display()));
    }
    Ok(0)
}
