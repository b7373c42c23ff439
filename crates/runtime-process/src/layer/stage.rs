//! Brings what a session made to where one rename puts it in place. If the layer lies on the work dir's file
//! system its files are made fit where they are, else they are copied to the staging directory. Set-id bits, file
//! capabilities and every attribute but the ordinary ones are stripped, owners restored.

use super::apply::may_write;
use super::copy::{self, Wanted, kept};
use super::cursor::{Cursor, Spot, enter};
use super::diff::mode;
use super::journal::Source;
use super::tree::READ_FILE;
use super::{OPEN_DIR, attributes, kind};
use cofferdam_model::{FileChange, FileKind};
use rustix::fs::{AtFlags, FileType, Mode, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) struct Stage {
    pub(super) upper: Cursor,
    pub(super) staging: Cursor,
    /// The layer's own files can be renamed into the work dir.
    pub(super) direct: bool,
    pub(super) owner: Option<(u32, u32)>,
    pub(super) few: bool,
    slots: u64,
    /// Where the first name of a file with several was staged, by its number in the layer.
    linked: HashMap<u64, PathBuf>,
    /// The new directory that is being filled.
    open: Option<Open>,
    /// The layer's directory that was last looked at for whether something can be renamed out of it.
    left: Option<(PathBuf, bool)>,
}

struct Open {
    /// In the work dir.
    path: PathBuf,
    from: Source,
    /// Its directories, outer ones first, with what they are to be.
    dirs: Vec<(PathBuf, u32, (i64, u64))>,
}

/// Something that waits to be placed.
pub(super) struct Staged {
    pub(super) from: Source,
    pub(super) inode: u64,
}

impl Stage {
    pub(super) fn new(
        upper: Cursor,
        staging: Cursor,
        direct: bool,
        owner: Option<(u32, u32)>,
        few: bool,
    ) -> Self {
        Self { upper, staging, direct, owner, few, slots: 0, linked: HashMap::new(), open: None, left: None }
    }

    pub(super) fn slot(&mut self) -> u64 {
        self.slots += 1;
        self.slots
    }

    /// Whether a path lies in the new directory that is being filled.
    pub(super) fn holds(&self, path: &Path) -> bool {
        self.open.as_ref().is_some_and(|open| path.starts_with(&open.path))
    }

    /// Stages one change that has a place of its own.
    pub(super) fn top(&mut self, change: &FileChange) -> Result<Staged, Errno> {
        let path = change.path.as_path();
        if matches!(change.kind, FileKind::File | FileKind::Dir) && self.can_leave(path)? {
            if change.kind == FileKind::Dir {
                self.open = Some(Open { path: path.to_owned(), from: Source::Layer, dirs: Vec::new() });
            }
            return Ok(Staged { from: Source::Layer, inode: self.fit(change)? });
        }
        let slot = self.slot();
        if change.kind == FileKind::Dir {
            let from = Source::Staged(slot);
            self.open = Some(Open { path: path.to_owned(), from, dirs: Vec::new() });
        }
        let inode = self.copy(change, Path::new(&slot.to_string()))?;
        Ok(Staged { from: Source::Staged(slot), inode })
    }

    /// Whether something can be renamed out of the layer: not if the inside closed its directory.
    fn can_leave(&mut self, path: &Path) -> Result<bool, Errno> {
        let parent = path.parent().unwrap_or(Path::new(""));
        match &self.left {
            _ if !self.direct => Ok(false),
            Some((last, can)) if last == parent => Ok(*can),
            _ => {
                let can = may_write(self.upper.dir(parent)?);
                self.left = Some((parent.to_owned(), can));
                Ok(can)
            }
        }
    }

