//! E2B's volumes: made, found and removed here; their files are in `content`.

use super::wire::{Caller, Input, Problem};
use crate::app::{App, State as Service, blocking};
use crate::keys::Key;
use crate::volume;
use axum::Json;
use axum::extract::{Path, State};
use cofferdam_model::VolumeInfo;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
pub(super) struct New {
    name: String,
}

fn told(volume: &VolumeInfo) -> Value {
    json!({ "volumeID": volume.name.name, "name": volume.name.name })
}

/// With the token by which its files are reached.
fn opened(app: &Service, key: &Key, volume: &VolumeInfo) -> Result<Value, Problem> {
    let mut told = told(volume);
    told["token"] = volume::token(app, &key.tenant, &volume.name.name)?.into();
    Ok(told)
}

fn unknown() -> Problem {
    Problem::not_found("there is no such volume")
}

pub(super) async fn create(
    State(app): State<App>,
    Caller(key): Caller,
    Input(asked): Input<New>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let tenant = key.tenant.clone();
    let (known, made) = blocking(&app, move |app| {
        let known = volume::find(app, &tenant, &asked.name).is_some();
        let made = if known { None } else { volume::create(app, &tenant, &asked.name).transpose()? };
        Ok((known, made))
    })
    .await?;
    if known {
        return Err(Problem::conflict("there is a volume of that name already"));
    }
    let made =
        made.ok_or_else(|| Problem::bad("`name`: up to 63 of a-z, 0-9 and `-` are needed, a letter first"))?;
    Ok((StatusCode::CREATED, Json(opened(&app, &key, &made)?)))
}

pub(super) async fn list(State(app): State<App>, Caller(key): Caller) -> Result<Json<Vec<Value>>, Problem> {
    let all = blocking(&app, move |app| Ok(volume::all(app, &key.tenant))).await?;
    Ok(Json(all.iter().map(told).collect()))
}

pub(super) async fn info(
    State(app): State<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let tenant = key.tenant.clone();
    let found = blocking(&app, move |app| Ok(volume::find(app, &tenant, &id))).await?;
    let found = found.ok_or_else(unknown)?;
    Ok(Json(opened(&app, &key, &found)?))
}

pub(super) async fn remove(
    State(app): State<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    match blocking(&app, move |app| volume::remove(app, &key.tenant, &id)).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown()),
    }
}
