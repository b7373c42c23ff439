//! `gate.dsse.json`: made from a result, and checked with every failure named.

use crate::statement::{self, RESULT_FILE};
use crate::{GateResult, PAYLOAD_TYPE, STATEMENT, Statement, TEST_RESULT, TestResult, VERSION};
use cofferdam_compare::Outcome;
use cofferdam_model::Digest;
use cofferdam_seal::digest;
use cofferdam_seal::dsse::{Envelope, EnvelopeError, Nonces, Signer, Verifier};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    #[error("what is signed is not an in-toto Statement: {0}")]
    NotAStatement(String),
    #[error("`_type` is `{0}` and should be `{STATEMENT}`")]
    StatementType(String),
    #[error("`predicateType` is `{found}` and should be `{wanted}`")]
    PredicateType { found: String, wanted: &'static str },
    #[error("`predicate` is not a test result: {0}")]
    Predicate(String),
    #[error("`subject` is empty: the statement is about nothing")]
    NoSubject,
    #[error("subject `{0}` has no SHA-256 digest")]
    SubjectDigest(String),
    #[error("`configuration` does not name `{RESULT_FILE}`: this was not written by a gate")]
    NoResult,
    #[error("`{RESULT_FILE}` is not the file that was signed: signed was {signed}, found is {found}")]
    ResultChanged { signed: Digest, found: Digest },
    #[error("`{RESULT_FILE}` cannot be read: {0}")]
    ResultUnreadable(String),
    #[error("`{RESULT_FILE}` has the version {0} and this program reads {VERSION}: run the gate again")]
    ResultVersion(u32),
    #[error("`{0}` in the statement is not what `{RESULT_FILE}` says")]
    Contradiction(&'static str),
}

/// The artifact of a result whose file has this digest.
pub fn sign(
    result: &GateResult,
    gate_json: &Digest,
    signers: &[&Signer],
    nonces: &Nonces,
) -> Result<Envelope, EnvelopeError> {
    Envelope::sign(PAYLOAD_TYPE, statement::text(result, gate_json), signers, nonces)
}

/// What an artifact says, and who signed it, if it is sound.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified {
    pub statement: Statement,
    pub result: TestResult,
    pub signers: Vec<Digest>,
}

impl Verified {
    pub fn outcome(&self) -> Outcome {
        self.result.result.into()
    }

    /// The digest of the result's file, as it was signed.
    pub fn gate_json(&self) -> Result<Digest, VerifyError> {
        let named = self.result.configuration.iter().find(|one| one.name == RESULT_FILE);
        named.and_then(|one| one.sha256()).ok_or(VerifyError::NoResult)
    }
}

/// A statement of this predicate, by one of these keys.
pub(crate) fn opened(
    text: &[u8],
    wanted: &'static str,
    keys: &[Verifier],
) -> Result<(Statement, Vec<Digest>), VerifyError> {
    let envelope = Envelope::parse(text)?;
    let (payload, signers) = envelope.open(PAYLOAD_TYPE, keys)?;
    let statement: Statement =
        serde_json::from_slice(payload).map_err(|error| VerifyError::NotAStatement(error.to_string()))?;
    if statement.kind != STATEMENT {
        return Err(VerifyError::StatementType(statement.kind.chars().take(80).collect()));
    }
    if statement.predicate_type != wanted {
        let found = statement.predicate_type.chars().take(80).collect();
        return Err(VerifyError::PredicateType { found, wanted });
    }
    if statement.subject.is_empty() {
        return Err(VerifyError::NoSubject);
    }
    if let Some(subject) = statement.subject.iter().find(|subject| subject.sha256().is_none()) {
        return Err(VerifyError::SubjectDigest(subject.name.chars().take(80).collect()));
    }
    Ok((statement, signers))
}

/// Checks the artifact by itself: the signature, the types, the subjects.
pub fn verify(text: &[u8], keys: &[Verifier]) -> Result<Verified, VerifyError> {
    let (statement, signers) = opened(text, TEST_RESULT, keys)?;
    let result: TestResult = serde_json::from_value(statement.predicate.clone())
        .map_err(|error| VerifyError::Predicate(error.to_string()))?;
    let verified = Verified { statement, result, signers };
    verified.gate_json()?;
    Ok(verified)
}

