//! Our own REST, version 1. What it takes and gives is in `api`, in one table; one shape for every error.

mod docs;
mod files;
mod gates;
mod record;
mod secrets;
mod sessions;
mod snapshots;
mod tools;
mod volumes;
mod wire;
mod work;

pub(crate) use gates::Gates;
pub(crate) use tools::Calls;
pub(crate) use wire::refusal;

use crate::app::App;
use axum::Router;
use axum::routing::{delete, get, post};

pub(crate) fn router() -> Router<App> {
    Router::new()
        .route("/v1/sessions", post(sessions::create).get(sessions::list))
        .route("/v1/sessions/{id}", get(sessions::info).delete(sessions::kill))
        .route("/v1/sessions/{id}/pause", post(sessions::pause))
        .route("/v1/sessions/{id}/resume", post(sessions::resume))
        .route("/v1/sessions/{id}/extend", post(sessions::extend))
        .route("/v1/sessions/{id}/fork", post(sessions::fork))
        .route("/v1/sessions/{id}/snapshots", post(snapshots::take))
        .route("/v1/sessions/{id}/restore", post(snapshots::restore))
        .route("/v1/snapshots", get(snapshots::list))
        .route("/v1/snapshots/{name}", delete(snapshots::remove))
        .route("/v1/volumes", post(volumes::create).get(volumes::list))
        .route("/v1/volumes/{name}", get(volumes::info).delete(volumes::remove))
        .route("/v1/sessions/{id}/execs", post(work::exec).get(work::execs))
        .route("/v1/sessions/{id}/files", get(files::read).put(files::write).delete(files::remove))
        .route("/v1/sessions/{id}/files/list", get(files::list))
        .route("/v1/sessions/{id}/transactions", post(work::begin))
        .route("/v1/sessions/{id}/transactions/diff", get(work::diff))
        .route("/v1/sessions/{id}/transactions/commit", post(work::commit))
        .route("/v1/sessions/{id}/transactions/rollback", post(work::rollback))
        .route("/v1/sessions/{id}/policy", get(sessions::policy).put(sessions::set_policy))
        .route("/v1/sessions/{id}/usage", get(record::usage_of))
        .route("/v1/usage", get(record::usage))
        .route("/v1/approvals", get(record::approvals))
        .route("/v1/approvals/{session}/{id}", post(record::answer))
        .route("/v1/secrets", get(secrets::list).post(secrets::add))
        .route("/v1/secrets/{name}", delete(secrets::remove))
        .route("/v1/traces", get(record::traces))
        .route("/v1/traces/{id}", get(record::trace))
        .route("/v1/traces/{id}/events", get(record::events))
        .route("/v1/traces/{id}/export", get(record::export))
        .route("/v1/traces/{id}/stream", get(record::stream))
        .route("/v1/gates", post(gates::run).get(gates::list))
        .route("/v1/gates/{id}", get(gates::info))
        .route("/v1/openapi.json", get(docs::document))
        .route("/v1/docs", get(docs::page))
        .route("/v1/{*rest}", axum::routing::any(wire::nowhere))
        .merge(tools::router())
        .method_not_allowed_fallback(wire::not_that_way)
}
