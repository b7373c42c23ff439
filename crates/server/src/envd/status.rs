//! What the daemon says of the sandbox itself.

use super::Call;
use crate::app::{blocking, now_us};
use axum::Json;
use axum::response::{IntoResponse, Response};
use cofferdam_api::e2b::EnvdMetrics;
use std::path::Path;

/// The variables that every command begins with.
pub(super) fn envs(call: &Call) -> Response {
    Json(call.sandbox.record().env.clone()).into_response()
}

pub(super) async fn metrics(call: Call) -> Response {
    let (total, free) = call.inside.space(Path::new("/home/user")).await.unwrap_or((0, 0));
    let session = call.sandbox.session();
    let shown = match session {
        Some(session) => blocking(&call.app, move |app| app.engine.session(&session)).await.ok(),
        None => None,
    };
    let usage = shown.map(|info| info.usage).unwrap_or_default();
    let pages = rustix::system::sysinfo();
    let metrics = EnvdMetrics {
        ts: now_us() / 1_000_000,
        cpu_count: std::thread::available_parallelism().map_or(1, |count| count.get()),
        cpu_used_pct: 0.0,
        mem_total: pages.totalram * u64::from(pages.mem_unit),
        mem_used: usage.memory.unwrap_or(0),
        mem_cache: 0,
        disk_used: total - free,
        disk_total: total,
    };
    Json(metrics).into_response()
}
