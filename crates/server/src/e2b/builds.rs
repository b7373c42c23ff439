//! Templates that are built, as the SDKs ask for it.

use super::wire::{Caller, Input, Problem};
use crate::app::App;
use crate::{build, route};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use cofferdam_api::e2b::{BuildAsked, BuildRequest, BuildStatus, NewBuild, UploadLink};
use futures_util::StreamExt;
use http::header::HOST;
use http::{StatusCode, Uri};
use tokio::io::AsyncWriteExt;

/// The files of one COPY step.
const MOST: u64 = 2 << 30;

pub(super) async fn ask(
    State(app): State<App>,
    Caller(key): Caller,
    Input(asked): Input<NewBuild>,
) -> Result<(StatusCode, Json<BuildAsked>), Problem> {
    let asked = app.builds.ask(&key, asked).map_err(Problem::bad)?;
    Ok((StatusCode::ACCEPTED, Json(asked)))
}

/// Where to put the files of this hash.
pub(super) async fn link(
    State(app): State<App>,
    Caller(key): Caller,
    Path((id, hash)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<(StatusCode, Json<UploadLink>), Problem> {
    let present = build::is_there(&app, &key.tenant, &hash);
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("127.0.0.1");
    let base = app.config.public_url.clone().unwrap_or_else(|| format!("http://{host}"));
    let word = app.builds.link(&key.tenant, &hash)?;
    let id = percent_encoding::utf8_percent_encode(&id, percent_encoding::NON_ALPHANUMERIC);
    let url = format!("{base}/templates/{id}/upload/{word}");
    Ok((StatusCode::CREATED, Json(UploadLink { present, url: Some(url) })))
}

/// The word in the path is who may; nothing else comes with it.
pub(super) async fn upload(
    State(app): State<App>,
    Path((_, word)): Path<(String, String)>,
    body: Body,
) -> Result<StatusCode, Problem> {
    let name = app.builds.linked(&word).ok_or_else(|| Problem::not_found("there is no such place"))?;
    let place = build::place(&app, &name)?;
    let part = place.with_extension(word);
    let done = receive(body, &part).await;
    match done {
        Ok(()) => tokio::fs::rename(&part, &place).await?,
        Err(problem) => {
            let _ = tokio::fs::remove_file(&part).await;
            return Err(problem);
        }
    }
    Ok(StatusCode::OK)
}

async fn receive(body: Body, to: &std::path::Path) -> Result<(), Problem> {
    let mut file = tokio::fs::File::create_new(to).await?;
    let mut size = 0_u64;
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| Problem::bad("the files did not come whole"))?;
        size += piece.len() as u64;
        if size > MOST {
            return Err(Problem::bad(format!("the files of a step are more than {MOST} bytes")));
        }
        file.write_all(&piece).await?;
    }
    file.flush().await?;
    Ok(())
}

pub(super) async fn start(
    State(app): State<App>,
    Caller(key): Caller,
    Path((id, number)): Path<(String, String)>,
    Input(asked): Input<BuildRequest>,
) -> Result<StatusCode, Problem> {
    let build = app.builds.find(&key, &id, &number).ok_or_else(unknown)?;
    build::start(&app, &key, &build, asked).map_err(Problem::bad)?;
    Ok(StatusCode::ACCEPTED)
}

pub(super) async fn status(
    State(app): State<App>,
    Caller(key): Caller,
    Path((id, number)): Path<(String, String)>,
    uri: Uri,
) -> Result<Json<BuildStatus>, Problem> {
    let query = route::query(&uri);
    let offset =
        query.iter().find(|(name, _)| name == "logsOffset").and_then(|(_, value)| value.parse().ok());
    let build = app.builds.find(&key, &id, &number).ok_or_else(unknown)?;
    Ok(Json(build.status(offset.unwrap_or(0))))
}

fn unknown() -> Problem {
    Problem::not_found("there is no such build")
}
