//! One digest of a whole tree, by which a rollback or a commit is proven: names, kinds, modes, times, contents,
//! links' targets, which names are one file, ordinary attributes. Of devices the number counts, of sockets and
//! fifos only that they are there. Memory is bounded by the largest directory and by the files with several names.

use super::cursor::{DEPTH, enter};
use super::{attributes, io, kind, names};
use cofferdam_model::{Digest, FileKind};
use cofferdam_runtime::RuntimeError;
use cofferdam_seal::Hasher;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What counts besides names, kinds, modes and contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub owners: bool,
    pub times: bool,
}

impl Counts {
    pub const ALL: Self = Self { owners: true, times: true };
}

pub(super) const READ_FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// The digest of everything beneath `root`. The directory itself counts by its content only.
pub fn tree_hash(root: &Path, counts: Counts) -> Result<Digest, RuntimeError> {
    let dir = super::open_dir(root)?;
    let mut walk = Walk { counts, seen: 0, linked: HashMap::new(), at: PathBuf::new(), buffer: Vec::new() };
    let digest = walk.dir(dir.as_fd(), 0);
    digest.map_err(|errno| io(format!("read {}", root.join(&walk.at).display()))(errno))
}

struct Walk {
    counts: Counts,
    seen: u64,
    /// Files with several names, by where the first was met.
    linked: HashMap<(u64, u64), u64>,
    at: PathBuf,
    buffer: Vec<u8>,
}

impl Walk {
    fn dir(&mut self, dir: BorrowedFd<'_>, depth: usize) -> Result<Digest, Errno> {
        if depth > DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        let mut hasher = Hasher::new();
        for name in names(dir)? {
            self.at.push(OsStr::from_bytes(name.to_bytes()));
            let stat = rustix::fs::statat(dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)?;
            hasher.update(&(name.to_bytes().len() as u64).to_le_bytes());
            hasher.update(name.to_bytes());
            self.entry(dir, &name, &stat, depth, &mut hasher)?;
            self.at.pop();
        }
        Ok(hasher.finish())
    }

    fn entry(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        stat: &Stat,
        depth: usize,
        hasher: &mut Hasher,
    ) -> Result<(), Errno> {
        self.seen += 1;
        hasher.update(&stat.st_mode.to_le_bytes());
        if self.counts.owners {
            hasher.update(&stat.st_uid.to_le_bytes());
            hasher.update(&stat.st_gid.to_le_bytes());
        }
        if self.counts.times {
            hasher.update(&stat.st_mtime.to_le_bytes());
            hasher.update(&stat.st_mtime_nsec.to_le_bytes());
        }
        // Only a repetition counts: a name outside the tree is no part of it.
        if kind(stat) != FileKind::Dir && stat.st_nlink > 1 {
            let first = *self.linked.entry((stat.st_dev, stat.st_ino)).or_insert(self.seen);
            if first != self.seen {
                hasher.update(&first.to_le_bytes());
                return Ok(());
            }
        }
        let content = match kind(stat) {
            FileKind::Dir => {
                let inner = enter(dir, OsStr::from_bytes(name.to_bytes()))?;
                attributes_of(inner.as_fd(), hasher)?;
                self.dir(inner.as_fd(), depth + 1)?
            }
            FileKind::File => {
                let file = rustix::fs::openat(dir, name, READ_FILE, Mode::empty())?;
                attributes_of(file.as_fd(), hasher)?;
                content(&file, &mut self.buffer)?
            }
            FileKind::Symlink => {
                cofferdam_seal::digest(rustix::fs::readlinkat(dir, name, Vec::new())?.to_bytes())
            }
            FileKind::Device => cofferdam_seal::digest(&stat.st_rdev.to_le_bytes()),
            FileKind::Fifo | FileKind::Socket => Digest::ZERO,
        };
        hasher.update(content.as_bytes());
        Ok(())
    }
}

fn attributes_of(file: BorrowedFd<'_>, hasher: &mut Hasher) -> Result<(), Errno> {
    let found = attributes::read(file)?;
    hasher.update(&(found.len() as u64).to_le_bytes());
    for part in found.iter().flat_map(|(name, value)| [name.to_bytes(), value]) {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Ok(())
}

/// What files are read by. It is made for the first one: most sessions have none to read.
const BUFFER: usize = 128 << 10;

/// Holes count as the zeros that they read as.
pub(super) fn content(file: &OwnedFd, buffer: &mut Vec<u8>) -> Result<Digest, Errno> {
    buffer.resize(BUFFER, 0);
    let mut hasher = Hasher::new();
    loop {
        match rustix::io::read(file, &mut *buffer)? {
            0 => return Ok(hasher.finish()),
            n => hasher.update(&buffer[..n]),
        }
    }
}
