//! Carries a layer's changes over to the work dir: all of them or, if we are ended on the way, all or none after
//! the next start.
//!
//! Everything new is first brought to the work dir's file system; then a journal says what is to be done, and
//! its appearance decides; then each path gets its content by one rename. Readers may see a mixture until it
//! ends. What was replaced or deleted is moved away, not deleted: deleting is the slow part, and comes after.

use super::apply::{self, Places};
use super::aside::{Aside, Site};
use super::cursor::{Cursor, c_name};
use super::journal::{Head, Ledger, PREFIX, STAGING, Staging};
use super::plan::Plan;
use super::stage::Stage;
use super::{Layer, OPEN_DIR, io, remove};
use cofferdam_runtime::{ChangeList, Committed, RuntimeError};
use rustix::fs::{Mode, RenameFlags, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Up to so many changes the disk is waited for file by file; more are cheaper all at once.
const FEW: usize = 16;

/// A moment of a commit, before which it can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Intent,
    Staging,
    Stage,
    Aside,
    Sync,
    Decide,
    Apply,
    Settled,
    Named,
    Done,
    Clean,
    End,
}

/// Who is asked before each moment; nobody, but in tests of what happens when one does not come.
#[derive(Clone, Copy, Default)]
pub struct Watch<'a>(pub Option<&'a dyn Fn(Moment) -> Result<(), Errno>>);

impl Watch<'_> {
    pub(super) fn at(&self, moment: Moment) -> Result<(), Errno> {
        self.0.map_or(Ok(()), |watch| watch(moment))
    }

    fn io(&self, moment: Moment) -> Result<(), RuntimeError> {
        self.at(moment).map_err(io(format!("commit ({moment:?})")))
    }
}

/// Where a commit writes.
#[derive(Debug, Clone, Copy)]
pub struct Desk<'a> {
    /// The session's own directory, for the journal.
    pub session: &'a Path,
    /// Where what is left out is kept, of all sessions.
    pub conflicts: &'a Path,
}

/// Applies `changes`, which came from `diff` of the same layer. An error means that nothing was changed, or that the
/// next start completes it: it says which.
pub fn commit(
    layer: &Layer,
    changes: &ChangeList,
    desk: Desk<'_>,
    watch: Watch<'_>,
) -> Result<Committed, RuntimeError> {
    if changes.is_empty() {
        return Ok(Committed::default());
    }
    let dir = desk.session;
    let fresh = !dir.exists();
    let ground = Ground::prepare(layer, desk, watch).inspect_err(|_| {
        if fresh {
            let _ = rustix::fs::rmdir(dir);
        }
    })?;
    let few = changes.len() <= FEW;
    let decided = ground.decide(layer, changes, few, watch);
    let done = match decided {
        Ok(decided) => decided,
        Err(error) => {
            // Nothing was decided: what was staged goes, and if that fails, the next start does it.
            let _ = ground.abandon(dir, fresh);
            return Err(error);
        }
    };
    ground.carry_out(done, few, watch).map_err(|(doing, errno)| {
        RuntimeError::io(format!("{doing}; the journal is kept, and the next start completes the commit"))(
            errno,
        )
    })
}

/// A commit's directories.
struct Ground {
    head: Head,
    ledger: Ledger,
    work: OwnedFd,
    /// The work dir, before anything was staged in it.
    before: Stat,
    staging: OwnedFd,
    /// The layer, if its files can be renamed into the work dir.
    upper: Option<OwnedFd>,
}

