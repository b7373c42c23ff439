//! Snapshots, as E2B tells of them: templates that are made of a sandbox.

use super::wire::{Caller, Input, Problem};
use super::{by, find as find_sandbox};
use crate::app::{App, blocking};
use crate::route;
use crate::snapshot::{self, Kept, canonical};
use axum::Json;
use axum::extract::{Path, State};
use cofferdam_api::e2b;
use http::{StatusCode, Uri};

pub(super) async fn take(
    State(app): State<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
    Input(asked): Input<e2b::Snapshot>,
) -> Result<(StatusCode, Json<e2b::SnapshotTaken>), Problem> {
    let sandbox = find_sandbox(&app, &key, &id)?;
    let word = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if asked.name.as_ref().is_some_and(|name| name.is_empty() || name.len() > 100 || !name.chars().all(word))
    {
        return Err(Problem::bad("`name`: up to 100 letters, digits, `-`, `_`, `.` and a `:tag` are needed"));
    }
    let kept = snapshot::take(&app, &sandbox, asked.name, by(&key)).await?;
    Ok((StatusCode::CREATED, Json(told(kept))))
}

fn told(kept: Kept) -> e2b::SnapshotTaken {
    e2b::SnapshotTaken { snapshot_id: kept.id.clone(), names: vec![kept.id] }
}

pub(super) async fn list(
    State(app): State<App>,
    Caller(key): Caller,
    uri: Uri,
) -> Result<Json<Vec<e2b::SnapshotTaken>>, Problem> {
    let query = route::query(&uri);
    let get = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let (sandbox, name) = (get("sandboxID"), get("name"));
    let mut found = blocking(&app, move |app| Ok(snapshot::all(app, &key.tenant))).await?;
    found.retain(|kept| sandbox.as_ref().is_none_or(|id| *id == kept.sandbox));
    found.retain(|kept| name.as_ref().is_none_or(|name| canonical(name) == kept.id));
    Ok(Json(found.into_iter().map(told).collect()))
}

/// `DELETE /templates/{snapshot}`.
pub(super) async fn remove(
    State(app): State<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let found = blocking(&app, move |app| {
        let found = snapshot::find(app, &key.tenant, &id);
        found.iter().for_each(|kept| snapshot::discard(app, kept));
        Ok(found.is_some())
    });
    match found.await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found("there is no such snapshot, and templates of the service stay")),
    }
}
