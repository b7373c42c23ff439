//! The last whole score of this machine, kept for the evidence of a gate. It counts only for the version and the kernel
//! that it was taken with.

use super::Score;
use crate::{Engine, EngineError};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

const FILE: &str = "escape.json";

#[derive(Serialize)]
struct Kept<'a> {
    #[serde(flatten)]
    taken: Taken,
    #[serde(flatten)]
    score: &'a Score,
}

#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct Taken {
    version: String,
    kernel: String,
}

impl Taken {
    fn here() -> Self {
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        Self { version: env!("CARGO_PKG_VERSION").into(), kernel }
    }
}

impl Engine {
    /// Keeps a score of all checks, taken just now.
    pub fn keep_escape(&self, score: &Score) -> Result<(), EngineError> {
        let path = self.home.path().join(FILE);
        let text = serde_json::to_vec_pretty(&Kept { taken: Taken::here(), score }).unwrap_or_default();
        let failed = |source| EngineError::Io { doing: "keeping the escape score", source };
        let mut file = tempfile::NamedTempFile::new_in(self.home.path()).map_err(failed)?;
        std::io::Write::write_all(&mut file, &text).map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        Ok(())
    }
}

/// Where it is, if it was taken with this version and on this kernel.
pub(crate) fn kept(engine: &Engine) -> Option<PathBuf> {
    let path = engine.home.path().join(FILE);
    let taken: Taken = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
    (taken == Taken::here()).then_some(path)
}
