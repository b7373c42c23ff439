//! Files of `/proc`. They have no size to ask for, and what is read of them piece by piece is made piece by piece: a
//! list of mounts under a lock that whoever mounts waits for. One read too many costs more than a buffer too large.

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::AsFd;

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
