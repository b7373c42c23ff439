//! `cofferdam verify`: is this artifact what a trusted key signed, and what does it say?

use crate::args::Verify;
use crate::command::gate::{code, painted};
use crate::output::{Failure, Output};
use crate::story::printable;
use cofferdam_engine::gate::{Checked, GateError, Verdict};
use cofferdam_engine::{Engine, EngineError};
use serde_json::json;
use std::path::PathBuf;

const UNSOUND: u8 = 1;

pub(crate) fn run(home: Option<PathBuf>, args: Verify, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    let file = if args.file.is_dir() { args.file.join("gate.dsse.json") } else { args.file };
    match engine.verify_gate(&file, &args.key) {
        Ok(checked) => {
            told(&checked, output)?;
            let through = checked.outcome == Verdict::Pass || checked.approval.is_some();
            Ok(if args.passed && !through { code(checked.outcome) } else { 0 })
        }
        // What does not verify is an answer, not a failure of ours.
        Err(EngineError::Gate(error)) if is_answer(&error) => {
            if output.json {
                output.value(&json!({ "sound": false, "why": error.to_string() }))?;
            } else if !output.quiet {
                output.data(&format!("not sound: {}\n", printable(&error.to_string())))?;
            }
            Ok(UNSOUND)
        }
        Err(error) => Err(error.into()),
    }
}

fn is_answer(error: &GateError) -> bool {
    matches!(error, GateError::Unsound { .. } | GateError::Approval { .. })
}

fn told(checked: &Checked, output: &Output) -> Result<(), Failure> {
    let signers: Vec<String> = checked.signers.iter().map(ToString::to_string).collect();
    if output.json {
        return output.value(&json!({
            "sound": true, "outcome": checked.outcome, "signers": signers, "subjects": checked.subjects,
            "result": checked.result.is_some(), "approval": checked.approval,
        }));
    }
    if output.quiet {
        return Ok(());
    }
    let beside = match &checked.result {
        Some(result) => format!("gate.json is the one that was signed: {}", result.why.join("; ")),
        None => "gate.json is not beside it, so only the signed summary was checked".into(),
    };
    let mut text = format!(
        "sound: {}, {} traces, signed by {}\n{beside}\n",
        painted(checked.outcome, output),
        checked.subjects,
        signers.iter().map(|id| id.get(..16).unwrap_or(id)).collect::<Vec<_>>().join(", ")
    );
    if let Some(approval) = &checked.approval {
        text.push_str(&format!("approved by {}: {}\n", printable(&approval.by), printable(&approval.why)));
    }
    output.data(&text)
}
