//! What there is, and how it is.

use super::filter::{Filter, paged};
use super::wire::{Caller, Problem};
use super::{CLIENT, far, find, time};
use crate::app::{App, State as Service, blocking, now_us};
use crate::life::{Condition, condition, present};
use crate::route;
use crate::sandbox::{Record, Sandbox};
use axum::Json;
use axum::extract::{Path, State as Of};
use axum::response::Response;
use cofferdam_api::e2b::{Detail, ENVD_VERSION, Lifecycle, Listed, Metric, State};
use cofferdam_engine::EngineError;
use cofferdam_model::{SessionInfo, UsageRecord};
use http::Uri;
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) async fn info(
    Of(app): Of<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
) -> Result<Json<Detail>, Problem> {
    let sandbox = find(&app, &key, &id)?;
    let seen = sandbox.clone();
    let listed = blocking(&app, move |app| listed(app, &seen)).await?;
    let record = sandbox.record();
    let paused = listed.state == State::Paused;
    let mode = if record.session.is_some() { "full" } else { "filesystem" };
    Ok(Json(Detail {
        listed,
        envd_access_token: record.envd_token.clone(),
        domain: app.config.domain.clone(),
        allow_internet_access: record.internet,
        network: record.network.clone(),
        lifecycle: Lifecycle {
            auto_resume: record.auto_resume,
            on_timeout: if record.auto_pause { "pause".into() } else { "kill".into() },
        },
        pause_mode: paused.then(|| mode.to_owned()),
    }))
}

pub(super) async fn list(Of(app): Of<App>, Caller(key): Caller, uri: Uri) -> Result<Response, Problem> {
    let filter = Filter::read(&uri)?;
    let mut all: Vec<Arc<Sandbox>> = app.sandboxes.all();
    if !filter.ascending {
        all.reverse();
    }
    all.retain(|sandbox| {
        let fits = {
            let record = sandbox.record();
            key.sees(&record.tenant) && filter.fits(&record)
        };
        fits && present(&app, &sandbox.id).is_some()
    });
    let found = blocking(&app, move |app| {
        // One that ends while we look is not told of.
        let found = all.iter().filter_map(|sandbox| listed(app, sandbox).ok());
        let found = found.filter(|one| filter.fits_state(one.state));
        Ok(filter.page(found.collect()))
    });
    let (found, next) = found.await?;
    Ok(paged(found, next))
}

fn listed(app: &Service, sandbox: &Sandbox) -> Result<Listed, EngineError> {
    let (info, state) = match condition(app, sandbox)? {
        Condition::Running(info) => (Some(info), State::Running),
        Condition::Asleep(info) => (Some(info), State::Paused),
        Condition::Stored => (None, State::Paused),
        Condition::Lost => return Err(EngineError::NotLive(sandbox.id.to_string())),
    };
    Ok(tell(&sandbox.record(), info.as_deref(), state))
}

fn tell(record: &Record, info: Option<&SessionInfo>, state: State) -> Listed {
    let until = info.and_then(|info| info.until_us).unwrap_or_else(far);
    Listed {
        template_id: record.template.clone(),
        sandbox_id: record.id.to_string(),
        client_id: CLIENT.into(),
        started_at: time(record.started_us),
        end_at: time(until),
        envd_version: ENVD_VERSION.into(),
        cpu_count: cores(),
        memory_mb: memory().0 >> 20,
        disk_size_mb: disk().1 >> 20,
        state,
        alias: None,
        metadata: record.metadata.clone(),
        volume_mounts: record.volumes.iter().map(crate::volume::told).collect(),
    }
}

fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

/// All of the machine's, and three quarters of it, which a session may have.
fn memory() -> (u64, u64) {
    let info = rustix::system::sysinfo();
    let total = info.totalram * u64::from(info.mem_unit);
    (total / 4 * 3, total)
}

/// Used and in all, where sandboxes keep their files.
fn disk() -> (u64, u64) {
    let Ok(stat) = rustix::fs::statvfs("/") else { return (0, 0) };
    let total = stat.f_blocks * stat.f_frsize;
    (total - stat.f_bfree * stat.f_frsize, total)
}

