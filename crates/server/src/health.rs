//! Whether it is there, whether it takes work, and what it counts.

use crate::app::App;
use crate::auth;
use crate::guard;
use crate::keys::KeyKind;
use crate::rest;
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, StatusCode};
use std::sync::atomic::Ordering;

pub(crate) fn router() -> Router<App> {
    Router::new()
        .route("/health", get(|| async { StatusCode::OK }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
}

async fn ready(State(app): State<App>) -> Response {
    match app.draining.load(Ordering::Relaxed) {
        true => (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response(),
        false => "ready\n".into_response(),
    }
}

/// Only for the administrator's key: how much others do is nobody's business.
async fn metrics(State(app): State<App>, headers: HeaderMap) -> Response {
    match auth::caller(&app, &headers) {
        Some(key) if key.kind == KeyKind::Admin => guard::metrics(&app).into_response(),
        _ => rest::refusal(StatusCode::UNAUTHORIZED, "the administrator's key is needed"),
    }
}
