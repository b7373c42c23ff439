//! `cofferdam verify`: is this artifact what a trusted key signed, and what does it say?

use crate::args::Verify;
use crate::command::gate::{code, painted};
use crate::output::{Failure, Output};
use crate::story::printable;
use cofferdam_engine::gate::{Approval, Checked, EvidenceChecked, GateError, Verdict, is_evidence};
use cofferdam_engine::{Engine, EngineError};
use serde_json::json;
use std::path::PathBuf;

const UNSOUND: u8 = 1;

pub(crate) fn run(home: Option<PathBuf>, args: Verify, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    let file = if args.file.is_dir() { args.file.join("gate.dsse.json") } else { args.file };
    let verified = match is_evidence(&file) {
        true => engine
            .verify_evidence(&file, &args.key)
            .map(|checked| (evidence(&checked, output), checked.result.outcome, checked.approval)),
        false => engine
            .verify_gate(&file, &args.key)
            .map(|checked| (told(&checked, output), checked.outcome, checked.approval)),
    };
    match verified {
        Ok((said, outcome, approval)) => {
            said?;
            let through = outcome == Verdict::Pass || approval.is_some();
            Ok(if args.passed && !through { code(outcome) } else { 0 })
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
    matches!(error, GateError::Unsound { .. } | GateError::Approval { .. } | GateError::Evidence { .. })
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
    text.push_str(&approved(checked.approval.as_ref()));
    output.data(&text)
}

fn approved(approval: Option<&Approval>) -> String {
    let words = |by: &Approval| format!("approved by {}: {}\n", printable(&by.by), printable(&by.why));
    approval.map(words).unwrap_or_default()
}

fn evidence(checked: &EvidenceChecked, output: &Output) -> Result<(), Failure> {
    let EvidenceChecked { described, signers, files, result, approval } = checked;
    let signers: Vec<String> = signers.iter().map(ToString::to_string).collect();
    if output.json {
        return output.value(&json!({
            "sound": true, "outcome": result.outcome, "signers": signers, "files": files, "host": described.host,
            "controls": described.controls, "approval": approval,
        }));
    }
    if output.quiet {
        return Ok(());
    }
    let signers: Vec<&str> = signers.iter().map(|id| id.get(..16).unwrap_or(id)).collect();
    let mut text = format!(
        "sound: {}, {files} files, signed by {}\n{}\nmade on {}\n",
        painted(result.outcome, output),
        signers.join(", "),
        printable(&result.why.join("; ")),
        printable(&described.host),
    );
    text.push_str(&approved(approval.as_ref()));
    for control in &described.controls {
        let files = match control.see.len() {
            1 => control.see[0].clone(),
            n => format!("{} and {} more", control.see[0], n - 1),
        };
        text.push_str(&format!("  {:<21} {}\n", control.id, printable(&files)));
    }
    output.data(&text)
}
