//! `POST /files`: a file as the body, or several as the parts of a form. Each appears when all of it has come.

use super::fault::Fault;
use super::{Call, may_touch, who};
use crate::route;
use async_compression::tokio::bufread::GzipDecoder;
use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use cofferdam_api::e2b::Uploaded;
use cofferdam_engine::inside::{Account, FileEntry};
use futures_util::{Stream, StreamExt, TryStreamExt};
use http::Request;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use tokio_util::io::{ReaderStream, StreamReader};

/// What may be noted with a file.
const MOST_NOTES: usize = 8 << 10;
/// The parts of one form.
const MOST_FILES: usize = 1000;

pub(super) async fn serve(call: Call, request: Request<Body>) -> Response {
    if let Err(refused) = may_touch(&call, "write", &request) {
        return *refused;
    }
    match write(&call, request).await {
        Ok(written) => Json(written).into_response(),
        Err(fault) => fault.into_plain(),
    }
}

type Pieces = std::pin::Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

async fn write(call: &Call, request: Request<Body>) -> Result<Vec<Uploaded>, Fault> {
    let query = route::query(request.uri());
    let get = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let path = get("path").filter(|path| !path.is_empty());
    let who = call.account(get("username").as_deref()).await?;
    let (parts, body) = request.into_parts();
    let notes = notes(&parts.headers)?;
    let pieces: Pieces = Box::pin(body.into_data_stream().map_err(io::Error::other));
    let pieces = unpacked(&parts.headers, pieces)?;
    let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    match multer::parse_boundary(kind) {
        Ok(boundary) => form(call, &who, path, notes, multer::Multipart::new(pieces, boundary)).await,
        Err(_) if kind.starts_with("application/octet-stream") => {
            let Some(path) = path else { return Err(Fault::invalid("`path` is missing: name the file")) };
            Ok(vec![store(call, &who, &path, notes, pieces).await?])
        }
        Err(_) => {
            Err(Fault::invalid("a file is sent as `multipart/form-data` or as `application/octet-stream`"))
        }
    }
}

fn unpacked(headers: &HeaderMap, pieces: Pieces) -> Result<Pieces, Fault> {
    match headers.get(CONTENT_ENCODING).map(|encoding| encoding.as_bytes()) {
        None | Some(b"identity") => Ok(pieces),
        Some(b"gzip") => {
            let unpacking = GzipDecoder::new(StreamReader::new(pieces));
            Ok(Box::pin(ReaderStream::with_capacity(unpacking, 64 << 10)))
        }
        Some(_) => Err(Fault::invalid("the body may be packed with gzip, and nothing else")),
    }
}

/// Every `X-Metadata-NAME`. Without any, what is noted with a file is taken away.
fn notes(headers: &HeaderMap) -> Result<Vec<(String, String)>, Fault> {
    let named = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        let name = name.as_str().strip_prefix("x-metadata-")?.to_owned();
        Some((name, value.to_str().ok()?.to_owned()))
    };
    let notes: Vec<(String, String)> = headers.iter().filter_map(named).collect();
    let size: usize = notes.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > MOST_NOTES || notes.iter().any(|(name, _)| name.is_empty()) {
        return Err(Fault::invalid(format!("metadata is named, and at most {MOST_NOTES} bytes")));
    }
    Ok(notes)
}

async fn form(
    call: &Call,
    who: &Account,
    path: Option<String>,
    notes: Vec<(String, String)>,
    mut form: multer::Multipart<'static>,
) -> Result<Vec<Uploaded>, Fault> {
    let broken = |error: multer::Error| Fault::invalid(format!("the form cannot be read: {error}"));
    let mut written = Vec::new();
    while let Some(field) = form.next_field().await.map_err(broken)? {
        if field.name() != Some("file") {
            continue;
        }
        let target = match (&path, field.file_name()) {
            (Some(path), _) => path.clone(),
            (None, Some(name)) if !name.is_empty() => name.to_owned(),
            _ => return Err(Fault::invalid("a part has no file name, and no `path` is given")),
        };
        if written.len() >= MOST_FILES || (path.is_some() && !written.is_empty()) {
            return Err(Fault::invalid("there are more files than can be taken at once with this `path`"));
        }
        let pieces = field.map(|piece| piece.map_err(io::Error::other));
        written.push(store(call, who, &target, notes.clone(), Box::pin(pieces)).await?);
    }
    Ok(written)
}

async fn store(
    call: &Call,
    who: &Account,
    path: &str,
    notes: Vec<(String, String)>,
    mut pieces: std::pin::Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send + '_>>,
) -> Result<Uploaded, Fault> {
    let at = who::path(path, who)?;
    let failed = |error| Fault::of(error, path);
    let mut file = call.inside.write(&at, who, Some(notes)).await.map_err(failed)?;
    while let Some(piece) = pieces.next().await {
        // A body that breaks off leaves nothing behind.
        let piece = piece.map_err(|error| Fault::invalid(format!("the file did not come whole: {error}")))?;
        file.write(piece).await.map_err(failed)?;
    }
    Ok(told(&at, &file.finish().await.map_err(failed)?))
}

fn told(at: &Path, entry: &FileEntry) -> Uploaded {
    let text = |part: &std::ffi::OsStr| part.to_string_lossy().into_owned();
    let metadata: BTreeMap<String, String> = entry.notes.iter().cloned().collect();
    Uploaded {
        path: text(at.as_os_str()),
        name: text(at.file_name().unwrap_or_default()),
        r#type: "file",
        metadata,
    }
}
