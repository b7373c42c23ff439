//! Templates: which there are. Those of the service itself and, as E2B has it, snapshots.

use super::wire::{Caller, Problem};
use crate::app::App;
use crate::template;
use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde_json::{Value, json};

pub(super) async fn list(Caller(_): Caller) -> Json<Value> {
    Json(template::BUILT_IN.iter().map(|name| told(name)).collect())
}

fn told(name: &str) -> Value {
    json!({
        "templateID": name, "buildID": name, "cpuCount": 1, "memoryMB": 512, "diskSizeMB": 1024, "public": true,
        "aliases": [name], "names": [name], "createdAt": super::time(0), "updatedAt": super::time(0),
        "lastSpawnedAt": null, "spawnCount": 0, "buildCount": 1, "envdVersion": cofferdam_api::e2b::ENVD_VERSION,
        "createdBy": null, "buildStatus": "ready",
    })
}

pub(super) async fn info(Caller(_): Caller, Path(id): Path<String>) -> Result<Json<Value>, Problem> {
    if template::exists(&id) { Ok(Json(told(&id))) } else { Err(unknown(&id)) }
}

pub(super) async fn alias(
    State(app): State<App>,
    Caller(key): Caller,
    Path(alias): Path<String>,
) -> Result<Json<Value>, Problem> {
    let known = template::exists(&alias) || crate::snapshot::find(&app, &key.tenant, &alias).is_some();
    if known { Ok(Json(json!({ "templateID": alias, "public": false }))) } else { Err(unknown(&alias)) }
}

fn unknown(id: &str) -> Problem {
    Problem::not_found(format!("template '{}' not found", id.chars().take(200).collect::<String>()))
}

pub(super) async fn build(Caller(_): Caller) -> Problem {
    let message =
        "this way of building templates is not served: use a current SDK, or a snapshot of a sandbox";
    Problem::new(StatusCode::NOT_IMPLEMENTED, message)
}

pub(super) async fn teams(Caller(key): Caller) -> Json<Value> {
    Json(json!([{ "teamID": key.tenant, "name": key.tenant, "apiKey": "", "isDefault": true }]))
}
