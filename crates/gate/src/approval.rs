//! Who let a result through that the gate had stopped, when and why. It is signed, and it names the artifact by
//! digest, so that it cannot be moved to another.

use crate::artifact::opened;
use crate::{PAYLOAD_TYPE, Resource, STATEMENT, Statement, VerifyError};
use cofferdam_compare::Outcome;
use cofferdam_model::Digest;
use cofferdam_seal::digest;
use cofferdam_seal::dsse::{Envelope, EnvelopeError, Nonces, Signer, Verifier};
use serde::{Deserialize, Serialize};
use serde_json::json;

pub const APPROVAL: &str = "urn:cofferdam:gate-approval:v1";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    #[error("`--by` is empty: say who approves")]
    NoName,
    #[error("`--why` is empty: say why this may pass, for whoever reads it in a year")]
    NoReason,
    #[error(transparent)]
    Unsound(#[from] VerifyError),
    #[error("`predicate` is not an approval: {0}")]
    Predicate(String),
    #[error("the approval is of another artifact: it names {named} and this one is {found}")]
    Other { named: Digest, found: Digest },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    pub by: String,
    pub why: String,
    /// What the gate had said.
    pub outcome: Outcome,
    pub at_us: u64,
}

impl Approval {
    pub fn new(by: &str, why: &str, outcome: Outcome, at_us: u64) -> Result<Self, ApprovalError> {
        let (by, why) = (by.trim(), why.trim());
        match (by.is_empty(), why.is_empty()) {
            (true, _) => Err(ApprovalError::NoName),
            (_, true) => Err(ApprovalError::NoReason),
            _ => Ok(Self { by: by.into(), why: why.into(), outcome, at_us }),
        }
    }

    /// `artifact` is the whole of `gate.dsse.json`.
    pub fn sign(&self, artifact: &[u8], signer: &Signer, nonces: &Nonces) -> Result<String, EnvelopeError> {
        let statement = Statement {
            kind: STATEMENT.into(),
            subject: vec![Resource::new("gate.dsse.json", &digest(artifact))],
            predicate_type: APPROVAL.into(),
            predicate: json!(self),
        };
        let payload = serde_json::to_vec(&statement).unwrap_or_default();
        Ok(Envelope::sign(PAYLOAD_TYPE, payload, &[signer], nonces)?.to_json())
    }

    /// Whether a trusted key approved this very artifact.
    pub fn verify(
        text: &[u8],
        artifact: &[u8],
        keys: &[Verifier],
    ) -> Result<(Self, Vec<Digest>), ApprovalError> {
        let (statement, signers) = opened(text, APPROVAL, keys)?;
        let (named, found) =
            (statement.subject.first().and_then(Resource::sha256).unwrap_or(Digest::ZERO), digest(artifact));
        if named != found {
            return Err(ApprovalError::Other { named, found });
        }
        let approval = serde_json::from_value(statement.predicate)
            .map_err(|error| ApprovalError::Predicate(error.to_string()))?;
        Ok((approval, signers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_seal::SigningKey;

    #[test]
    fn an_approval_is_of_one_artifact_by_someone_for_a_reason() {
        let signer = Signer::Ed25519(SigningKey::from_seed(&[7; 32]).unwrap());
        let keys = [signer.public()];
        assert_eq!(Approval::new(" ", "x", Outcome::Fail, 1), Err(ApprovalError::NoName));
        assert_eq!(Approval::new("x", "", Outcome::Fail, 1), Err(ApprovalError::NoReason));
        let approval =
            Approval::new("the on-call lead", "the new refund step is wanted", Outcome::Fail, 1).unwrap();
        let text = approval.sign(b"artifact", &signer, &Nonces::new()).unwrap();
        assert_eq!(
            Approval::verify(text.as_bytes(), b"artifact", &keys).unwrap(),
            (approval, vec![signer.id()])
        );
        let moved = Approval::verify(text.as_bytes(), b"another", &keys);
        assert!(matches!(moved, Err(ApprovalError::Other { .. })), "{moved:?}");
        assert!(Approval::verify(text.as_bytes(), b"artifact", &[]).is_err());
    }
}
