//! What changed in one file, as text, when someone asks. Sizes are bounded: a large or binary file is told by its
//! digests, which the change already holds.

use super::cursor::Cursor;
use super::tree::READ_FILE;
use super::{Layer, io, kind};
use cofferdam_model::{ChangeOp, FileChange, FileKind};
use cofferdam_runtime::RuntimeError;
use rustix::fs::Mode;
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// Larger files are not compared line by line.
const MOST: u64 = 1 << 20;
/// Then what was found so far is given, coarser.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileDiff {
    /// A unified difference. Its lines are the guest's: escape them before a terminal sees them.
    Text(String),
    Binary,
    /// Larger than is compared, in bytes.
    Large(u64),
    /// No file on either side, or nothing but its mode changed.
    Nothing,
}

enum Side {
    Absent,
    Text(String),
    Binary,
    Large(u64),
}

/// The difference of one change of `diff`.
pub fn text_diff(layer: &Layer, change: &FileChange) -> Result<FileDiff, RuntimeError> {
    let path = change.path.as_path();
    let before = change.from.as_ref().map_or(path, |from| from.as_path());
    let reading = || io(format!("read {}", path.display()));
    let old = match layer.planted.iter().any(|hidden| before.starts_with(hidden)) {
        true => Side::Absent,
        false => read(layer.workdir.as_fd(), before).map_err(reading())?,
    };
    let new = match change.op {
        ChangeOp::Deleted => Side::Absent,
        _ => read(layer.upper.as_fd(), path).map_err(reading())?,
    };
    Ok(compare(old, new))
}

/// The difference of a file in one tree and in another.
pub(super) fn between(old: BorrowedFd<'_>, new: BorrowedFd<'_>, path: &Path) -> Result<FileDiff, Errno> {
    Ok(compare(read(old, path)?, read(new, path)?))
}

fn compare(old: Side, new: Side) -> FileDiff {
    let (old, new) = match (old, new) {
        (Side::Large(size), _) | (_, Side::Large(size)) => return FileDiff::Large(size),
        (Side::Binary, _) | (_, Side::Binary) => return FileDiff::Binary,
        (Side::Absent, Side::Absent) => return FileDiff::Nothing,
        (old, new) => (text(old), text(new)),
    };
    if old == new {
        return FileDiff::Nothing;
    }
    let compared = similar::TextDiff::configure().timeout(PATIENCE).diff_lines(&old, &new);
    FileDiff::Text(compared.unified_diff().context_radius(3).to_string())
}

fn text(side: Side) -> String {
    if let Side::Text(text) = side { text } else { String::new() }
}

fn read(root: BorrowedFd<'_>, path: &Path) -> Result<Side, Errno> {
    let mut cursor = Cursor::new(root)?;
    let spot = match cursor.spot(path) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Side::Absent),
        other => other?,
    };
    let Some(stat) = spot.stat()?.filter(|stat| kind(stat) == FileKind::File) else {
        return Ok(Side::Absent);
    };
    if stat.st_size as u64 > MOST {
        return Ok(Side::Large(stat.st_size as u64));
    }
    let file = rustix::fs::openat(spot.dir, spot.name.as_c_str(), READ_FILE, Mode::empty())?;
    let mut bytes = Vec::with_capacity(stat.st_size as usize);
    let mut file = File::from(file).take(MOST);
    file.read_to_end(&mut bytes).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Side::Text(text),
        _ => Side::Binary,
    })
}
