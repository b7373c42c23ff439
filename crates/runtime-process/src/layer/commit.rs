//! Carries a layer's changes over to the work dir.
//!
//! Each file arrives under a temporary name and is renamed into place, so no reader sees half of one. Set-id
//! bits are stripped, device nodes and sockets refused, owners restored. A path that was changed outside while
//! the session ran is left alone and named. The whole is not atomic: readers may see a mixture until it ends.

use super::diff::kind;
use super::{Layer, OPEN_DIR};
use cofferdam_model::{ChangeOp, FileChange, FileKind, SkippedChange};
use cofferdam_runtime::Committed;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, Timestamps};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const SET_ID: u32 = 0o6000;

/// Applies `changes`, which came from `diff` of the same layer.
pub(crate) fn commit(layer: &Layer, changes: &[FileChange]) -> Committed {
    let mut done = Committed::default();
    for change in changes {
        match apply(layer, change) {
            Ok(()) => done.applied += 1,
            Err(reason) => done.skipped.push(SkippedChange { path: change.path.clone(), reason }),
        }
    }
    // Last, and inner ones first: a directory without write permission must be filled before it is closed.
    for change in changes.iter().rev().filter(|c| c.kind == FileKind::Dir && c.op != ChangeOp::Deleted) {
        if let Err(reason) = set_mode(layer, change) {
            done.skipped.push(SkippedChange { path: change.path.clone(), reason });
        }
    }
    done
}

fn set_mode(layer: &Layer, change: &FileChange) -> Result<(), String> {
    let to = Place::find(&layer.workdir, change.path.as_path())?;
    let mode = Mode::from_raw_mode(change.mode.unwrap_or(0o755) & !SET_ID);
    let dir = rustix::fs::openat(&to.dir, to.name.as_c_str(), OPEN_DIR, Mode::empty());
    dir.and_then(|dir| rustix::fs::fchmod(dir, mode))
        .map_err(|errno| format!("its mode cannot be set: {errno}"))
}

/// Where a change goes: an open parent directory and a name, reached without following any link.
struct Place {
    dir: OwnedFd,
    name: CString,
}

impl Place {
    fn find(root: &OwnedFd, path: &Path) -> Result<Self, String> {
        let name = path.file_name().and_then(|n| CString::new(n.as_bytes()).ok()).ok_or("has no name")?;
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let dir = rustix::fs::openat2(root, parent, OPEN_DIR, Mode::empty(), resolve)
            .map_err(|errno| format!("its directory cannot be reached: {errno}"))?;
        Ok(Self { dir, name })
    }

    fn stat(&self) -> Option<Stat> {
        rustix::fs::statat(&self.dir, self.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).ok()
    }
}

fn apply(layer: &Layer, change: &FileChange) -> Result<(), String> {
    let path = change.path.as_path();
    let hidden = layer.planted.iter().any(|hidden| path.starts_with(hidden));
    if hidden {
        return Err("the work dir has this path and it is hidden from the sandbox".into());
    }
    let to = Place::find(&layer.workdir, path)?;
    let below = to.stat();
    if below.as_ref().is_some_and(|stat| changed_outside(layer, stat, change)) {
        return Err("changed outside while the session ran".into());
    }
    if change.op == ChangeOp::Deleted {
        return remove(to.dir.as_fd(), &to.name).map_err(|errno| format!("cannot be deleted: {errno}"));
    }
    let from = Place::find(&layer.upper, path)?;
    let seen = from.stat().ok_or("has gone from the layer")?;
    if below.as_ref().is_some_and(|stat| kind(stat) != change.kind) {
        remove(to.dir.as_fd(), &to.name).map_err(|errno| format!("cannot be replaced: {errno}"))?;
    }
    match change.kind {
        FileKind::Dir => make_dir(layer, &to).map_err(|errno| format!("cannot be made: {errno}")),
        FileKind::File => copy_file(layer, &from, &to, &seen),
        FileKind::Symlink => copy_link(layer, &from, &to).map_err(|errno| format!("cannot be made: {errno}")),
        FileKind::Fifo => make_fifo(layer, &to, &seen).map_err(|errno| format!("cannot be made: {errno}")),
        FileKind::Socket => Err("a socket means nothing without its process".into()),
        FileKind::Device => Err("device nodes are never carried over".into()),
    }
}

