//! Further names of templates that were built: `name:tag`, each for the same files.

use super::wire::{Caller, Input, Problem};
use crate::app::{App, blocking};
use crate::snapshot::{self, Kept};
use crate::time;
use axum::Json;
use axum::extract::{Path, State};
use cofferdam_api::e2b::{Tag, Tagged, TagsAssigned, TagsRemoved};
use http::StatusCode;

pub(super) async fn assign(
    State(app): State<App>,
    Caller(key): Caller,
    Input(asked): Input<TagsAssigned>,
) -> Result<(StatusCode, Json<Tagged>), Problem> {
    let TagsAssigned { target, tags } = asked;
    if tags.is_empty() || !tags.iter().all(|tag| is_tag(tag)) {
        return Err(Problem::bad("`tags`: up to 100 letters, digits, `-`, `_` and `.` each are needed"));
    }
    let wanted = tags.clone();
    let named = blocking(&app, move |app| {
        let Some(kept) = snapshot::find(app, &key.tenant, &target) else { return Ok(None) };
        for tag in &wanted {
            snapshot::name(app, &kept, format!("{}:{tag}", name_of(&kept)))?;
        }
        Ok(Some(build_of(&kept)))
    });
    let build_id = named.await?.ok_or_else(unknown)?;
    Ok((StatusCode::CREATED, Json(Tagged { build_id, tags })))
}

pub(super) async fn remove(
    State(app): State<App>,
    Caller(key): Caller,
    Input(asked): Input<TagsRemoved>,
) -> Result<StatusCode, Problem> {
    let removed = blocking(&app, move |app| {
        let of = snapshot::canonical(&asked.name);
        let name = of.split(':').next().unwrap_or_default();
        let found = asked.tags.iter().map(|tag| snapshot::find(app, &key.tenant, &format!("{name}:{tag}")));
        let found: Option<Vec<Kept>> = found.collect();
        found.iter().flatten().for_each(|kept| snapshot::discard(app, kept));
        Ok(found.is_some())
    });
    if removed.await? { Ok(StatusCode::NO_CONTENT) } else { Err(unknown()) }
}

pub(super) async fn list(
    State(app): State<App>,
    Caller(key): Caller,
    Path(id): Path<String>,
) -> Result<Json<Vec<Tag>>, Problem> {
    let all = blocking(&app, move |app| Ok(snapshot::all(app, &key.tenant))).await?;
    let of = snapshot::canonical(&id);
    let named = all.iter().filter(|kept| name_of(kept) == of.split(':').next().unwrap_or_default());
    let tags: Vec<Tag> = named
        .map(|kept| Tag {
            tag: kept.id.split(':').nth(1).unwrap_or_default().to_owned(),
            build_id: build_of(kept),
            created_at: time::told(kept.taken_us),
        })
        .collect();
    if tags.is_empty() { Err(unknown()) } else { Ok(Json(tags)) }
}

fn is_tag(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.is_empty() && text.len() <= 100 && text.chars().all(word)
}

fn name_of(kept: &Kept) -> &str {
    kept.id.split(':').next().unwrap_or_default()
}

/// SDKs read a UUID; the same files are the same build.
fn build_of(kept: &Kept) -> String {
    let digest = cofferdam_seal::digest(kept.files.as_bytes());
    let hex: String = digest.as_bytes().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

fn unknown() -> Problem {
    Problem::not_found("there is no such template of yours: build it, or list its tags")
}
