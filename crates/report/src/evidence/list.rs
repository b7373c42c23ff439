//! The signed list: an in-toto Statement whose subjects are all files of the evidence.

use super::controls::{Control, controls};
use cofferdam_gate::{GateResult, PAYLOAD_TYPE, Resource, STATEMENT, Statement};
use cofferdam_model::Digest;
use cofferdam_seal::dsse::{Envelope, EnvelopeError, Nonces, Signer, Verifier};
use serde::{Deserialize, Serialize};

/// The name of the entry that it is.
pub const LIST: &str = "manifest.dsse.json";
const PREDICATE: &str = "urn:cofferdam:evidence:v1";

/// A file that was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub digest: Digest,
}

/// What the evidence is of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Described {
    pub outcome: cofferdam_compare::Outcome,
    pub why: Vec<String>,
    /// Program and version.
    pub by: String,
    /// Of the machine that it was made on: its kernel and distribution.
    pub host: String,
    pub made_us: u64,
    pub controls: Vec<Control>,
}

/// Signs the list of these files.
pub fn list(
    files: &[Listed],
    result: &GateResult,
    (host, made_us): (&str, u64),
    (signer, nonces): (&Signer, &Nonces),
) -> Result<String, EnvelopeError> {
    let described = Described {
        outcome: result.outcome,
        why: result.why.clone(),
        by: result.run.by.clone(),
        host: host.to_owned(),
        made_us,
        controls: controls(files),
    };
    let statement = Statement {
        kind: STATEMENT.into(),
        subject: files.iter().map(|file| Resource::new(&file.name, &file.digest)).collect(),
        predicate_type: PREDICATE.into(),
        predicate: serde_json::to_value(&described).unwrap_or_default(),
    };
    let payload = serde_json::to_vec(&statement).unwrap_or_default();
    Ok(Envelope::sign(PAYLOAD_TYPE, payload, &[signer], nonces)?.to_json())
}

/// What was signed, if one of these keys did.
pub fn read_list(text: &[u8], keys: &[Verifier]) -> Result<(Vec<Listed>, Described, Vec<Digest>), String> {
    let envelope = Envelope::parse(text).map_err(|error| error.to_string())?;
    let (payload, signers) = envelope.open(PAYLOAD_TYPE, keys).map_err(|error| error.to_string())?;
    let statement: Statement = serde_json::from_slice(payload).map_err(|error| error.to_string())?;
    if statement.kind != STATEMENT || statement.predicate_type != PREDICATE {
        return Err(format!("`predicateType` is `{}` and should be `{PREDICATE}`", statement.predicate_type));
    }
    let described = serde_json::from_value(statement.predicate).map_err(|error| error.to_string())?;
    let listed = statement.subject.iter().map(|subject| {
        let digest = subject.sha256().ok_or_else(|| format!("`{}` has no SHA-256 digest", subject.name))?;
        Ok(Listed { name: subject.name.clone(), digest })
    });
    Ok((listed.collect::<Result<_, String>>()?, described, signers))
}
