//! What commits left out and kept: told, shown, and taken where someone says so. Nothing is taken over something else
//! unless that is said too. What lies there was written by the inside: no link in it is followed.

use super::aside::{self, ABOUT, About, FILES, INDEX, MAKING, make_way};
use super::copy::{Wanted, kept};
use super::cursor::{Cursor, Spot, c_name};
use super::text::between;
use super::tree::READ_FILE;
use super::{FileDiff, commit, kind, open_dir, remove};
use cofferdam_model::{AsidePath, Conflict, FileKind, RawPath};
use cofferdam_runtime::RuntimeError;
use rustix::fs::{AtFlags, Mode, RenameFlags, Stat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// All that are kept, the oldest first.
pub fn list(conflicts: &Path) -> Vec<Conflict> {
    let entries = fs::read_dir(conflicts).into_iter().flatten().flatten();
    let mut all: Vec<_> = entries.filter_map(|entry| read(conflicts, entry.file_name().to_str()?)).collect();
    all.sort_by(|a, b| (a.kept_us, &a.name).cmp(&(b.kept_us, &b.name)));
    all
}

/// One by its name; nothing where there is none, or none whole.
fn read(conflicts: &Path, name: &str) -> Option<Conflict> {
    if name.starts_with('.') || name.contains('/') {
        return None;
    }
    let dir = conflicts.join(name);
    let about: About = serde_json::from_slice(&fs::read(dir.join(ABOUT)).ok()?).ok()?;
    let kept = fs::metadata(dir.join(ABOUT)).ok()?.modified().ok()?;
    let mut paths = BTreeMap::new();
    for line in BufReader::new(File::open(dir.join(INDEX)).ok()?).lines() {
        // Half a line is that of a process that was killed; whoever completed its commit wrote it again.
        if let Ok(entry) = serde_json::from_str::<AsidePath>(&line.ok()?) {
            paths.insert(entry.path.clone(), entry);
        }
    }
    Some(Conflict {
        name: name.to_owned(),
        session: about.session,
        workdir: about.workdir,
        kept_us: kept.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64,
        files: RawPath::from(dir.join(FILES).as_path()),
        paths: paths.into_values().collect(),
    })
}

fn failed(doing: &str, path: &RawPath) -> impl FnOnce(Errno) -> RuntimeError + use<> {
    let doing = format!("{doing} {path}");
    move |errno| RuntimeError::io(doing)(errno.into())
}

fn files(conflict: &Conflict) -> Result<OwnedFd, RuntimeError> {
    open_dir(conflict.files.as_path())
}

/// The inside's version of a file.
pub fn open(conflict: &Conflict, path: &RawPath) -> Result<File, RuntimeError> {
    let open = || {
        let mut cursor = Cursor::new(files(conflict).map_err(|_| Errno::NOENT)?.as_fd())?;
        let spot = cursor.spot(path.as_path())?;
        rustix::fs::openat(spot.dir, spot.name.as_c_str(), READ_FILE, Mode::empty())
    };
    open().map(File::from).map_err(failed("read", path))
}

/// From what is at its place now to the inside's version.
pub fn difference(conflict: &Conflict, path: &RawPath) -> Result<FileDiff, RuntimeError> {
    let work = open_dir(conflict.workdir.as_path())?;
    between(work.as_fd(), files(conflict)?.as_fd(), path.as_path()).map_err(failed("compare", path))
}

/// What became of a version that was to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    Done,
    /// Something stands there, and nobody said that it may go.
    Occupied,
}

/// Puts the inside's version of a path into a directory, at its place there; `over` what is there only where that is
/// said. It arrives whole or not at all, and belongs to who owns the directory.
pub fn take(conflict: &Conflict, entry: &AsidePath, into: &Path, over: bool) -> Result<Taken, RuntimeError> {
    let (files, root) = (files(conflict)?, open_dir(into)?);
    let put = || {
        let path = entry.path.as_path();
        let (mut files, mut target) = (Cursor::new(files.as_fd())?, Cursor::new(root.as_fd())?);
        let from = files.spot(path)?;
        let seen = from.stat()?.ok_or(Errno::NOENT)?;
        let owner = owner(&rustix::fs::fstat(&root)?);
        make_way(&mut target, path, Mode::from_raw_mode(0o755), owner)?;
        let to = target.spot(path)?;
        let wanted = Wanted { mode: kept(entry.mode), owner, sync: true };
        match (to.stat()?, kind(&seen)) {
            (Some(there), FileKind::Dir) if kind(&there) == FileKind::Dir && over => {
                rustix::fs::chmodat(to.dir, to.name.as_c_str(), wanted.mode, AtFlags::empty())?;
                Ok(Taken::Done)
            }
            (Some(there), FileKind::Dir) if kind(&there) == FileKind::Dir => Ok(Taken::Done),
            (Some(_), FileKind::Dir) => Ok(Taken::Occupied),
            (None, FileKind::Dir) => aside::make(&from, &to, &seen, &wanted).map(|()| Taken::Done),
            (Some(_), _) if !over => Ok(Taken::Occupied),
            _ => place(&from, &to, (&seen, &wanted), over),
        }
    };
    put().map_err(failed("take", &entry.path))
}

/// Only root can give something away.
fn owner(root: &Stat) -> Option<(u32, u32)> {
    rustix::process::geteuid().is_root().then_some((root.st_uid, root.st_gid))
}

fn place(
    from: &Spot<'_>,
    to: &Spot<'_>,
    (seen, wanted): (&Stat, &Wanted),
    over: bool,
) -> Result<Taken, Errno> {
    let beside = Spot { dir: to.dir, name: c_name(commit::unguessable()?.as_ref())? };
    let flags = if over { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    let renamed = aside::make(from, &beside, seen, wanted).and_then(|()| {
        rustix::fs::renameat_with(beside.dir, beside.name.as_c_str(), to.dir, to.name.as_c_str(), flags)
    });
    match renamed {
        Ok(()) => return Ok(Taken::Done),
        Err(_) => remove::remove_at(beside.dir, &beside.name)?,
    }
    match renamed {
        Err(Errno::EXIST) => Ok(Taken::Occupied),
        other => other.map(|()| Taken::Done),
    }
}

/// Removes one. It is gone under its name at once.
pub fn forget(conflicts: &Path, name: &str) -> Result<(), RuntimeError> {
    let doing = || RuntimeError::io(format!("remove what is kept of {name}"));
    let away = conflicts.join(format!("{MAKING}{name}.gone"));
    fs::rename(conflicts.join(name), &away).map_err(doing())?;
    remove::remove_tree(&away).map_err(|errno| doing()(errno.into()))
}

/// Removes what is older than this, and what processes that were killed have left.
pub fn prune(conflicts: &Path, age: Duration) {
    for entry in fs::read_dir(conflicts).into_iter().flatten().flatten() {
        let old = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
        if old.is_some_and(|old| old > age) {
            let _ = remove::remove_tree(&entry.path());
        }
    }
}
