//! Reaches paths of a tree one directory at a time, each opened beneath the one before: no link is followed, no
//! mount is crossed, no length of a path matters. Neighbours in order share the directories that are open.

use super::OPEN_DIR;
use rustix::fs::{AtFlags, Mode, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Deeper trees exist only to exhaust whoever walks them: up to three directories are open for every level.
pub(super) const DEPTH: usize = 256;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

pub(super) fn c_name(name: &OsStr) -> Result<CString, Errno> {
    CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)
}

/// Opens a directory in another, and nothing else that may stand there.
pub(super) fn enter(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(dir, name, OPEN_DIR, Mode::empty(), BENEATH)
}

pub(super) struct Cursor {
    root: OwnedFd,
    open: Vec<(OsString, OwnedFd)>,
}

/// An open directory and a name in it.
pub(super) struct Spot<'c> {
    pub(super) dir: BorrowedFd<'c>,
    pub(super) name: CString,
}

impl Spot<'_> {
    /// Nothing there is no error.
    pub(super) fn stat(&self) -> Result<Option<Stat>, Errno> {
        match rustix::fs::statat(self.dir, self.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl Cursor {
    pub(super) fn new(root: BorrowedFd<'_>) -> Result<Self, Errno> {
        Ok(Self { root: rustix::io::fcntl_dupfd_cloexec(root, 3)?, open: Vec::new() })
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The directory at `path`, which is relative and has no `..`.
    pub(super) fn dir(&mut self, path: &Path) -> Result<BorrowedFd<'_>, Errno> {
        let mut names = Vec::new();
        for part in path.components() {
            match part {
                Component::Normal(name) => names.push(name),
                Component::CurDir => {}
                _ => return Err(Errno::INVAL),
            }
        }
        if names.len() > DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        let shared = self.open.iter().zip(&names).take_while(|((open, _), name)| open == *name).count();
        self.open.truncate(shared);
        for name in names.into_iter().skip(shared) {
            let at = self.open.last().map_or(self.root.as_fd(), |(_, fd)| fd.as_fd());
            let inner = enter(at, name)?;
            self.open.push((name.to_owned(), inner));
        }
        Ok(self.open.last().map_or(self.root.as_fd(), |(_, fd)| fd.as_fd()))
    }

    pub(super) fn spot(&mut self, path: &Path) -> Result<Spot<'_>, Errno> {
        let name = c_name(path.file_name().ok_or(Errno::INVAL)?)?;
        let dir = self.dir(path.parent().unwrap_or(Path::new("")))?;
        Ok(Spot { dir, name })
    }
}
