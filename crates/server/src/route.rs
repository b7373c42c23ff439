//! Which sandbox a request is for, and which port of it; or the service itself. Decided for every request by itself: a
//! client uses one connection for the control plane and for several sandboxes.

use crate::app::App;
use crate::envd;
use crate::interpreter;
use crate::proxy;
use crate::sandbox::Sandbox;
use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use cofferdam_api::e2b::{self, ProxyError};
use cofferdam_model::SessionId;
use http::header::HOST;
use http::{HeaderMap, Request, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use std::sync::Arc;

/// What a request is for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Service,
    /// The name as it was given: it may be that of no sandbox.
    Sandbox {
        id: String,
        port: u16,
    },
}

pub(crate) fn target(app: &App, request: &Request<Body>) -> Target {
    let (headers, uri) = (request.headers(), request.uri());
    if let Some(target) = by_headers(headers).or_else(|| by_host(headers, uri)) {
        return if is_control(&target, uri) { Target::Service } else { target };
    }
    let of = |id: Option<SessionId>| {
        // One that is gone has no name any more; that it is gone is said all the same.
        let id = id.map_or_else(String::new, |id| id.to_string());
        Target::Sandbox { id, port: envd::PORT }
    };
    match (daemon_token(headers, uri), by_signature(app, uri)) {
        (Some(token), _) => of(app.sandboxes.by_token(token)),
        (None, Some(id)) => of(Some(id)),
        (None, None) => Target::Service,
    }
}

fn by_headers(headers: &HeaderMap) -> Option<Target> {
    let id = headers.get("e2b-sandbox-id")?.to_str().ok()?.to_owned();
    let port = headers.get("e2b-sandbox-port").and_then(|port| port.to_str().ok()?.parse().ok());
    Some(Target::Sandbox { id, port: port.unwrap_or(envd::PORT) })
}

/// Older SDKs name the sandbox and the daemon's port also when they ask the control plane for it. The daemon has no
/// such paths; the control plane asks for the key.
fn is_control(target: &Target, uri: &Uri) -> bool {
    let daemon = matches!(target, Target::Sandbox { port: envd::PORT, .. });
    daemon && ["/sandboxes/", "/v2/sandboxes/"].iter().any(|start| uri.path().starts_with(start))
}

/// `PORT-ID.DOMAIN`, whatever the domain: a name of that form is never the service's own.
fn by_host(headers: &HeaderMap, uri: &Uri) -> Option<Target> {
    let host = uri.host().or_else(|| headers.get(HOST)?.to_str().ok())?;
    let (label, _) = host.split_once('.')?;
    let (port, id) = label.split_once('-')?;
    let id: SessionId = id.parse().ok()?;
    Some(Target::Sandbox { id: id.to_string(), port: port.parse().ok()? })
}

/// Older SDKs name no sandbox when they speak to its daemon; the token is of one sandbox only. Nobody but a daemon is
/// ever sent one.
fn daemon_token<'a>(headers: &'a HeaderMap, uri: &Uri) -> Option<&'a str> {
    let path = uri.path();
    if path != "/files" && path != "/health" && path != "/metrics" && !path.contains('.') {
        return None;
    }
    headers.get("x-access-token")?.to_str().ok()
}

/// A signed link has no headers at all. One that has expired is still of its sandbox, which says so.
fn by_signature(app: &App, uri: &Uri) -> Option<SessionId> {
    if uri.path() != "/files" {
        return None;
    }
    let query = query(uri);
    let get = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let signature = get("signature")?;
    let (path, user) = (get("path").unwrap_or_default(), get("username").unwrap_or_default());
    let expires = get("signature_expiration");
    let signed = |sandbox: &Arc<Sandbox>| {
        let token = sandbox.record().envd_token.clone();
        ["read", "write"].iter().any(|op| same(signature, &sign(path, op, user, &token, expires)))
    };
    app.sandboxes.all().iter().find(|sandbox| signed(sandbox)).map(|sandbox| sandbox.id.clone())
}

fn same(one: &str, other: &str) -> bool {
    cofferdam_seal::same(one.as_bytes(), other.as_bytes())
}

