//! Reads the layer against the work dir: what was created, modified, renamed, deleted, and in which respect.
//! A time that alone differs is no change.

use super::commit::unguessable;
use super::cursor::DEPTH;
use super::tree::{READ_FILE, content};
use super::{Layer, OPEN_DIR, attributes, io, is_marked, is_opaque, is_whiteout, kind, names, renames};
use cofferdam_model::{Aspect, ChangeOp, Digest, FileChange, FileKind, RawPath};
use cofferdam_runtime::{ChangeList, Gathering, RuntimeError};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A file that is almost all hole and larger than this costs its maker nothing and its reader hours: it is told
/// and kept, without a digest.
const HOLLOW: i64 = 1 << 30;

/// What the session did to its work dir, parents before children. Those that are too many for memory go to a file in
/// the directory `room`; what is held is bounded by the largest directory.
pub fn diff(layer: &Layer, room: &Path) -> Result<ChangeList, RuntimeError> {
    let spill = || nameless(room);
    let mut walk = Walk { layer, found: Gathering::new(&spill), buffer: Vec::new() };
    let dirs =
        Dirs { upper: layer.upper.as_fd(), lower: Some(layer.workdir.as_fd()), depth: 0, opaque: false };
    walk.dir(dirs, Path::new(""))?;
    let found = walk.found.finish().map_err(RuntimeError::io(HOLDING))?;
    renames::pair(layer, found, &spill)
}

pub(super) const HOLDING: &str = "hold the list of changes: make room in the state directory";

/// A file in a directory that nobody finds there, and that is gone with its last descriptor.
fn nameless(dir: &Path) -> std::io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(dir, flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        other => return Ok(other?.into()),
    }
    let path = dir.join(unguessable()?);
    let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
    rustix::fs::unlink(&path)?;
    Ok(file.into())
}

/// A directory in both layers, and whether some directory above replaced the one that was there.
#[derive(Clone, Copy)]
struct Dirs<'a> {
    upper: BorrowedFd<'a>,
    lower: Option<BorrowedFd<'a>>,
    depth: usize,
    opaque: bool,
}

struct Walk<'a> {
    layer: &'a Layer,
    found: Gathering<'a>,
    buffer: Vec<u8>,
}

/// One name in both layers.
struct Pair<'a> {
    name: &'a CStr,
    path: PathBuf,
    upper: Stat,
    below: Option<Stat>,
}

impl Pair<'_> {
    /// What is below, if it is of the same kind.
    fn same_kind(&self) -> Option<&Stat> {
        self.below.as_ref().filter(|below| kind(below) == kind(&self.upper))
    }
}

