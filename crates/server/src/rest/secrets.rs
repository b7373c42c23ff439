//! Credentials of the vault: in, and never out again.

use super::wire::{Admin, Input, Problem};
use crate::app::{App, blocking};
use axum::Json;
use axum::extract::{Path, State};
use cofferdam_api::v1;
use cofferdam_engine::{SecretDraft, SecretEntry, nobody};
use http::StatusCode;

fn told(entry: SecretEntry) -> v1::Secret {
    v1::Secret { name: entry.name, hosts: entry.hosts, env: entry.env, revoked: entry.revoked.is_some() }
}

pub(super) async fn list(State(app): State<App>, _: Admin) -> Result<Json<v1::Secrets>, Problem> {
    let all = blocking(&app, |app| app.engine.secrets(&nobody)?.list()).await?;
    Ok(Json(v1::Secrets { secrets: all.into_iter().map(told).collect() }))
}

pub(super) async fn add(
    State(app): State<App>,
    _: Admin,
    Input(asked): Input<v1::NewSecret>,
) -> Result<(StatusCode, Json<v1::Secret>), Problem> {
    if asked.value.is_empty() {
        return Err(Problem::bad("`value` is empty"));
    }
    let v1::NewSecret { name, value, hosts, places, env } = asked;
    let draft = SecretDraft { name, hosts, places, env, ..SecretDraft::default() };
    let kept = blocking(&app, move |app| app.engine.secrets(&nobody)?.put(draft, value.into_bytes())).await?;
    Ok((StatusCode::CREATED, Json(told(kept.entry))))
}

pub(super) async fn remove(
    State(app): State<App>,
    _: Admin,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let removed = blocking(&app, move |app| {
        let secrets = app.engine.secrets(&nobody)?;
        if !secrets.list()?.iter().any(|entry| entry.name == name) {
            return Ok(false);
        }
        for session in app.house.sessions() {
            // One that does not use it has nothing to revoke.
            let _ = app.engine.revoke_live(&session, &name);
        }
        secrets.remove(&name).map(|_| true)
    });
    match removed.await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found("secret")),
    }
}