/// The signature of a link to a file, as the SDKs make it.
pub(crate) fn sign(path: &str, operation: &str, user: &str, token: &str, expires: Option<&str>) -> String {
    let mut text = format!("{path}:{operation}:{user}:{token}");
    if let Some(expires) = expires {
        text = format!("{text}:{expires}");
    }
    let digest = cofferdam_seal::digest(text.as_bytes());
    format!("v1_{}", STANDARD_NO_PAD.encode(digest.as_bytes()))
}

/// The query, decoded once.
pub(crate) fn query(uri: &Uri) -> Vec<(String, String)> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(k, v)| (decode(k), decode(v)))
        .collect()
}

/// Traffic for a sandbox: to its daemon, or to whatever listens inside.
pub(crate) async fn traffic(app: App, id: String, port: u16, request: Request<Body>) -> Response {
    let not_found = || (StatusCode::BAD_GATEWAY, Json(ProxyError::not_found(&id))).into_response();
    let Ok(session) = id.parse::<SessionId>() else { return not_found() };
    let Some(sandbox) = crate::life::awake(&app, &session).await else { return not_found() };
    if port == envd::PORT {
        return envd::serve(app, sandbox, request).await;
    }
    let token = sandbox.record().traffic_token.clone();
    let given = request.headers().get("e2b-traffic-access-token").and_then(|given| given.to_str().ok());
    if token.is_some_and(|token| !given.is_some_and(|given| same(given, &token))) {
        let message = "this sandbox is not public: send its e2b-traffic-access-token".to_owned();
        let error = e2b::Error { code: 403, message, error_code: None };
        return (StatusCode::FORBIDDEN, Json(error)).into_response();
    }
    if port == interpreter::PORT {
        interpreter::ready(&app, &sandbox).await;
    }
    proxy::forward(app, sandbox, port, request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(value: &str) -> Option<Target> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, value.parse().unwrap());
        by_host(&headers, &Uri::from_static("/"))
    }

    #[test]
    fn a_host_names_port_and_sandbox_or_neither() {
        let id = SessionId::new(1, 2);
        let found = host(&format!("3000-{id}.sbx.example.com:8443"));
        assert_eq!(found, Some(Target::Sandbox { id: id.to_string(), port: 3000 }));
        for other in
            ["localhost", "127.0.0.1:80", "3000-x.example.com", "api.example.com", &format!("99999-{id}.a")]
        {
            assert_eq!(host(other), None, "{other}");
        }
    }

    #[test]
    fn headers_name_the_daemon_unless_they_name_a_port() {
        let mut headers = HeaderMap::new();
        assert_eq!(by_headers(&headers), None);
        headers.insert("e2b-sandbox-id", "abc".parse().unwrap());
        assert_eq!(by_headers(&headers), Some(Target::Sandbox { id: "abc".into(), port: 49983 }));
        headers.insert("e2b-sandbox-port", "49999".parse().unwrap());
        assert_eq!(by_headers(&headers), Some(Target::Sandbox { id: "abc".into(), port: 49999 }));
    }

    #[test]
    fn the_control_plane_is_asked_also_where_a_sandbox_is_named() {
        let of = |port| Target::Sandbox { id: "abc".into(), port };
        assert!(is_control(&of(49983), &Uri::from_static("/sandboxes/abc/connect")));
        assert!(!is_control(&of(49983), &Uri::from_static("/files?path=/sandboxes/")));
        assert!(
            !is_control(&of(3000), &Uri::from_static("/sandboxes/abc/connect")),
            "that is the inside's own"
        );
    }

    #[test]
    fn a_signature_is_the_one_that_the_sdks_make() {
        // As `get_signature` of the Python package 2.63.0 gives them.
        let path = "/home/user/a b.txt";
        let plain = "v1_PDhK3P0/VVi45RSAUklPxX4trWseAV9dTwwq5slGI3g";
        let expiring = "v1_wL/BgNCQhWzbPkEFNl6xRlo2PP0e+69FZX3nplbwDDI";
        assert_eq!(sign(path, "read", "user", "tok", None), plain);
        assert_eq!(sign(path, "write", "user", "tok", Some("1060")), expiring);
    }
}
