//! Sandboxes are made: new ones, and ones that begin with the files of another.

use super::wire::{Caller, Input, Problem};
use super::{by, find, told};
use crate::app::{App, State, blocking, now_us};
use crate::build::{self, Adds, From};
use crate::disk;
use crate::egress;
use crate::keys::Key;
use crate::life::fork as fork_of;
use crate::plan;
use crate::sandbox::{Record, Sandbox};
use crate::template;
use crate::volume;
use axum::Json;
use axum::extract::{Path, State as Service};
use cofferdam_api::e2b::{Created, Fork, Forked, NewSandbox};
use cofferdam_model::SessionId;
use http::{StatusCode, Uri};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What one gets that does not say; on the older path E2B's own server gave less.
const TIMEOUT: u64 = 300;
const TIMEOUT_V1: u64 = 15;
/// So much may be said about one.
const MOST_METADATA: usize = 64 << 10;
const MOST_FORKS: u32 = 20;
/// A build is over by then.
const BUILDING: Duration = Duration::from_secs(2 * 3600);

pub(super) async fn create(
    Service(app): Service<App>,
    Caller(key): Caller,
    uri: Uri,
    Input(asked): Input<NewSandbox>,
) -> Result<(StatusCode, Json<Created>), Problem> {
    check(&asked)?;
    let default = if uri.path().starts_with("/v2/") { TIMEOUT } else { TIMEOUT_V1 };
    let time = span(&app, asked.timeout.unwrap_or(default))?;
    let of = template_of(&app, &key, &asked.template_id)?;
    let record = record(&app, &key, asked, time, of)?;
    let by = by(&key);
    let made = blocking(&app, move |app| plan::make(app, record, time, by));
    let sandbox = made.await?;
    build::begin(&app, &sandbox).await;
    let created = told(&app, &sandbox.record());
    Ok((StatusCode::CREATED, Json(created)))
}

/// A template, the files that it begins with, and what it adds.
type Of = (String, Option<String>, Adds);

fn record(app: &State, key: &Key, asked: NewSandbox, time: Duration, of: Of) -> Result<Record, Problem> {
    let (template, from, adds) = of;
    let mut env = adds.env.clone();
    env.extend(asked.env_vars.unwrap_or_default());
    let private = asked.network.as_ref().is_some_and(|n| n.allow_public_traffic == Some(false));
    let secrets = asked.network.as_ref().map(egress::secrets).unwrap_or_default();
    let mounted = asked.volume_mounts.iter().flatten();
    let mounted = mounted.map(|mount| (mount.name.as_str(), mount.path.as_str(), false));
    let volumes = volume::mounts(app, &key.tenant, mounted)?;
    Ok(Record {
        // For as long as it has no other.
        id: SessionId::new(now_us() / 1000, 0),
        rules: vec![disk::random_hex::<12>()?],
        tenant: key.tenant.clone(),
        template,
        from,
        started_us: now_us(),
        session: None,
        files: None,
        timeout: time.as_secs(),
        lost_us: None,
        name: None,
        secrets: secrets.iter().map(|name| egress::vault_name(&key.tenant, name)).collect(),
        metadata: asked.metadata.unwrap_or_default(),
        env,
        adds,
        envd_token: disk::random_hex::<20>()?,
        traffic_token: if private { Some(disk::random_hex::<20>()?) } else { None },
        auto_pause: asked.auto_pause.unwrap_or(false),
        auto_resume: asked.auto_resume.is_some_and(|resume| resume.enabled),
        pause_memory: asked.auto_pause_memory.unwrap_or(true),
        network: asked.network,
        internet: asked.allow_internet_access,
        policy: None,
        mcp: asked.mcp,
        volumes,
    })
}

/// A sandbox in which a template is built: over another, or over an image.
pub(crate) async fn for_build(app: &App, key: &Key, from: &From) -> Result<Arc<Sandbox>, String> {
    let told = |problem: Problem| problem.to_string();
    let of = match from {
        From::Template(name) => template_of(app, key, name).map_err(told)?,
        From::Image(digest) => {
            // Who the image says, where that has a name to be asked for by; else E2B's own default.
            let found = app.engine.image(&format!("sha256:{digest}")).ok().and_then(|image| image.runs_as);
            let user = found.filter(|who| who.named).map(|who| who.name);
            (template::of_image(digest), None, Adds { user, ..Adds::default() })
        }
    };
    let record = record(app, key, NewSandbox::default(), BUILDING, of).map_err(told)?;
    let by = format!("build of {}", key.tenant);
    let made = blocking(app, move |app| plan::make(app, record, BUILDING, by)).await;
    made.map_err(|error| error.to_string())
}

/// A template, or a snapshot, which is one too.
fn template_of(app: &State, key: &Key, asked: &str) -> Result<Of, Problem> {
    if template::exists(asked) {
        return Ok((asked.to_owned(), None, Adds::default()));
    }
    if let Some(snapshot) = crate::snapshot::find(app, &key.tenant, asked) {
        return Ok((snapshot.template, Some(snapshot.files), snapshot.adds));
    }
    let name: String = asked.chars().take(200).collect();
    Err(Problem::not_found(format!("template '{name}' not found")))
}

/// What can be seen to be wrong before anything is made.
fn check(asked: &NewSandbox) -> Result<(), Problem> {
    let size = |all: &Option<BTreeMap<String, String>>| {
        all.iter().flatten().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    };
    if size(&asked.metadata) > MOST_METADATA {
        return Err(Problem::bad(format!("`metadata` is more than {MOST_METADATA} bytes")));
    }
    let bad = |(name, value): (&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    if asked.env_vars.iter().flatten().any(bad) {
        return Err(Problem::bad(
            "`envVars`: a name is empty or has `=` or NUL in it, or a value has NUL in it",
        ));
    }
    if asked.iam.as_ref().is_some_and(|iam| !iam.is_null()) {
        return Err(Problem::bad("`iam`: workload identities are not served here: use secrets"));
    }
    match &asked.network {
        Some(network) => egress::check(network).map_err(|error| Problem::bad(error.to_string())),
        None => Ok(()),
    }
}

/// A timeout in seconds, if it is not too long.
pub(super) fn span(app: &State, seconds: u64) -> Result<Duration, Problem> {
    let most = app.config.e2b.max_timeout;
    match Duration::from_secs(seconds) {
        asked if asked <= most.0 => Ok(asked),
        _ => Err(Problem::bad(format!(
            "`timeout`: {seconds} seconds are more than the {most} that are allowed here"
        ))),
    }
}

pub(super) async fn fork(
    Service(app): Service<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
    Input(asked): Input<Fork>,
) -> Result<(StatusCode, Json<Vec<Forked>>), Problem> {
    let count = asked.count.unwrap_or(1);
    if !(1..=MOST_FORKS).contains(&count) {
        return Err(Problem::bad(format!("`count`: {count} is not between 1 and {MOST_FORKS}")));
    }
    let time = span(&app, asked.timeout.unwrap_or(TIMEOUT_V1))?;
    let sandbox = find(&app, &key, &id)?;
    let made = fork_of(&app, &sandbox, count, time, &by(&key)).await?;
    let forked = made.iter().map(|sandbox| told(&app, &sandbox.record()));
    let forked = forked.map(|sandbox| Forked { sandbox: Some(sandbox), error: None });
    Ok((StatusCode::CREATED, Json(forked.collect())))
}