pub(super) async fn metrics(
    Of(app): Of<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Json<Vec<Metric>>, Problem> {
    let sandbox = find(&app, &key, &id)?;
    let query = route::query(&uri);
    let at = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.parse::<i64>());
    let bad = |_| Problem::bad("`start` and `end` are Unix times in seconds");
    let (start, end) = (at("start").transpose().map_err(bad)?, at("end").transpose().map_err(bad)?);
    let metrics = blocking(&app, move |app| measured(app, &sandbox)).await?;
    let within = |metric: &Metric| {
        start.is_none_or(|start| metric.timestamp_unix >= start)
            && end.is_none_or(|end| metric.timestamp_unix <= end)
    };
    Ok(Json(metrics.into_iter().filter(within).collect()))
}

pub(super) async fn metrics_of_several(
    Of(app): Of<App>,
    Caller(key): Caller,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    let ids =
        route::query(&uri).into_iter().filter(|(name, _)| name == "sandbox_ids").map(|(_, value)| value);
    let ids: Vec<String> =
        ids.flat_map(|value| value.split(',').map(str::to_owned).collect::<Vec<_>>()).collect();
    let mut all = serde_json::Map::new();
    for id in ids.iter().take(100) {
        if let Ok(sandbox) = find(&app, &key, id) {
            let last = blocking(&app, move |app| Ok(measured(app, &sandbox)?.pop())).await?;
            all.insert(id.clone(), serde_json::to_value(last).unwrap_or_default());
        }
    }
    Ok(Json(json!({ "sandboxes": all })))
}

/// What was written down of it, and how it is now.
fn measured(app: &Service, sandbox: &Sandbox) -> Result<Vec<Metric>, EngineError> {
    let Some(session) = sandbox.session() else { return Ok(Vec::new()) };
    let mut records = app.engine.usage_records(&session)?;
    if let Ok(info) = app.house.info(&session) {
        let since = records.last().map_or(info.started_us, |last| last.at_us);
        let before: u64 = records.iter().filter_map(|record| record.cpu_us).sum();
        let at_us = now_us();
        records.push(UsageRecord {
            at_us,
            span_us: at_us.saturating_sub(since).max(1),
            state: info.state,
            cpu_us: info.usage.cpu_us.map(|cpu| cpu.saturating_sub(before)),
            memory: info.usage.memory,
        });
    }
    let ((memory_total, _), (disk_used, disk_total)) = (memory(), disk());
    let metric = |record: &UsageRecord| Metric {
        timestamp: time(record.at_us),
        timestamp_unix: (record.at_us / 1_000_000) as i64,
        cpu_count: cores(),
        cpu_used_pct: record.cpu_us.unwrap_or(0) as f64 * 100.0 / record.span_us.max(1) as f64,
        mem_used: record.memory.unwrap_or(0),
        mem_total: memory_total,
        mem_cache: 0,
        disk_used,
        disk_total,
    };
    Ok(records.iter().map(metric).collect())
}

/// What ran in it, for the command line of E2B.
pub(super) async fn logs(
    Of(app): Of<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let sandbox = find(&app, &key, &id)?;
    let info = blocking(&app, move |app| match condition(app, &sandbox)? {
        Condition::Running(info) | Condition::Asleep(info) => Ok(Some(info)),
        _ => Ok(None),
    });
    let execs = info.await?.map(|info| info.execs).unwrap_or_default();
    let entry = |exec: &cofferdam_model::ExecInfo| {
        let ended = exec.exit.map_or("running".to_owned(), |exit| format!("exit {}", exit.code()));
        (time(exec.started_us), format!("exec {}: {} ({ended})", exec.id, exec.argv.join(" ")))
    };
    let lines: Vec<(String, String)> = execs.iter().map(entry).collect();
    let logs = lines.iter().map(|(at, line)| json!({ "timestamp": at, "line": line }));
    let entries = lines
        .iter()
        .map(|(at, line)| json!({ "timestamp": at, "level": "info", "message": line, "fields": {} }));
    Ok(Json(json!({ "logs": logs.collect::<Vec<_>>(), "logEntries": entries.collect::<Vec<_>>() })))
}
