//! Completes or drops, at the next start, a commit that was interrupted: decided, it is carried out to its end;
//! undecided, what was staged for it goes and the work dir was never touched.

use super::apply::{self, Places};
use super::aside::{Aside, Site};
use super::commit::{Watch, find_work, sweep};
use super::cursor::Cursor;
use super::journal::{self, Head, Ledger};
use super::{OPEN_DIR, io, remove};
use cofferdam_model::SkippedChange;
use cofferdam_runtime::RuntimeError;
use rustix::fs::Mode;
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// What became of a commit that was interrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovered {
    /// There was none.
    Nothing,
    /// It had not been decided: it never was.
    Dropped,
    /// It is complete, but for what was changed outside meanwhile.
    Completed { skipped: Vec<SkippedChange> },
}

/// Deals with whatever a commit left in `dir`, a session's own directory. On an error everything stays as it is,
/// for another try.
pub fn recover(dir: &Path, watch: Watch<'_>) -> Result<Recovered, RuntimeError> {
    let Some(ledger) = Ledger::resume(dir)? else { return Ok(Recovered::Nothing) };
    let failed = || io(format!("complete the commit in {}", dir.display()));
    let (head, decided) = match ledger.decided()? {
        Some(head) => (head, true),
        None => match ledger.intended() {
            Some(head) => (head, false),
            None => return ledger.end().map(|()| Recovered::Dropped),
        },
    };
    let work = find_work(&head).map_err(failed())?;
    let recovered = match (decided, &work) {
        (false, _) => {
            head.aside.iter().try_for_each(Site::sweep).map_err(failed())?;
            Recovered::Dropped
        }
        (true, None) => {
            return Err(RuntimeError::Refused {
                what: format!("a commit to {} was interrupted, and that directory is gone", head.workdir),
                fix: format!("bring it back, or remove {} to give the changes up", dir.display()),
            });
        }
        (true, Some(work)) => {
            let skipped = carry_out(&head, &ledger, work.as_fd(), watch).map_err(failed())?;
            ledger.done()?;
            Recovered::Completed { skipped }
        }
    };
    sweep(&head, &ledger, work.as_ref().map(AsFd::as_fd)).map_err(failed())?;
    ledger.end()?;
    Ok(recovered)
}

fn carry_out(
    head: &Head,
    ledger: &Ledger,
    work: std::os::fd::BorrowedFd<'_>,
    watch: Watch<'_>,
) -> Result<Vec<SkippedChange>, Errno> {
    let staging = match &head.staging {
        journal::Staging::Here => rustix::fs::openat(&ledger.dir, journal::STAGING, OPEN_DIR, Mode::empty())?,
        journal::Staging::Workdir(name) => rustix::fs::openat(work, name.as_str(), OPEN_DIR, Mode::empty())?,
    };
    let upper = match rustix::fs::openat(&ledger.dir, "upper", OPEN_DIR, Mode::empty()) {
        Ok(upper) => Some(Cursor::new(upper.as_fd())?),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(errno),
    };
    let mut places = Places { work: Cursor::new(work)?, staging: Cursor::new(staging.as_fd())?, upper };
    let mut aside = Aside::of(head);
    let skipped = apply::apply(ledger, &mut places, &mut aside, watch)?;
    apply::sync(ledger, &mut places, false)?;
    aside.publish(watch)?;
    Ok(skipped)
}

/// The work dir of a commit that was decided on in `dir` and is not complete.
pub fn pending(dir: &Path) -> Option<PathBuf> {
    Some(journal::pending(dir)?.workdir.as_path().to_owned())
}

/// Removes a session's directory, unless a commit in it still has to be completed.
pub fn leave(dir: &Path) {
    if !journal::is_pending(dir) {
        let _ = remove::remove_tree(dir);
    }
}
