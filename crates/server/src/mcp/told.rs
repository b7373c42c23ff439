//! What a call came to, as text for a model and as data for its program.

use super::output::Shown;
use cofferdam_api::mcp::{Depth, Differences, Ran, Run};
use cofferdam_engine::EngineError;
use cofferdam_engine::inside::InsideError;
use cofferdam_model::{ChangeOp, FileDifference, Settled};
use serde::Serialize;
use serde_json::{Value, json};
use std::io;

/// So much text of differences is in one answer, and so many of them.
const TEXTS: usize = 128 << 10;
const CHANGES: usize = 2000;

/// Why a call came to nothing, for the model to read.
pub(crate) struct Fault(pub(crate) String);

impl From<EngineError> for Fault {
    fn from(error: EngineError) -> Self {
        Self(error.to_string())
    }
}

impl From<InsideError> for Fault {
    fn from(error: InsideError) -> Self {
        Self(error.to_string())
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

/// What a call came to: as text, and as data.
pub(crate) struct Done {
    pub(crate) text: String,
    pub(crate) data: Value,
}

impl Done {
    pub(crate) fn of(text: impl Into<String>, data: &impl Serialize) -> Result<Self, Fault> {
        let data = serde_json::to_value(data).map_err(|error| Fault(error.to_string()))?;
        Ok(Self { text: text.into(), data })
    }

    pub(crate) fn told(self) -> Value {
        json!({
            "content": [{ "type": "text", "text": self.text }],
            "structuredContent": self.data,
            "isError": false,
            "resultType": "complete",
        })
    }
}

/// What can be wrong with a command before anything is done for it.
pub(crate) fn may_run(asked: &Run) -> Result<(), Fault> {
    if asked.command.contains('\0') || asked.cwd.as_ref().is_some_and(|cwd| cwd.contains('\0')) {
        return Err(Fault("`command` and `cwd` have no NUL in them".into()));
    }
    if asked.timeout.is_some_and(|seconds| !(1..=86400).contains(&seconds)) {
        return Err(Fault("`timeout`: from 1 to 86400 seconds".into()));
    }
    Ok(())
}

pub(crate) fn ran(
    exit_code: i32,
    reason: Option<String>,
    stdout: Shown,
    stderr: Shown,
) -> Result<Done, Fault> {
    let ran = Ran {
        exit_code,
        truncated: stdout.is_cut() || stderr.is_cut(),
        stdout: stdout.text(),
        stderr: stderr.text(),
        reason,
    };
    let mut text = ran.stdout.clone();
    for part in [&ran.stderr, ran.reason.as_ref().unwrap_or(&String::new())] {
        if !text.is_empty() && !text.ends_with('\n') && !part.is_empty() {
            text.push('\n');
        }
        text.push_str(part);
    }
    if ran.exit_code != 0 || text.is_empty() {
        let line = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        text.push_str(&format!("{line}[exit code {}]", ran.exit_code));
    }
    Done::of(text, &ran)
}

fn told(difference: &FileDifference) -> String {
    let change = &difference.change;
    let omitted = difference.omitted.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    let text = difference.diff.as_deref().unwrap_or_default();
    let op = match change.op {
        ChangeOp::Created => "created",
        ChangeOp::Modified => "modified",
        ChangeOp::Renamed => "renamed",
        ChangeOp::Deleted => "deleted",
    };
    format!("{op} {}{omitted}\n{text}", change.path)
}

pub(crate) fn differences(mut found: Vec<FileDifference>) -> Result<Done, Fault> {
    let truncated = found.len() > CHANGES;
    found.truncate(CHANGES);
    let mut room = TEXTS;
    for difference in &mut found {
        match difference.diff.as_ref().map(String::len) {
            Some(size) if size > room => {
                difference.diff = None;
                difference.omitted = Some("too much text for one answer: see `read_file`".into());
            }
            size => room -= size.unwrap_or(0),
        }
    }
    let object = |one| match serde_json::to_value(one) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    };
    let text = match found.is_empty() {
        true => "nothing was changed".to_owned(),
        false => found.iter().map(told).collect(),
    };
    Done::of(text, &Differences { changes: found.iter().filter_map(object).collect(), truncated })
}

pub(crate) fn begun(depth: u64) -> Result<Done, Fault> {
    let told = Depth { depth, effects: Vec::new(), conflicts: Vec::new() };
    Done::of(format!("transaction {depth} is open"), &told)
}

pub(crate) fn settled(keep: bool, settled: Settled) -> Result<Done, Fault> {
    let skipped = settled.host.iter().flat_map(|host| &host.skipped);
    let conflicts: Vec<_> = skipped.map(|one| format!("{}: {}", one.path, one.reason)).collect();
    let mut text = match (keep, &settled.host) {
        (true, Some(host)) => format!(
            "in the work dir of the host: {} created, {} modified, {} renamed, {} deleted",
            host.created, host.modified, host.renamed, host.deleted
        ),
        (true, None) => format!("kept; {} transactions are open around it", settled.depth),
        (false, _) => "files are as they were".to_owned(),
    };
    conflicts.iter().for_each(|one| text.push_str(&format!("\nnot kept: {one}")));
    for effect in &settled.effects {
        text.push_str(&format!("\ncannot be taken back: {effect}"));
    }
    if settled.more > 0 {
        text.push_str(&format!("\nand {} more went outside", settled.more));
    }
    Done::of(text, &Depth { depth: settled.depth as u64, effects: settled.effects, conflicts })
}
