//! The files of a session whose supervisor was killed. Where they lie on disk they outlive it, and are a snapshot after
//! the next start: `lost-ID`. What it takes for that is noted beside the session's socket whenever its layers change.
//!
//! What was under way when it was killed is not guessed at: a commit is completed or dropped by its own journal, an open
//! transaction is dropped, and a merge or a session that was just ending leaves nothing here.

use super::holder::Holder;
use super::shelf::Shelf;
use crate::Engine;
use crate::error::EngineError;
use crate::record::now_us;
use cofferdam_model::{Changes, Lifetime, Provenance, SessionId, SessionInfo, Snapshot};
use cofferdam_runtime_process::{Salvaged, damaged, is_in_file, salvage};
use cofferdam_store::Home;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    workdir: PathBuf,
    /// What lies beneath its own, and what that is about to become.
    layers: Vec<SessionId>,
    since: Provenance,
}

/// The snapshot that a lost session becomes.
pub(super) fn name(session: &SessionId) -> String {
    format!("lost-{session}")
}

fn file(home: &Home, session: &SessionId) -> io::Result<PathBuf> {
    Ok(home.live_dir()?.join(format!("{session}.layers")))
}

/// From now on nothing is kept of it, should it be killed.
pub(super) fn forget(home: &Home, session: &SessionId) {
    if let Ok(file) = file(home, session) {
        let _ = fs::remove_file(file);
    }
}

impl Holder {
    /// Notes what its files are, if they would outlive it.
    pub(super) fn note_files(&self) -> Result<(), EngineError> {
        let standing = &self.standing;
        let stays = self.spec.live.lifetime != Lifetime::Ephemeral && self.spec.changes == Changes::Keep;
        let kept = stays && standing.image.is_none();
        let Some(since) = standing.sandbox.provenance().filter(|_| kept) else { return Ok(()) };
        let layers = self.shelf.held(&standing.session);
        let note = Note { workdir: standing.workdir.clone(), layers, since };
        let write = || {
            let path = file(&standing.home, &standing.session)?;
            let making = path.with_extension("noting");
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&making)?;
            file.write_all(&serde_json::to_vec(&note)?)?;
            fs::rename(&making, &path)
        };
        write().map_err(|source| EngineError::Io { doing: "note where the session's files are", source })
    }
}

/// Whether nothing was under way in a session's own directory.
fn is_at_rest(dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return false };
    let known = |name: &str| {
        let open_or_dropped = name.chars().all(|c| c.is_ascii_digit()) || name.contains(".dropped-");
        // What was staged counts only beside a journal.
        open_or_dropped || ["upper", "work", "new", "own", "flat", "staging", "layer.ext4"].contains(&name)
    };
    entries.flatten().all(|entry| entry.file_name().to_str().is_some_and(known))
}

impl Engine {
    /// Makes a snapshot of what is left of a session that was killed. The snapshot is written first: whoever tidies up
    /// meanwhile finds its layer needed, and whoever is killed here leaves it to be moved by the next. Says whether the
    /// session's directory is not needed any more.
    pub(crate) fn rescue(&self, session: &SessionId) -> bool {
        let Some(note) = self.note(session) else { return true };
        let (own, frozen) = (self.home.layer_dir(session), self.home.frozen_dir());
        let layer = |id: &SessionId| frozen.join(id.as_str()).join("upper");
        let upper = own.join("upper");
        let in_file = is_at_rest(&own) && is_in_file(&own);
        let moves = is_at_rest(&own) && fs::read_dir(&upper).is_ok_and(|mut files| files.next().is_some());
        let mut layers: Vec<SessionId> = note.layers.into_iter().filter(|id| layer(id).is_dir()).collect();
        if moves || in_file {
            layers.insert(0, session.clone());
        }
        let mut snapshot = Snapshot {
            name: name(session),
            session: session.clone(),
            taken_us: now_us(),
            workdir: note.workdir,
            layers,
            since: note.since,
            image: None,
        };
        let shelf = Shelf::new(self.home.clone());
        let done = snapshot.layers.is_empty() || shelf.write(&snapshot).is_ok();
        let place = || DirBuilder::new().recursive(true).mode(0o700).create(frozen.join(session.as_str()));
        let moved = match (moves, in_file) {
            (true, _) => place().is_ok() && fs::rename(&upper, layer(session)).is_ok(),
            (false, true) => {
                match place().map_or(Salvaged::Later, |()| salvage(&own, &layer(session), snapshot.since)) {
                    Salvaged::Files => true,
                    Salvaged::Nothing | Salvaged::Damaged => {
                        snapshot.layers.remove(0);
                        self.told_without_own(&shelf, &snapshot)
                    }
                    Salvaged::Later => {
                        let _ = fs::remove_file(super::shelf::file(&self.home, &snapshot.name));
                        return false;
                    }
                }
            }
            (false, false) => true,
        };
        // One that could not be read is kept until its session is given up.
        let kept = damaged(&own).is_some();
        if done && moved && !kept {
            forget(&self.home, session);
        }
        !kept
    }

    /// The snapshot of one that has nothing of its own: what lay beneath it, or none.
    fn told_without_own(&self, shelf: &Shelf, snapshot: &Snapshot) -> bool {
        let removed = fs::remove_file(super::shelf::file(&self.home, &snapshot.name));
        snapshot.layers.is_empty() && removed.is_ok() || shelf.write(snapshot).is_ok()
    }

    fn note(&self, session: &SessionId) -> Option<Note> {
        serde_json::from_slice(&fs::read(file(&self.home, session).ok()?).ok()?).ok()
    }

    /// As it is told, with where its files are.
    pub(super) fn with_files(&self, mut lost: SessionInfo) -> SessionInfo {
        let name = name(&lost.session);
        let told = match super::shelf::file(&self.home, &name).is_file() {
            true => Some(format!("its files are the snapshot `{name}`")),
            false => None,
        };
        let unread = damaged(&self.home.layer_dir(&lost.session))
            .map(|file| format!("what it had written lies in {}, which could not be read", file.display()));
        let reason = [lost.reason.take(), told, unread].into_iter().flatten().collect::<Vec<_>>().join("; ");
        lost.reason = (!reason.is_empty()).then_some(reason);
        lost
    }

    /// Whoever gives a lost session up gives its files up too.
    pub(super) fn give_up(&self, session: &SessionId) {
        forget(&self.home, session);
        let _ = fs::remove_file(super::shelf::file(&self.home, &name(session)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_under_way_is_not_guessed_at() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["upper", "work", "1", "2.dropped-7", "staging", "layer.ext4"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert!(is_at_rest(dir.path()));
        for name in ["1.merging", "intent", "journal", "journal.new"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            assert!(!is_at_rest(dir.path()), "{name}");
            fs::remove_dir(dir.path().join(name)).unwrap();
        }
        assert!(!is_at_rest(&dir.path().join("gone")));
    }
}
