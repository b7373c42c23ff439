//! What becomes of a sandbox once it is made, whichever API asks: found, put to sleep, woken, ended, and kept over a
//! restart of the service.
//!
//! ```text
//! running ─(pause)─▶ asleep: its processes stand still ─(wake)─▶ running
//! running ─(pause, files only; or the service goes)─▶ stored: nothing runs ─(wake)─▶ running, begun anew over its files
//! any ─(the service is killed)─▶ lost; told of for a day
//! ```

use crate::app::{App, State, blocking, now_us};
use crate::plan;
use crate::sandbox::{Record, Sandbox};
use cofferdam_engine::EngineError;
use cofferdam_model::{Changes, LiveState, SessionId, SessionInfo, Span};
use futures_util::StreamExt;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// One that was lost is told of so long.
const REMEMBERED_US: u64 = 24 * 3600 * 1_000_000;
/// So many are put away at once when the service goes.
const AT_ONCE: usize = 8;

/// How a sandbox is.
#[derive(Debug, Clone)]
pub(crate) enum Condition {
    Running(Box<SessionInfo>),
    /// Its processes stand still.
    Asleep(Box<SessionInfo>),
    /// Only its files are there.
    Stored,
    Lost,
}

/// One that is still there. Whose session has ended by itself (its time was over, someone killed it by the command
/// line) is forgotten here.
pub(crate) fn present(app: &App, id: &SessionId) -> Option<Arc<Sandbox>> {
    let sandbox = app.sandboxes.get(id)?;
    let (session, lost) = {
        let record = sandbox.record();
        (record.session.clone(), record.lost_us.is_some())
    };
    match session {
        _ if lost => None,
        // Whoever changes it just now knows better.
        Some(session) if !app.house.holds(&session) && sandbox.changing.try_lock().is_ok() => {
            app.sandboxes.forget(id);
            plan::remove_policy(app, &sandbox.record());
            None
        }
        _ => Some(sandbox),
    }
}

pub(crate) fn condition(app: &State, sandbox: &Sandbox) -> Result<Condition, EngineError> {
    let (session, lost) = {
        let record = sandbox.record();
        (record.session.clone(), record.lost_us.is_some())
    };
    match session {
        _ if lost => Ok(Condition::Lost),
        None => Ok(Condition::Stored),
        Some(session) => {
            let info = Box::new(app.house.info(&session)?);
            Ok(match info.state {
                LiveState::Running => Condition::Running(info),
                _ => Condition::Asleep(info),
            })
        }
    }
}

/// One in which something runs, for a request to it. One that sleeps is woken, if its maker wished so.
pub(crate) async fn awake(app: &App, id: &SessionId) -> Option<Arc<Sandbox>> {
    let sandbox = present(app, id)?;
    let seen = sandbox.clone();
    let state = blocking(app, move |app| condition(app, &seen)).await.ok()?;
    match state {
        Condition::Running(_) => Some(sandbox),
        Condition::Lost => None,
        Condition::Asleep(_) | Condition::Stored if !sandbox.record().auto_resume => None,
        Condition::Asleep(_) | Condition::Stored => {
            let timeout = Duration::from_secs(sandbox.record().timeout);
            wake(app, &sandbox, timeout, "a request").await.ok()?;
            Some(sandbox)
        }
    }
}

/// Wakes it for so long, if it sleeps; says whether it did.
pub(crate) async fn wake(
    app: &App,
    sandbox: &Arc<Sandbox>,
    time: Duration,
    by: &str,
) -> Result<bool, EngineError> {
    let _alone = sandbox.changing.lock().await;
    let (sandbox, by) = (sandbox.clone(), by.to_owned());
    blocking(app, move |app| match condition(app, &sandbox)? {
        Condition::Running(_) => Ok(false),
        Condition::Lost => Err(EngineError::NotLive(sandbox.id.to_string())),
        Condition::Asleep(info) => {
            // First more time, so that it does not end on the way.
            app.house.set_time(&info.session, Some(Span(time)), &by)?;
            app.house.resume(&info.session, &by)?;
            Ok(true)
        }
        Condition::Stored => begin_anew(app, &sandbox, time, by).map(|()| true),
    })
    .await
}

/// A session over the files that were kept.
fn begin_anew(app: &State, sandbox: &Sandbox, time: Duration, by: String) -> Result<(), EngineError> {
    let record = sandbox.record().clone();
    let files = record.files.clone();
    let session = plan::begin(app, &record, time, by, files.clone())?;
    let kept = app.sandboxes.change(sandbox, |record| {
        record.session = Some(session.clone());
        record.files = None;
    });
    kept.map_err(|source| EngineError::Io { doing: "keep the sandbox on file", source })?;
    // The session holds the layers itself.
    files.iter().for_each(|name| drop(app.house.forget(name)));
    Ok(())
}

/// Stops it where it stands. Where that cannot be had, or is not wanted, its files are kept and its processes end.
pub(crate) async fn sleep(
    app: &App,
    sandbox: &Arc<Sandbox>,
    memory: bool,
    by: &str,
) -> Result<bool, EngineError> {
    let _alone = sandbox.changing.lock().await;
    let (sandbox, by) = (sandbox.clone(), by.to_owned());
    blocking(app, move |app| {
        let Condition::Running(info) = condition(app, &sandbox)? else { return Ok(false) };
        if memory {
            match app.house.pause(&info.session, &by) {
                Ok(()) => {
                    app.house.set_time(&info.session, None, &by)?;
                    return Ok(true);
                }
                Err(error) if error.is_refusal() => {}
                Err(error) => return Err(error),
            }
        }
        store(app, &sandbox, &info.session, &by).map(|()| true)
    })
    .await
}

