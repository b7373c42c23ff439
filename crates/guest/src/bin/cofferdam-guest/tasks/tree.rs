//! Directories on the way, and whole trees that go.

use super::entry::names_of;
use super::{Failed, path};
use alloc::ffi::CString;
use alloc::vec::Vec;
use cofferdam_guest::wire::Why;
use core::ffi::CStr;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, unlinkat};
use rustix::io::Errno;

/// Each level is an open directory.
const DEEPEST: usize = 1000;

pub(super) type Owner = Option<(u32, u32)>;

pub(super) fn give(at: &CStr, owner: Owner) -> Result<(), Errno> {
    match owner {
        Some((uid, gid)) => rustix::fs::chown(at, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))),
        None => Ok(()),
    }
}

/// The directories above a path.
pub(super) fn make_parents(at: &[u8], owner: Owner) -> Result<(), Failed> {
    match at.iter().rposition(|byte| *byte == b'/') {
        None | Some(0) => Ok(()),
        Some(end) => make_all(at.get(..end).unwrap_or_default(), owner),
    }
}

/// Makes what is not there of a path to a directory.
pub(super) fn make_all(at: &[u8], owner: Owner) -> Result<(), Failed> {
    let whole = path(at)?;
    if let Ok(stat) = rustix::fs::stat(&whole) {
        return match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
            rustix::fs::FileType::Directory => Ok(()),
            _ => Err(Failed::because(Why::NotDirectory, Errno::NOTDIR)),
        };
    }
    let ends = at.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
    for end in ends.chain([at.len()]) {
        let part = path(at.get(..end).unwrap_or_default())?;
        match rustix::fs::mkdir(&part, Mode::from_raw_mode(0o755)) {
            Ok(()) => give(&part, owner)?,
            Err(Errno::EXIST) => (),
            // Above the first that can be made all are there already, and may be anybody's.
            Err(errno) if rustix::fs::stat(&part).is_err() => {
                let why = if errno == Errno::NOTDIR { Why::NotDirectory } else { Why::Kernel };
                return Err(Failed::because(why, errno));
            }
            Err(_) => (),
        }
    }
    Ok(())
}

/// A file, a link or a directory with all that is in it. What is not there is gone already.
pub(super) fn remove(at: &CStr) -> Result<(), Failed> {
    match rustix::fs::unlink(at) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        Err(Errno::ISDIR) => (),
        Err(errno) => return Err(errno.into()),
    }
    empty(open(rustix::fs::CWD, at)?, 0)?;
    match rustix::fs::rmdir(at) {
        Err(Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}

fn open(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Failed> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

/// By descriptors: whoever moves directories about meanwhile cannot lead this elsewhere.
fn empty(dir: OwnedFd, depth: usize) -> Result<(), Failed> {
    if depth > DEEPEST {
        return Err(Failed::because(Why::TooDeep, Errno::LOOP));
    }
    let names: Vec<Vec<u8>> = names_of(&dir)?;
    for name in names {
        let name: CString = path(&name)?;
        match unlinkat(&dir, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR) => (),
            Err(errno) => return Err(errno.into()),
        }
        empty(open(dir.as_fd(), &name)?, depth + 1)?;
        match unlinkat(&dir, &name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => (),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
