//! With what a gate signs: a key file, a key in the environment (where CI keeps its secrets), or this machine's own.

use super::GateError;
use crate::{Engine, EngineError};
use cofferdam_seal::dsse::{Nonces, Signer, Verifier};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Holds the text of a private key, PKCS#8 in PEM.
pub const VARIABLE: &str = "COFFERDAM_GATE_KEY";

pub struct Keys {
    pub(crate) signer: Signer,
    pub(crate) nonces: Nonces,
    /// The escape score of this machine, where it was taken with this version and on this kernel.
    pub(crate) escape: Option<PathBuf>,
}

impl Keys {
    pub fn find(engine: &Engine, file: Option<&Path>) -> Result<Self, EngineError> {
        let nonces = Nonces::new();
        let read = |path: PathBuf, text: &str| {
            Signer::from_pem(text, &nonces).map_err(|source| GateError::Key { path, source })
        };
        let signer = match (file, std::env::var(VARIABLE)) {
            (Some(path), _) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| GateError::Read { path: path.to_owned(), source })?;
                read(path.to_owned(), &Zeroizing::new(text))?
            }
            (None, Ok(text)) if !text.is_empty() => read(VARIABLE.into(), &Zeroizing::new(text))?,
            _ => Signer::Ed25519(engine.home.signing_key()?),
        };
        Ok(Self { signer, nonces, escape: crate::escape::kept(engine) })
    }
}

/// Those given, or else those that this machine believes.
pub(crate) fn trusted(engine: &Engine, given: &[PathBuf]) -> Result<Vec<Verifier>, EngineError> {
    if given.is_empty() {
        return Ok(engine.home.trusted_keys()?.iter().map(|key| Verifier::from(*key)).collect());
    }
    let read = |path: &PathBuf| {
        let text =
            std::fs::read_to_string(path).map_err(|source| GateError::Read { path: path.clone(), source })?;
        Ok(Verifier::from_pem(&text).map_err(|source| GateError::Key { path: path.clone(), source })?)
    };
    given.iter().map(read).collect()
}
