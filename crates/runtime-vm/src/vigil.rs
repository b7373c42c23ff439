//! Hears of changes in the directories that a list was made of. Whether a list still holds is else found out by looking at
//! each of them, which may be tens of thousands; who prepares machines for others has the time to listen instead.

use crate::image::holds;
use crate::stamp;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// File systems that nobody else changes: ext, XFS, Btrfs, F2FS, ZFS, and memory. Of others a change may not be heard of.
const LOCAL: [u32; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x2fc1_2fc1, 0x0102_1994];

/// All by which a directory becomes another.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW);

/// What is listened to, by the file that says which directories those are, as it was.
type Kept = HashMap<(PathBuf, Option<(u64, i64, i64)>), OwnedFd>;

static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(seen: &Path) -> (PathBuf, Option<(u64, i64, i64)>) {
    (seen.to_owned(), stamp(seen))
}

/// Listens from now on, where that can be done. It takes as long as to look at all of them.
pub(crate) fn keep(seen: &Path) {
    let key = key(seen);
    if kept().contains_key(&key) {
        return;
    }
    let Some(listener) = fs::read(seen).ok().and_then(|witness| listen(&witness)) else { return };
    let mut kept = kept();
    kept.retain(|(path, _), _| path != seen);
    kept.insert(key, listener);
}

/// Nothing unless all of them can be heard, and are as they were when that began.
fn listen(witness: &[u8]) -> Option<OwnedFd> {
    let listener = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    for line in witness.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
        let path = OsStr::from_bytes(line.splitn(3, |byte| *byte == b' ').nth(2)?);
        let kind = rustix::fs::statfs(path).ok()?.f_type as u32;
        if !LOCAL.contains(&kind) {
            return None;
        }
        inotify::add_watch(&listener, path, CHANGES).ok()?;
    }
    // After that, or what happens in between would be missed.
    holds(witness).then_some(listener)
}

/// Whether nothing was heard since. Where it is not known, they have to be looked at.
pub(crate) fn is_quiet(seen: &Path) -> bool {
    let (key, mut kept) = (key(seen), kept());
    let heard = match kept.get(&key) {
        None => return false,
        Some(listener) => rustix::io::read(listener, &mut [0_u8; 4096]),
    };
    let quiet = heard == Err(rustix::io::Errno::AGAIN);
    if !quiet {
        kept.remove(&key);
    }
    quiet
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn witness(dirs: &[&Path]) -> Vec<u8> {
        let line = |dir: &&Path| {
            let meta = fs::metadata(dir).unwrap();
            format!("{} {} {}\0", meta.mtime(), meta.mtime_nsec(), dir.display())
        };
        dirs.iter().map(line).collect::<String>().into_bytes()
    }

    #[test]
    fn whatever_changes_a_directory_is_heard() {
        let changes: [(&str, fn(&Path)); 4] = [
            ("a file is made", |dir| fs::write(dir.join("new"), "x").unwrap()),
            ("a file goes", |dir| fs::remove_file(dir.join("old")).unwrap()),
            ("a file has another name", |dir| fs::rename(dir.join("old"), dir.join("other")).unwrap()),
            ("the directory goes", |dir| fs::remove_dir_all(dir).unwrap()),
        ];
        for (what, change) in changes {
            let place = tempfile::tempdir().unwrap();
            let (dir, seen) = (place.path().join("dir"), place.path().join("seen"));
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("old"), "x").unwrap();
            fs::write(&seen, witness(&[&dir])).unwrap();
            assert!(!is_quiet(&seen), "nobody listens yet");
            keep(&seen);
            assert!(is_quiet(&seen) && is_quiet(&seen), "{what}");
            fs::write(dir.join("old"), "y").unwrap();
            assert!(is_quiet(&seen), "another content changes no list");
            change(&dir);
            assert!(!is_quiet(&seen), "{what}");
            assert!(!is_quiet(&seen), "what was heard once is not forgotten");
        }
    }

    #[test]
    fn what_has_changed_before_is_not_listened_to() {
        let place = tempfile::tempdir().unwrap();
        let (dir, seen) = (place.path().join("dir"), place.path().join("seen"));
        fs::create_dir(&dir).unwrap();
        fs::write(&seen, witness(&[&dir])).unwrap();
        // The kernel's clock for files goes in steps.
        std::thread::sleep(std::time::Duration::from_millis(30));
        fs::write(dir.join("new"), "x").unwrap();
        keep(&seen);
        assert!(!is_quiet(&seen));
        // Another list of the same name is another one.
        fs::write(&seen, witness(&[&dir])).unwrap();
        keep(&seen);
        assert!(is_quiet(&seen));
        fs::write(&seen, witness(&[&dir, place.path()])).unwrap();
        assert!(!is_quiet(&seen));
    }
}
