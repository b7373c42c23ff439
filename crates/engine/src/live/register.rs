//! What is on file about a session that stays, beside its socket: what to say of it when nobody answers there any
//! more. Written when it is made, removed when it ends; what is left is of a supervisor that was killed.

use crate::error::EngineError;
use cofferdam_model::{LiveState, SessionId, SessionInfo};
use cofferdam_store::Home;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A session that was lost is told of so long, or until someone kills it.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// Files of entries that were struck, to be written anew: a disk has less to do for a file that gets another name than for
/// one that is made and removed.
static SPARE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// So many are kept.
const SPARE_MOST: usize = 64;
const SPARE_PREFIX: &str = "spare-";

fn spare() -> MutexGuard<'static, Vec<PathBuf>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take_spare(dir: &Path) -> Option<PathBuf> {
    let mut all = spare();
    let at = all.iter().rposition(|path| path.parent() == Some(dir))?;
    Some(all.swap_remove(at))
}

/// Whether it is kept now; else it still stands where it stood.
fn keep_spare(file: &Path) -> bool {
    static LAST: AtomicU64 = AtomicU64::new(0);
    if spare().len() >= SPARE_MOST {
        return false;
    }
    let name = format!("{SPARE_PREFIX}{}", LAST.fetch_add(1, Ordering::Relaxed));
    let kept = file.with_file_name(name);
    let done = fs::rename(file, &kept).is_ok();
    if done {
        spare().push(kept);
    }
    done
}

/// Removes what is kept to be written anew, also by who was killed. Only for who holds no session.
pub(super) fn drop_spare(home: &Home) {
    let Ok(dir) = home.live_dir() else { return };
    spare().retain(|path| path.parent() != Some(&dir));
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(SPARE_PREFIX)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn file(home: &Home, session: &SessionId) -> io::Result<PathBuf> {
    Ok(home.live_dir()?.join(format!("{session}.json")))
}

fn logs(home: &Home, session: &SessionId) -> io::Result<PathBuf> {
    Ok(home.live_dir()?.join(format!("{session}.logs")))
}

pub(super) fn enter(home: &Home, info: &SessionInfo) -> Result<(), EngineError> {
    let failed = |source| EngineError::Io { doing: "enter the session in the register", source };
    let reason = format!("its supervisor (pid {}) was ended, and it with it", std::process::id());
    let lost = SessionInfo { state: LiveState::Lost, reason: Some(reason), ..info.clone() };
    let path = file(home, &info.session).map_err(failed)?;
    let spare = path.parent().and_then(take_spare);
    let making = spare.unwrap_or_else(|| path.with_extension("making"));
    let write = || {
        let text = serde_json::to_vec(&lost)?;
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&making)?;
        file.write_all(&text)?;
        file.set_len(text.len() as u64)?;
        fs::rename(&making, &path)
    };
    write().map_err(failed)
}

/// Everything that was on file for it goes.
pub(super) fn strike(home: &Home, session: &SessionId) {
    if let (Ok(file), Ok(logs)) = (file(home, session), logs(home, session)) {
        let _ = fs::remove_file(file);
        let _ = fs::remove_dir_all(logs);
    }
}

/// The same for whoever entered it, and will enter others.
pub(super) fn retire(home: &Home, session: &SessionId) {
    if file(home, session).is_ok_and(|file| keep_spare(&file)) {
        let _ = logs(home, session).and_then(fs::remove_dir_all);
    } else {
        strike(home, session);
    }
}

pub(super) fn find(home: &Home, session: &SessionId) -> Option<SessionInfo> {
    serde_json::from_slice(&fs::read(file(home, session).ok()?).ok()?).ok()
}

/// All that are on file, whether or not they still are.
pub(super) fn all(home: &Home) -> Vec<SessionInfo> {
    let Ok(dir) = home.live_dir() else { return Vec::new() };
    let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let ids = names.filter_map(|name| name.to_str()?.strip_suffix(".json")?.parse::<SessionId>().ok());
    let mut found: Vec<SessionInfo> = ids.filter_map(|id| find(home, &id)).collect();
    found.sort_by(|one, other| one.session.cmp(&other.session));
    found
}

/// Forgets what was lost long ago. Only for who holds no session yet.
pub(super) fn forget(home: &Home) {
    drop_spare(home);
    for info in all(home) {
        let age = file(home, &info.session).and_then(fs::metadata).and_then(|meta| meta.modified());
        if age.ok().and_then(|entered| entered.elapsed().ok()).is_some_and(|age| age > REMEMBERED) {
            strike(home, &info.session);
        }
    }
}

/// Where the output of a detached exec is kept.
pub(super) fn log(home: &Home, session: &SessionId, exec: u32) -> io::Result<PathBuf> {
    Ok(logs(home, session)?.join(format!("{exec}.log")))
}

pub(super) fn open_log(home: &Home, session: &SessionId, exec: u32) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(logs(home, session)?)?;
    OpenOptions::new().append(true).create(true).mode(0o600).open(log(home, session, exec)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::Counters;

    fn info(at: u64, workdir: &str) -> SessionInfo {
        SessionInfo {
            session: SessionId::new(at, 1),
            state: LiveState::Running,
            reason: None,
            live: None,
            started_us: at,
            until_us: None,
            workdir: workdir.into(),
            policy: false,
            running: 0,
            browser: None,
            transactions: 0,
            execs: Vec::new(),
            usage: Counters::default(),
        }
    }

    #[test]
    fn a_file_is_written_anew_and_says_nothing_of_who_had_it_before() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(&dir.path().join("home")).unwrap();
        let names = || {
            let entries = fs::read_dir(home.live_dir().unwrap()).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let (long, short) = (info(1, &format!("/work/{}", "x".repeat(200))), info(2, "/w"));
        enter(&home, &long).unwrap();
        retire(&home, &long.session);
        assert!(find(&home, &long.session).is_none() && all(&home).is_empty());
        assert!(matches!(names().as_slice(), [one] if one.starts_with(SPARE_PREFIX)), "{:?}", names());
        enter(&home, &short).unwrap();
        assert_eq!(names(), [format!("{}.json", short.session)], "the same file");
        assert_eq!(find(&home, &short.session).unwrap().workdir, Path::new("/w"));
        retire(&home, &short.session);
        forget(&home);
        assert_eq!(names(), [""; 0]);
        enter(&home, &short).unwrap();
        assert_eq!(find(&home, &short.session).unwrap().session, short.session);
        strike(&home, &short.session);
        assert_eq!(names(), [""; 0], "who does not hold sessions keeps nothing");
    }
}
