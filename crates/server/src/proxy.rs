//! A request to a port of a sandbox, passed on to what listens there, with its upgrades (WebSocket). The inside is
//! told nothing of who asks but what the request says; our own keys and tokens stay outside.

use crate::app::App;
use crate::auth;
use crate::sandbox::{Ports, Sandbox};
use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use cofferdam_api::e2b::ProxyError;
use http::header::{CONNECTION, HOST, HeaderName, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use tokio::net::UnixStream;

/// Ours, and nobody's inside.
const KEPT_BACK: [&str; 5] =
    ["x-api-key", "x-access-token", "e2b-sandbox-id", "e2b-sandbox-port", "e2b-traffic-access-token"];
/// Of one connection only.
const HOP: [&str; 6] =
    ["keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "proxy-connection"];

pub(crate) async fn forward(
    app: App,
    sandbox: Arc<Sandbox>,
    port: u16,
    mut request: Request<Body>,
) -> Response {
    let closed = || {
        (StatusCode::BAD_GATEWAY, Json(ProxyError::port_closed(sandbox.id.as_str(), port))).into_response()
    };
    let Some(session) = sandbox.session() else { return closed() };
    let house = app.clone();
    let connected = tokio::task::spawn_blocking(move || house.house.connect(&session, port)).await;
    let Ok(Ok(stream)) = connected else { return closed() };
    let stream = StdStream::from(stream);
    let stream = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
    let Ok(stream) = stream else { return closed() };
    let Ok((mut sender, connection)) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await
    else {
        return closed();
    };
    // Ends with the exchange, or with the upgraded stream.
    tokio::spawn(async move { connection.with_upgrades().await });
    auth::keep_back(&app, request.headers_mut());
    let upgrade = upgrade_of(request.headers());
    let mask = sandbox.record().network.as_ref().and_then(|network| network.mask_request_host.clone());
    prepare(&mut request, upgrade.as_ref(), mask.map(|mask| mask.replace("${PORT}", &port.to_string())));
    let ours = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    let mut response = match sender.send_request(request).await {
        Ok(response) => response,
        Err(_) => return closed(),
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(ours) = ours
    {
        let theirs = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            if let (Ok(ours), Ok(theirs)) = tokio::join!(ours, theirs) {
                let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
                // However it ends, both are closed.
                let _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs).await;
            }
        });
    } else {
        HOP.iter().for_each(|name| drop(response.headers_mut().remove(*name)));
        response.headers_mut().remove(CONNECTION);
    }
    response.map(Body::new)
}

fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let asked =
        asked.flat_map(|value| value.split(',')).any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    headers.get(UPGRADE).filter(|_| asked).cloned()
}

/// As the inside is to see it.
fn prepare(request: &mut Request<Body>, upgrade: Option<&HeaderValue>, mask: Option<String>) {
    let authority = request.uri().authority().map(ToString::to_string);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    if let Ok(uri) = Uri::try_from(path) {
        *request.uri_mut() = uri;
    }
    *request.version_mut() = http::Version::HTTP_11;
    let headers = request.headers_mut();
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| *name != UPGRADE)
        .collect();
    listed.into_iter().for_each(|name| drop(headers.remove(name)));
    KEPT_BACK.iter().chain(&HOP).for_each(|name| drop(headers.remove(*name)));
    headers.remove(CONNECTION);
    if let Some(upgrade) = upgrade {
        headers.insert(UPGRADE, upgrade.clone());
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    let host = mask.or(authority).and_then(|host| HeaderValue::try_from(host).ok());
    match host {
        Some(host) => drop(headers.insert(HOST, host)),
        None if !headers.contains_key(HOST) => {
            headers.insert(HOST, HeaderValue::from_static("localhost"));
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_service_do_not_get_inside() {
        let mut request = Request::builder()
            .uri("http://3000-x.example.com/a?b=c")
            .header("x-api-key", "e2b_1")
            .header("x-access-token", "t")
            .header("e2b-traffic-access-token", "t")
            .header("x-access-token", "t")
            .header("connection", "keep-alive, x-mine, upgrade")
            .header("x-mine", "1")
            .header("upgrade", "websocket")
            .header("authorization", "Bearer theirs")
            .body(Body::empty())
            .unwrap();
        let upgrade = upgrade_of(request.headers());
        assert!(upgrade.is_some());
        prepare(&mut request, upgrade.as_ref(), Some("localhost:3000".into()));
        let headers = request.headers();
        assert_eq!(request.uri(), "/a?b=c");
        assert_eq!(headers[HOST], "localhost:3000");
        assert_eq!(headers[CONNECTION], "upgrade");
        assert_eq!(headers["authorization"], "Bearer theirs");
        for gone in ["x-api-key", "x-access-token", "e2b-traffic-access-token", "x-mine"] {
            assert!(!headers.contains_key(gone), "{gone}");
        }
    }
}
