//! What is in a volume, asked by the SDKs with the volume's own token. Errors have a word as their code here, as E2B's.

use crate::app::App;
use crate::disk;
use crate::route;
use crate::time::told as time;
use crate::volume;
use crate::volume_files::{Entry, Files};
use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{Request, StatusCode};
use rustix::fs::FileType;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::io::Write;
use tokio_util::io::ReaderStream;

/// Who is inside's user: whose the files of a volume are, as the inside sees it.
const USER: u32 = 1000;

pub(super) struct Refused(StatusCode, String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let code = match self.0.as_u16() {
            400 => "bad_request",
            401 => "unauthorized",
            404 => "not_found",
            408 => "too_slow",
            409 => "conflict",
            413 => "too_large",
            507 => "no_space",
            _ => "internal",
        };
        (self.0, Json(json!({ "code": code, "message": self.1 }))).into_response()
    }
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        let status = match errno {
            Errno::NOENT | Errno::NOTDIR => StatusCode::NOT_FOUND,
            Errno::EXIST => StatusCode::CONFLICT,
            Errno::TOOBIG => StatusCode::PAYLOAD_TOO_LARGE,
            Errno::NOSPC | Errno::DQUOT => StatusCode::INSUFFICIENT_STORAGE,
            Errno::INVAL | Errno::LOOP | Errno::XDEV | Errno::ISDIR | Errno::NAMETOOLONG | Errno::ACCESS => {
                StatusCode::BAD_REQUEST
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let why = std::io::Error::from(errno);
        Self(status, format!("`path`: {why}: give one in the volume, without `..` and links"))
    }
}

/// The files that the token opens, and what of them is asked for.
pub(super) struct Opened {
    files: Files,
    query: Vec<(String, String)>,
    path: String,
}

impl Opened {
    fn number(&self, name: &str) -> Result<Option<u32>, Refused> {
        let found = self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.parse());
        found
            .transpose()
            .map_err(|_| Refused(StatusCode::BAD_REQUEST, format!("`{name}`: a number is needed")))
    }

    /// Files of a volume are the inside's user's: nobody else can be asked for.
    fn check_owner(&self) -> Result<(), Refused> {
        ["uid", "gid"].into_iter().try_for_each(|name| owned(name, self.number(name)?.map(u64::from)))
    }

    fn is(&self, name: &str) -> bool {
        self.query.iter().any(|(key, value)| key == name && value == "true")
    }

    fn told(&self) -> Result<Json<Value>, Refused> {
        Ok(Json(told(&self.files.stat(&self.path)?)))
    }
}

fn owned(name: &str, asked: Option<u64>) -> Result<(), Refused> {
    match asked.filter(|id| *id != u64::from(USER)) {
        None => Ok(()),
        Some(id) => {
            let message = format!(
                "`{name}`: {id} cannot be had: all of a volume is the sandbox's user's ({USER}); leave it out"
            );
            Err(Refused(StatusCode::BAD_REQUEST, message))
        }
    }
}

impl FromRequestParts<App> for Opened {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refused> {
        let refused =
            || Refused(StatusCode::UNAUTHORIZED, "the volume's token is missing or not its own".into());
        let Path(id) = Path::<String>::from_request_parts(parts, app).await.map_err(|_| refused())?;
        let given = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = given.and_then(|value| value.strip_prefix("Bearer ")).ok_or_else(refused)?;
        let name = volume::opened(app, &id, token).ok_or_else(refused)?;
        let gone = |_| Refused(StatusCode::NOT_FOUND, "there is no such volume".into());
        let data = app.engine.volume_files(&name).map_err(gone)?;
        let query = route::query(&parts.uri);
        let path = query.iter().find(|(key, _)| key == "path").map(|(_, value)| value.clone());
        let path = path.ok_or_else(|| Refused(StatusCode::BAD_REQUEST, "`path` is needed".into()))?;
        Ok(Self { files: Files::open(&data)?, query, path })
    }
}

