//! From what is on file of a sandbox to the session that runs in it: its template, its time, its rules.

use crate::app::State;
use crate::egress;
use crate::sandbox::{Record, Sandbox};
use crate::template;
use cofferdam_engine::EngineError;
use cofferdam_model::{Live, SessionId, SessionSpec, Span, TimeOver};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The least that a session can be asked for.
const LEAST: Duration = Duration::from_millis(1);

/// Makes a sandbox, and keeps it on file. Its session's name becomes its own.
pub(crate) fn make(
    app: &State,
    mut record: Record,
    time: Duration,
    by: String,
) -> Result<Arc<Sandbox>, EngineError> {
    let session = begin(app, &record, time, by, None)?;
    record.id = session.clone();
    record.session = Some(session);
    let kept = app.sandboxes.enter(record);
    kept.map_err(|source| EngineError::Io { doing: "keep the sandbox on file", source })
}

/// Makes the session of a sandbox, over these files if there are any.
pub(crate) fn begin(
    app: &State,
    record: &Record,
    time: Duration,
    by: String,
    files: Option<String>,
) -> Result<SessionId, EngineError> {
    let spec = spec(app, record, time)?;
    let files = files.or_else(|| record.from.clone());
    let session = app.house.create(spec, by, false, files)?;
    app.owners.enter(&session, &record.tenant);
    // Placeholders are known only now.
    if let Err(error) = apply_policy(app, record, &session) {
        let _ = app.house.kill(&session, None, "the service");
        return Err(error);
    }
    Ok(session)
}

fn spec(app: &State, record: &Record, time: Duration) -> Result<SessionSpec, EngineError> {
    let failed = |source| EngineError::Io { doing: "prepare the template", source };
    let Some(mut spec) = template::spec(app, &record.template).map_err(failed)? else {
        return Err(EngineError::Declined(format!("there is no template `{}`", record.template)));
    };
    let over = if record.auto_pause { TimeOver::Pause } else { TimeOver::End };
    spec.live = Live { ttl: Some(Span(time.max(LEAST))), over, ..Live::default() };
    spec.env.extend(record.env.clone());
    spec.secrets = record.secrets.clone();
    spec.volumes = record.volumes.clone();
    spec.policy = Some(write_policy(app, record, &[])?);
    Ok(spec)
}

fn policy_file(app: &State, name: &str) -> PathBuf {
    app.engine.home().path().join("service").join("policies").join(format!("{name}.toml"))
}

/// Puts its rules in force, with the placeholders of its session in them.
pub(crate) fn apply_policy(app: &State, record: &Record, session: &SessionId) -> Result<(), EngineError> {
    let placeholders = app.house.placeholders(session);
    if placeholders.is_empty() && record.session.is_none() {
        return Ok(());
    }
    let path = write_policy(app, record, &placeholders)?;
    app.engine.set_policy(session, path).map(drop)
}

fn write_policy(
    app: &State,
    record: &Record,
    placeholders: &[(String, String)],
) -> Result<PathBuf, EngineError> {
    let failed = |source| EngineError::Io { doing: "write the sandbox's policy", source };
    let path = policy_file(app, record.rules.first().map_or("none", String::as_str));
    path.parent().map_or(Ok(()), crate::disk::make_dir).map_err(failed)?;
    let text = egress::policy(&app.config.e2b, record, placeholders)
        .map_err(|error| EngineError::Declined(error.to_string()))?;
    crate::disk::write_text(&path, &text).map_err(failed)?;
    Ok(path)
}

/// Removes the rules that only this sandbox needed. Called when it is not known any more.
pub(crate) fn remove_policy(app: &State, record: &Record) {
    let others = app.sandboxes.all();
    let needed = |name: &String| others.iter().any(|other| other.record().rules.contains(name));
    for name in record.rules.iter().filter(|name| !needed(name)) {
        let _ = std::fs::remove_file(policy_file(app, name));
    }
}
