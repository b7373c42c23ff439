//! Takes changes out of a layer that nobody uses any more: what is not in it was not changed.

use super::cursor::Cursor;
use super::{Layer, diff, io, kind, remove};
use cofferdam_model::{ChangeOp, FileChange, FileKind, SkippedChange};
use cofferdam_runtime::{ChangeList, Refuses, RuntimeError};
use rustix::fs::{Mode, RawMode};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;

/// Takes out all that is refused: what that was and why, and a new list of changes if there was any.
pub fn withhold(
    layer: Option<&Layer>,
    changes: &ChangeList,
    refuses: Refuses<'_>,
    spare: &Path,
) -> Result<(Vec<SkippedChange>, Option<ChangeList>), RuntimeError> {
    let unread = || RuntimeError::io("read the list of changes");
    let (mut refused, mut skipped) = (Vec::new(), Vec::new());
    for change in changes.iter() {
        let change = change.map_err(unread())?;
        if let Some(reason) = refuses(&change) {
            skipped.push(SkippedChange::new(change.path.clone(), reason));
            refused.push(change.into_owned());
        }
    }
    let Some(layer) = layer.filter(|_| !refused.is_empty()) else { return Ok((skipped, None)) };
    take_out(layer, &refused)?;
    let left = diff(layer, spare)?;
    for change in left.iter() {
        let change = change.map_err(unread())?;
        if refuses(&change).is_some() {
            let what = format!("{} is not to be kept, and cannot be left out on its own", change.path);
            return Err(RuntimeError::Refused { what, fix: "discard the changes".into() });
        }
    }
    Ok((skipped, Some(left)))
}

fn take_out(layer: &Layer, changes: &[FileChange]) -> Result<(), RuntimeError> {
    for change in changes {
        let path = change.path.as_path();
        let failed = |errno: Errno| io(format!("leave {} out", path.display()))(errno);
        match (change.op, change.kind) {
            // Its own mode and owner; what is in it is told for itself.
            (ChangeOp::Modified, FileKind::Dir) => as_it_was(layer, path).map_err(failed)?,
            _ => drop_at(layer, path).map_err(failed)?,
        }
        if let Some(from) = &change.from {
            drop_at(layer, from.as_path()).map_err(failed)?;
        }
    }
    Ok(())
}

/// Removes a name from the layer: a file, a whole directory, or the mark that something is gone.
fn drop_at(layer: &Layer, path: &Path) -> Result<(), Errno> {
    let mut cursor = Cursor::new(layer.upper.as_fd())?;
    match cursor.spot(path) {
        Ok(spot) => remove::remove_at(spot.dir, &spot.name),
        // It went with the directory that it was in.
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn as_it_was(layer: &Layer, path: &Path) -> Result<(), Errno> {
    let (mut upper, mut lower) = (Cursor::new(layer.upper.as_fd())?, Cursor::new(layer.workdir.as_fd())?);
    let Some(before) = lower.spot(path)?.stat()?.filter(|stat| kind(stat) == FileKind::Dir) else {
        return Ok(());
    };
    let dir = upper.dir(path)?;
    rustix::fs::fchmod(dir, Mode::from_raw_mode(before.st_mode as RawMode & 0o7777))
}
