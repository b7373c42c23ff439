//! Layers that are frozen, and the snapshots that name them. A layer is kept as long as a snapshot or a session
//! that lives needs it; the rest is removed by the supervisor, and when there is none by the next one.
//!
//! ```text
//! frozen/ID/upper         a layer, moved here as it was
//! snapshots/NAME.json     which layers a snapshot consists of
//! ```
//!
//! What a session needs is noted before it is there, and a snapshot is written last: whoever is killed on the way
//! leaves layers that nobody names.

use crate::error::EngineError;
use cofferdam_model::{SessionId, Snapshot, is_name};
use cofferdam_runtime::Base;
use cofferdam_store::Home;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many layers may lie beneath a session's own.
const LAYERS: usize = 48;

/// Shared by all that the supervisor does.
#[derive(Clone)]
pub(crate) struct Shelf {
    home: Home,
    /// What each session that lives needs.
    needed: Arc<Mutex<BTreeMap<SessionId, Vec<SessionId>>>>,
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> EngineError {
    move |source| EngineError::Io { doing, source }
}

impl Shelf {
    pub(crate) fn new(home: Home) -> Self {
        Self { home, needed: Arc::default() }
    }

    fn needed(&self) -> MutexGuard<'_, BTreeMap<SessionId, Vec<SessionId>>> {
        self.needed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn layer(&self, id: &SessionId) -> PathBuf {
        self.home.frozen_dir().join(id.as_str())
    }

    /// A place for a layer of this session's, on top of those that it needs already.
    pub(crate) fn place(&self, session: &SessionId, layer: &SessionId) -> Result<PathBuf, EngineError> {
        let mut needed = self.needed();
        let layers = needed.entry(session.clone()).or_default();
        if layers.len() >= LAYERS {
            return Err(EngineError::Declined(format!(
                "its files lie in {LAYERS} layers, and more are not taken: commit them, or make another session"
            )));
        }
        layers.insert(0, layer.clone());
        let path = self.layer(layer);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(failed("make a place for a layer"))?;
        Ok(path)
    }

    /// This session needs these now, and no others.
    pub(crate) fn hold(&self, session: &SessionId, layers: Vec<SessionId>) -> Result<(), EngineError> {
        let mut needed = self.needed();
        if let Some(missing) = layers.iter().find(|layer| !self.layer(layer).join("upper").is_dir()) {
            return Err(EngineError::Declined(format!(
                "the layer {missing} is gone: its last user has ended"
            )));
        }
        needed.insert(session.clone(), layers);
        Ok(())
    }

    pub(crate) fn held(&self, session: &SessionId) -> Vec<SessionId> {
        self.needed().get(session).cloned().unwrap_or_default()
    }

    /// The session is over, or begins anew on the work dir.
    pub(crate) fn let_go(&self, session: &SessionId) {
        self.needed().remove(session);
        self.sweep();
    }

    pub(crate) fn base(&self, layers: &[SessionId], since: cofferdam_model::Provenance) -> Base {
        Base { layers: layers.iter().map(|id| self.layer(id).join("upper")).collect(), since: Some(since) }
    }

    /// Removes every layer that nobody needs. None goes while there is a snapshot that cannot be read: it may need any.
    pub(crate) fn sweep(&self) {
        // Held for all of it: nobody comes to need one that is just going.
        let needed = self.needed();
        let Ok(snapshots) = read(&self.home).into_iter().collect::<Result<Vec<_>, _>>() else { return };
        let named = snapshots.into_iter().flat_map(|snapshot| snapshot.layers);
        let keep: BTreeSet<SessionId> = needed.values().flatten().cloned().chain(named).collect();
        for entry in fs::read_dir(self.home.frozen_dir()).into_iter().flatten().flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse::<SessionId>().ok());
            if id.is_some_and(|id| !keep.contains(&id)) {
                cofferdam_runtime_process::remove_layer(&entry.path());
            }
        }
    }

    /// Whether a snapshot can be called so.
    pub(crate) fn check_name(&self, name: &str) -> Result<(), EngineError> {
        if !is_name(name) {
            return Err(EngineError::Declined(format!(
                "`{name}` is no name for a snapshot: small letters, digits and `-`, beginning with a letter"
            )));
        }
        match file(&self.home, name).exists() {
            true => Err(EngineError::Declined(format!(
                "there is a snapshot `{name}` already: choose another name, or remove it with `session snapshots --rm {name}`"
            ))),
            false => Ok(()),
        }
    }

    pub(crate) fn write(&self, snapshot: &Snapshot) -> Result<(), EngineError> {
        let path = file(&self.home, &snapshot.name);
        let making = path.with_extension("making");
        let write = || {
            DirBuilder::new().recursive(true).mode(0o700).create(self.home.snapshots_dir())?;
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&making)?;
            file.write_all(&serde_json::to_vec(snapshot)?)?;
            file.sync_all()?;
            fs::rename(&making, &path)
        };
        write().map_err(failed("write the snapshot"))
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), EngineError> {
        // One that cannot be read can still go.
        match is_name(name).then(|| fs::remove_file(file(&self.home, name))) {
            Some(Ok(())) => {}
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove the snapshot")(error));
            }
            _ => return Err(unknown(name)),
        }
        self.sweep();
        Ok(())
    }
}