fn told(entry: &Entry) -> Value {
    let stat = &entry.stat;
    let at = |seconds: i64| time(u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000));
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        _ => "unknown",
    };
    let name = entry.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut told = json!({
        "name": name, "type": kind, "path": entry.path.to_string_lossy(), "size": stat.st_size,
        "mode": stat.st_mode & 0o7777, "uid": USER, "gid": USER,
        "atime": at(stat.st_atime), "mtime": at(stat.st_mtime), "ctime": at(stat.st_ctime),
    });
    if let Some(target) = &entry.target {
        told["target"] = target.as_str().into();
    }
    told
}

/// Files of a disk: what waits for it holds up nobody else.
async fn waited<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, Refused> + Send + 'static,
) -> Result<T, Refused> {
    let broken =
        |_| Refused(StatusCode::INTERNAL_SERVER_ERROR, "the request failed inside the service".into());
    tokio::task::spawn_blocking(act).await.map_err(broken)?
}

pub(super) async fn stat(opened: Opened) -> Result<Json<Value>, Refused> {
    waited(move || opened.told()).await
}

pub(super) async fn list(opened: Opened) -> Result<Json<Vec<Value>>, Refused> {
    waited(move || {
        let depth = opened.number("depth")?.unwrap_or(1);
        Ok(Json(opened.files.list(&opened.path, depth)?.iter().map(told).collect()))
    })
    .await
}

pub(super) async fn make_dir(opened: Opened) -> Result<(StatusCode, Json<Value>), Refused> {
    opened.check_owner()?;
    waited(move || {
        opened.files.make_dir(&opened.path, opened.number("mode")?, opened.is("force"))?;
        Ok((StatusCode::CREATED, opened.told()?))
    })
    .await
}

pub(super) async fn change(opened: Opened, Json(asked): Json<Value>) -> Result<Json<Value>, Refused> {
    for name in ["uid", "gid"] {
        owned(name, asked[name].as_u64())?;
    }
    waited(move || {
        if let Some(mode) = asked["mode"].as_u64() {
            opened.files.change(&opened.path, u32::try_from(mode).unwrap_or(0o644))?;
        }
        opened.told()
    })
    .await
}

pub(super) async fn remove(opened: Opened) -> Result<StatusCode, Refused> {
    waited(move || Ok(opened.files.remove(&opened.path).map(|()| StatusCode::NO_CONTENT)?)).await
}

pub(super) async fn read(opened: Opened) -> Result<Response, Refused> {
    let (file, size) = waited(move || Ok(opened.files.read(&opened.path)?)).await?;
    let body = Body::from_stream(ReaderStream::with_capacity(tokio::fs::File::from_std(file), 256 << 10));
    let head = [(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_LENGTH, size.to_string())];
    Ok((head, body).into_response())
}

pub(super) async fn write(
    State(app): State<App>,
    opened: Opened,
    request: Request<Body>,
) -> Result<(StatusCode, Json<Value>), Refused> {
    let broken = |error: std::io::Error| match error.raw_os_error() {
        Some(number) => Refused::from(Errno::from_raw_os_error(number)),
        None => Refused(StatusCode::BAD_REQUEST, format!("the file did not come whole: {error}")),
    };
    let making = format!(".making-{}", disk::random_hex::<8>().map_err(broken)?);
    opened.check_owner()?;
    let mode = opened.number("mode")?;
    let mut writing = opened.files.write(&opened.path, mode, making)?;
    let mut body = crate::body::patient(request.into_body(), app.config.limits.patience.0).into_data_stream();
    while let Some(piece) = body.next().await {
        let piece: Bytes = piece.map_err(|error| broken(std::io::Error::other(error)))?;
        writing = waited(move || {
            writing.file.write_all(&piece).map_err(broken)?;
            Ok(writing)
        })
        .await?;
    }
    waited(move || {
        writing.finish()?;
        Ok((StatusCode::CREATED, opened.told()?))
    })
    .await
}
