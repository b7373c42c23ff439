//! Directories that sessions share and that outlive them.

use super::wire::{Caller, Input, Problem};
use crate::app::{App, blocking};
use crate::time::told as time;
use crate::volume;
use axum::Json;
use axum::extract::{Path, State};
use cofferdam_api::v1;
use cofferdam_model::VolumeInfo;
use http::StatusCode;

fn told(info: VolumeInfo) -> v1::Volume {
    let VolumeInfo { name, created_us, bytes, files, in_use } = info;
    v1::Volume { name: name.name, created_at: time(created_us), bytes, files, in_use }
}

pub(super) async fn list(State(app): State<App>, Caller(key): Caller) -> Result<Json<v1::Volumes>, Problem> {
    let all = blocking(&app, move |app| Ok(volume::all(app, &key.tenant))).await?;
    Ok(Json(v1::Volumes { volumes: all.into_iter().map(told).collect() }))
}

pub(super) async fn create(
    State(app): State<App>,
    Caller(key): Caller,
    Input(asked): Input<v1::NewVolume>,
) -> Result<(StatusCode, Json<v1::Volume>), Problem> {
    let made = blocking(&app, move |app| volume::create(app, &key.tenant, &asked.name).transpose()).await?;
    let made = made.ok_or_else(|| Problem::bad("`name`: up to 63 of a-z, 0-9 and `-`, a letter first"))?;
    Ok((StatusCode::CREATED, Json(told(made))))
}

pub(super) async fn info(
    State(app): State<App>,
    Caller(key): Caller,
    Path(name): Path<String>,
) -> Result<Json<v1::Volume>, Problem> {
    let found = blocking(&app, move |app| Ok(volume::find(app, &key.tenant, &name))).await?;
    found.map(|found| Json(told(found))).ok_or_else(|| Problem::not_found("volume"))
}

pub(super) async fn remove(
    State(app): State<App>,
    Caller(key): Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    match blocking(&app, move |app| volume::remove(app, &key.tenant, &name)).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found("volume")),
    }
}
