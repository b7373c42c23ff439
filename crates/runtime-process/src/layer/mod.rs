//! The session's writable layer: the upper directory of the overlay on the work dir. It *is* the difference,
//! so reading it gives the changes, applying it keeps them and removing it discards them.
//!
//! Its content was written by the inside and is hostile: no name is followed through a link, nothing is
//! trusted to be what it was a moment ago, and no mark of the overlay is believed that the inside could set.

mod apply;
pub mod archive;
mod aside;
mod attributes;
mod commit;
pub mod conflict;
mod copy;
mod cursor;
mod diff;
mod flatten;
mod journal;
mod merge;
mod plan;
mod recover;
mod remove;
mod renames;
mod stack;
mod stage;
mod survey;
mod text;
mod tree;
mod withhold;

pub use commit::{Desk, Moment, Watch, commit};
pub use diff::diff;
pub(crate) use flatten::flatten;
pub use recover::{Recovered, leave, pending, recover};
pub(crate) use remove::remove_tree;
pub use stack::{Layers, Stack};
pub use text::{FileDiff, text_diff};
pub use tree::{Counts, tree_hash};
pub use withhold::withhold;

use crate::layout::Layout;
use cofferdam_model::{FileKind, Provenance};
use cofferdam_runtime::RuntimeError;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A layer with all that is needed to read it against the work dir.
#[derive(Debug)]
pub struct Layer {
    pub upper: OwnedFd,
    pub workdir: OwnedFd,
    /// Where the work dir was opened, for whoever completes a commit after us.
    pub workdir_path: PathBuf,
    /// Whiteouts of ours: the inside did not delete these.
    pub planted: BTreeSet<PathBuf>,
    /// What changed below after this is a conflict.
    pub began: Began,
    /// Who owns what is kept, where the inside's ids are not the host's.
    pub owner: Option<(u32, u32)>,
    /// The host's ids behind the inside's user: what the work dir's owner is shown as.
    pub inside: Option<(u32, u32)>,
    /// Whether root mounted the overlay: then its marks are `trusted` attributes, which the inside cannot set.
    pub by_root: bool,
    /// Whether each of its names is also one elsewhere.
    pub linked: bool,
    /// Whether an overlay of it may be mounted: what is looked at is then left as it is, modes too.
    pub in_use: bool,
}

impl Layer {
    /// Whether a file has another name in it.
    fn has_other_name(&self, stat: &Stat) -> bool {
        stat.st_nlink > if self.linked { 2 } else { 1 }
    }
}

/// When a session began, by the clock that stamps files.
#[derive(Debug, Clone, Copy, Default)]
pub struct Began {
    stamp: (i64, u32),
    /// That clock's lead over one that nobody can set.
    lead: i128,
}

fn nanos(clock: ClockId) -> i128 {
    let now = clock_gettime(clock);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

impl Began {
    /// The fine clock: files that were looked at are stamped by it, and one written just now is no conflict.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Realtime);
        Self {
            stamp: (now.tv_sec, now.tv_nsec as u32),
            lead: nanos(ClockId::Realtime) - nanos(ClockId::Boottime),
        }
    }

    /// As others keep it.
    pub fn kept(&self, ids: Option<u32>) -> Provenance {
        Provenance { seconds: self.stamp.0, nanos: self.stamp.1, lead: self.lead as i64, ids }
    }

    pub fn at(since: Provenance) -> Self {
        Self { stamp: (since.seconds, since.nanos), lead: since.lead.into() }
    }

    /// The stamp that tells before from after. If the clock was set back meanwhile, files written since carry
    /// earlier stamps than the beginning: then the line moves back with it.
    pub(crate) fn line(&self) -> (i64, u32) {
        /// Less than this is the clock being steered, not set.
        const STEERED: i128 = 500_000_000;
        let back = self.lead - (nanos(ClockId::Realtime) - nanos(ClockId::Boottime));
        if back < STEERED {
            return self.stamp;
        }
        let line = i128::from(self.stamp.0) * 1_000_000_000 + i128::from(self.stamp.1) - back - STEERED;
        ((line / 1_000_000_000) as i64, (line % 1_000_000_000).max(0) as u32)
    }
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
    fill(dir, layout, owner)
}

/// Another layer in the place of the one that is there. The old one is gone at once, and its space freed after.
pub(crate) fn renew(dir: &Path, layout: &Layout, owner: Option<(u32, u32)>) -> Result<OwnedFd, RuntimeError> {
    let clearing = || io(format!("clear the session's layer in {}", dir.display()));
    for name in ["upper", "work"] {
        // Half of a layer would hide what lies beneath it from who finds it.
        let dropped = dir.join(format!("{name}.dropped-0"));
        remove_tree(&dropped).map_err(clearing())?;
        match rustix::fs::rename(dir.join(name), &dropped) {
            Ok(()) | Err(Errno::NOENT) => remove_tree(&dropped).map_err(clearing())?,
            Err(errno) => return Err(clearing()(errno)),
        }
    }
    fill(dir, layout, owner)
}

/// A layer for what is done to an image's files, in the place of one that may be there. Its top directory is the
/// sandbox's root.
pub(crate) fn make_system(dir: &Path, owner: Option<(u32, u32)>) -> Result<(), RuntimeError> {
    let making = || io(format!("make the session's layer in {}", dir.display()));
    match rustix::fs::mkdir(dir, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(making()(errno)),
    }
    for (name, mode) in [("upper", 0o755), ("work", 0o700)] {
        remove_tree(&dir.join(name)).map_err(making())?;
        rustix::fs::mkdir(dir.join(name), Mode::from_raw_mode(mode)).map_err(making())?;
    }
    give(&open_dir(dir)?, Path::new("upper"), owner).map_err(making())
}

fn fill(dir: &Path, layout: &Layout, owner: Option<(u32, u32)>) -> Result<OwnedFd, RuntimeError> {
    let making = || format!("make the session's layer in {}", dir.display());
    for name in ["upper", "work"] {
        rustix::fs::mkdir(dir.join(name), Mode::from_raw_mode(0o755)).map_err(io(making()))?;
    }
    let upper = open_dir(&dir.join("upper"))?;
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

fn kind(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Dir,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        _ => FileKind::Device,
    }
}

fn is_whiteout(stat: &Stat) -> bool {
    kind(stat) == FileKind::Device && stat.st_rdev == 0
}

/// The overlay's own mark of this name. The other kind's name is an ordinary attribute, which the inside may set.
fn mark(name: &str, by_root: bool) -> String {
    format!("{}.overlay.{name}", if by_root { "trusted" } else { "user" })
}

fn is_opaque(dir: BorrowedFd<'_>, by_root: bool) -> bool {
    let mut value = [0u8; 1];
    rustix::fs::fgetxattr(dir, mark("opaque", by_root).as_str(), &mut value[..]) == Ok(1) && value[0] == b'y'
}

fn is_marked(file: BorrowedFd<'_>, name: &str, by_root: bool) -> bool {
    rustix::fs::fgetxattr(file, mark(name, by_root).as_str(), &mut [0u8; 0][..]).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_moves_the_line() {
        let mut began = Began::now();
        assert_eq!(began.line(), began.stamp);
        began.lead += 10_000_000_000;
        let moved = began.stamp.0 - began.line().0;
        assert!((10..=11).contains(&moved), "{moved}");
        // Set forward: everything written since is later still.
        began.lead -= 60_000_000_000;
        assert_eq!(began.line(), began.stamp);
    }
}
