//! Marks of running sessions: a file per session that its supervisor keeps locked, and that says what must be
//! cleaned up should it die.
//!
//! The kernel drops the lock with the process, however it ends, so a mark that can be locked is one that
//! nobody holds. What is in it is only appended, a line at a time, and its last whole line counts: a supervisor
//! killed while writing leaves what it wrote before.

use crate::Home;
use crate::home::in_dir;
use cofferdam_model::{RawPath, SessionId};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A mark is empty from the moment it is made until its first line. One that is empty for longer than this was
/// left by a process killed in between.
const GRACE: Duration = Duration::from_secs(60);

const MAX_MARK: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("session {0} runs already: give each session an id of its own")]
    Held(SessionId),
    #[error("cannot mark the session as running in `{path}`: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot look for sessions left behind in `{path}`: {source}")]
    Read { path: PathBuf, source: io::Error },
}

/// What a session leaves behind if its supervisor dies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Estate {
    /// The supervisor, for people: numbers are given out again, so never for killing.
    pub pid: u32,
    pub started_us: u64,
    /// To be emptied and removed, innermost first.
    pub cgroups: Vec<RawPath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<RawPath>,
}

/// The mark of a session that runs, held by its supervisor.
pub struct Lease {
    file: File,
    path: PathBuf,
}

/// The mark of a session whose supervisor is dead. Holding this keeps others from cleaning up the same.
pub struct StaleLease {
    pub id: SessionId,
    /// Empty if the supervisor died before it could say.
    pub estate: Estate,
    path: PathBuf,
    _lock: File,
}

impl Home {
    pub fn lease(&self, id: &SessionId, estate: &Estate) -> Result<Lease, LeaseError> {
        let dir = self.live_dir();
        let path = dir.join(id.as_str());
        let failed = |source| LeaseError::Write { path: path.clone(), source };
        let open = || OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path);
        let file = match in_dir(&dir, open) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(LeaseError::Held(id.clone()));
            }
            file => file.map_err(failed)?,
        };
        // Waits for nothing but someone who looks, in this very moment, whether the mark is held.
        file.lock().map_err(failed)?;
        let mut lease = Lease { file, path: path.clone() };
        lease.record(estate)?;
        if lease.file.metadata().map_err(failed)?.nlink() == 0 {
            return Err(failed(io::ErrorKind::NotFound.into()));
        }
        Ok(lease)
    }

    /// The marks that nobody holds any more.
    pub fn stale_leases(&self) -> Result<Vec<StaleLease>, LeaseError> {
        let dir = self.live_dir();
        let failed = |source| LeaseError::Read { path: dir.clone(), source };
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut stale = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            let id = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
            if let Some(id) = id {
                stale.extend(examine(id, &path).map_err(failed)?);
            }
        }
        Ok(stale)
    }
}

fn examine(id: SessionId, path: &Path) -> io::Result<Option<StaleLease>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let meta = file.metadata()?;
    let age = meta.modified()?.elapsed().unwrap_or_default();
    let being_made = meta.len() == 0 && age < GRACE;
    // Without a name left, it was cleaned up between our finding and locking it.
    if being_made || meta.nlink() == 0 {
        return Ok(None);
    }
    let mut text = Vec::new();
    (&mut file).take(MAX_MARK).read_to_end(&mut text)?;
    Ok(Some(StaleLease { id, estate: last_line(&text), path: path.to_owned(), _lock: file }))
}

/// A line that was not written whole says nothing; the one before it does.
fn last_line(text: &[u8]) -> Estate {
    let whole = text.split_inclusive(|&b| b == b'\n').filter(|line| line.ends_with(b"\n"));
    whole.rev().find_map(|line| serde_json::from_slice(line).ok()).unwrap_or_default()
}

impl Lease {
    /// Says anew what there is to clean up, before it comes to be.
    pub fn record(&mut self, estate: &Estate) -> Result<(), LeaseError> {
        let failed = |source| LeaseError::Write { path: self.path.clone(), source };
        let mut line = serde_json::to_vec(estate).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(failed)
    }

    /// Takes the mark away: everything is cleaned up.
    pub fn release(self) -> Result<(), LeaseError> {
        fs::remove_file(&self.path).map_err(|source| LeaseError::Write { path: self.path.clone(), source })
    }
}

impl StaleLease {
    /// Takes the mark away, once what it names is gone.
    pub fn clear(self) -> Result<(), LeaseError> {
        fs::remove_file(&self.path).map_err(|source| LeaseError::Write { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tempfile::TempDir;

    fn home() -> (TempDir, Home) {
        let dir = TempDir::new().unwrap();
        let home = Home::open(dir.path().join("home").as_path()).unwrap();
        (dir, home)
    }

    fn estate(pid: u32) -> Estate {
        Estate { pid, started_us: 5, cgroups: vec!["/sys/fs/cgroup/x".into()], layer: None }
    }

    #[test]
    fn a_held_mark_is_not_stale_and_a_dropped_one_is() {
        let (_dir, home) = home();
        assert!(home.stale_leases().unwrap().is_empty());
        let id = SessionId::new(1, 1);
        let mut lease = home.lease(&id, &estate(1)).unwrap();
        assert!(matches!(home.lease(&id, &estate(1)), Err(LeaseError::Held(held)) if held == id));
        assert!(home.stale_leases().unwrap().is_empty());
        lease.record(&estate(2)).unwrap();
        drop(lease);

        let mut stale = home.stale_leases().unwrap();
        assert!(home.stale_leases().unwrap().is_empty(), "one cleans up, the others keep out");
        let mine = stale.pop().unwrap();
        assert_eq!((&mine.id, &mine.estate), (&id, &estate(2)));
        mine.clear().unwrap();
        assert!(home.stale_leases().unwrap().is_empty());
        home.lease(&id, &estate(3)).unwrap().release().unwrap();
        assert_eq!(fs::read_dir(home.live_dir()).unwrap().count(), 0);
    }

    #[test]
    fn a_mark_in_the_making_is_left_alone_until_it_is_old() {
        let (_dir, home) = home();
        fs::create_dir(home.live_dir()).unwrap();
        let path = home.live_dir().join(SessionId::new(1, 1).as_str());
        let file = File::create(&path).unwrap();
        fs::write(home.live_dir().join("README"), "not a mark").unwrap();
        assert!(home.stale_leases().unwrap().is_empty());
        file.set_modified(std::time::SystemTime::now() - 2 * GRACE).unwrap();
        assert_eq!(home.stale_leases().unwrap()[0].estate, Estate::default());
    }

    #[test]
    fn the_last_whole_line_counts() {
        let check = |text: &str, pid: u32| assert_eq!(last_line(text.as_bytes()).pid, pid, "{text}");
        check("", 0);
        check("{\"pid\":1}\n", 1);
        check("{\"pid\":1}\n{\"pid\":2}\n", 2);
        check("{\"pid\":1}\n{\"pid\":2}", 1);
        check("{\"pid\":1,\"of\":\"the future\"}\n{\"pid\":", 1);
        check("nonsense\n", 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_estate_or_none(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            last_line(&bytes);
        }
    }
}
