//! Merges one upper directory into the one beneath, so that an overlay shows the same as with both. Every entry
//! is moved by a rename out of the one and into the other, so that doing it again after an interruption goes on
//! where it stopped; what has to make way is moved aside first, because deleting takes long.

use super::commit::{Moment, Watch};
use super::copy::times;
use super::cursor::{DEPTH, c_name, enter};
use super::{attributes, is_marked, is_opaque, is_whiteout, kind, mark, names};
use cofferdam_model::FileKind;
use rustix::fs::{AtFlags, Gid, Mode, Stat, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

pub(super) struct Merging<'a> {
    pub(super) by_root: bool,
    pub(super) trash: BorrowedFd<'a>,
    pub(super) thrown: u64,
    pub(super) watch: Watch<'a>,
}

pub(super) fn look(dir: BorrowedFd<'_>, name: &CStr) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn open(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    match enter(dir, OsStr::from_bytes(name.to_bytes())) {
        // The inside may close its own directories; they are ours now, and their modes are set at the end.
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(dir, name, Mode::RWXU, AtFlags::empty())?;
            enter(dir, OsStr::from_bytes(name.to_bytes()))
        }
        other => other,
    }
}

impl Merging<'_> {
    /// `below` are the directories at the same place beneath `parent`, upper ones first.
    pub(super) fn merge(
        &mut self,
        child: BorrowedFd<'_>,
        parent: BorrowedFd<'_>,
        below: &[OwnedFd],
        depth: usize,
    ) -> Result<(), Errno> {
        if depth > DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        for name in names(child)? {
            let Some(new) = look(child, &name)? else { continue };
            let old = look(parent, &name)?;
            if is_whiteout(&new) {
                self.delete(child, parent, &name, old.as_ref(), self.shows(below, &name)?)?;
            } else if kind(&new) == FileKind::Dir {
                self.directory(child, parent, &name, old.as_ref(), below, depth)?;
            } else {
                if old.as_ref().is_some_and(|old| kind(old) == FileKind::Dir) {
                    self.throw(parent, &name)?;
                }
                self.take(child, parent, &name)?;
            }
        }
        Ok(())
    }

    fn take(&self, child: BorrowedFd<'_>, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        self.watch.at(Moment::Apply)?;
        rustix::fs::renameat(child, name, parent, name)
    }

    /// Moves something of the parent's out of the way.
    fn throw(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        self.watch.at(Moment::Apply)?;
        loop {
            self.thrown += 1;
            let to = c_name(self.thrown.to_string().as_ref())?;
            match rustix::fs::renameat_with(parent, name, self.trash, &to, rustix::fs::RenameFlags::NOREPLACE)
            {
                Err(Errno::EXIST) => {}
                other => return other,
            }
        }
    }

    /// A whiteout is needed only where something would show; elsewhere it would be listed as a file itself.
    fn delete(
        &mut self,
        child: BorrowedFd<'_>,
        parent: BorrowedFd<'_>,
        name: &CStr,
        old: Option<&Stat>,
        shows: bool,
    ) -> Result<(), Errno> {
        match old {
            Some(old) if is_whiteout(old) => Ok(()),
            Some(old) if kind(old) == FileKind::Dir || !shows => {
                self.throw(parent, name)?;
                if shows { self.take(child, parent, name) } else { Ok(()) }
            }
            _ if shows => self.take(child, parent, name),
            _ => Ok(()),
        }
    }

    fn directory(
        &mut self,
        child: BorrowedFd<'_>,
        parent: BorrowedFd<'_>,
        name: &CStr,
        old: Option<&Stat>,
        below: &[OwnedFd],
        depth: usize,
    ) -> Result<(), Errno> {
        let Some(old) = old else { return self.take(child, parent, name) };
        let new = open(child, name)?;
        let opaque = is_opaque(new.as_fd(), self.by_root);
        if kind(old) != FileKind::Dir || opaque {
            // What hid the directories beneath was in the parent, and goes: the new one has to.
            if !opaque {
                let name = mark("opaque", self.by_root);
                rustix::fs::fsetxattr(&new, name.as_str(), b"y", XattrFlags::empty())?;
            }
            self.throw(parent, name)?;
            return self.take(child, parent, name);
        }
        let wanted = look(child, name)?.ok_or(Errno::NOENT)?;
        let target = open(parent, name)?;
        let inner = match is_opaque(target.as_fd(), self.by_root) {
            true => Vec::new(),
            false => self.beneath(below, name)?,
        };
        self.merge(new.as_fd(), target.as_fd(), &inner, depth + 1)?;
        self.settle(&new, &target, &wanted)
    }

    /// The directory that is there becomes what the new one was.
    pub(super) fn settle(&self, new: &OwnedFd, target: &OwnedFd, wanted: &Stat) -> Result<(), Errno> {
        self.watch.at(Moment::Apply)?;
        attributes::replace(target.as_fd(), &attributes::read(new.as_fd())?)?;
        if is_marked(new.as_fd(), "impure", self.by_root) {
            let name = mark("impure", self.by_root);
            rustix::fs::fsetxattr(target, name.as_str(), b"y", XattrFlags::empty())?;
        }
        let seen = rustix::fs::fstat(target)?;
        if (seen.st_uid, seen.st_gid) != (wanted.st_uid, wanted.st_gid) {
            let (uid, gid) = (Uid::from_raw(wanted.st_uid), Gid::from_raw(wanted.st_gid));
            rustix::fs::fchown(target, Some(uid), Some(gid))?;
        }
        rustix::fs::fchmod(target, Mode::from_raw_mode(wanted.st_mode & 0o7777))?;
        rustix::fs::futimens(target, &times(wanted.st_mtime, wanted.st_mtime_nsec))
    }

    /// Whether a name shows from beneath.
    fn shows(&self, below: &[OwnedFd], name: &CStr) -> Result<bool, Errno> {
        for dir in below {
            if let Some(stat) = look(dir.as_fd(), name)? {
                return Ok(!is_whiteout(&stat));
            }
        }
        Ok(false)
    }

    /// The directories of this name beneath, down to the first that hides the rest.
    fn beneath(&self, below: &[OwnedFd], name: &CStr) -> Result<Vec<OwnedFd>, Errno> {
        let mut found = Vec::new();
        for dir in below {
            let Some(stat) = look(dir.as_fd(), name)? else { continue };
            if kind(&stat) != FileKind::Dir {
                break;
            }
            let inner = enter(dir.as_fd(), OsStr::from_bytes(name.to_bytes()))?;
            let last = is_opaque(inner.as_fd(), self.by_root);
            found.push(inner);
            if last {
                break;
            }
        }
        Ok(found)
    }
}
