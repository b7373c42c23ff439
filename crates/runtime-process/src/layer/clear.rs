//! Deletes from the work dir what a session deleted, and nothing else: what is hidden from the sandbox and what
//! was changed outside meanwhile stays, with the directories that lead to it, and is named.

use super::{Layer, OPEN_DIR};
use cofferdam_model::{FileKind, RawPath, SkippedChange};
use rustix::fs::{AtFlags, Mode, Stat};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(super) struct Clearing<'a> {
    layer: &'a Layer,
    pub(super) kept: Vec<SkippedChange>,
}

impl<'a> Clearing<'a> {
    pub(super) fn new(layer: &'a Layer) -> Self {
        Self { layer, kept: Vec::new() }
    }

    /// Deletes `name` in `dir`, which is `path` of the work dir. Says whether it is gone.
    pub(super) fn clear(&mut self, dir: BorrowedFd<'_>, name: &CStr, path: &Path) -> bool {
        let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return true,
            Err(errno) => return self.keep(path, format!("cannot be looked at: {errno}")),
            Ok(stat) => stat,
        };
        if self.layer.planted.contains(path) {
            return self.keep(path, "it is hidden from the sandbox, which cannot have meant it".into());
        }
        if super::diff::kind(&stat) == FileKind::Dir {
            return self.clear_dir(dir, name, path);
        }
        if changed_outside(self.layer, &stat) {
            return self.keep(path, "changed outside while the session ran".into());
        }
        match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) => true,
            Err(errno) => self.keep(path, format!("cannot be deleted: {errno}")),
        }
    }

    fn clear_dir(&mut self, dir: BorrowedFd<'_>, name: &CStr, path: &Path) -> bool {
        let inner = rustix::fs::openat(dir, name, OPEN_DIR, Mode::empty());
        let listed = inner.and_then(|inner| super::names(inner.as_fd()).map(|names| (inner, names)));
        let (inner, names) = match listed {
            Ok(listed) => listed,
            Err(errno) => return self.keep(path, format!("cannot be read: {errno}")),
        };
        let mut empty = true;
        for entry in names {
            empty &= self.clear(inner.as_fd(), &entry, &path.join(OsStr::from_bytes(entry.to_bytes())));
        }
        if !empty {
            return false;
        }
        match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Ok(()) => true,
            Err(errno) => self.keep(path, format!("cannot be deleted: {errno}")),
        }
    }

    fn keep(&mut self, path: &Path, reason: String) -> bool {
        self.kept.push(SkippedChange { path: RawPath::from(path), reason });
        false
    }
}

pub(super) fn changed_outside(layer: &Layer, stat: &Stat) -> bool {
    (stat.st_ctime, stat.st_ctime_nsec as u32) > layer.began
}
