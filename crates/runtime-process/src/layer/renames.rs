//! Which of the created files are deleted ones under another name: the same size and the same content. Empty
//! files are all alike, so they are never taken for each other.

use super::cursor::{Cursor, DEPTH, enter};
use super::diff::HOLDING;
use super::tree::{READ_FILE, content};
use super::{Layer, io, kind, names};
use cofferdam_model::{ChangeOp, Digest, FileChange, FileKind, RawPath};
use cofferdam_runtime::{ChangeList, Gathering, RuntimeError};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Deleted files that are looked at, at most: it is only to tell a change better, and all of them are held.
const LOOKS: usize = 100_000;

/// Marks created files as renamed. The deletion of a file that is one of them goes; that of a directory stays.
pub(super) fn pair(
    layer: &Layer,
    found: ChangeList,
    room: &dyn Fn() -> std::io::Result<File>,
) -> Result<ChangeList, RuntimeError> {
    let holding = || RuntimeError::io(HOLDING);
    if found.count(ChangeOp::Deleted) == 0 || found.count(ChangeOp::Created) == 0 {
        return Ok(found);
    }
    let mut search =
        Search { layer, sizes: HashSet::new(), gone: HashMap::new(), looks: 0, buffer: Vec::new() };
    for change in found.iter() {
        let change = change.map_err(holding())?;
        search.sizes.extend(is_candidate(&change).map(|(size, _)| size));
    }
    if search.sizes.is_empty() {
        return Ok(found);
    }
    let mut cursor = Cursor::new(layer.workdir.as_fd()).map_err(io("read the work dir"))?;
    for change in found.iter() {
        let change = change.map_err(holding())?;
        if search.looks > LOOKS {
            break;
        }
        // What cannot be read is simply deleted.
        let path = change.path.as_path();
        if let (ChangeOp::Deleted, Ok(spot)) = (change.op, cursor.spot(path)) {
            let _ = search.look(spot.dir, &spot.name, path, 0);
        }
    }
    let renamed = search.renamed(&found).map_err(holding())?;
    if renamed.is_empty() {
        return Ok(found);
    }
    told_anew(&found, renamed, room).map_err(holding())
}

fn is_candidate(change: &FileChange) -> Option<(u64, Digest)> {
    match (change.op, change.size, change.digest) {
        (ChangeOp::Created, Some(size @ 1..), Some(digest)) => Some((size, digest)),
        _ => None,
    }
}

fn told_anew(
    found: &ChangeList,
    mut renamed: HashMap<usize, RawPath>,
    room: &dyn Fn() -> std::io::Result<File>,
) -> std::io::Result<ChangeList> {
    let gone: HashSet<RawPath> = renamed.values().cloned().collect();
    let mut told = Gathering::new(room);
    for (at, change) in found.iter().enumerate() {
        let mut change = change?.into_owned();
        if let Some(from) = renamed.remove(&at) {
            change.op = ChangeOp::Renamed;
            change.from = Some(from);
        }
        if change.op != ChangeOp::Deleted || !gone.contains(&change.path) {
            told.push(change)?;
        }
    }
    told.finish()
}

struct Search<'a> {
    layer: &'a Layer,
    /// Of created files: no other is worth reading.
    sizes: HashSet<u64>,
    /// What was deleted, by its content, in the order of names.
    gone: HashMap<Digest, VecDeque<RawPath>>,
    looks: usize,
    buffer: Vec<u8>,
}

impl Search<'_> {
    /// What created files were called before, by their number: the first of a content was the first.
    fn renamed(&mut self, found: &ChangeList) -> std::io::Result<HashMap<usize, RawPath>> {
        let mut renamed = HashMap::new();
        for (at, change) in found.iter().enumerate() {
            let change = change?;
            let Some((_, digest)) = is_candidate(&change) else { continue };
            if let Some(from) = self.gone.get_mut(&digest).and_then(VecDeque::pop_front) {
                renamed.insert(at, from);
            }
        }
        Ok(renamed)
    }

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
                self.gone.entry(digest).or_default().push_back(RawPath::from(path));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
