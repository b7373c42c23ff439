//! Carries a layer's changes over to the work dir.
//!
//! Each file arrives under a temporary name and is renamed into place, so no reader sees half of one. Set-id
//! bits are stripped, device nodes and sockets refused, owners restored. A path that was changed outside while
//! the session ran is left alone and named. The whole is not atomic: readers may see a mixture until it ends.

use super::clear::{Clearing, changed_outside};
use super::diff::kind;
use super::{Layer, OPEN_DIR};
use cofferdam_model::{ChangeOp, FileChange, FileKind, SkippedChange};
use cofferdam_runtime::Committed;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, Timestamps};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const SET_ID: u32 = 0o6000;

/// Applies `changes`, which came from `diff` of the same layer.
pub(crate) fn commit(layer: &Layer, changes: &[FileChange]) -> Committed {
    let mut done = Committed::default();
    for change in changes {
        match apply(layer, change) {
            Ok(()) => done.applied += 1,
            Err(Refusal::Whole(reason)) => {
                done.skipped.push(SkippedChange { path: change.path.clone(), reason })
            }
            Err(Refusal::Parts(kept)) => done.skipped.extend(kept),
        }
    }
    // Last, and inner ones first: a directory without write permission must be filled before it is closed.
    for change in changes.iter().rev().filter(|c| c.kind == FileKind::Dir && c.op != ChangeOp::Deleted) {
        if done.skipped.iter().any(|skipped| skipped.path == change.path) {
            continue;
        }
        if let Err(reason) = set_mode(layer, change) {
            done.skipped.push(SkippedChange { path: change.path.clone(), reason });
        }
    }
    done
}

/// Why a change was not carried out: as a whole, or for some paths of it.
enum Refusal {
    Whole(String),
    Parts(Vec<SkippedChange>),
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self::Whole(reason)
    }
}

impl From<&str> for Refusal {
    fn from(reason: &str) -> Self {
        Self::Whole(reason.into())
    }
}

fn set_mode(layer: &Layer, change: &FileChange) -> Result<(), String> {
    let to = Place::find(&layer.workdir, change.path.as_path())?;
    let dir = rustix::fs::openat(&to.dir, to.name.as_c_str(), OPEN_DIR, Mode::empty());
    dir.and_then(|dir| rustix::fs::fchmod(dir, permissions(change)))
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

fn apply(layer: &Layer, change: &FileChange) -> Result<(), Refusal> {
    let path = change.path.as_path();
    let hidden = layer.planted.iter().any(|hidden| path.starts_with(hidden));
    if hidden {
        return Err("the work dir has this path and it is hidden from the sandbox".into());
    }
    let to = Place::find(&layer.workdir, path)?;
    let below = to.stat();
    if change.op == ChangeOp::Deleted {
        return clear(layer, &to, path);
    }
    match &below {
        // A directory's time moves whenever an entry does, ours included.
        Some(stat) if kind(stat) == FileKind::Dir && change.kind == FileKind::Dir => {}
        Some(stat) if kind(stat) != FileKind::Dir && changed_outside(layer, stat) => {
            return Err("changed outside while the session ran".into());
        }
        Some(stat) if kind(stat) != change.kind => clear(layer, &to, path)?,
        _ => {}
    }
    let from = Place::find(&layer.upper, path)?;
    let seen = from.stat().ok_or("has gone from the layer")?;
    let made = |result: Result<(), Errno>| result.map_err(|errno| format!("cannot be made: {errno}").into());
    let mode = permissions(change);
    match change.kind {
        FileKind::Dir => made(make_dir(layer, &to)),
        FileKind::File => Ok(copy_file(layer, &from, &to, &seen, mode)?),
        FileKind::Symlink => made(copy_link(layer, &from, &to)),
        FileKind::Fifo => made(make_fifo(layer, &to, mode)),
        FileKind::Socket => Err("a socket means nothing without its process".into()),
        FileKind::Device => Err("device nodes are never carried over".into()),
    }
}

fn clear(layer: &Layer, to: &Place, path: &Path) -> Result<(), Refusal> {
    let mut clearing = Clearing::new(layer);
    if clearing.clear(to.dir.as_fd(), &to.name, path) { Ok(()) } else { Err(Refusal::Parts(clearing.kept)) }
}

/// As the session left it, without the set-id bits.
fn permissions(change: &FileChange) -> Mode {
    Mode::from_raw_mode(change.mode.unwrap_or(0o600) & !SET_ID)
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

fn make_fifo(layer: &Layer, to: &Place, mode: Mode) -> Result<(), Errno> {
    match rustix::fs::mknodat(&to.dir, to.name.as_c_str(), FileType::Fifo, mode, 0) {
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

fn copy_file(layer: &Layer, from: &Place, to: &Place, seen: &Stat, mode: Mode) -> Result<(), String> {
    let temporary = temporary(&to.name);
    let copied = fill(layer, from, to, &temporary, seen).and_then(|file| finish(&file, to, &temporary, mode));
    if copied.is_err() {
        let _ = rustix::fs::unlinkat(&to.dir, temporary.as_c_str(), AtFlags::empty());
    }
    copied.map_err(|error| format!("cannot be written: {error}"))
}

fn fill(layer: &Layer, from: &Place, to: &Place, temporary: &CStr, seen: &Stat) -> io::Result<File> {
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut source = File::from(rustix::fs::openat(&from.dir, from.name.as_c_str(), read, Mode::empty())?);
    let mut target = File::from(rustix::fs::openat(&to.dir, temporary, write, Mode::RUSR | Mode::WUSR)?);
    io::copy(&mut source, &mut target)?;
    if let Some((uid, gid)) = layer.owner {
        let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
        rustix::fs::fchown(&target, Some(uid), Some(gid))?;
    }
    let time = |seconds: i64, nanos: u64| rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanos as i64 };
    let times = Timestamps {
        last_access: time(seen.st_atime, seen.st_atime_nsec),
        last_modification: time(seen.st_mtime, seen.st_mtime_nsec),
    };
    rustix::fs::futimens(&target, &times)?;
    Ok(target)
}

/// Only now does the file get its mode and its name: before, nobody else can read half of it.
fn finish(file: &File, to: &Place, temporary: &CStr, mode: Mode) -> io::Result<()> {
    rustix::fs::fchmod(file, mode)?;
    Ok(rustix::fs::renameat(&to.dir, temporary, &to.dir, to.name.as_c_str())?)
}
