//! Snapshots, as E2B tells of them: templates that are made of a sandbox.

use super::filter::{self, PAGE};
use super::wire::{Caller, Input, Problem};
use super::{by, find as find_sandbox};
use crate::app::{App, blocking};
use crate::route;
use crate::snapshot::{self, Kept, canonical};
use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
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

pub(super) async fn list(State(app): State<App>, Caller(key): Caller, uri: Uri) -> Result<Response, Problem> {
    let query = route::query(&uri);
    let get = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let (sandbox, name) = (get("sandboxID"), get("name"));
    let limit = get("limit").map_or(Ok(PAGE), |value| filter::limit(&value))?;
    let after = get("nextToken").filter(|token| !token.is_empty()).map(|token| place(&token)).transpose()?;
    let mut found = blocking(&app, move |app| Ok(snapshot::all(app, &key.tenant))).await?;
    found.retain(|kept| sandbox.as_ref().is_none_or(|id| *id == kept.sandbox));
    found.retain(|kept| name.as_ref().is_none_or(|name| canonical(name) == kept.id));
    // By its place among the others, so that one that is removed since still has it.
    found.retain(|kept| after.as_ref().is_none_or(|(us, id)| (kept.taken_us, &kept.id) < (*us, id)));
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|last| format!("{}-{}", last.taken_us, last.id));
    Ok(filter::paged(found.into_iter().map(told).collect(), next))
}

/// When the last one of the page before was taken, and what it is called.
fn place(token: &str) -> Result<(u64, String), Problem> {
    let place = token.split_once('-').and_then(|(us, id)| Some((us.parse().ok()?, id.to_owned())));
    place.ok_or_else(|| Problem::bad("`nextToken`: the one of the page before is needed"))
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
