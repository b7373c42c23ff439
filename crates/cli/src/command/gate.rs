//! `cofferdam gate`: run a suite, compare, decide; merge shards; approve.

use crate::args::{Gate, GateCommand, GateRun};
use crate::command::run::BY;
use crate::output::{Failure, Output, Paint};
use crate::progress::Progress;
use crate::story::printable;
use cofferdam_engine::gate::{GateResult, Gated, Options, SessionVerdict, Verdict};
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
    let mut bad: Vec<&SessionVerdict> =
        result.sessions.iter().filter(|one| one.outcome != Verdict::Pass || one.is_flaky()).collect();
    bad.sort_by_key(|one| std::cmp::Reverse(one.outcome));
    for session in bad.iter().take(SESSIONS) {
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
    if bad.len() > SESSIONS {
        text.push_str(&format!("… and {} more sessions\n", bad.len() - SESSIONS));
    }
    text.push_str(&format!("{}: {}\n", painted(result.outcome, output), result.why.join("; ")));
    if let Some(out) = out {
        text.push_str(&format!("see {}\n", out.join("summary.md").display()));
    }
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
