//! Files of `/proc`. They have no size to ask for, and what is read of them piece by piece is made piece by piece: a
//! list of mounts under a lock that whoever mounts waits for. One read too many costs more than a buffer too large.

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// No file of a group that is read for a number is longer; the kernel gives out less than this at once.
const SHORT: usize = 4 << 10;

/// What is made of a file of a few lines, which the kernel gives out whole. Many of them are read for each session.
pub(crate) fn short<T>(path: &Path, make: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut room = [0u8; SHORT];
    let read = rustix::io::read(&file, &mut room).ok()?;
    make(std::str::from_utf8(room.get(..read)?).ok()?)
}

/// The whole of a file beneath a directory, or by its absolute path.
pub(crate) fn read(place: impl AsFd, name: &str) -> io::Result<String> {
    let file = rustix::fs::openat(place, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::with_capacity(8 << 10);
    loop {
        text.reserve(4 << 10);
        if rustix::io::read(&file, rustix::buffer::spare_capacity(&mut text))? == 0 {
            return String::from_utf8(text)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
        }
    }
}