impl Ground {
    fn prepare(layer: &Layer, desk: Desk<'_>, watch: Watch<'_>) -> Result<Self, RuntimeError> {
        let dir = desk.session;
        let failed = || io(format!("prepare a commit to {}", layer.workdir_path.display()));
        watch.io(Moment::Intent)?;
        let here = beside(&layer.workdir, dir).map_err(failed())?;
        let staging = if here { Staging::Here } else { Staging::Workdir(unguessable().map_err(failed())?) };
        let before = rustix::fs::fstat(&layer.workdir).map_err(failed())?;
        let mut head = Head::new(&layer.workdir_path, before.st_ino, staging);
        let site = Site::choose(desk.conflicts, dir);
        site.sweep().map_err(failed())?;
        head.aside = Some(site);
        let ledger = Ledger::begin(dir, &head)?;
        let made =
            watch.at(Moment::Staging).and_then(|()| make_staging(&head, &ledger, layer.workdir.as_fd()));
        let staging = match made {
            Ok(staging) => staging,
            Err(errno) => {
                let _ = ledger.end();
                return Err(failed()(errno));
            }
        };
        let upper = if here { own_upper(layer, &ledger).map_err(failed())? } else { None };
        let work = layer.workdir.try_clone().map_err(RuntimeError::io("open the work dir"))?;
        Ok(Self { head, ledger, work, before, staging, upper })
    }

    /// Up to the decision. Until then the work dir is as it was.
    fn decide(
        &self,
        layer: &Layer,
        changes: &ChangeList,
        few: bool,
        watch: Watch<'_>,
    ) -> Result<Committed, RuntimeError> {
        let place = layer.workdir_path.display();
        let failed = || io(format!("stage the changes for {place}; nothing was changed"));
        let cursor = |fd: &OwnedFd| Cursor::new(fd.as_fd()).map_err(failed());
        let stage =
            Stage::new(cursor(&layer.upper)?, cursor(&self.staging)?, self.upper.is_some(), layer.owner, few);
        let aside = Aside::of(&self.head);
        let draft = self.ledger.draft(&self.head)?;
        let plan = Plan::new(layer, (cursor(&layer.workdir)?, self.before), (stage, aside), draft, changes);
        let mut plan = plan.make(changes, watch).map_err(|(path, errno)| {
            io(format!("stage {} for {place}; nothing was changed: make room, or discard", path.display()))(
                errno,
            )
        })?;
        plan.aside.sync(watch).map_err(failed())?;
        let (draft, skipped, applied) = plan.finish().map_err(failed())?;
        watch.io(Moment::Sync)?;
        let synced = if few { rustix::fs::fsync(&self.staging) } else { rustix::fs::syncfs(&self.staging) };
        synced.map_err(failed())?;
        watch.io(Moment::Decide)?;
        self.ledger.decide(draft)?;
        Ok(Committed { applied, skipped, aside: None })
    }

    fn carry_out(
        self,
        mut done: Committed,
        few: bool,
        watch: Watch<'_>,
    ) -> Result<Committed, (&'static str, std::io::Error)> {
        let doing = |what: &'static str| move |errno: Errno| (what, errno.into());
        let mut places = Places {
            work: Cursor::new(self.work.as_fd()).map_err(doing("open the work dir"))?,
            staging: Cursor::new(self.staging.as_fd()).map_err(doing("open the staging directory"))?,
            upper: self
                .upper
                .as_ref()
                .map(|fd| Cursor::new(fd.as_fd()))
                .transpose()
                .map_err(doing("open the layer"))?,
        };
        let mut aside = Aside::of(&self.head);
        let skipped = apply::apply(&self.ledger, &mut places, &mut aside, watch)
            .map_err(doing("put the changes in place"))?;
        watch.at(Moment::Settled).map_err(doing("wait for the disk"))?;
        apply::sync(&self.ledger, &mut places, few).map_err(doing("wait for the disk"))?;
        done.aside = aside.publish(watch).map_err(doing("keep what was left out"))?;
        watch.at(Moment::Done).map_err(doing("close the journal"))?;
        let failed = |error: RuntimeError| ("close the journal", std::io::Error::other(error));
        self.ledger.done().map_err(failed)?;
        done.applied = done.applied.saturating_sub(skipped.len() as u64);
        done.skipped.extend(skipped);
        // It is complete. Whatever fails now is only not yet tidy.
        let clean = watch.at(Moment::Clean).and_then(|()| self.clean());
        if clean.and_then(|()| watch.at(Moment::End)).is_ok() {
            let _ = self.ledger.end();
        }
        Ok(done)
    }

