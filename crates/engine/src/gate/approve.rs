//! Letting a result through, and checking what a directory of results says.

use super::keys::{Keys, trusted};
use super::written::{APPROVAL, ARTIFACT, RESULT, replace};
use super::{GateError, GateResult, Verdict};
use crate::{Engine, EngineError};
use cofferdam_gate::{Approval, verify, verify_result};
use cofferdam_model::Digest;
use std::path::{Path, PathBuf};

/// An approval that was given.
#[derive(Debug)]
pub struct Approved {
    pub approval: Approval,
    pub file: PathBuf,
}

/// A sound artifact, and what lay beside it.
#[derive(Debug)]
pub struct Checked {
    pub outcome: Verdict,
    pub signers: Vec<Digest>,
    /// The traces that it is about.
    pub subjects: usize,
    /// Absent where only the artifact is there.
    pub result: Option<GateResult>,
    pub approval: Option<Approval>,
}

impl Engine {
    pub fn approve_gate(
        &self,
        dir: &Path,
        by: &str,
        why: &str,
        key: Option<&Path>,
    ) -> Result<Approved, EngineError> {
        let artifact = read(&dir.join(ARTIFACT))?;
        let result = super::written::read(self, dir)?;
        let approval =
            Approval::new(by, why, result.outcome, crate::record::now_us()).map_err(GateError::from)?;
        let keys = Keys::find(self, key)?;
        let text = approval.sign(&artifact, &keys.signer, &keys.nonces).map_err(GateError::from)?;
        let file = dir.join(APPROVAL);
        replace(&file, text.as_bytes())?;
        super::evidence::renew(dir, &result, self, &keys)?;
        Ok(Approved { approval, file })
    }

    /// Believes the given keys, or those that this machine believes. Whatever lies beside the artifact has to be
    /// what it speaks of.
    pub fn verify_gate(&self, artifact: &Path, keys: &[PathBuf]) -> Result<Checked, EngineError> {
        let keys = trusted(self, keys)?;
        let text = read(artifact)?;
        let unsound = |source| GateError::Unsound { path: artifact.to_owned(), source };
        let verified = verify(&text, &keys).map_err(unsound)?;
        let beside = |name: &str| artifact.with_file_name(name);
        let result = match read(&beside(RESULT)) {
            Ok(json) => Some(verify_result(&verified, &json).map_err(unsound)?),
            Err(_) if !beside(RESULT).exists() => None,
            Err(error) => return Err(error.into()),
        };
        let file = beside(APPROVAL);
        let approval = match file.exists() {
            false => None,
            true => {
                let found = Approval::verify(&read(&file)?, &text, &keys);
                Some(found.map_err(|source| GateError::Approval { path: file, source })?.0)
            }
        };
        Ok(Checked {
            outcome: verified.outcome(),
            signers: verified.signers,
            subjects: verified.statement.subject.len(),
            result,
            approval,
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, GateError> {
    std::fs::read(path).map_err(|source| GateError::Read { path: path.to_owned(), source })
}
