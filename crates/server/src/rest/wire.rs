//! How this API reads and how it refuses: `{code, message, hint}`, always.

use crate::app::App;
use crate::auth;
use crate::body;
use crate::keys::{Key, KeyKind};
use crate::life::present;
use crate::sandbox::Sandbox;
use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts};
use axum::response::{IntoResponse, Response};
use cofferdam_api::v1;
use cofferdam_engine::EngineError;
use cofferdam_engine::inside::{FileProblem, InsideError};
use cofferdam_model::SessionId;
use http::request::Parts;
use http::{Request, StatusCode};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// A no.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: Option<String>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, code: code(status), message: message.into(), hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// The document allows it, and it makes no sense: a text in it that is no policy, a file that is no suite.
    pub(super) fn unfit(message: impl Into<String>) -> Self {
        Self { code: "unprocessable", ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, message) }
    }

    pub(super) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no such {what}, or it is not yours"))
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }
}

fn code(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "bad_request",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        405 => "method_not_allowed",
        408 => "too_slow",
        409 => "conflict",
        413 => "too_large",
        415 => "unsupported_type",
        422 => "key_reused",
        429 => "too_many_requests",
        503 => "draining",
        _ => "internal",
    }
}

/// The same from outside of the router.
pub(crate) fn refusal(status: StatusCode, message: &str) -> Response {
    Problem::new(status, message).into_response()
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = v1::Error { code: self.code.into(), message: self.message, hint: self.hint };
        (self.status, Json(body)).into_response()
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let status = match &error {
            EngineError::NotLive(_)
            | EngineError::Lost { .. }
            | EngineError::NoTrace(_)
            | EngineError::Ambiguous { .. }
            | EngineError::Id(_) => StatusCode::NOT_FOUND,
            EngineError::Declined(_) => StatusCode::CONFLICT,
            EngineError::Runtime(_) => StatusCode::CONFLICT,
            EngineError::Spec(_)
            | EngineError::SpecFile { .. }
            | EngineError::Rules(_)
            | EngineError::Unfit(_)
            | EngineError::Secret(_)
            | EngineError::SecretInEnvironment { .. }
            | EngineError::Unreadable { .. } => return Self::unfit(error.to_string()),
            error if error.is_asked_wrong() => StatusCode::BAD_REQUEST,
            // Its guest is not to be trusted any more.
            EngineError::Guest(_) => StatusCode::CONFLICT,
            error if error.is_refusal() => StatusCode::CONFLICT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

impl From<InsideError> for Problem {
    fn from(error: InsideError) -> Self {
        let status = match error {
            InsideError::Refused(error) => return error.into(),
            InsideError::Gone => StatusCode::NOT_FOUND,
            InsideError::TooMany(_) => StatusCode::BAD_REQUEST,
            InsideError::Nonsense => StatusCode::CONFLICT,
            InsideError::File { kind } => match kind {
                FileProblem::Missing | FileProblem::NoAccount => StatusCode::NOT_FOUND,
                // What is asked is sound, and what is there is otherwise.
                FileProblem::Exists
                | FileProblem::IsDirectory
                | FileProblem::NotDirectory
                | FileProblem::Special => StatusCode::CONFLICT,
                FileProblem::Other(errno) if is_forbidden(errno) => StatusCode::FORBIDDEN,
                _ => StatusCode::BAD_REQUEST,
            },
        };
        Self::new(status, error.to_string())
    }
}

/// To who is asked to do it inside, by the inside's kernel.
fn is_forbidden(errno: i32) -> bool {
    use rustix::io::Errno;
    [Errno::ACCESS, Errno::PERM, Errno::ROFS].contains(&Errno::from_raw_os_error(errno))
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the service's state cannot be used: {error}"))
    }
}

pub(super) async fn nowhere(Caller(_): Caller, request: Request<Body>) -> Problem {
    let path: String = request.uri().path().chars().take(200).collect();
    Problem::new(StatusCode::NOT_FOUND, format!("there is no {path} here")).hint("see /v1/openapi.json")
}

pub(super) async fn not_that_way(request: Request<Body>) -> Problem {
    let path: String = request.uri().path().chars().take(200).collect();
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{} is not for {path}", request.method()))
}

/// Whose key came with the request.
pub(super) struct Caller(pub(super) Arc<Key>);

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let refused = || {
            Problem::new(StatusCode::UNAUTHORIZED, "the API key is missing or not valid")
                .hint("send `Authorization: Bearer KEY`; `cofferdam apikey create` makes one")
        };
        auth::caller(app, &parts.headers).map(Self).ok_or_else(refused)
    }
}

impl Caller {
    pub(super) fn by(&self) -> String {
        format!("key {} of {}", self.0.id, self.0.tenant)
    }

    /// A session of this tenant that is there.
    pub(super) fn session(&self, app: &App, id: &str) -> Result<Arc<Sandbox>, Problem> {
        let id: Option<SessionId> = id.parse().ok();
        // One that was lost is still told of.
        let found = id.and_then(|id| present(app, &id).or_else(|| app.sandboxes.get(&id)));
        let mine = found.filter(|sandbox| self.0.sees(&sandbox.record().tenant));
        mine.ok_or_else(|| Problem::not_found("session"))
    }

    /// The session that runs in it now.
    pub(super) fn running(&self, app: &App, id: &str) -> Result<(Arc<Sandbox>, SessionId), Problem> {
        let sandbox = self.session(app, id)?;
        let session = sandbox.session().filter(|session| app.house.holds(session));
        match session {
            Some(session) => Ok((sandbox, session)),
            None => Err(Problem::conflict("nothing runs in it").hint("resume it first")),
        }
    }
}

/// The administrator's.
pub(super) struct Admin(pub(super) Caller);

impl FromRequestParts<App> for Admin {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, app).await?;
        match caller.0.kind {
            KeyKind::Admin => Ok(Self(caller)),
            KeyKind::Api => Err(Problem::new(StatusCode::FORBIDDEN, "this is for the administrator's key")),
        }
    }
}

/// A JSON body. Nothing at all is an empty object.
pub(super) struct Input<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<App> for Input<T> {
    type Rejection = Problem;
    async fn from_request(request: Request<Body>, app: &App) -> Result<Self, Problem> {
        let read = body::json(app, request).await;
        read.map(Self).map_err(|(status, message)| Problem::new(status, message))
    }
}

/// A number in a query, within bounds.
pub(super) fn number(
    query: &[(String, String)],
    name: &str,
    bounds: std::ops::RangeInclusive<usize>,
    default: usize,
) -> Result<usize, Problem> {
    let Some((_, value)) = query.iter().find(|(key, _)| key == name) else { return Ok(default) };
    let number = value.parse().ok().filter(|number| bounds.contains(number));
    let (least, most) = (bounds.start(), bounds.end());
    number.ok_or_else(|| Problem::bad(format!("`{name}`: a number from {least} to {most} is needed")))
}
