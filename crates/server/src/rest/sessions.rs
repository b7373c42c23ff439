//! Sessions: made, found, changed, ended.

use super::wire::{Caller, Input, Problem, number};
use crate::app::{App, State as Service, blocking, now_us};
use crate::disk;
use crate::egress;
use crate::keys::KeyKind;
use crate::life::{self, Condition, condition, present};
use crate::plan;
use crate::route;
use crate::sandbox::{Record, Sandbox};
use crate::template;
use crate::time::told as time;
use crate::volume;
use axum::Json;
use axum::extract::{Path, State};
use cofferdam_api::{e2b, v1};
use cofferdam_engine::EngineError;
use cofferdam_model::{SessionId, Span};
use http::{StatusCode, Uri};
use std::sync::Arc;
use std::time::Duration;

const TIMEOUT: u32 = 300;
const BASE: &str = "base";

pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    Input(asked): Input<v1::NewSession>,
) -> Result<(StatusCode, Json<v1::Session>), Problem> {
    let made = make(&app, &caller, asked).await?;
    let session = told(&app, made).await?;
    Ok((StatusCode::CREATED, Json(session)))
}

pub(super) async fn make(app: &App, caller: &Caller, asked: v1::NewSession) -> Result<Arc<Sandbox>, Problem> {
    let time = span(app, asked.timeout.unwrap_or(TIMEOUT))?;
    let record = record(app, caller, asked, time)?;
    let by = caller.by();
    Ok(blocking(app, move |app| plan::make(app, record, time, by)).await?)
}

fn record(app: &App, caller: &Caller, asked: v1::NewSession, time: Duration) -> Result<Record, Problem> {
    let key = &caller.0;
    if asked.image.is_some() && asked.template.is_some() {
        return Err(Problem::unfit("`image` and `template` do not go together: leave one out"));
    }
    let wanted = asked.template.as_deref().unwrap_or(BASE);
    let (template, from, adds) = match (&asked.image, template::exists(wanted)) {
        (Some(image), _) => {
            let found = template::offered(app, image).ok_or_else(|| {
                Problem::not_found("image").hint("name one that who runs the service has imported")
            })?;
            (template::of_image(&found), None, Default::default())
        }
        (None, true) => (wanted.to_owned(), None, Default::default()),
        (None, false) => {
            let kept = crate::snapshot::find(app, &key.tenant, wanted);
            let kept =
                kept.ok_or_else(|| Problem::not_found("template").hint("see /v1/snapshots, or use `base`"))?;
            (kept.template, Some(kept.files), kept.adds)
        }
    };
    if !asked.secrets.is_empty() && key.kind != KeyKind::Admin {
        let message = "`secrets`: only the administrator's key can lend credentials of the vault";
        return Err(Problem::new(StatusCode::FORBIDDEN, message));
    }
    if let Some(policy) = &asked.policy {
        check_policy(policy, caller)?;
    }
    let bad = |(name, value): (&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    if asked.env.iter().any(bad) {
        return Err(Problem::bad("`env`: a name is empty or has `=` or NUL in it, or a value has NUL in it"));
    }
    let mounted = asked.volumes.iter().map(|one| (one.volume.as_str(), one.path.as_str(), one.read_only));
    let volumes = volume::mounts(app, &key.tenant, mounted)?;
    let network = e2b::Network { allow_out: Some(asked.allow_out), ..e2b::Network::default() };
    egress::check(&network).map_err(|error| Problem::unfit(error.to_string()))?;
    let mut env = adds.env.clone();
    env.extend(asked.env);
    Ok(Record {
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
        secrets: asked.secrets,
        adds,
        metadata: asked.metadata,
        env,
        envd_token: disk::random_hex::<20>()?,
        traffic_token: None,
        auto_pause: asked.on_timeout == v1::OnTimeout::Pause,
        auto_resume: asked.auto_resume,
        pause_memory: true,
        network: Some(network),
        policy: asked.policy,
        internet: None,
        mcp: None,
        volumes,
    })
}

/// Where hosts are really reached is the operator's word.
fn check_policy(text: &str, caller: &Caller) -> Result<(), Problem> {
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| Problem::unfit(format!("`policy`: {}", error.message())))?;
    match table.contains_key("upstream") && caller.0.kind != KeyKind::Admin {
        true => Err(Problem::new(StatusCode::FORBIDDEN, "`policy`: [[upstream]] is for the operator only")),
        false => Ok(()),
    }
}

fn span(app: &Service, seconds: u32) -> Result<Duration, Problem> {
    let most = app.config.e2b.max_timeout;
    match Duration::from_secs(seconds.into()) {
        asked if asked <= most.0 => Ok(asked),
        _ => Err(Problem::unfit(format!("`timeout`: more than the {most} that are allowed here"))),
    }
}

/// As it is now. What ends while we look is not there.
pub(super) async fn told(app: &App, sandbox: Arc<Sandbox>) -> Result<v1::Session, Problem> {
    Ok(blocking(app, move |app| describe(app, &sandbox)).await?)
}

