//! Which of the created files are deleted ones under another name: the same size and the same content. Empty
//! files are all alike, so they are never taken for each other.

use super::cursor::{Cursor, DEPTH, enter};
use super::tree::{READ_FILE, content};
use super::{Layer, io, kind, names};
use cofferdam_model::{ChangeOp, Digest, FileChange, FileKind, RawPath};
use cofferdam_runtime::RuntimeError;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Files that are looked at in deleted directories, at most: it is only to tell a change better.
const LOOKS: usize = 100_000;

/// Marks created files as renamed. The deletion of a file that is one of them goes; that of a directory stays.
pub(super) fn pair(layer: &Layer, found: &mut Vec<FileChange>) -> Result<(), RuntimeError> {
    let mut search = Search {
        layer,
        sizes: HashSet::new(),
        created: HashMap::new(),
        renamed: HashMap::new(),
        looks: 0,
        buffer: Vec::new(),
    };
    for (at, change) in found.iter().enumerate() {
        if let (ChangeOp::Created, Some(size @ 1..), Some(digest)) = (change.op, change.size, change.digest) {
            search.sizes.insert(size);
            search.created.entry(digest).or_default().push(at);
        }
    }
    if search.created.is_empty() {
        return Ok(());
    }
    let mut cursor = Cursor::new(layer.workdir.as_fd()).map_err(io("read the work dir"))?;
    for change in found.iter().filter(|change| change.op == ChangeOp::Deleted) {
        let path = change.path.as_path();
        // What cannot be read is simply deleted.
        if let Ok(spot) = cursor.spot(path) {
            let _ = search.look(spot.dir, &spot.name, path, 0);
        }
    }
    let mut gone = HashSet::new();
    for (at, from) in search.renamed {
        gone.insert(from.clone());
        if let Some(change) = found.get_mut(at) {
            change.op = ChangeOp::Renamed;
            change.from = Some(from);
        }
    }
    found.retain(|change| change.op != ChangeOp::Deleted || !gone.contains(&change.path));
    Ok(())
}

struct Search<'a> {
    layer: &'a Layer,
    sizes: HashSet<u64>,
    created: HashMap<Digest, Vec<usize>>,
    renamed: HashMap<usize, RawPath>,
    looks: usize,
    buffer: Vec<u8>,
}

impl Search<'_> {
    fn look(&mut self, dir: BorrowedFd<'_>, name: &CStr, path: &Path, depth: usize) -> Result<(), Errno> {
        self.looks += 1;
        if self.looks > LOOKS || depth > DEPTH || self.layer.planted.contains(path) {
            return Ok(());
        }
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match kind(&stat) {
            FileKind::Dir => {
                let inner = enter(dir, OsStr::from_bytes(name.to_bytes()))?;
                for entry in names(inner.as_fd())? {
                    let path: PathBuf = path.join(OsStr::from_bytes(entry.to_bytes()));
                    let _ = self.look(inner.as_fd(), &entry, &path, depth + 1);
                }
                Ok(())
            }
            FileKind::File if self.sizes.contains(&(stat.st_size as u64)) => {
                let file = rustix::fs::openat(dir, name, READ_FILE, Mode::empty())?;
                let digest = content(&file, &mut self.buffer)?;
                if let Some(at) = self.created.get_mut(&digest).filter(|all| !all.is_empty()) {
                    self.renamed.insert(at.remove(0), RawPath::from(path));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