/// A directory's time moves whenever an entry does, ours included: only what is replaced as a whole conflicts.
fn changed_outside(layer: &Layer, stat: &Stat, change: &FileChange) -> bool {
    let both_dirs =
        kind(stat) == FileKind::Dir && change.kind == FileKind::Dir && change.op != ChangeOp::Deleted;
    !both_dirs && (stat.st_ctime, stat.st_ctime_nsec as u32) > layer.began
}

fn remove(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(Errno::NOENT) => return Ok(()),
        other => return other,
    }
    let inner = rustix::fs::openat(dir, name, OPEN_DIR, Mode::empty())?;
    for entry in super::names(inner.as_fd())? {
        remove(inner.as_fd(), &entry)?;
    }
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

fn permissions(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & 0o7777 & !SET_ID)
}

fn own(layer: &Layer, dir: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    let Some((uid, gid)) = layer.owner else { return Ok(()) };
    let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
    rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
}

fn make_dir(layer: &Layer, to: &Place) -> Result<(), Errno> {
    match rustix::fs::mkdirat(&to.dir, to.name.as_c_str(), Mode::RWXU) {
        Err(Errno::EXIST) => Ok(()),
        other => other.and_then(|()| own(layer, &to.dir, &to.name)),
    }
}

fn make_fifo(layer: &Layer, to: &Place, seen: &Stat) -> Result<(), Errno> {
    match rustix::fs::mknodat(&to.dir, to.name.as_c_str(), FileType::Fifo, permissions(seen), 0) {
        Err(Errno::EXIST) => Ok(()),
        other => other.and_then(|()| own(layer, &to.dir, &to.name)),
    }
}

/// A name next to `name` that nobody uses; leftovers of a crash are recognisable by it.
fn temporary(name: &CStr) -> CString {
    let tag = rustix::process::getpid().as_raw_nonzero();
    let digest = cofferdam_seal::digest(name.to_bytes());
    CString::new(format!(".cofferdam-{tag}-{}", &digest.to_string()[..16])).unwrap_or_default()
}

fn copy_link(layer: &Layer, from: &Place, to: &Place) -> Result<(), Errno> {
    let target = rustix::fs::readlinkat(&from.dir, from.name.as_c_str(), Vec::new())?;
    let temporary = temporary(&to.name);
    rustix::fs::symlinkat(target.as_c_str(), &to.dir, temporary.as_c_str())?;
    let placed = own(layer, &to.dir, &temporary)
        .and_then(|()| rustix::fs::renameat(&to.dir, temporary.as_c_str(), &to.dir, to.name.as_c_str()));
    if placed.is_err() {
        let _ = rustix::fs::unlinkat(&to.dir, temporary.as_c_str(), AtFlags::empty());
    }
    placed
}

fn copy_file(layer: &Layer, from: &Place, to: &Place, seen: &Stat) -> Result<(), String> {
    let temporary = temporary(&to.name);
    let copied = fill(layer, from, to, &temporary, seen);
    if copied.is_err() {
        let _ = rustix::fs::unlinkat(&to.dir, temporary.as_c_str(), AtFlags::empty());
    }
    copied.map_err(|error| format!("cannot be written: {error}"))
}

fn fill(layer: &Layer, from: &Place, to: &Place, temporary: &CStr, seen: &Stat) -> io::Result<()> {
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut source = File::from(rustix::fs::openat(&from.dir, from.name.as_c_str(), read, Mode::empty())?);
    let mut target = File::from(rustix::fs::openat(&to.dir, temporary, write, Mode::RUSR | Mode::WUSR)?);
    io::copy(&mut source, &mut target)?;
    if let Some((uid, gid)) = layer.owner {
        let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
        rustix::fs::fchown(&target, Some(uid), Some(gid))?;
    }
    rustix::fs::fchmod(&target, permissions(seen))?;
    let time = |seconds: i64, nanos: u64| rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanos as i64 };
    let times = Timestamps {
        last_access: time(seen.st_atime, seen.st_atime_nsec as u64),
        last_modification: time(seen.st_mtime, seen.st_mtime_nsec as u64),
    };
    rustix::fs::futimens(&target, &times)?;
    rustix::fs::renameat(&to.dir, temporary, &to.dir, to.name.as_c_str())?;
    Ok(())
}
