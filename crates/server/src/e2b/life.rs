//! A sandbox ended, paused, woken, given time.

use super::create::span;
use super::wire::{Caller, Input, Problem};
use super::{by, find, told};
use crate::app::{App, blocking};
use crate::life::{Condition, condition, end, sleep, wake};
use axum::Json;
use axum::extract::{Path, State};
use cofferdam_api::e2b::{Connect, Created, Pause, Refresh, Timeout};
use cofferdam_engine::EngineError;
use cofferdam_model::Span;
use http::{StatusCode, Uri};
use std::time::Duration;

const TIMEOUT: u64 = 300;
/// What E2B's own server gave on the older paths.
const TIMEOUT_V1: u64 = 15;
const REFRESH: u64 = 60;

pub(super) async fn kill(
    State(app): State<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let sandbox = find(&app, &key, &id)?;
    match end(&app, &sandbox, &by(&key)).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(EngineError::NotLive(id).into()),
    }
}

pub(super) async fn connect(
    State(app): State<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
    uri: Uri,
    Input(asked): Input<Connect>,
) -> Result<(StatusCode, Json<Created>), Problem> {
    let default = if uri.path().starts_with("/v2/") { TIMEOUT } else { TIMEOUT_V1 };
    let time = span(&app, asked.timeout.unwrap_or(default))?;
    let sandbox = find(&app, &key, &id)?;
    if asked.memory == Some(false) {
        // Begun anew from its files, as it is asked.
        sleep(&app, &sandbox, false, &by(&key)).await?;
    }
    let woken = wake(&app, &sandbox, time, &by(&key)).await?;
    if !woken {
        extend(&app, &sandbox, time, by(&key)).await?;
    }
    let status = if woken { StatusCode::CREATED } else { StatusCode::OK };
    let created = told(&app, &sandbox.record());
    Ok((status, Json(created)))
}

/// Of older SDKs: only for one that sleeps.
pub(super) async fn resume(
    State(app): State<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
    Input(asked): Input<Connect>,
) -> Result<(StatusCode, Json<Created>), Problem> {
    let time = span(&app, asked.timeout.unwrap_or(TIMEOUT_V1))?;
    let sandbox = find(&app, &key, &id)?;
    if !wake(&app, &sandbox, time, &by(&key)).await? {
        return Err(Problem::conflict(format!("Sandbox {id} is already running")));
    }
    let created = told(&app, &sandbox.record());
    Ok((StatusCode::CREATED, Json(created)))
}

/// Never less than it has.
async fn extend(
    app: &App,
    sandbox: &std::sync::Arc<crate::sandbox::Sandbox>,
    time: Duration,
    by: String,
) -> Result<(), Problem> {
    let sandbox = sandbox.clone();
    let extended = blocking(app, move |app| {
        let Condition::Running(info) = condition(app, &sandbox)? else { return Ok(()) };
        let until = info.until_us.unwrap_or(u64::MAX);
        if until < crate::app::now_us() + time.as_micros() as u64 {
            app.house.set_time(&info.session, Some(Span(time)), &by)?;
        }
        Ok(())
    });
    Ok(extended.await?)
}

pub(super) async fn timeout(
    State(app): State<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
    Input(asked): Input<Timeout>,
) -> Result<StatusCode, Problem> {
    let time = span(&app, asked.timeout)?;
    let sandbox = find(&app, &key, &id)?;
    let by = by(&key);
    let set = blocking(&app, move |app| match condition(app, &sandbox)? {
        Condition::Running(info) => {
            app.house.set_time(&info.session, Some(Span(time)), &by)?;
            app.sandboxes.change(&sandbox, |record| record.timeout = time.as_secs()).map_err(|source| {
                cofferdam_engine::EngineError::Io { doing: "keep the sandbox on file", source }
            })?;
            Ok(true)
        }
        _ => Ok(false),
    });
    match set.await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found(format!("sandbox \"{id}\" is paused: connect to it first"))),
    }
}

pub(super) async fn refresh(
    State(app): State<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
    Input(asked): Input<Refresh>,
) -> Result<StatusCode, Problem> {
    let time = span(&app, asked.duration.unwrap_or(REFRESH))?;
    let sandbox = find(&app, &key, &id)?;
    extend(&app, &sandbox, time, by(&key)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn pause(
    State(app): State<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
    Input(asked): Input<Pause>,
) -> Result<StatusCode, Problem> {
    let sandbox = find(&app, &key, &id)?;
    let memory = asked.memory.unwrap_or(true);
    match sleep(&app, &sandbox, memory, &by(&key)).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::conflict(format!("Sandbox {id} is already paused"))),
    }
}
