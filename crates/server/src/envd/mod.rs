//! E2B's daemon, as its SDKs speak to it on port 49983 of a sandbox: processes, files, watches, terminals. Answered
//! here, outside of the sandbox: nothing of it has to run inside.

mod connect;
mod download;
mod fault;
mod filesystem;
mod input;
mod output;
mod process;
mod status;
mod upload;
mod watch;
mod who;

pub(crate) use watch::Watchers;

use crate::app::App;
use crate::body;
use crate::route;
use crate::sandbox::Sandbox;
use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use cofferdam_api::e2b::{self, ProxyError};
use cofferdam_engine::inside::Inside;
use fault::Fault;
use http::header::{HeaderValue, ORIGIN};
use http::{Method, Request, StatusCode};
use std::sync::Arc;

/// The port that SDKs expect it on.
pub(crate) const PORT: u16 = 49983;

/// What every call has at hand.
#[derive(Clone)]
struct Call {
    app: App,
    sandbox: Arc<Sandbox>,
    inside: Inside,
}

/// One request to the daemon of a sandbox that runs. Who asks is checked here: by `X-Access-Token`, or by the
/// signature of a link.
pub(crate) async fn serve(app: App, sandbox: Arc<Sandbox>, request: Request<Body>) -> Response {
    let from_page = request.headers().contains_key(ORIGIN);
    let mut response = match request.method() {
        &Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        _ => answer(app, sandbox, request).await,
    };
    if from_page {
        allow_pages(response.headers_mut());
    }
    response
}

/// A page of any origin may ask: it has to know the token.
fn allow_pages(headers: &mut http::HeaderMap) {
    const ALLOWED: [(&str, &str); 5] = [
        ("access-control-allow-origin", "*"),
        ("access-control-allow-methods", "GET, POST, PUT, HEAD, PATCH, DELETE, OPTIONS"),
        ("access-control-allow-headers", "*, authorization"),
        (
            "access-control-expose-headers",
            "location, cache-control, x-content-type-options, connect-content-encoding",
        ),
        ("access-control-max-age", "7200"),
    ];
    for (name, value) in ALLOWED {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

async fn answer(app: App, sandbox: Arc<Sandbox>, request: Request<Body>) -> Response {
    let path = request.uri().path().to_owned();
    if path == "/health" {
        return StatusCode::NO_CONTENT.into_response();
    }
    let gone = || (StatusCode::BAD_GATEWAY, Json(ProxyError::not_found(sandbox.id.as_str()))).into_response();
    let by = format!("api of {}", sandbox.record().tenant);
    let inside = sandbox.session().and_then(|session| app.house.inside(&session, by));
    let Some(inside) = inside else { return gone() };
    // What is said to a command comes when somebody types; all else comes at once.
    let limits = &app.config.limits;
    let patience = if path.ends_with("/StreamInput") { limits.idle.0 } else { limits.patience.0 };
    let request = request.map(|body| body::patient(body, patience));
    let call = Call { app, sandbox: sandbox.clone(), inside };
    if path == "/files" {
        return match *request.method() {
            Method::GET | Method::HEAD => download::serve(call, request).await,
            Method::POST => upload::serve(call, request).await,
            _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        };
    }
    if !has_token(&call, &request) {
        return unauthorized();
    }
    match path.as_str() {
        "/metrics" => status::metrics(call).await,
        "/envs" => status::envs(&call),
        _ => match path.strip_prefix('/').and_then(|path| path.split_once('/')) {
            Some(("process.Process", name)) => process::serve(call, name, request).await,
            Some(("filesystem.Filesystem", name)) => filesystem::serve(call, name, request).await,
            _ => nowhere(&path),
        },
    }
}

fn nowhere(path: &str) -> Response {
    let error = e2b::Error { code: 404, message: format!("there is no {path}"), error_code: None };
    (StatusCode::NOT_FOUND, Json(error)).into_response()
}

fn has_token(call: &Call, request: &Request<Body>) -> bool {
    let given = request.headers().get("x-access-token").map(HeaderValue::as_bytes);
    let token = call.sandbox.record().envd_token.clone();
    given.is_some_and(|given| cofferdam_seal::same(given, token.as_bytes()))
}

fn unauthorized() -> Response {
    let message =
        "unauthorized access, please provide a valid access token or method signing if supported".to_owned();
    Fault::plain(StatusCode::UNAUTHORIZED, message).into_response()
}

/// Whether a request for a file may be: it has the token, or a signature that is right and not too old.
fn may_touch(call: &Call, operation: &str, request: &Request<Body>) -> Result<(), Box<Response>> {
    if has_token(call, request) {
        return Ok(());
    }
    let query = route::query(request.uri());
    let get = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let Some(signature) = get("signature") else { return Err(Box::new(unauthorized())) };
    let (path, user) = (get("path").unwrap_or_default(), get("username").unwrap_or_default());
    let expires = get("signature_expiration");
    let token = call.sandbox.record().envd_token.clone();
    let right = route::sign(path, operation, user, &token, expires);
    if !cofferdam_seal::same(signature.as_bytes(), right.as_bytes()) {
        let message = "invalid signature".to_owned();
        return Err(Box::new(Fault::plain(StatusCode::UNAUTHORIZED, message).into_response()));
    }
    let now = i64::try_from(crate::app::now_us() / 1_000_000).unwrap_or(i64::MAX);
    match expires.map(str::parse::<i64>) {
        None => Ok(()),
        Some(Ok(until)) if until >= now => Ok(()),
        Some(_) => {
            let message = "signature is already expired".to_owned();
            Err(Box::new(Fault::plain(StatusCode::UNAUTHORIZED, message).into_response()))
        }
    }
}
