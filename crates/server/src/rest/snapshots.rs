//! Files under a name.

use super::sessions::told as session_told;
use super::wire::{Caller, Input, Problem};
use crate::app::{App, blocking};
use crate::snapshot::{self, Kept};
use crate::time::told as time;
use axum::Json;
use axum::extract::{Path, State};
use cofferdam_api::v1;
use http::StatusCode;

fn told(kept: Kept) -> v1::Snapshot {
    let name = kept.id.strip_suffix(":default").unwrap_or(&kept.id).to_owned();
    v1::Snapshot { name, session: kept.sandbox, template: kept.template, taken_at: time(kept.taken_us) }
}

pub(super) async fn take(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Input(asked): Input<v1::SnapshotAsked>,
) -> Result<(StatusCode, Json<v1::Snapshot>), Problem> {
    let word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if asked.name.is_empty() || asked.name.len() > 64 || !asked.name.chars().all(word) {
        return Err(Problem::bad("`name`: up to 64 letters, digits, `-`, `_` and `.` are needed"));
    }
    let (sandbox, _) = caller.running(&app, &id)?;
    let kept = snapshot::take(&app, &sandbox, Some(asked.name), caller.by()).await?;
    Ok((StatusCode::CREATED, Json(told(kept))))
}

pub(super) async fn restore(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Input(asked): Input<v1::SnapshotAsked>,
) -> Result<Json<v1::Session>, Problem> {
    let (sandbox, session) = caller.running(&app, &id)?;
    let tenant = sandbox.record().tenant.clone();
    let _alone = sandbox.changing.lock().await;
    let by = caller.by();
    let done = blocking(&app, move |app| match snapshot::find(app, &tenant, &asked.name) {
        Some(kept) => app.house.restore(&session, &kept.files, &by).map(|()| true),
        None => Ok(false),
    });
    match done.await? {
        true => session_told(&app, sandbox.clone()).await.map(Json),
        false => Err(Problem::not_found("snapshot")),
    }
}

pub(super) async fn list(
    State(app): State<App>,
    Caller(key): Caller,
) -> Result<Json<v1::Snapshots>, Problem> {
    let found = blocking(&app, move |app| Ok(snapshot::all(app, &key.tenant))).await?;
    Ok(Json(v1::Snapshots { snapshots: found.into_iter().map(told).collect() }))
}

pub(super) async fn remove(
    State(app): State<App>,
    Caller(key): Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let found = blocking(&app, move |app| {
        let found = snapshot::find(app, &key.tenant, &name);
        found.iter().for_each(|kept| snapshot::discard(app, kept));
        Ok(found.is_some())
    });
    match found.await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found("snapshot")),
    }
}
