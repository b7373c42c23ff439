//! Sessions that are finished, so that an interrupted gate goes on where it was. A finished session counts only
//! while everything that its verdict rests on is as it was.

use super::written::replace;
use super::{GateError, SessionVerdict};
use cofferdam_model::Digest;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const DIR: &str = ".unfinished";

#[derive(Serialize, Deserialize)]
struct Finished {
    inputs: Digest,
    verdict: SessionVerdict,
}

fn file(out: &Path, id: &str) -> PathBuf {
    out.join(DIR).join(format!("{id}.json"))
}

pub(super) fn find(out: &Path, id: &str, inputs: Option<Digest>) -> Option<SessionVerdict> {
    let bytes = std::fs::read(file(out, id)).ok()?;
    let finished: Finished = serde_json::from_slice(&bytes).ok()?;
    (Some(finished.inputs) == inputs && finished.verdict.id == id).then_some(finished.verdict)
}

pub(super) fn keep(out: &Path, inputs: Option<Digest>, verdict: &SessionVerdict) -> Result<(), GateError> {
    let Some(inputs) = inputs else { return Ok(()) };
    let finished = Finished { inputs, verdict: verdict.clone() };
    let text = serde_json::to_vec(&finished).unwrap_or_default();
    replace(&file(out, &verdict.id), &text)
}

/// The result is written: the next run begins anew.
pub(super) fn forget(out: &Path) {
    let _ = std::fs::remove_dir_all(out.join(DIR));
}
