//! What is on file about a session that stays, beside its socket: what to say of it when nobody answers there any
//! more. Written when it is made, removed when it ends; what is left is of a supervisor that was killed.

use crate::error::EngineError;
use cofferdam_model::{LiveState, SessionId, SessionInfo};
use cofferdam_store::Home;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

/// A session that was lost is told of so long, or until someone kills it.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

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
    let making = path.with_extension("making");
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&making)?;
        file.write_all(&serde_json::to_vec(&lost)?)?;
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
