//! What a sandbox may reach, changed while it runs.

use super::find;
use super::wire::{Caller, Input, Problem};
use crate::app::{App, blocking};
use crate::egress;
use crate::plan;
use axum::extract::{Path, State};
use cofferdam_api::e2b::{Network, NetworkUpdate};
use cofferdam_engine::EngineError;
use http::StatusCode;

/// Replaces all of it: what is left out is cleared.
pub(super) async fn update(
    State(app): State<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
    Input(asked): Input<NetworkUpdate>,
) -> Result<StatusCode, Problem> {
    let sandbox = find(&app, &key, &id)?;
    let _alone = sandbox.changing.lock().await;
    let mut record = sandbox.record().clone();
    let before = record.network.take().unwrap_or_default();
    let network = Network {
        allow_out: asked.allow_out,
        deny_out: asked.deny_out,
        rules: asked.rules,
        egress_proxy: asked.egress_proxy,
        // Not of what leaves.
        allow_public_traffic: before.allow_public_traffic,
        mask_request_host: before.mask_request_host,
        https_ports: before.https_ports,
        dns_servers: before.dns_servers,
    };
    egress::check(&network).map_err(|error| Problem::bad(error.to_string()))?;
    record.network = Some(network);
    record.internet = asked.allow_internet_access;
    let changed = sandbox.clone();
    let done = blocking(&app, move |app| {
        if let Some(session) = &record.session {
            plan::apply_policy(app, &record, session)?;
        }
        let kept = app.sandboxes.change(&changed, |kept| {
            kept.network = record.network;
            kept.internet = record.internet;
        });
        kept.map_err(|source| EngineError::Io { doing: "keep the sandbox on file", source })
    });
    done.await?;
    Ok(StatusCode::NO_CONTENT)
}