    /// What lies in the work dir goes now; what lies beside the journal goes with the layer, out of everyone's way.
    fn clean(&self) -> Result<(), Errno> {
        match &self.head.staging {
            Staging::Here => Ok(()),
            Staging::Workdir(name) => remove::remove_at(self.work.as_fd(), &c_name(name.as_ref())?),
        }
    }

    fn abandon(self, dir: &Path, fresh: bool) -> Result<(), RuntimeError> {
        sweep(&self.head, &self.ledger, Some(self.work.as_fd())).map_err(io("remove what was staged"))?;
        self.head.aside.iter().try_for_each(Site::sweep).map_err(io("remove what was staged"))?;
        self.ledger.end()?;
        if fresh { remove::remove_tree(dir).map_err(io("remove what was staged")) } else { Ok(()) }
    }
}

/// Whether a file in `dir` can be renamed into the work dir: the same file system, seen through the same mount.
/// The target of the trial is no name at all, so that nothing is touched; the kernel looks at the mounts first.
fn beside(work: &OwnedFd, dir: &Path) -> Result<bool, Errno> {
    let near = if dir.exists() { dir } else { dir.parent().unwrap_or(dir) };
    let near = rustix::fs::open(near, OPEN_DIR, Mode::empty())?;
    if rustix::fs::fstat(&near)?.st_dev != rustix::fs::fstat(work)?.st_dev {
        return Ok(false);
    }
    let tried = rustix::fs::renameat_with(&near, ".", work, ".", RenameFlags::NOREPLACE);
    Ok(tried != Err(Errno::XDEV))
}

pub(super) fn unguessable() -> Result<String, Errno> {
    let mut random = [0u8; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(PREFIX
        .chars()
        .chain(random.iter().flat_map(|byte| format!("{byte:02x}").chars().collect::<Vec<_>>()))
        .collect())
}

fn make_staging(head: &Head, ledger: &Ledger, work: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let (dir, name) = match &head.staging {
        Staging::Here => (ledger.dir.as_fd(), STAGING),
        Staging::Workdir(name) => (work, name.as_str()),
    };
    if matches!(head.staging, Staging::Here) {
        // What an earlier commit of this session moved away.
        remove::remove_at(dir, &c_name(name.as_ref())?)?;
    }
    rustix::fs::mkdirat(dir, name, Mode::RWXU)?;
    rustix::fs::openat(dir, name, OPEN_DIR, Mode::empty())
}

/// The layer, if it lies beside the journal, where whoever completes the commit finds it.
fn own_upper(layer: &Layer, ledger: &Ledger) -> Result<Option<OwnedFd>, Errno> {
    let upper = match rustix::fs::openat(&ledger.dir, "upper", OPEN_DIR, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    let identity = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    Ok((identity(&upper)? == identity(&layer.upper)?).then_some(upper))
}

/// Removes the staging directory, wherever it is.
pub(super) fn sweep(head: &Head, ledger: &Ledger, work: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    match (&head.staging, work) {
        (Staging::Here, _) => remove::remove_at(ledger.dir.as_fd(), &c_name(STAGING.as_ref())?),
        (Staging::Workdir(name), Some(work)) if is_ours(name) => {
            remove::remove_at(work, &c_name(name.as_ref())?)
        }
        _ => Ok(()),
    }
}

fn is_ours(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// The work dir that a journal speaks of, if it is still the one.
pub(super) fn find_work(head: &Head) -> Result<Option<OwnedFd>, Errno> {
    let path: PathBuf = head.workdir.as_path().to_owned();
    match rustix::fs::open(&path, OPEN_DIR, Mode::empty()) {
        Ok(work) if rustix::fs::fstat(&work)?.st_ino == head.inode => Ok(Some(work)),
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}
