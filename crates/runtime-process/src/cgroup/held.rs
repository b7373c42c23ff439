//! A group of version 2 is locked by whoever made it, so that others who look for what was left behind can tell it
//! from one whose maker was killed: it may be there before anything else of its session is.

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Whoever removes the empty group between the moments in which it is made and held does so once.
const ATTEMPTS: usize = 8;

/// Makes the group, if it is not there, and holds it.
pub(super) fn make(path: &Path) -> io::Result<OwnedFd> {
    for _ in 0..ATTEMPTS {
        super::make_dir(path)?;
        let group = match open(path) {
            Err(Errno::NOENT) => continue,
            opened => opened?,
        };
        while let Err(errno) = flock(&group, FlockOperation::LockShared) {
            if errno != Errno::INTR {
                return Err(errno.into());
            }
        }
        if path.is_dir() {
            return Ok(group);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "somebody else removes it again and again"))
}

/// Whoever made a group.
#[derive(Debug)]
pub(crate) enum Maker {
    Lives,
    /// With the lock, under which nobody makes it anew.
    Gone {
        _lock: OwnedFd,
    },
    /// It is not there, or of version 1, where none is held.
    Unknown,
}

pub(crate) fn maker(path: &Path) -> Maker {
    let Ok(group) = open(path) else { return Maker::Unknown };
    if !path.join("cgroup.events").exists() {
        return Maker::Unknown;
    }
    match flock(&group, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Maker::Gone { _lock: group },
        Err(_) => Maker::Lives,
    }
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_group_is_held_until_its_last_maker_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let (first, second) = (make(&path).unwrap(), make(&path).unwrap());
        assert!(matches!(maker(&path), Maker::Unknown), "version 1 knows no holders");
        fs::write(path.join("cgroup.events"), "populated 0\n").unwrap();
        drop(first);
        assert!(matches!(maker(&path), Maker::Lives));
        drop(second);
        let Maker::Gone { _lock: lock } = maker(&path) else { panic!("nobody holds it") };
        assert!(matches!(maker(&path), Maker::Lives), "whoever removes it is alone");
        drop(lock);
        assert!(matches!(maker(&path), Maker::Gone { .. }));
        assert!(matches!(maker(&dir.path().join("none")), Maker::Unknown));
    }
}