    /// Stages one change within the new directory.
    pub(super) fn inside(&mut self, change: &FileChange) -> Result<(), Errno> {
        let Some(Open { path: root, from, .. }) = &self.open else { return Err(Errno::INVAL) };
        match from {
            Source::Layer => self.fit(change).map(drop),
            Source::Staged(slot) => {
                let rest = change.path.as_path().strip_prefix(root).map_err(|_| Errno::INVAL)?;
                let to = Path::new(&slot.to_string()).join(rest);
                self.copy(change, &to).map(drop)
            }
        }
    }

    /// Closes the new directory: what is in it gets its last mode and time. Its own it gets when it is placed,
    /// because one that may not be written to cannot be moved.
    pub(super) fn close(&mut self) -> Result<(), Errno> {
        let Some(Open { path: root, from, dirs }) = self.open.take() else { return Ok(()) };
        for (path, mode, (seconds, nanos)) in dirs.into_iter().rev() {
            let cursor = match from {
                Source::Layer => &mut self.upper,
                Source::Staged(_) => &mut self.staging,
            };
            let dir = cursor.dir(&path)?;
            let is_root = match from {
                Source::Layer => path == root,
                Source::Staged(_) => path.components().count() == 1,
            };
            let mode =
                if is_root { Mode::from_raw_mode(mode) | Mode::RWXU } else { Mode::from_raw_mode(mode) };
            rustix::fs::fchmod(dir, mode)?;
            rustix::fs::futimens(dir, &copy::times(seconds, nanos))?;
            if self.few {
                rustix::fs::fsync(dir)?;
            }
        }
        Ok(())
    }

    fn seen(&mut self, path: &Path) -> Result<Stat, Errno> {
        self.upper.spot(path)?.stat()?.ok_or(Errno::NOENT)
    }

    /// Makes something of the layer fit to be renamed into the work dir, as it is. Can be done again.
    fn fit(&mut self, change: &FileChange) -> Result<u64, Errno> {
        let path = change.path.as_path();
        let stat = self.seen(path)?;
        let wanted = kept(change.mode.unwrap_or(mode(&stat)));
        let (owner, few) = (self.owner.filter(|owner| *owner != (stat.st_uid, stat.st_gid)), self.few);
        let spot = self.upper.spot(path)?;
        match change.kind {
            FileKind::File => {
                let file = rustix::fs::openat(spot.dir, spot.name.as_c_str(), READ_FILE, Mode::empty())?;
                attributes::sanitise(file.as_fd())?;
                copy::own(file.as_fd(), owner)?;
                if kept(mode(&stat)) != wanted || mode(&stat) != wanted.as_raw_mode() {
                    rustix::fs::fchmod(&file, wanted)?;
                }
                if few {
                    rustix::fs::fsync(&file)?;
                }
            }
            FileKind::Dir => {
                let dir = rustix::fs::openat(spot.dir, spot.name.as_c_str(), OPEN_DIR, Mode::empty())?;
                purge(&dir)?;
                attributes::sanitise(dir.as_fd())?;
                copy::own(dir.as_fd(), owner)?;
                if let Some(open) = &mut self.open {
                    open.dirs.push((
                        path.to_owned(),
                        wanted.as_raw_mode(),
                        (stat.st_mtime, stat.st_mtime_nsec),
                    ));
                }
            }
            _ => {
                copy::own_at(&spot, owner)?;
                strip_at(&spot)?;
            }
        }
        Ok(stat.st_ino)
    }

