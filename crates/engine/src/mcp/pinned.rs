//! Where a server's pins are kept between sessions: a file for each command or address, in the state directory. The
//! name a server gives itself is its own claim and decides nothing.

use crate::Engine;
use crate::error::EngineError;
use cofferdam_intercept::mcp::{PinStore, Pins};
use cofferdam_model::Stop;
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

    /// Of a server that is reached by HTTP: by its address.
    fn at(home: &Home, server: &str) -> Self {
        Self::of(home, &[server.to_owned()])
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

/// Pins of servers that are reached by HTTP.
pub(crate) struct Pinning(pub(crate) Home);

fn stop(error: &EngineError) -> Stop {
    Stop { cause: "pins".to_owned(), reason: error.to_string() }
}

impl PinStore for Pinning {
    fn load(&self, server: &str) -> Result<Pins, Stop> {
        Pinned::at(&self.0, server).load().map_err(|error| stop(&error))
    }

    fn store(&self, server: &str, pins: &Pins) -> Result<(), Stop> {
        Pinned::at(&self.0, server).store(pins).map_err(|error| stop(&error))
    }
}

/// A server whose tools are pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PinnedServer {
    /// Its command line, or its address.
    pub server: String,
    pub tools: Vec<String>,
}

impl Engine {
    /// Whose tools are pinned, and which.
    pub fn pinned(&self) -> Result<Vec<PinnedServer>, EngineError> {
        let told = |(_, kept): (PathBuf, Kept)| PinnedServer {
            server: kept.command.join(" "),
            tools: kept.pins.tools.into_keys().collect(),
        };
        let mut all: Vec<PinnedServer> = kept(self.home())?.into_iter().map(told).collect();
        all.sort_by(|one, other| one.server.cmp(&other.server));
        Ok(all)
    }

    /// Forgets what a server's tools were; its next listing is pinned. Whether there was something to forget.
    pub fn unpin(&self, server: &str) -> Result<bool, EngineError> {
        let mut found = false;
        for (path, kept) in kept(self.home())? {
            if kept.command.join(" ") == server {
                std::fs::remove_file(&path).map_err(|source| EngineError::Pins { path, source })?;
                found = true;
            }
        }
        Ok(found)
    }
}

fn kept(home: &Home) -> Result<Vec<(PathBuf, Kept)>, EngineError> {
    let dir = home.path().join("tools");
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(EngineError::Unreadable { path: dir, source }),
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry.map_err(|source| EngineError::Unreadable { path: dir.clone(), source })?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let unreadable = |source| EngineError::Unreadable { path: path.clone(), source };
        let text = std::fs::read(&path).map_err(unreadable)?;
        let kept = serde_json::from_slice(&text).map_err(|error| unreadable(error.into()))?;
        all.push((path, kept));
    }
    Ok(all)
}
