//! Bodies that are read whole: not too much of them, and not too slowly.

use crate::app::App;
use axum::body::Body;
use futures_util::StreamExt;
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::io;
use std::time::Duration;

/// A no, in no shape yet.
pub(crate) type Refused = (StatusCode, String);

/// A JSON body. Nothing at all is an empty object, as clients mean it.
pub(crate) async fn json<T: DeserializeOwned>(app: &App, request: Request<Body>) -> Result<T, Refused> {
    let kind = request.headers().get(CONTENT_TYPE).map(|kind| {
        let kind = String::from_utf8_lossy(kind.as_bytes()).into_owned();
        kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    });
    let bytes = whole(app, request.into_body()).await?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return parse(b"{}");
    }
    match kind {
        Some(kind) if kind != "application/json" => {
            let kind: String = kind.chars().take(80).collect();
            let message = format!("the body has to be application/json, and is `{kind}`");
            Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
        }
        _ => parse(&bytes),
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refused> {
    let failed =
        |error: serde_json::Error| (StatusCode::BAD_REQUEST, format!("the body does not fit: {error}"));
    // An array would be taken for the fields of a record in their order.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        serde_json::from_slice::<serde_json::Value>(bytes).map_err(failed)?;
        return Err((StatusCode::BAD_REQUEST, "the body does not fit: an object is needed".into()));
    }
    serde_json::from_slice(bytes).map_err(failed)
}

/// The same body, which breaks off once nothing more of it comes for so long.
pub(crate) fn patient(body: Body, patience: Duration) -> Body {
    let pieces = futures_util::stream::unfold(Some(body.into_data_stream()), move |body| async move {
        let mut body = body?;
        match tokio::time::timeout(patience, body.next()).await {
            Ok(None) => None,
            Ok(Some(Ok(piece))) => Some((Ok(piece), Some(body))),
            Ok(Some(Err(error))) => Some((Err(io::Error::other(error)), None)),
            Err(_) => Some((Err(io::Error::from(io::ErrorKind::TimedOut)), None)),
        }
    });
    Body::from_stream(pieces)
}

/// All of a body, if it is not too much and does not take too long.
pub(crate) async fn whole(app: &App, mut body: Body) -> Result<Vec<u8>, Refused> {
    let most = app.config.limits.body.0 as usize;
    let mut all = Vec::new();
    loop {
        let piece = tokio::time::timeout(app.config.limits.patience.0, body.frame()).await;
        let late = |_| (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time".to_owned());
        let Some(frame) = piece.map_err(late)? else { return Ok(all) };
        let frame =
            frame.map_err(|_| (StatusCode::BAD_REQUEST, "the body ended in the middle".to_owned()))?;
        if let Ok(data) = frame.into_data() {
            if all.len() + data.len() > most {
                let message = format!("the body is more than the {most} bytes that are taken here");
                return Err((StatusCode::PAYLOAD_TOO_LARGE, message));
            }
            all.extend_from_slice(&data);
        }
    }
}
