//! E2B's control plane: sandboxes made, found, changed and ended, as the published SDKs ask for it.

mod builds;
mod content;
mod create;
mod filter;
mod life;
mod list;
mod network;
mod secrets;
mod snapshots;
mod tags;
mod templates;
mod volumes;
mod wire;

use crate::app::{App, now_us};
use crate::keys::Key;
use crate::life::present;
use crate::sandbox::{Record, Sandbox};
use crate::time::told as time;
use axum::Router;
use axum::routing::{any, delete, get, post, put};
use cofferdam_api::e2b::{Created, ENVD_VERSION};
use cofferdam_model::SessionId;
pub(crate) use create::for_build;
use std::sync::Arc;
use wire::Problem;
pub(crate) use wire::refusal;

/// Every answer has to name one; ours is always the same.
const CLIENT: &str = "cofferdam";

pub(crate) fn router() -> Router<App> {
    Router::new()
        .route("/sandboxes", post(create::create).get(list::list))
        .route("/v2/sandboxes", post(create::create).get(list::list))
        .route("/sandboxes/metrics", get(list::metrics_of_several))
        .route("/sandboxes/{id}", delete(life::kill).get(list::info))
        .route("/sandboxes/{id}/connect", post(life::connect))
        .route("/v2/sandboxes/{id}/connect", post(life::connect))
        .route("/sandboxes/{id}/resume", post(life::resume))
        .route("/sandboxes/{id}/timeout", post(life::timeout))
        .route("/sandboxes/{id}/refreshes", post(life::refresh))
        .route("/sandboxes/{id}/pause", post(life::pause))
        .route("/sandboxes/{id}/fork", post(create::fork))
        .route("/sandboxes/{id}/metrics", get(list::metrics))
        .route("/sandboxes/{id}/logs", get(list::logs))
        .route("/v2/sandboxes/{id}/logs", get(list::logs))
        .route("/sandboxes/{id}/network", put(network::update))
        .route("/sandboxes/{id}/snapshots", post(snapshots::take))
        .route("/snapshots", get(snapshots::list))
        .route("/secrets", post(secrets::create).get(secrets::list))
        .route("/secrets/{id}", post(secrets::update).get(secrets::info).delete(secrets::remove))
        .route("/volumes", post(volumes::create).get(volumes::list))
        .route("/volumes/{id}", get(volumes::info).delete(volumes::remove))
        .route("/volumecontent/{id}/path", get(content::stat).patch(content::change).delete(content::remove))
        .route("/volumecontent/{id}/dir", get(content::list).post(content::make_dir))
        .route("/volumecontent/{id}/file", get(content::read).put(content::write))
        .route("/teams", get(templates::teams))
        .route("/templates", get(templates::list).post(templates::build))
        .route("/v2/templates", get(templates::list).post(templates::build))
        .route("/v3/templates", post(builds::ask))
        .route("/templates/{id}/files/{hash}", get(builds::link))
        .route("/templates/{id}/upload/{word}", put(builds::upload))
        .route("/v2/templates/{id}/builds/{build}", post(builds::start))
        .route("/templates/{id}/builds/{build}/status", get(builds::status))
        .route("/default-templates", get(templates::list))
        .route("/templates/aliases/{alias}", get(templates::alias))
        .route("/templates/tags", post(tags::assign).delete(tags::remove))
        .route("/templates/{id}/tags", get(tags::list))
        .route("/templates/{id}", delete(snapshots::remove).get(templates::info))
        .route("/templates/{id}/{*rest}", any(templates::build))
        .route("/v2/templates/{id}/{*rest}", any(templates::build))
        .fallback(wire::nowhere)
        .method_not_allowed_fallback(wire::not_that_way)
}

/// A sandbox that this key may see and that is still there.
fn find(app: &App, key: &Key, id: &str) -> Result<Arc<Sandbox>, Problem> {
    let parsed: Option<SessionId> = id.parse().ok();
    let found = parsed.and_then(|id| present(app, &id));
    let found = found.filter(|sandbox| key.sees(&sandbox.record().tenant));
    let id: String = id.chars().take(80).collect();
    found.ok_or_else(|| {
        Problem::not_found(format!("sandbox \"{id}\" doesn't exist or you don't have access to it"))
    })
}

fn told(app: &App, record: &Record) -> Created {
    Created {
        template_id: record.template.clone(),
        sandbox_id: record.id.to_string(),
        client_id: CLIENT.into(),
        envd_version: ENVD_VERSION.into(),
        alias: None,
        envd_access_token: record.envd_token.clone(),
        traffic_access_token: record.traffic_token.clone(),
        domain: app.config.domain.clone(),
    }
}

fn by(key: &Key) -> String {
    format!("key {} of {}", key.id, key.tenant)
}

fn far() -> u64 {
    now_us() + 365 * 24 * 3600 * 1_000_000
}
