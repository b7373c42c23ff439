//! `cofferdam apikey`, `cofferdam tenant`: who may use the service. A service that runs sees a change at once.

use crate::args::{ApikeyCommand, TenantCommand};
use crate::output::{Failure, Output};
use cofferdam_engine::Engine;
use cofferdam_server::{Key, KeyKind, Keys, KeysError};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

fn open(home: Option<PathBuf>) -> Result<Keys, Failure> {
    Keys::open(Engine::open(home)?.home().path()).map_err(usage)
}

fn usage(error: KeysError) -> Failure {
    Failure::Usage(error.to_string())
}

fn now_us() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or_default()
}

fn kind(key: &Key) -> &'static str {
    match key.kind {
        KeyKind::Api => "api",
        KeyKind::Admin => "admin",
    }
}

pub(crate) fn run(home: Option<PathBuf>, command: ApikeyCommand, output: &Output) -> Result<u8, Failure> {
    let keys = open(home)?;
    match command {
        ApikeyCommand::Create { tenant, name, admin } => {
            let kind = if admin { KeyKind::Admin } else { KeyKind::Api };
            let new = keys.create(kind, &tenant, &name, now_us()).map_err(usage)?;
            match output.json {
                true => output.value(&json!({ "id": new.key.id, "tenant": tenant, "key": new.secret }))?,
                false => output.data(&format!("{}\n", new.secret))?,
            }
        }
        ApikeyCommand::Ls => list(&keys.list().map_err(usage)?, output)?,
        ApikeyCommand::Revoke { key } => {
            let revoked = keys.revoke(&key, now_us()).map_err(usage)?;
            match output.json {
                true => output.value(&json!({ "id": revoked.id, "revoked": true }))?,
                false => output.remark(format_args!("key {} is not valid any more", revoked.id)),
            }
        }
    }
    Ok(0)
}

fn list(keys: &[Key], output: &Output) -> Result<(), Failure> {
    if output.json {
        let shown = keys.iter().map(|key| {
            json!({
                "id": key.id, "name": key.name, "tenant": key.tenant, "kind": kind(key), "shown": key.shown,
                "created_us": key.created_us, "revoked_us": key.revoked_us,
            })
        });
        return output.value(&shown.collect::<Vec<_>>());
    }
    let mut text = String::new();
    for key in keys {
        let state = if key.revoked_us.is_some() { "revoked" } else { "valid" };
        text += &format!(
            "{}  {:<8} {:<6} {:<16} {}…  {}\n",
            key.id,
            state,
            kind(key),
            key.tenant,
            key.shown,
            key.name
        );
    }
    output.data(&text)
}

pub(crate) fn tenants(home: Option<PathBuf>, command: TenantCommand, output: &Output) -> Result<u8, Failure> {
    let TenantCommand::Ls = command;
    let mut tenants: BTreeMap<String, usize> = BTreeMap::new();
    for key in open(home)?.list().map_err(usage)?.into_iter().filter(|key| key.kind == KeyKind::Api) {
        *tenants.entry(key.tenant).or_default() += usize::from(key.revoked_us.is_none());
    }
    if output.json {
        let all = tenants.iter().map(|(name, keys)| json!({ "tenant": name, "keys": keys }));
        output.value(&all.collect::<Vec<_>>())?;
    } else {
        let lines = tenants.iter().map(|(name, keys)| format!("{name:<24} {keys} valid keys\n"));
        output.data(&lines.collect::<String>())?;
    }
    Ok(0)
}