/// Keeps the files, and ends what runs.
fn store(app: &State, sandbox: &Sandbox, session: &SessionId, by: &str) -> Result<(), EngineError> {
    let name = format!("stored-{session}");
    app.house.snapshot(session, &name, true, by)?;
    let kept = app.sandboxes.change(sandbox, |record| {
        record.session = None;
        record.files = Some(name.clone());
    });
    kept.map_err(|source| EngineError::Io { doing: "keep the sandbox on file", source })?;
    app.house.kill(session, Some(Changes::Discard), by).map(drop)
}

/// Makes sandboxes that begin with its files, each with a token of its own.
pub(crate) async fn fork(
    app: &App,
    sandbox: &Arc<Sandbox>,
    count: u32,
    time: Duration,
    by: &str,
) -> Result<Vec<Arc<Sandbox>>, EngineError> {
    let _alone = sandbox.changing.lock().await;
    let (forked, by) = (sandbox.clone(), by.to_owned());
    blocking(app, move |app| {
        let Condition::Running(info) = condition(app, &forked)? else {
            return Err(EngineError::Declined("it is paused: resume it first".into()));
        };
        let failed = |source| EngineError::Io { doing: "keep the sandbox on file", source };
        let sessions = app.house.fork(&info.session, count as usize, &by)?;
        let mut all = Vec::new();
        for session in sessions {
            app.house.set_time(&session, Some(Span(time)), &by)?;
            let mut record = forked.record().clone();
            app.owners.enter(&session, &record.tenant);
            record.id = session.clone();
            record.session = Some(session.clone());
            record.started_us = now_us();
            record.timeout = time.as_secs();
            record.envd_token = crate::disk::random_hex::<20>().map_err(failed)?;
            record.rules.insert(0, crate::disk::random_hex::<12>().map_err(failed)?);
            plan::apply_policy(app, &record, &session)?;
            all.push(app.sandboxes.enter(record).map_err(failed)?);
        }
        Ok(all)
    })
    .await
}

/// Ends it, and all that is kept of it. Whether there was anything to end: one that has ended by itself is only taken off the books.
pub(crate) async fn end(app: &App, sandbox: &Arc<Sandbox>, by: &str) -> Result<bool, EngineError> {
    let _alone = sandbox.changing.lock().await;
    let (ending, by) = (sandbox.clone(), by.to_owned());
    blocking(app, move |app| {
        let (session, files, lost) = {
            let record = ending.record();
            (record.session.clone(), record.files.clone(), record.lost_us.is_some())
        };
        let ended = match session.map(|session| app.house.kill(&session, Some(Changes::Discard), &by)) {
            None | Some(Ok(_)) => true,
            // One that was lost needs no end any more, and is still there to be taken away.
            Some(Err(EngineError::NotLive(_) | EngineError::Lost { .. })) => lost,
            Some(Err(error)) => return Err(error),
        };
        files.iter().for_each(|name| drop(app.house.forget(name)));
        app.sandboxes.forget(&ending.id);
        plan::remove_policy(app, &ending.record());
        Ok(ended)
    })
    .await
}

/// After a start: what was on file, and what became of it.
pub(crate) fn recover(app: &App, kept: Vec<Record>) {
    let stored: Vec<String> = app.engine.snapshots().into_iter().map(|snapshot| snapshot.name).collect();
    for mut record in kept {
        let whole =
            record.session.is_none() && record.files.as_ref().is_some_and(|name| stored.contains(name));
        if !whole {
            let since = *record.lost_us.get_or_insert_with(now_us);
            if now_us().saturating_sub(since) > REMEMBERED_US {
                app.sandboxes.forget(&record.id);
                continue;
            }
            app.log.warn("a sandbox was lost", json!({ "sandbox": record.id, "tenant": record.tenant }));
        }
        let id = record.id.clone();
        if let Err(error) = app.sandboxes.enter(record) {
            app.log.warn("a sandbox cannot be kept", json!({ "sandbox": id, "why": error.to_string() }));
        }
    }
}

/// Before the end: files are kept, then every session ends in order.
pub(crate) async fn leave(app: &App) {
    let all = app.sandboxes.all().into_iter().filter(|sandbox| sandbox.session().is_some());
    let storing = all.map(|sandbox| {
        let app = app.clone();
        tokio::task::spawn_blocking(move || {
            let session = match condition(&app, &sandbox) {
                Ok(Condition::Running(info)) => info.session,
                Ok(Condition::Asleep(info)) => {
                    let _ = app.house.resume(&info.session, "the service");
                    info.session
                }
                _ => return,
            };
            if let Err(error) = store(&app, &sandbox, &session, "the service") {
                let fields = json!({ "sandbox": sandbox.id, "why": error.to_string() });
                app.log.warn("a sandbox cannot be kept", fields);
            }
        })
    });
    futures_util::stream::iter(storing).buffer_unordered(AT_ONCE).for_each(|_| async {}).await;
    let app = app.clone();
    let _ = tokio::task::spawn_blocking(move || app.house.leave()).await;
}
