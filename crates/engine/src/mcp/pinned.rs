//! Where a server's pins are kept between sessions: a file for each command, in the state directory. The name a
//! server gives itself is its own claim and decides nothing.

use crate::error::EngineError;
use cofferdam_intercept::mcp::Pins;
use cofferdam_store::Home;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::PathBuf;

pub(super) struct Pinned {
    dir: PathBuf,
    file: PathBuf,
    command: Vec<String>,
}

/// The file, for people too.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    command: Vec<String>,
    pins: Pins,
}

impl Pinned {
    pub(super) fn of(home: &Home, command: &[String]) -> Self {
        let name = cofferdam_seal::digest(command.join("\0").as_bytes()).to_string();
        let dir = home.path().join("tools");
        let file = dir.join(format!("{}.json", &name[..32]));
        Self { dir, file, command: command.to_vec() }
    }

    /// One that cannot be read is not taken for one that is not there.
    pub(super) fn load(&self) -> Result<Pins, EngineError> {
        let unreadable = |source| EngineError::Unreadable { path: self.file.clone(), source };
        match std::fs::read(&self.file) {
            Ok(text) => {
                Ok(serde_json::from_slice::<Kept>(&text).map_err(|error| unreadable(error.into()))?.pins)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Pins::default()),
            Err(error) => Err(unreadable(error)),
        }
    }

    /// Whole or not at all.
    pub(super) fn store(&self, pins: &Pins) -> Result<(), EngineError> {
        let kept = Kept { command: self.command.clone(), pins: pins.clone() };
        let write = || -> io::Result<()> {
            std::fs::create_dir_all(&self.dir)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.dir)?;
            file.write_all(&serde_json::to_vec_pretty(&kept)?)?;
            file.persist(&self.file)?;
            Ok(())
        };
        write().map_err(|source| EngineError::Pins { path: self.file.clone(), source })
    }
}
