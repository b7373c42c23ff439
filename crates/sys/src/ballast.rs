//! Makes the room in a file system exactly what it is to be. One that lies in a file has more than that, since what it
//! needs for itself is not known before it is there.
//!
//! Performed by the boot child: nothing here allocates.

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, StatVfs};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io::Write;

/// What describes the ballast takes room as well, so that it is looked at again; it never took more than two.
const ROUNDS: usize = 16;

/// Fills the file system of this new directory until so much is left, to the block and to the file.
pub(crate) fn leave_room(dir: &CStr, bytes: u64, files: Option<u64>) -> Result<(), Errno> {
    rustix::fs::mkdirat(CWD, dir, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(CWD, dir, flags, Mode::empty())?;
    let heavy = made(dir.as_fd(), c"bytes")?;
    if let Some(files) = files {
        take_files(dir.as_fd(), files)?;
    }
    let mut size = 0u64;
    for _ in 0..ROUNDS {
        let now = rustix::fs::fstatvfs(&heavy)?;
        let (block, left) = (now.f_frsize, now.f_bavail);
        let wanted = bytes.div_ceil(block);
        if left == wanted {
            return Ok(());
        }
        size = match left.checked_sub(wanted) {
            Some(more) => size.checked_add(more * block),
            None => size.checked_sub((wanted - left) * block),
        }
        .ok_or(Errno::NOSPC)?;
        rustix::fs::ftruncate(&heavy, size)?;
        if left > wanted {
            // Blocks that nothing is written to: they are taken here, and not of what lies beneath.
            rustix::fs::fallocate(&heavy, FallocateFlags::empty(), 0, size)?;
        }
    }
    Err(Errno::NOSPC)
}

fn take_files(dir: BorrowedFd<'_>, wanted: u64) -> Result<(), Errno> {
    let left = |now: StatVfs| now.f_ffree;
    let more = left(rustix::fs::fstatvfs(dir)?).checked_sub(wanted).ok_or(Errno::NOSPC)?;
    for number in 0..more {
        let mut text = [0u8; 24];
        write!(&mut text[..23], "{number}").map_err(|_| Errno::OVERFLOW)?;
        made(dir, CStr::from_bytes_until_nul(&text).map_err(|_| Errno::INVAL)?)?;
    }
    if left(rustix::fs::fstatvfs(dir)?) == wanted { Ok(()) } else { Err(Errno::NOSPC) }
}

fn made(dir: BorrowedFd<'_>, name: &CStr) -> Result<rustix::fd::OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir.as_fd(), name, flags, Mode::empty())
}