/// Checks that this is the result that the artifact speaks of, and that both say the same.
pub fn verify_result(verified: &Verified, gate_json: &[u8]) -> Result<GateResult, VerifyError> {
    let (signed, found) = (verified.gate_json()?, digest(gate_json));
    if signed != found {
        return Err(VerifyError::ResultChanged { signed, found });
    }
    let result: GateResult = serde_json::from_slice(gate_json)
        .map_err(|error| VerifyError::ResultUnreadable(error.to_string()))?;
    if result.version != VERSION {
        return Err(VerifyError::ResultVersion(result.version));
    }
    // Signed together, so they differ only if whoever signed wrote two stories.
    if TestResult::of(&result, &found) != verified.result {
        return Err(VerifyError::Contradiction("predicate"));
    }
    if !statement::subjects(&result, &found).eq(verified.statement.subject.iter().cloned()) {
        return Err(VerifyError::Contradiction("subject"));
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::tests::result;
    use cofferdam_seal::SigningKey;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn signer() -> Signer {
        Signer::Ed25519(SigningKey::from_seed(&[7; 32]).unwrap())
    }

    fn written() -> (GateResult, Vec<u8>, String) {
        let result = result(&[("a", Outcome::Pass), ("b", Outcome::Fail)]);
        let json = serde_json::to_vec_pretty(&result).unwrap();
        let artifact = sign(&result, &digest(&json), &[&signer()], &Nonces::new()).unwrap().to_json();
        (result, json, artifact)
    }

    #[test]
    fn what_was_signed_is_what_is_read() {
        let (result, json, artifact) = written();
        let verified = verify(artifact.as_bytes(), &[signer().public()]).unwrap();
        assert_eq!((verified.outcome(), verified.signers.clone()), (Outcome::Fail, vec![signer().id()]));
        assert_eq!(verify_result(&verified, &json).unwrap(), result);
    }

    #[test]
    fn any_other_result_is_named() {
        let (result, json, artifact) = written();
        let verified = verify(artifact.as_bytes(), &[signer().public()]).unwrap();
        for at in 0..json.len() {
            let mut other = json.clone();
            other[at] ^= 1;
            let error = verify_result(&verified, &other).unwrap_err();
            assert!(matches!(error, VerifyError::ResultChanged { .. }), "{error}");
        }
        // A signer who signs two stories is found out too.
        let lie = GateResult { outcome: Outcome::Pass, ..result };
        let lied = serde_json::to_vec(&lie).unwrap();
        let honest = crate::statement::tests::result(&[("a", Outcome::Pass), ("b", Outcome::Fail)]);
        let artifact = sign(&honest, &digest(&lied), &[&signer()], &Nonces::new()).unwrap().to_json();
        let verified = verify(artifact.as_bytes(), &[signer().public()]).unwrap();
        assert_eq!(verify_result(&verified, &lied), Err(VerifyError::Contradiction("predicate")));
    }

    #[test]
    fn a_statement_of_another_kind_is_named() {
        let (result, json, _) = written();
        let statement: Value = serde_json::from_slice(&statement::text(&result, &digest(&json))).unwrap();
        let check = |path: &str, value: Value, expected: &str| {
            let mut other = statement.clone();
            *other.pointer_mut(path).unwrap() = value;
            let payload = serde_json::to_vec(&other).unwrap();
            let envelope = Envelope::sign(PAYLOAD_TYPE, payload, &[&signer()], &Nonces::new()).unwrap();
            let error = verify(envelope.to_json().as_bytes(), &[signer().public()]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(
            "/_type",
            json!("https://in-toto.io/Statement/v0.1"),
            "`_type` is `https://in-toto.io/Statement/v0.1`",
        );
        check("/predicateType", json!("https://slsa.dev/provenance/v1"), "`predicateType` is");
        check("/predicate/result", json!("FINE"), "not a test result");
        check("/subject", json!([]), "about nothing");
        check("/subject/0/digest", json!({ "sha1": "00" }), "subject `a` has no SHA-256 digest");
        check("/predicate/configuration", json!([]), "does not name `gate.json`");
        check("/subject", json!("x"), "not an in-toto Statement");
    }

    proptest! {
        #[test]
        fn any_payload_is_a_statement_or_an_error(payload in proptest::collection::vec(any::<u8>(), 0..300)) {
            let envelope = Envelope::sign(PAYLOAD_TYPE, payload, &[&signer()], &Nonces::new()).unwrap();
            prop_assert!(verify(envelope.to_json().as_bytes(), &[signer().public()]).is_err());
        }
    }
}