    /// Copies something of the layer to a path of the staging directory.
    fn copy(&mut self, change: &FileChange, to: &Path) -> Result<u64, Errno> {
        let path = change.path.as_path();
        let seen = self.seen(path)?;
        if kind(&seen) != change.kind {
            return Err(Errno::INVAL);
        }
        let wanted =
            Wanted { mode: kept(change.mode.unwrap_or(mode(&seen))), owner: self.owner, sync: self.few };
        let several = change.kind != FileKind::Dir && seen.st_nlink > 1;
        if let Some(first) = self.linked.get(&seen.st_ino).filter(|_| several).cloned() {
            return self.link(&first, to);
        }
        let from = self.upper.spot(path)?;
        let target = self.staging.spot(to)?;
        match change.kind {
            FileKind::File => copy::file(&from, &target, &seen, &wanted)?,
            FileKind::Dir => {
                make_dir(&from, &target, self.owner)?;
                if let Some(open) = &mut self.open {
                    let time = (seen.st_mtime, seen.st_mtime_nsec);
                    open.dirs.push((to.to_owned(), wanted.mode.as_raw_mode(), time));
                }
            }
            FileKind::Symlink => {
                let link = rustix::fs::readlinkat(from.dir, from.name.as_c_str(), Vec::new())?;
                rustix::fs::symlinkat(link.as_c_str(), target.dir, target.name.as_c_str())?;
                copy::own_at(&target, self.owner)?;
                copy::time_at(&target, &seen)?;
            }
            FileKind::Fifo => {
                let (dir, name) = (target.dir, target.name.as_c_str());
                rustix::fs::mknodat(dir, name, FileType::Fifo, wanted.mode, 0)?;
                copy::own_at(&target, self.owner)?;
                rustix::fs::chmodat(dir, name, wanted.mode, AtFlags::empty())?;
                copy::time_at(&target, &seen)?;
            }
            FileKind::Socket | FileKind::Device => return Err(Errno::INVAL),
        }
        let made = target.stat()?.ok_or(Errno::NOENT)?;
        if several {
            self.linked.insert(seen.st_ino, to.to_owned());
        }
        Ok(made.st_ino)
    }

    fn link(&mut self, first: &Path, to: &Path) -> Result<u64, Errno> {
        let name = first.file_name().ok_or(Errno::INVAL)?;
        let name = super::cursor::c_name(name)?;
        let parent = first.parent().unwrap_or(Path::new(""));
        let dir = rustix::io::fcntl_dupfd_cloexec(self.staging.dir(parent)?, 3)?;
        let target = self.staging.spot(to)?;
        rustix::fs::linkat(&dir, name.as_c_str(), target.dir, target.name.as_c_str(), AtFlags::empty())?;
        target.stat()?.map(|stat| stat.st_ino).ok_or(Errno::NOENT)
    }
}

fn make_dir(from: &Spot<'_>, to: &Spot<'_>, owner: Option<(u32, u32)>) -> Result<(), Errno> {
    let source = enter(from.dir, OsStr::from_bytes(from.name.to_bytes()))?;
    rustix::fs::mkdirat(to.dir, to.name.as_c_str(), Mode::RWXU)?;
    let made = enter(to.dir, OsStr::from_bytes(to.name.to_bytes()))?;
    attributes::replace(made.as_fd(), &attributes::read(source.as_fd())?)?;
    copy::own(made.as_fd(), owner)
}

/// Whiteouts, devices and sockets of a directory that is moved as it is: the first mean nothing outside an
/// overlay, the others are never carried over.
fn purge(dir: &OwnedFd) -> Result<(), Errno> {
    let mut unwanted = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let stat = rustix::fs::statat(dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            known => known,
        };
        if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice | FileType::Socket) {
            unwanted.push(entry.file_name().to_owned());
        }
    }
    unwanted.into_iter().try_for_each(|name| rustix::fs::unlinkat(dir, name.as_c_str(), AtFlags::empty()))
}

/// The same for what cannot be opened: only the overlay's mark of where it came from can be on it.
fn strip_at(spot: &Spot<'_>) -> Result<(), Errno> {
    let mut path = PathBuf::from(format!("/proc/self/fd/{}", raw(spot.dir)));
    path.push(OsStr::from_bytes(spot.name.to_bytes()));
    match rustix::fs::lremovexattr(&path, "trusted.overlay.origin") {
        Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM) => Ok(()),
        other => other,
    }
}

fn raw(fd: BorrowedFd<'_>) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(&fd)
}
