//! E2B's secrets are credentials of the vault: a value goes in and never comes out again. Inside a sandbox there is a
//! placeholder; the value takes its place only on the way to the hosts that `metadata.hosts` names.

use super::wire::{Caller, Input, Problem};
use crate::app::{App, State as Service, blocking, now_us};
use crate::disk;
use crate::egress;
use crate::keys::Key;
use axum::Json;
use axum::extract::{Path, State};
use cofferdam_engine::{EngineError, SecretDraft};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

const HOSTS: &str = "hosts";
const LONGEST: usize = 64 << 10;

#[derive(Deserialize)]
pub(super) struct New {
    name: String,
    value: String,
    metadata: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
pub(super) struct Changed {
    value: String,
    metadata: Option<BTreeMap<String, String>>,
}

/// All that is kept beside the vault.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    id: String,
    name: String,
    tenant: String,
    version: u64,
    metadata: BTreeMap<String, String>,
    created_us: u64,
    updated_us: u64,
}

impl Kept {
    fn told(&self) -> Value {
        json!({
            "secretID": self.id, "name": self.name, "currentVersion": self.version, "metadata": self.metadata,
            "createdAt": super::time(self.created_us), "updatedAt": super::time(self.updated_us),
        })
    }
}

fn dir(app: &Service) -> PathBuf {
    app.engine.home().path().join("service").join("secrets")
}

fn all(app: &Service, tenant: &str) -> Vec<Kept> {
    let entries = std::fs::read_dir(dir(app)).into_iter().flatten().flatten();
    let mut all: Vec<Kept> = entries.filter_map(|entry| disk::read(&entry.path()).ok()?).collect();
    all.retain(|kept| kept.tenant == tenant);
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

fn find(app: &Service, tenant: &str, which: &str) -> Option<Kept> {
    let name = which.to_ascii_lowercase();
    all(app, tenant).into_iter().find(|kept| kept.id == which || kept.name == name)
}

fn unknown() -> Problem {
    Problem::not_found("there is no such secret")
}

/// The hosts that it may be sent to; one that names none could be sent anywhere, and is refused.
fn hosts(metadata: &BTreeMap<String, String>) -> Result<Vec<String>, Problem> {
    let named = metadata.get(HOSTS).map(String::as_str).unwrap_or_default();
    let hosts: Vec<String> =
        named.split(',').map(str::trim).filter(|host| !host.is_empty()).map(str::to_owned).collect();
    if hosts.is_empty() || !hosts.iter().all(|host| egress::is_host(host)) {
        return Err(Problem::bad(
            "`metadata.hosts` has to name the hosts that the secret may be sent to, as in {\"hosts\": \"api.example.com\"}",
        ));
    }
    Ok(hosts)
}

/// Where in a request it may stand: as a bearer token, in the usual headers, and in those that are named.
fn places(metadata: &BTreeMap<String, String>) -> Vec<String> {
    let named = metadata.get("headers").map(String::as_str).unwrap_or_default().split(',').map(str::trim);
    let named = named.filter(|name| !name.is_empty()).map(|name| format!("header:{name}"));
    ["bearer", "header:authorization", "header:x-api-key"]
        .map(str::to_owned)
        .into_iter()
        .chain(named)
        .collect()
}

fn checked(name: &str, value: &str) -> Result<(), Problem> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(word) {
        return Err(Problem::bad("`name`: up to 64 letters, digits, `-` and `_` are needed"));
    }
    match value.is_empty() || value.len() > LONGEST {
        true => Err(Problem::bad(format!("`value`: between 1 and {LONGEST} bytes are needed"))),
        false => Ok(()),
    }
}

pub(super) async fn create(
    State(app): State<App>,
    Caller(key): Caller,
    Input(asked): Input<New>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    checked(&asked.name, &asked.value)?;
    let metadata = asked.metadata.unwrap_or_default();
    let hosts = hosts(&metadata)?;
    let name = asked.name.to_ascii_lowercase();
    if find(&app, &key.tenant, &name).is_some() {
        return Err(Problem::conflict(format!("there is a secret `{name}` already: update it")));
    }
    let now = now_us();
    let kept = Kept {
        id: format!("sec_{}", disk::random_hex::<10>()?),
        name,
        tenant: key.tenant.clone(),
        version: 1,
        metadata,
        created_us: now,
        updated_us: now,
    };
    let told = kept.told();
    blocking(&app, move |app| put(app, &kept, hosts, asked.value)).await?;
    Ok((StatusCode::CREATED, Json(told)))
}

pub(super) async fn update(
    State(app): State<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
    Input(asked): Input<Changed>,
) -> Result<Json<Value>, Problem> {
    let mut kept = find(&app, &key.tenant, &id).ok_or_else(unknown)?;
    checked(&kept.name, &asked.value)?;
    kept.metadata = asked.metadata.unwrap_or(kept.metadata);
    kept.version += 1;
    kept.updated_us = now_us();
    let hosts = hosts(&kept.metadata)?;
    let told = kept.told();
    blocking(&app, move |app| put(app, &kept, hosts, asked.value)).await?;
    Ok(Json(told))
}

/// Into the vault, then on file.
fn put(app: &Service, kept: &Kept, hosts: Vec<String>, value: String) -> Result<(), EngineError> {
    let failed = |source| EngineError::Io { doing: "keep the secret on file", source };
    let draft = SecretDraft {
        name: egress::vault_name(&kept.tenant, &kept.name),
        hosts,
        places: places(&kept.metadata),
        env: Some(egress::variable(&kept.tenant, &kept.name)),
        ..SecretDraft::default()
    };
    app.engine.secrets(&cofferdam_engine::nobody)?.put(draft, value.into_bytes())?;
    disk::make_dir(&dir(app)).map_err(failed)?;
    disk::write(&dir(app).join(format!("{}.json", kept.id)), kept).map_err(failed)
}

pub(super) async fn list(State(app): State<App>, Caller(key): Caller) -> Json<Vec<Value>> {
    Json(all(&app, &key.tenant).iter().map(Kept::told).collect())
}

pub(super) async fn info(
    State(app): State<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    find(&app, &key.tenant, &id).map(|kept| Json(kept.told())).ok_or_else(unknown)
}

pub(super) async fn remove(
    State(app): State<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let kept = find(&app, &key.tenant, &id).ok_or_else(unknown)?;
    blocking(&app, move |app| gone(app, &key, &kept)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Out of the vault, and of every sandbox that uses it now.
fn gone(app: &Service, key: &Key, kept: &Kept) -> Result<(), EngineError> {
    let name = egress::vault_name(&key.tenant, &kept.name);
    for sandbox in app.sandboxes.all() {
        let session = {
            let record = sandbox.record();
            record.session.clone().filter(|_| record.secrets.contains(&name))
        };
        if let Some(session) = session {
            app.engine.revoke_live(&session, &name)?;
        }
    }
    app.engine.secrets(&cofferdam_engine::nobody)?.remove(&name)?;
    let _ = std::fs::remove_file(dir(app).join(format!("{}.json", kept.id)));
    Ok(())
}
