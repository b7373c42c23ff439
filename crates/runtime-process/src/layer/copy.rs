//! Makes a copy of something in the layer on the work dir's file system: content with its holes, ordinary
//! attributes, times. The copy cannot be reached by anyone else until it is placed.

use super::attributes;
use super::cursor::Spot;
use super::tree::READ_FILE;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const SET_ID: u32 = 0o6000;
/// Files up to this size have no holes worth looking for.
const SMALL: i64 = 64 << 10;

/// A mode as it may be kept.
pub(super) fn kept(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777 & !SET_ID)
}

/// The time of last change; reading is of no interest to anyone.
pub(super) fn times(seconds: i64, nanos: u64) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos as i64 };
    Timestamps { last_access: time, last_modification: time }
}

pub(super) fn own(file: BorrowedFd<'_>, owner: Option<(u32, u32)>) -> Result<(), Errno> {
    match owner {
        Some((uid, gid)) => rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))),
        None => Ok(()),
    }
}

pub(super) fn own_at(spot: &Spot<'_>, owner: Option<(u32, u32)>) -> Result<(), Errno> {
    let Some((uid, gid)) = owner else { return Ok(()) };
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::fs::chownat(spot.dir, spot.name.as_c_str(), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
}

pub(super) fn time_at(spot: &Spot<'_>, stat: &Stat) -> Result<(), Errno> {
    let times = times(stat.st_mtime, stat.st_mtime_nsec);
    rustix::fs::utimensat(spot.dir, spot.name.as_c_str(), &times, AtFlags::SYMLINK_NOFOLLOW)
}

pub(super) struct Wanted {
    pub(super) mode: Mode,
    pub(super) owner: Option<(u32, u32)>,
    /// Wait for this file alone: there are few.
    pub(super) sync: bool,
}

pub(super) fn file(from: &Spot<'_>, to: &Spot<'_>, seen: &Stat, wanted: &Wanted) -> Result<(), Errno> {
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let source = rustix::fs::openat(from.dir, from.name.as_c_str(), READ_FILE, Mode::empty())?;
    let target = rustix::fs::openat(to.dir, to.name.as_c_str(), write, Mode::RUSR | Mode::WUSR)?;
    if seen.st_size <= SMALL {
        whole(&source, &target)?
    } else {
        extents(&source, &target, seen.st_size as u64)?
    }
    let found = attributes::read(source.as_fd())?;
    if !found.is_empty() {
        attributes::replace(target.as_fd(), &found)?;
    }
    own(target.as_fd(), wanted.owner)?;
    rustix::fs::fchmod(&target, wanted.mode)?;
    rustix::fs::futimens(&target, &times(seen.st_mtime, seen.st_mtime_nsec))?;
    if wanted.sync { rustix::fs::fsync(&target) } else { Ok(()) }
}

fn whole(source: &OwnedFd, target: &OwnedFd) -> Result<(), Errno> {
    let mut buffer = [0u8; SMALL as usize];
    loop {
        let n = rustix::io::read(source, &mut buffer[..])?;
        if n == 0 {
            return Ok(());
        }
        write_all(target, &buffer[..n])?;
    }
}

fn write_all(target: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let n = rustix::io::write(target, bytes)?;
        bytes = &bytes[n..];
    }
    Ok(())
}

/// Copies only where there is data: a hole stays one.
fn extents(source: &OwnedFd, target: &OwnedFd, size: u64) -> Result<(), Errno> {
    rustix::fs::ftruncate(target, size)?;
    let mut at = 0;
    while at < size {
        let begin = match rustix::fs::seek(source, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // Nothing but a hole is left.
            Err(Errno::NXIO) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let end = rustix::fs::seek(source, SeekFrom::Hole(begin))?.min(size);
        range(source, target, begin, end)?;
        at = end;
    }
    Ok(())
}

fn range(source: &OwnedFd, target: &OwnedFd, begin: u64, end: u64) -> Result<(), Errno> {
    let (mut from, mut to) = (begin, begin);
    while from < end {
        let rest = usize::try_from(end - from).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), rest) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return by_hand(source, target, from, end);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Between file systems that cannot do it themselves.
fn by_hand(source: &OwnedFd, target: &OwnedFd, mut at: u64, end: u64) -> Result<(), Errno> {
    let mut buffer = vec![0u8; 1 << 20];
    rustix::fs::seek(target, SeekFrom::Start(at))?;
    while at < end {
        let room = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let n = rustix::io::pread(source, &mut buffer[..room], at)?;
        if n == 0 {
            return Ok(());
        }
        write_all(target, &buffer[..n])?;
        at += n as u64;
    }
    Ok(())
}
