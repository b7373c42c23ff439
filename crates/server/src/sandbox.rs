//! What the service knows of a sandbox beyond the session that runs in it, kept on file: a service that is started
//! again finds its sandboxes.

use crate::build::Adds;
use crate::disk;
use crate::envd::Watchers;
use crate::interpreter::Interpreter;
use cofferdam_api::e2b;
use cofferdam_model::SessionId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

/// What a request for a port of a sandbox needs of the session that runs in it.
pub(crate) trait Ports: Send + Sync {
    /// A connected stream socket to a port on the loopback inside. May wait; is called where that holds up nobody.
    fn connect(&self, session: &SessionId, port: u16) -> Result<OwnedFd, PortError>;
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    #[error("nothing listens on it")]
    Closed,
}

/// As it lies on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The first session that ran in it. Clients know it by this name for as long as it is.
    pub(crate) id: SessionId,
    pub(crate) tenant: String,
    pub(crate) template: String,
    pub(crate) started_us: u64,
    /// The session that runs in it now; nothing while only its files are kept.
    pub(crate) session: Option<SessionId>,
    /// Its files, while nothing runs in it.
    #[serde(default)]
    pub(crate) files: Option<String>,
    /// What it had before it began: the files of another.
    #[serde(default)]
    pub(crate) from: Option<String>,
    /// Seconds, as its maker asked.
    pub(crate) timeout: u64,
    /// Since when nothing of it is left that could go on.
    #[serde(default)]
    pub(crate) lost_us: Option<u64>,
    pub(crate) name: Option<String>,
    /// Files of rules: its own, then those of the sandboxes that it was forked from, which its session names.
    #[serde(default)]
    pub(crate) rules: Vec<String>,
    /// Credentials of the vault that it may use.
    #[serde(default)]
    pub(crate) secrets: Vec<String>,
    /// What its template brings along.
    #[serde(default)]
    pub(crate) adds: Adds,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) env: BTreeMap<String, String>,
    /// Who may speak to the daemon in it.
    pub(crate) envd_token: String,
    /// Who may reach its ports, where not everybody may.
    pub(crate) traffic_token: Option<String>,
    pub(crate) auto_pause: bool,
    pub(crate) auto_resume: bool,
    /// Whether it is paused with its processes, where there is a choice.
    pub(crate) pause_memory: bool,
    pub(crate) network: Option<e2b::Network>,
    pub(crate) internet: Option<bool>,
    /// Rules that take the place of both, as a policy file.
    #[serde(default)]
    pub(crate) policy: Option<String>,
    pub(crate) mcp: Option<serde_json::Value>,
    pub(crate) volumes: Vec<cofferdam_model::VolumeMount>,
}

pub(crate) struct Sandbox {
    pub(crate) id: SessionId,
    record: RwLock<Record>,
    /// One change at a time.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// Who looks at its files without being connected.
    pub(crate) watchers: Watchers,
    pub(crate) interpreter: Interpreter,
}

impl Sandbox {
    fn new(record: Record) -> Self {
        Self {
            id: record.id.clone(),
            record: RwLock::new(record),
            changing: tokio::sync::Mutex::new(()),
            watchers: Watchers::default(),
            interpreter: Interpreter::default(),
        }
    }

    pub(crate) fn record(&self) -> RwLockReadGuard<'_, Record> {
        self.record.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session(&self) -> Option<SessionId> {
        self.record().session.clone()
    }
}

#[derive(Default)]
struct Known {
    all: BTreeMap<SessionId, Arc<Sandbox>>,
    by_token: HashMap<String, SessionId>,
}

/// All sandboxes of the service.
pub(crate) struct Sandboxes {
    dir: PathBuf,
    known: Mutex<Known>,
}

impl Sandboxes {
    /// What was on file when the service was last there.
    pub(crate) fn open(home: &Path) -> io::Result<(Self, Vec<Record>)> {
        let dir = home.join("service").join("sandboxes");
        disk::make_dir(&dir)?;
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&dir)?.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|e| e == "json")
                && let Ok(Some(record)) = disk::read::<Record>(&path)
            {
                found.push(record);
            }
        }
        Ok((Self { dir, known: Mutex::default() }, found))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, id: &SessionId) -> PathBuf {
        self.dir.join(format!("{id}.json"))
    }

    /// On file first, then known.
    pub(crate) fn enter(&self, record: Record) -> io::Result<Arc<Sandbox>> {
        disk::write(&self.file(&record.id), &record)?;
        let sandbox = Arc::new(Sandbox::new(record));
        let mut known = self.known();
        known.by_token.insert(sandbox.record().envd_token.clone(), sandbox.id.clone());
        known.all.insert(sandbox.id.clone(), sandbox.clone());
        Ok(sandbox)
    }

    /// On file first, then so.
    pub(crate) fn change(&self, sandbox: &Sandbox, act: impl FnOnce(&mut Record)) -> io::Result<()> {
        let mut record = sandbox.record.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = record.clone();
        act(&mut changed);
        disk::write(&self.file(&sandbox.id), &changed)?;
        *record = changed;
        Ok(())
    }

    pub(crate) fn forget(&self, id: &SessionId) {
        let mut known = self.known();
        if let Some(sandbox) = known.all.remove(id) {
            known.by_token.remove(&sandbox.record().envd_token);
        }
        let _ = std::fs::remove_file(self.file(id));
    }

    /// As it is on file. Whether anything runs in it is for the caller to see.
    pub(crate) fn get(&self, id: &SessionId) -> Option<Arc<Sandbox>> {
        self.known().all.get(id).cloned()
    }

    pub(crate) fn by_token(&self, token: &str) -> Option<SessionId> {
        self.known().by_token.get(token).cloned()
    }

    /// The oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Sandbox>> {
        self.known().all.values().cloned().collect()
    }
}
