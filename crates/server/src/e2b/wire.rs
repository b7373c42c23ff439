//! How this API reads and how it refuses: one shape for every error, with the status also in the body.

use crate::app::App;
use crate::auth;
use crate::body;
use crate::keys::Key;
use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts};
use axum::response::{IntoResponse, Response};
use cofferdam_api::e2b;
use cofferdam_engine::EngineError;
use http::request::Parts;
use http::{Request, StatusCode};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// A no.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    message: String,
    error_code: Option<&'static str>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), error_code: None }
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }
}

impl Problem {
    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let error_code = self.error_code.map(str::to_owned);
        let body = e2b::Error { code: self.status.as_u16(), message: self.message, error_code };
        (self.status, Json(body)).into_response()
    }
}

/// What the engine refuses is the asker's to change; what breaks is ours, and is not to be tried again by itself.
impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let status = match &error {
            EngineError::NotLive(_) | EngineError::Lost { .. } => StatusCode::NOT_FOUND,
            EngineError::Spec(_) | EngineError::Declined(_) => StatusCode::BAD_REQUEST,
            error if error.is_refusal() => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the service's state cannot be written: {error}"),
        )
    }
}

/// The same from outside of the router.
pub(crate) fn refusal(status: StatusCode, message: &str) -> Response {
    Problem::new(status, message).into_response()
}

pub(super) async fn nowhere(request: Request<Body>) -> Problem {
    let path: String = request.uri().path().chars().take(200).collect();
    Problem::not_found(format!("there is no {path} here"))
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
        let message =
            "the API key is missing or not valid: send it as X-API-Key; `cofferdam apikey create` makes one";
        let key = auth::caller(app, &parts.headers);
        key.map(Self).ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, message))
    }
}

/// A JSON body. Nothing at all is an empty object, as the SDKs mean it.
pub(super) struct Input<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<App> for Input<T> {
    type Rejection = Problem;
    async fn from_request(request: Request<Body>, app: &App) -> Result<Self, Problem> {
        let read = body::json(app, request).await;
        read.map(Self).map_err(|(status, message)| Problem::new(status, message))
    }
}
