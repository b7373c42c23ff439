//! What is made of the host's files is kept, and made again only when one of them is not the one that was read: whoever
//! makes many sandboxes finds them as they were each time.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// By what a file is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A clock that stands still for a moment could give two versions the same time. What changed less than so many seconds
/// ago is not known by it.
const SETTLED: i64 = 2;

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        Some(Self {
            file: (meta.dev(), meta.ino()),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }

    fn is_settled(&self) -> bool {
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs() as i64);
        self.changed.0 < now - SETTLED && self.modified.0 < now - SETTLED
    }
}

/// The last thing that was made of these files.
pub(super) struct Kept<K, T, const N: usize>(Mutex<Option<Made<K, T, N>>>);

struct Made<K, T, const N: usize> {
    key: K,
    files: [Option<Stamp>; N],
    made: T,
}

impl<K: PartialEq, T: Clone, const N: usize> Kept<K, T, N> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// What `make` makes of the files, and of what else it knows, which is the key.
    pub(super) fn get(&self, key: K, files: [&Path; N], make: impl FnOnce() -> T) -> T {
        // Before they are read: what changes in between is found changed the next time.
        let stamps = files.map(Stamp::of);
        let kept = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = kept().as_ref().filter(|last| last.key == key && last.files == stamps) {
            return last.made.clone();
        }
        let made = make();
        if stamps.iter().flatten().all(Stamp::is_settled) {
            *kept() = Some(Made { key, files: stamps, made: made.clone() });
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;

    #[test]
    fn what_is_kept_is_made_of_the_files_that_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        let kept = Kept::<u8, String, 2>::new();
        let times = Cell::new(0);
        let look = |key: u8| {
            kept.get(key, [&one, &other], || {
                times.set(times.get() + 1);
                fs::read_to_string(&one).unwrap_or_default() + &fs::read_to_string(&other).unwrap_or_default()
            })
        };
        assert_eq!((look(0), look(0)), (String::new(), String::new()));
        fs::write(&one, "a").unwrap();
        assert_eq!(look(0), "a", "one that was not there counts");
        // As soon after the last change as this, the time of a file proves nothing.
        fs::write(&one, "b").unwrap();
        assert_eq!(look(0), "b");
        std::thread::sleep(Duration::from_secs(SETTLED as u64 + 1));
        assert_eq!((look(0), look(0), look(1)), ("b".into(), "b".into(), "b".into()));
        fs::rename(&one, &other).unwrap();
        assert_eq!(look(1), "b", "the same words, from another file");
        assert_eq!(times.get(), 6, "only what was as it had been was not made again");
    }
}
