//! Carries out the steps of a journal. Every step is one rename or one setting, looks first whether it was done
//! before, and touches nothing that is not what the plan saw there. Only what cannot be mended by waiting is
//! passed over, and named; anything else stops, and the journal stays for the next start.

use super::aside::Aside;
use super::attributes;
use super::commit::{Moment, Watch};
use super::copy::times;
use super::cursor::{Cursor, Spot};
use super::journal::{Known, Ledger, Source, Step};
use cofferdam_model::SkippedChange;
use rustix::fs::{AtFlags, Mode, RenameFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// The directories that steps speak of.
pub(super) struct Places {
    pub(super) work: Cursor,
    pub(super) staging: Cursor,
    /// The layer, where its files are placed without a copy.
    pub(super) upper: Option<Cursor>,
}

/// Why a step was not done.
enum Left {
    Changed,
    Errno(Errno),
}

impl From<Errno> for Left {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// Not worth another try: these say what is there, not how the machine is doing.
fn is_lasting(errno: Errno) -> bool {
    const LASTING: &[Errno] = &[
        Errno::ACCESS,
        Errno::PERM,
        Errno::ROFS,
        Errno::NOENT,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::NOTEMPTY,
        Errno::LOOP,
        Errno::XDEV,
        Errno::EXIST,
        Errno::BUSY,
        Errno::TXTBSY,
        Errno::NAMETOOLONG,
    ];
    LASTING.contains(&errno)
}

pub(super) fn apply(
    journal: &Ledger,
    places: &mut Places,
    aside: &mut Aside<'_>,
    watch: Watch<'_>,
) -> Result<Vec<SkippedChange>, Errno> {
    let mut skipped = Vec::new();
    for step in journal.steps()? {
        let step = &step?;
        watch.at(Moment::Apply)?;
        let reason = match one(step, places) {
            Ok(()) => continue,
            Err(Left::Changed) => "changed outside while the changes were carried over".to_owned(),
            Err(Left::Errno(errno)) if is_lasting(errno) => format!("cannot be put in place: {errno}"),
            Err(Left::Errno(errno)) => return Err(errno),
        };
        let kept = put_aside(step, places, aside, &reason)?;
        skipped.push(SkippedChange { path: step.path().clone(), reason, aside: kept });
    }
    aside.sync(watch)?;
    Ok(skipped)
}

/// Keeps what was to be placed and cannot be, before the staging directory goes.
fn put_aside(step: &Step, places: &mut Places, aside: &mut Aside<'_>, reason: &str) -> Result<bool, Errno> {
    let Step::Place { path, from, new, .. } = step else { return Ok(false) };
    let path = path.as_path();
    let waits = match (from, &mut places.upper) {
        (Source::Staged(slot), _) => places.staging.spot(Path::new(&slot.to_string())),
        (Source::Layer, Some(upper)) => upper.spot(path),
        (Source::Layer, None) => return Ok(false),
    };
    match waits {
        // What was there before has come back to where the new one waited.
        Ok(spot) if spot.stat()?.is_none_or(|stat| stat.st_ino != *new) => Ok(false),
        Ok(spot) => aside.keep(&spot, path, (None, reason), true),
        Err(errno) if is_lasting(errno) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn one(step: &Step, places: &mut Places) -> Result<(), Left> {
    match step {
        Step::Place { path, from, new, old } => {
            let to = places.work.spot(path.as_path())?;
            match (from, &mut places.upper) {
                (Source::Staged(slot), _) => {
                    place(&places.staging.spot(Path::new(&slot.to_string()))?, &to, *new, old.as_ref())
                }
                (Source::Layer, Some(upper)) => place(&upper.spot(path.as_path())?, &to, *new, old.as_ref()),
                (Source::Layer, None) => Err(Errno::NOENT.into()),
            }
        }
        Step::Remove { path, slot, old } => {
            let from = places.work.spot(path.as_path())?;
            remove(&from, &places.staging.spot(Path::new(&slot.to_string()))?, old)
        }
        Step::Settle { path, inode, mode, time, attributes } => {
            let dir = places.work.dir(path.as_path())?;
            if rustix::fs::fstat(dir)?.st_ino != *inode {
                return Err(Left::Changed);
            }
            settle(dir, *mode, *time, attributes.as_ref())
        }
    }
}

fn place(from: &Spot<'_>, to: &Spot<'_>, new: u64, old: Option<&Known>) -> Result<(), Left> {
    let there = to.stat()?;
    if there.is_some_and(|stat| stat.st_ino == new) {
        return Ok(());
    }
    let waits = from.stat()?.is_some_and(|stat| stat.st_ino == new);
    if !waits || there.as_ref().map(Known::of).as_ref() != old {
        return Err(Left::Changed);
    }
    let flags = if old.is_some() { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
    let (from_name, to_name) = (from.name.as_c_str(), to.name.as_c_str());
    match rustix::fs::renameat_with(from.dir, from_name, to.dir, to_name, flags) {
        // The file system cannot exchange. A plain rename replaces files as well, if not directories.
        Err(Errno::INVAL | Errno::NOSYS) => Ok(rustix::fs::renameat(from.dir, from_name, to.dir, to_name)?),
        Err(Errno::EXIST) => Err(Left::Changed),
        other => Ok(other?),
    }
}

fn remove(from: &Spot<'_>, slot: &Spot<'_>, old: &Known) -> Result<(), Left> {
    // It is there already, or it went without us.
    let (None, Some(there)) = (slot.stat()?, from.stat()?) else { return Ok(()) };
    if Known::of(&there) != *old {
        return Err(Left::Changed);
    }
    Ok(rustix::fs::renameat(from.dir, from.name.as_c_str(), slot.dir, slot.name.as_c_str())?)
}

fn settle(
    dir: BorrowedFd<'_>,
    mode: Option<u32>,
    time: Option<(i64, u64)>,
    wanted: Option<&attributes::Attributes>,
) -> Result<(), Left> {
    if let Some(wanted) = wanted {
        attributes::replace(dir, wanted)?;
    }
    if let Some(mode) = mode {
        rustix::fs::fchmod(dir, Mode::from_raw_mode(mode))?;
    }
    if let Some((seconds, nanos)) = time {
        rustix::fs::futimens(dir, &times(seconds, nanos))?;
    }
    Ok(())
}

/// Waits until what was done is on the disk: directory by directory where there are few, else all at once.
pub(super) fn sync(journal: &Ledger, places: &mut Places, few: bool) -> Result<(), Errno> {
    if !few {
        return rustix::fs::syncfs(places.work.root());
    }
    for step in journal.steps()? {
        let step = step?;
        match places.work.dir(step.path().as_path().parent().unwrap_or(Path::new(""))) {
            Ok(dir) => rustix::fs::fsync(dir)?,
            // It was replaced meanwhile; what stands there is another step's.
            Err(errno) if is_lasting(errno) => {}
            Err(errno) => return Err(errno),
        }
    }
    rustix::fs::fsync(places.staging.root())
}

/// Whether something may be made and removed in a directory.
pub(super) fn may_write(dir: BorrowedFd<'_>) -> bool {
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::accessat(dir.as_fd(), c".", access, AtFlags::EACCESS).is_ok()
}