fn describe(app: &Service, sandbox: &Sandbox) -> Result<v1::Session, EngineError> {
    let (state, info) = match condition(app, sandbox)? {
        Condition::Running(info) => (v1::SessionState::Running, Some(info)),
        Condition::Asleep(info) => (v1::SessionState::Paused, Some(info)),
        Condition::Stored => (v1::SessionState::Stored, None),
        Condition::Lost => (v1::SessionState::Lost, None),
    };
    let record = sandbox.record();
    let info = info.as_ref();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(v1::Session {
        id: record.id.to_string(),
        state,
        tenant: record.tenant.clone(),
        template: record.template.clone(),
        metadata: record.metadata.clone(),
        started_at: time(record.started_us),
        ends_at: info.and_then(|info| info.until_us).map(time),
        trace: record.session.as_ref().map(ToString::to_string),
        transactions: info.map_or(0, |info| count(info.transactions)),
        running: info.map_or(0, |info| count(info.running)),
        cpu_us: info.and_then(|info| info.usage.cpu_us),
        memory_bytes: info.and_then(|info| info.usage.memory),
    })
}

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<v1::Sessions>, Problem> {
    let query = route::query(&uri);
    let limit = number(&query, "limit", 1..=1000, 100)?;
    let after = query.iter().find(|(name, _)| name == "after").map(|(_, value)| value.clone());
    let mut all = app.sandboxes.all();
    all.reverse();
    all.retain(|sandbox| {
        caller.0.sees(&sandbox.record().tenant)
            && after.as_ref().is_none_or(|after| sandbox.id.as_str() < after.as_str())
            && (sandbox.record().lost_us.is_some() || present(&app, &sandbox.id).is_some())
    });
    let more = all.len() > limit;
    all.truncate(limit);
    let next = all.last().filter(|_| more).map(|last| last.id.to_string());
    let sessions =
        blocking(&app, move |app| Ok(all.iter().filter_map(|one| describe(app, one).ok()).collect()));
    Ok(Json(v1::Sessions { sessions: sessions.await?, next }))
}

pub(super) async fn info(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<v1::Session>, Problem> {
    let sandbox = caller.session(&app, &id)?;
    told(&app, sandbox).await.map(Json)
}

pub(super) async fn kill(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let sandbox = caller.session(&app, &id)?;
    life::end(&app, &sandbox, &caller.by()).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn pause(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Input(asked): Input<v1::Pause>,
) -> Result<Json<v1::Session>, Problem> {
    let sandbox = caller.session(&app, &id)?;
    life::sleep(&app, &sandbox, !asked.files_only, &caller.by()).await?;
    told(&app, sandbox).await.map(Json)
}

pub(super) async fn resume(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Input(asked): Input<v1::Resume>,
) -> Result<Json<v1::Session>, Problem> {
    let sandbox = caller.session(&app, &id)?;
    let time = match asked.timeout {
        Some(seconds) => span(&app, seconds)?,
        None => Duration::from_secs(sandbox.record().timeout),
    };
    life::wake(&app, &sandbox, time, &caller.by()).await?;
    told(&app, sandbox).await.map(Json)
}

pub(super) async fn extend(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Input(asked): Input<v1::Extend>,
) -> Result<Json<v1::Session>, Problem> {
    let time = span(&app, asked.timeout)?.max(Duration::from_secs(1));
    let (sandbox, session) = caller.running(&app, &id)?;
    let by = caller.by();
    blocking(&app, move |app| app.house.set_time(&session, Some(Span(time)), &by)).await?;
    told(&app, sandbox).await.map(Json)
}

pub(super) async fn fork(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Input(asked): Input<v1::ForkAsked>,
) -> Result<(StatusCode, Json<v1::Forks>), Problem> {
    let count = asked.count.unwrap_or(1);
    if !(1..=20).contains(&count) {
        return Err(Problem::bad("`count`: between 1 and 20 can be made at once"));
    }
    let (sandbox, _) = caller.running(&app, &id)?;
    let time = Duration::from_secs(sandbox.record().timeout);
    let forked = life::fork(&app, &sandbox, count, time, &caller.by()).await?;
    let mut sessions = Vec::new();
    for sandbox in forked {
        sessions.push(told(&app, sandbox).await?);
    }
    Ok((StatusCode::CREATED, Json(v1::Forks { sessions })))
}

pub(super) async fn policy(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<v1::Policy>, Problem> {
    let sandbox = caller.session(&app, &id)?;
    let record = sandbox.record().clone();
    let policy =
        egress::policy(&app.config.e2b, &record, &[]).map_err(|error| Problem::bad(error.to_string()))?;
    Ok(Json(v1::Policy { policy }))
}

pub(super) async fn set_policy(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Input(asked): Input<v1::Policy>,
) -> Result<Json<v1::Policy>, Problem> {
    check_policy(&asked.policy, &caller)?;
    let (sandbox, session) = caller.running(&app, &id)?;
    let _alone = sandbox.changing.lock().await;
    let mut record = sandbox.record().clone();
    record.policy = Some(asked.policy.clone());
    let changed = sandbox.clone();
    let done = blocking(&app, move |app| {
        plan::apply_policy(app, &record, &session)?;
        let kept = app.sandboxes.change(&changed, |kept| kept.policy = record.policy);
        kept.map_err(|source| EngineError::Io { doing: "keep the session on file", source })
    });
    done.await?;
    Ok(Json(asked))
}
