//! The session's writable layer: the upper directory of the overlay on the work dir. It *is* the difference,
//! so reading it gives the changes, applying it keeps them and removing it discards them.
//!
//! Its content was written by the inside and is hostile: no name is followed through a link, nothing is
//! trusted to be what it was a moment ago.

mod clear;
mod commit;
mod diff;
mod remove;

pub(crate) use commit::commit;
pub(crate) use diff::diff;
pub(crate) use remove::remove_tree;

use crate::layout::Layout;
use cofferdam_runtime::RuntimeError;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A layer with all that is needed to read it against the work dir.
pub(crate) struct Layer {
    pub(crate) upper: OwnedFd,
    pub(crate) workdir: OwnedFd,
    /// Whiteouts of ours: the inside did not delete these.
    pub(crate) planted: BTreeSet<PathBuf>,
    /// When the session began, by the clock that stamps files: what changed below after it is a conflict.
    pub(crate) began: (i64, u32),
    /// Who owns what is kept, where the inside's ids are not the host's.
    pub(crate) owner: Option<(u32, u32)>,
    /// Whether root mounted the overlay: then its marks are `trusted` attributes, which the inside cannot set.
    pub(crate) by_root: bool,
}

pub(crate) const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn io(doing: impl Into<String>) -> impl FnOnce(Errno) -> RuntimeError {
    let doing = doing.into();
    move |errno| RuntimeError::io(doing)(errno.into())
}

/// Makes `upper` and `work` in `dir`, with the hidden paths already away.
pub(crate) fn make(dir: &Path, layout: &Layout, owner: Option<(u32, u32)>) -> Result<OwnedFd, RuntimeError> {
    let making = || format!("make the session's layer in {}", dir.display());
    rustix::fs::mkdir(dir, Mode::from_raw_mode(0o700)).map_err(io(making()))?;
    let dir_fd = rustix::fs::open(dir, OPEN_DIR, Mode::empty()).map_err(io(making()))?;
    for name in ["upper", "work"] {
        rustix::fs::mkdirat(&dir_fd, name, Mode::from_raw_mode(0o755)).map_err(io(making()))?;
    }
    let upper = rustix::fs::openat(&dir_fd, "upper", OPEN_DIR, Mode::empty()).map_err(io(making()))?;
    give(&upper, Path::new("."), owner).map_err(io(making()))?;
    for (path, mode) in &layout.hidden_parents {
        rustix::fs::mkdirat(&upper, path, Mode::from_raw_mode(*mode)).map_err(io(making()))?;
        give(&upper, path, owner).map_err(io(making()))?;
    }
    for path in &layout.hidden.paths {
        match rustix::fs::mknodat(&upper, path, FileType::CharacterDevice, Mode::empty(), 0) {
            // Its directory is not there to hide anything in.
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            other => other.map_err(io(format!("hide {}", path.display())))?,
        }
    }
    Ok(upper)
}

fn give(dir: &OwnedFd, path: &Path, owner: Option<(u32, u32)>) -> Result<(), Errno> {
    let Some((uid, gid)) = owner else { return Ok(()) };
    let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
    rustix::fs::chownat(dir, path, Some(uid), Some(gid), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
}

pub(crate) fn open_dir(path: &Path) -> Result<OwnedFd, RuntimeError> {
    rustix::fs::openat(CWD, path, OPEN_DIR, Mode::empty()).map_err(io(format!("open {}", path.display())))
}

/// Names of a directory, sorted, so that what is derived from them is the same every time.
pub(crate) fn names(dir: BorrowedFd<'_>) -> Result<Vec<std::ffi::CString>, Errno> {
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            found.push(name.to_owned());
        }
    }
    found.sort();
    Ok(found)
}