pub(super) fn file(home: &Home, name: &str) -> PathBuf {
    home.snapshots_dir().join(format!("{name}.json"))
}

/// All that there are, by name. What cannot be read is none.
pub(super) fn snapshots(home: &Home) -> Vec<Snapshot> {
    let mut found: Vec<Snapshot> = read(home).into_iter().flatten().collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

fn read(home: &Home) -> Vec<io::Result<Snapshot>> {
    let entries = match fs::read_dir(home.snapshots_dir()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => return vec![Err(error)],
    };
    let one = |entry: io::Result<fs::DirEntry>| match entry.map(|entry| entry.path()) {
        Ok(path) if path.extension().is_none_or(|extension| extension != "json") => None,
        Ok(path) => Some(fs::read(path).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?))),
        Err(error) => Some(Err(error)),
    };
    entries.filter_map(one).collect()
}

pub(super) fn find(home: &Home, name: &str) -> Result<Snapshot, EngineError> {
    if !is_name(name) {
        return Err(unknown(name));
    }
    let read = fs::read(file(home, name)).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
    read.map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => unknown(name),
        _ => EngineError::Declined(format!(
            "the snapshot `{name}` cannot be read ({error}): remove it with `session snapshots --rm {name}`"
        )),
    })
}

fn unknown(name: &str) -> EngineError {
    EngineError::Declined(format!("there is no snapshot `{name}`; see `cofferdam session snapshots`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::Provenance;

    #[test]
    fn a_layer_stays_while_a_session_or_a_snapshot_needs_it() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(Home::open(&dir.path().join("home")).unwrap());
        let [one, two, session] = [1, 2, 3].map(|n| SessionId::new(n, n));
        let upper = |id: &SessionId| shelf.layer(id).join("upper");
        for layer in [&one, &two] {
            fs::create_dir(shelf.place(&session, layer).unwrap().join("upper")).unwrap();
        }
        shelf.sweep();
        assert!(upper(&one).exists() && upper(&two).exists());
        let since = Provenance { seconds: 0, nanos: 0, lead: 0, ids: None };
        let (name, workdir) = ("kept".to_owned(), PathBuf::from("/w"));
        let layers = vec![one.clone()];
        shelf
            .write(&Snapshot {
                name,
                session: session.clone(),
                taken_us: 1,
                workdir,
                layers,
                since,
                image: None,
            })
            .unwrap();
        assert!(shelf.check_name("kept").is_err() && shelf.check_name("../x").is_err());
        // Of one that cannot be read nobody knows what it needs.
        let torn = file(&shelf.home, "torn");
        fs::write(&torn, "{").unwrap();
        shelf.let_go(&session);
        assert!(upper(&one).exists() && upper(&two).exists());
        assert!(find(&shelf.home, "torn").unwrap_err().to_string().contains("--rm torn"));
        shelf.remove("torn").unwrap();
        assert!(upper(&one).exists() && !upper(&two).exists());
        assert!(shelf.hold(&session, vec![two]).is_err(), "what is gone cannot be had");
        shelf.hold(&session, vec![one.clone()]).unwrap();
        shelf.remove("kept").unwrap();
        assert!(upper(&one).exists());
        shelf.let_go(&session);
        assert!(!upper(&one).exists());
        assert!(shelf.remove("kept").is_err());
    }
}
