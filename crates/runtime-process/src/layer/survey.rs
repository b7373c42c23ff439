//! Looks at what a session deleted before any of it is touched: what is hidden from the sandbox and what was
//! changed outside meanwhile stays, with the directories that lead to it, and is named.

use super::cursor::{DEPTH, enter};
use super::journal::Known;
use super::{Layer, kind, names};
use cofferdam_model::{FileKind, SkippedChange};
use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) struct Survey<'a> {
    layer: &'a Layer,
    line: (i64, u32),
    /// What stays, and why.
    pub(super) kept: Vec<SkippedChange>,
}

/// Something that may go as a whole.
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) stat: Stat,
}

impl Part {
    pub(super) fn known(&self) -> Known {
        Known::of(&self.stat)
    }
}

pub(super) fn changed_outside(line: (i64, u32), stat: &Stat) -> bool {
    (stat.st_ctime, stat.st_ctime_nsec as u32) > line
}

impl<'a> Survey<'a> {
    pub(super) fn new(layer: &'a Layer, line: (i64, u32)) -> Self {
        Self { layer, line, kept: Vec::new() }
    }

    /// What may go of `name` in `dir`, which is `path` of the work dir: itself, or parts of it.
    pub(super) fn of(&mut self, dir: BorrowedFd<'_>, name: &CStr, path: &Path) -> Vec<Part> {
        let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Vec::new(),
            Err(errno) => return self.keep(path, format!("cannot be looked at: {errno}")),
            Ok(stat) => stat,
        };
        if self.layer.planted.contains(path) {
            return self.keep(path, "it is hidden from the sandbox, which cannot have meant it".into());
        }
        if kind(&stat) == FileKind::Dir {
            return self.of_dir(dir, name, path, stat);
        }
        if changed_outside(self.line, &stat) {
            return self.keep(path, "changed outside while the session ran".into());
        }
        vec![Part { path: path.to_owned(), stat }]
    }

    fn of_dir(&mut self, dir: BorrowedFd<'_>, name: &CStr, path: &Path, stat: Stat) -> Vec<Part> {
        if path.components().count() > DEPTH {
            return self.keep(path, format!("lies deeper than {DEPTH} levels"));
        }
        let before = self.kept.len();
        let inner = enter(dir, OsStr::from_bytes(name.to_bytes()));
        let listed = inner.and_then(|inner| names(inner.as_fd()).map(|names| (inner, names)));
        let (inner, names) = match listed {
            Ok(listed) => listed,
            Err(errno) => return self.keep(path, format!("cannot be read: {errno}")),
        };
        let mut parts = Vec::new();
        for entry in names {
            parts.extend(self.of(inner.as_fd(), &entry, &path.join(OsStr::from_bytes(entry.to_bytes()))));
        }
        if self.kept.len() == before {
            return vec![Part { path: path.to_owned(), stat }];
        }
        parts
    }

    fn keep(&mut self, path: &Path, reason: String) -> Vec<Part> {
        self.kept.push(SkippedChange::new(path, reason));
        Vec::new()
    }
}
