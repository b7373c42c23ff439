//! Files of a session, streamed both ways.

use super::wire::{Caller, Problem, number};
use super::work::{inside, located};
use crate::app::App;
use crate::route;
use crate::time::told as time;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use cofferdam_api::v1;
use cofferdam_engine::inside::{Account, FileEntry, FileKind, Inside};
use futures_util::stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{Request, StatusCode, Uri};
use http_body_util::BodyExt;
use std::path::PathBuf;

const USER: &str = "user";

struct Place {
    inside: Inside,
    account: Account,
    path: PathBuf,
}

async fn place(app: &App, caller: &Caller, id: &str, uri: &Uri) -> Result<Place, Problem> {
    let query = route::query(uri);
    let get = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let path = get("path").ok_or_else(|| Problem::bad("`path` is needed"))?;
    let (_, session) = caller.running(app, id)?;
    let inside = inside(app, &session, caller)?;
    let account = inside.account(get("user").unwrap_or(USER)).await?;
    let path = located(path, &account.home)?;
    Ok(Place { inside, account, path })
}

fn told(entry: &FileEntry) -> v1::FileEntry {
    let modified =
        u64::try_from(entry.modified_s).unwrap_or(0) * 1_000_000 + u64::from(entry.modified_ns / 1000);
    v1::FileEntry {
        path: entry.path.to_string_lossy().into_owned(),
        kind: match entry.kind {
            FileKind::File => v1::FileKind::File,
            FileKind::Directory => v1::FileKind::Directory,
            FileKind::Link => v1::FileKind::Symlink,
            FileKind::Other => v1::FileKind::Other,
        },
        size: entry.size,
        mode: entry.mode,
        owner: entry.owner.clone(),
        group: entry.group.clone(),
        modified_at: time(modified),
        target: entry.target.as_ref().map(|target| target.to_string_lossy().into_owned()),
    }
}

pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let Place { inside, path, .. } = place(&app, &caller, &id, &uri).await?;
    let reader = inside.read(&path, 0, None).await?;
    let size = reader.entry.size;
    let pieces = stream::unfold(Some(reader), |reader| async {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Some(piece)) => Some((Ok(piece), Some(reader))),
            Ok(None) => None,
            // Broken off, so that it is not taken for the end of the file.
            Err(error) => Some((Err(std::io::Error::other(error.to_string())), None)),
        }
    });
    let headers = [(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_LENGTH, size.to_string())];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

pub(super) async fn write(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
    request: Request<Body>,
) -> Result<Json<v1::FileEntry>, Problem> {
    let Place { inside, account, path } = place(&app, &caller, &id, &uri).await?;
    let mut writer = inside.write(&path, &account, None).await?;
    let mut body = request.into_body();
    loop {
        let frame = tokio::time::timeout(app.config.limits.patience.0, body.frame()).await;
        let late = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
        let Some(frame) = frame.map_err(late)? else { break };
        let frame = frame.map_err(|_| Problem::bad("the body ended in the middle"))?;
        if let Ok(data) = frame.into_data() {
            writer.write(data).await?;
        }
    }
    Ok(Json(told(&writer.finish().await?)))
}

pub(super) async fn remove(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<StatusCode, Problem> {
    let Place { inside, account, path } = place(&app, &caller, &id, &uri).await?;
    inside.remove(&path, &account).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Json<v1::Files>, Problem> {
    let depth = number(&route::query(&uri), "depth", 1..=64, 1)?;
    let Place { inside, path, .. } = place(&app, &caller, &id, &uri).await?;
    let found = inside.list(&path, depth as u32).await?;
    Ok(Json(v1::Files { files: found.iter().map(told).collect() }))
}