impl Walk<'_> {
    fn dir(&mut self, dirs: Dirs<'_>, at: &Path) -> Result<(), RuntimeError> {
        if dirs.depth > DEPTH {
            let fix = "discard the changes, or keep them with a shallower tree".into();
            let what = format!("the work dir has more than {DEPTH} levels");
            return Err(RuntimeError::Refused { what, fix });
        }
        for name in names(dirs.upper).map_err(io(format!("read the layer at /{}", at.display())))? {
            let path = at.join(OsStr::from_bytes(name.to_bytes()));
            let stat =
                |dir: BorrowedFd<'_>| rustix::fs::statat(dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
            let seen = stat(dirs.upper).map_err(io(format!("look at {}", path.display())))?;
            let below = dirs.lower.and_then(|dir| stat(dir).ok());
            self.entry(dirs, Pair { name: &name, path, upper: seen, below })?;
        }
        Ok(())
    }

    fn entry(&mut self, dirs: Dirs<'_>, pair: Pair<'_>) -> Result<(), RuntimeError> {
        if is_whiteout(&pair.upper) {
            if let Some(below) = pair.below.filter(|_| !self.layer.planted.contains(&pair.path)) {
                self.deleted(&pair.path, &below)?;
            }
            return Ok(());
        }
        match kind(&pair.upper) {
            FileKind::Dir | FileKind::File if self.layer.in_use && !is_open(&pair.upper) => {
                let (name, before) = (pair.name, Mode::from_raw_mode(mode(&pair.upper)));
                let seen = if kind(&pair.upper) == FileKind::Dir {
                    self.directory(dirs, pair)
                } else {
                    self.file(dirs, pair)
                };
                // Whoever uses it finds it as it was.
                rustix::fs::chmodat(dirs.upper, name, before, AtFlags::empty())
                    .map_err(io("look at the layer"))?;
                seen
            }
            FileKind::Dir => self.directory(dirs, pair),
            FileKind::File => self.file(dirs, pair),
            FileKind::Symlink => {
                let changed = self.aspects(&pair, Some(same_target(dirs, &pair)), None);
                if pair.same_kind().is_none() || !changed.is_empty() {
                    self.push(&pair, None, changed)?;
                }
                Ok(())
            }
            _ => {
                let changed = self.aspects(&pair, None, None);
                self.push(&pair, None, changed)
            }
        }
    }

    fn directory(&mut self, dirs: Dirs<'_>, pair: Pair<'_>) -> Result<(), RuntimeError> {
        let merged = pair.same_kind().is_some();
        let inner = match self.open_own(dirs.upper, &pair, OPEN_DIR, Mode::RWXU) {
            Ok(inner) => inner,
            // Another inside user's private directory (range mode): it is told, without its content.
            Err(Errno::ACCESS | Errno::PERM) => {
                return self.push(&pair, None, Vec::new());
            }
            Err(errno) => return Err(io(format!("read the layer at {}", pair.path.display()))(errno)),
        };
        if is_marked(inner.as_fd(), "redirect", self.layer.by_root) {
            return Err(partial(&pair.path, "a directory that was moved without its content"));
        }
        let below = match (dirs.lower, merged) {
            (Some(dir), true) => rustix::fs::openat(dir, pair.name, OPEN_DIR, Mode::empty()).ok(),
            _ => None,
        };
        let same = below.as_ref().map(|below| same_attributes(&inner, below));
        let changed = self.aspects(&pair, None, same);
        if !merged || !changed.is_empty() {
            self.push(&pair, None, changed)?;
        }
        // What lies in a directory that replaced another carries no mark of its own.
        let opaque = dirs.opaque || is_opaque(inner.as_fd(), self.layer.by_root);
        if let Some(below) = below.as_ref().filter(|_| opaque) {
            self.hidden_by_opaque(&inner, below, &pair.path)?;
        }
        let lower = below.as_ref().map(AsFd::as_fd);
        self.dir(Dirs { upper: inner.as_fd(), lower, depth: dirs.depth + 1, opaque }, &pair.path)
    }

    /// An opaque directory replaced the one below: what it does not hold itself is gone.
    fn hidden_by_opaque(&mut self, upper: &OwnedFd, lower: &OwnedFd, at: &Path) -> Result<(), RuntimeError> {
        for name in names(lower.as_fd()).map_err(io(format!("read {}", at.display())))? {
            let stat = |dir: &OwnedFd| rustix::fs::statat(dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
            let path = at.join(OsStr::from_bytes(name.to_bytes()));
            if let (Err(Errno::NOENT), Ok(below), false) =
                (stat(upper), stat(lower), self.layer.planted.contains(&path))
            {
                self.deleted(&path, &below)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, dirs: Dirs<'_>, pair: Pair<'_>) -> Result<(), RuntimeError> {
        let file = match self.open_own(dirs.upper, &pair, READ_FILE, Mode::RUSR | Mode::WUSR) {
            Ok(file) => file,
            // Another inside user's private file (range mode): the change is still told, without its content.
            Err(Errno::ACCESS | Errno::PERM) => {
                let changed = self.aspects(&pair, Some(false), None);
                return self.push(&pair, None, changed);
            }
            Err(errno) => return Err(io(format!("read {}", pair.path.display()))(errno)),
        };
        if is_marked(file.as_fd(), "metacopy", self.layer.by_root) {
            return Err(partial(&pair.path, "a file that was copied without its content"));
        }
        let reading = || io(format!("read {}", pair.path.display()));
        let hollow = pair.upper.st_size > HOLLOW && pair.upper.st_blocks * 512 < pair.upper.st_size / 16;
        let digest = (!hollow).then(|| content(&file, &mut self.buffer)).transpose();
        let digest = digest.map_err(reading())?;
        let below = match (dirs.lower, pair.same_kind()) {
            (Some(dir), Some(_)) => rustix::fs::openat(dir, pair.name, READ_FILE, Mode::empty()).ok(),
            _ => None,
        };
        let same_size = pair.below.as_ref().is_some_and(|below| below.st_size == pair.upper.st_size);
        let same = same_size
            && digest.is_some()
            && below.as_ref().and_then(|file| content(file, &mut self.buffer).ok()) == digest;
        let attributes = below.as_ref().map(|below| same_attributes(&file, below));
        let changed = self.aspects(&pair, Some(same), attributes);
        if pair.same_kind().is_none() || !changed.is_empty() {
            self.push(&pair, digest, changed)?;
        }
        Ok(())
    }

    /// Opens something of the layer that its owner may have closed to itself, by giving us permission first. The
    /// layer is ours, and what the change says of its mode was noted before.
    fn open_own(
        &self,
        dir: BorrowedFd<'_>,
        pair: &Pair<'_>,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        match rustix::fs::openat(dir, pair.name, flags, Mode::empty()) {
            Err(Errno::ACCESS) => {
                rustix::fs::chmodat(dir, pair.name, mode, AtFlags::empty())?;
                rustix::fs::openat(dir, pair.name, flags, Mode::empty())
            }
            other => other,
        }
    }

    /// In which respects something differs from what was there.
    fn aspects(&self, pair: &Pair<'_>, same: Option<bool>, attributes: Option<bool>) -> Vec<Aspect> {
        let Some(below) = pair.same_kind() else { return Vec::new() };
        let is_dir = kind(below) == FileKind::Dir;
        let all = [
            (Aspect::Content, same == Some(false)),
            (Aspect::Mode, kind(below) != FileKind::Symlink && mode(below) != mode(&pair.upper)),
            (Aspect::Owner, self.other_owner(pair, below)),
            (Aspect::Attributes, attributes == Some(false)),
            // Copied up because it got another name: both names are one file now.
            (Aspect::Links, !is_dir && same == Some(true) && self.layer.has_other_name(&pair.upper)),
        ];
        all.into_iter().filter(|(_, differs)| *differs).map(|(aspect, _)| aspect).collect()
    }

    fn other_owner(&self, pair: &Pair<'_>, below: &Stat) -> bool {
        match (self.layer.owner, self.layer.inside) {
            // What belongs to others is nobody's inside, before and after.
            (Some(owner), Some(inside)) => {
                (below.st_uid, below.st_gid) == owner && (pair.upper.st_uid, pair.upper.st_gid) != inside
            }
            _ => (pair.upper.st_uid, pair.upper.st_gid) != (below.st_uid, below.st_gid),
        }
    }

    fn push(
        &mut self,
        pair: &Pair<'_>,
        digest: Option<Digest>,
        changed: Vec<Aspect>,
    ) -> Result<(), RuntimeError> {
        let op = if pair.same_kind().is_some() { ChangeOp::Modified } else { ChangeOp::Created };
        let change = FileChange {
            op,
            kind: kind(&pair.upper),
            path: RawPath::from(pair.path.as_path()),
            from: None,
            changed,
            mode: Some(mode(&pair.upper)),
            size: (kind(&pair.upper) == FileKind::File).then_some(pair.upper.st_size as u64),
            digest,
        };
        self.found.push(change).map_err(RuntimeError::io(HOLDING))
    }

    fn deleted(&mut self, path: &Path, below: &Stat) -> Result<(), RuntimeError> {
        let change = FileChange {
            op: ChangeOp::Deleted,
            kind: kind(below),
            path: RawPath::from(path),
            from: None,
            changed: Vec::new(),
            mode: None,
            size: None,
            digest: None,
        };
        self.found.push(change).map_err(RuntimeError::io(HOLDING))
    }
}

/// The kernel was set to keep less in a layer than we read out of it.
fn partial(path: &Path, what: &str) -> RuntimeError {
    RuntimeError::Refused {
        what: format!("the layer holds {what}: {}", path.display()),
        fix: "set the kernel's overlay parameters `redirect_dir` and `metacopy` to N".into(),
    }
}

/// Whether its owner can read it, and find what is in it.
fn is_open(stat: &Stat) -> bool {
    let wanted = if kind(stat) == FileKind::Dir { 0o700 } else { 0o400 };
    stat.st_mode & wanted == wanted
}

fn same_target(dirs: Dirs<'_>, pair: &Pair<'_>) -> bool {
    let target = |dir: BorrowedFd<'_>| rustix::fs::readlinkat(dir, pair.name, Vec::new()).ok();
    target(dirs.upper).is_some_and(|new| dirs.lower.and_then(target) == Some(new))
}

fn same_attributes(upper: &OwnedFd, below: &OwnedFd) -> bool {
    match (attributes::read(upper.as_fd()), attributes::read(below.as_fd())) {
        (Ok(new), Ok(old)) => new == old,
        _ => true,
    }
}

pub(super) fn mode(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}
