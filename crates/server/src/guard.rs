//! What every request to the service itself goes through: not while it goes, not too often, not twice.

use crate::app::{App, State as Service};
use crate::auth;
use crate::body;
use crate::e2b;
use crate::rest;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer is remembered, how many are, and how large one may be.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
const MOST: usize = 10_000;
const LARGEST: usize = 256 << 10;

#[derive(Default)]
pub(crate) struct Guard {
    /// What each key has left of its second, and when that was so.
    rates: Mutex<HashMap<String, (f64, Instant)>>,
    answers: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<Answer>>>>>,
    pub(crate) counts: Counts,
}

/// For `/metrics`.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) requests: [AtomicU64; 6],
    pub(crate) connections: AtomicU64,
    pub(crate) traffic: AtomicU64,
}

impl Counts {
    pub(crate) fn answered(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).min(5);
        self.requests[class].fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct Answer {
    /// Of the request that it is the answer to.
    asked: String,
    at: Instant,
    status: StatusCode,
    kind: Option<HeaderValue>,
    body: Bytes,
}

fn refuse(path: &str, status: StatusCode, message: &str) -> Response {
    let mut response =
        if path.starts_with("/v1/") { rest::refusal(status, message) } else { e2b::refusal(status, message) };
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

pub(crate) async fn pass(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let open = ["/health", "/healthz", "/readyz", "/v1/openapi.json", "/v1/docs"].contains(&path.as_str());
    if !open && app.draining.load(Ordering::Relaxed) {
        return refuse(
            &path,
            StatusCode::SERVICE_UNAVAILABLE,
            "the service is about to go: ask again in a moment",
        );
    }
    let key = auth::caller(&app, request.headers());
    // Without a key there is nothing that costs anything.
    let Some(key) = key.filter(|_| !open) else { return next.run(request).await };
    if !app.guard.may(&key.id, app.config.limits.rate) {
        return refuse(
            &path,
            StatusCode::TOO_MANY_REQUESTS,
            "too many requests with this key: wait a second",
        );
    }
    let once = request.headers().get("idempotency-key").map(|once| once.to_str().map(str::to_owned));
    match once {
        Some(Ok(once)) if request.method() == Method::POST => {
            let word = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
            if once.is_empty() || once.len() > 255 || !once.bytes().all(word) {
                let message = "`Idempotency-Key`: 1 to 255 letters, digits, `-` and `_` are needed";
                return refuse(&path, StatusCode::BAD_REQUEST, message);
            }
            once_only(&app, format!("{} {once}", key.tenant), path, request, next).await
        }
        Some(Err(_)) => {
            refuse(&path, StatusCode::BAD_REQUEST, "`Idempotency-Key`: it has strange bytes in it")
        }
        _ => next.run(request).await,
    }
}

/// Answers as before, if this was asked before.
async fn once_only(app: &App, name: String, path: String, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = match body::whole(app, body).await {
        Ok(body) => body,
        Err((status, message)) => return refuse(&path, status, &message),
    };
    let asked = format!("{path} {}", cofferdam_seal::digest(&body));
    let place = app.guard.place(&name);
    // Whoever asks the same at the same time waits for the first.
    let mut answer = place.lock().await;
    if let Some(before) = answer.as_ref() {
        if before.asked != asked {
            let message = "this Idempotency-Key was used for another request: use a new one";
            return refuse(&path, StatusCode::UNPROCESSABLE_ENTITY, message);
        }
        return again(before.clone());
    }
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    let kind = response.headers().get(CONTENT_TYPE).cloned();
    let events = kind.as_ref().is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    // What broke may be tried again; what streams cannot be kept.
    if events || response.status().is_server_error() || response.status() == StatusCode::TOO_MANY_REQUESTS {
        return response;
    }
    let status = response.status();
    let Ok(collected) = response.into_body().collect().await else {
        return refuse(&path, StatusCode::CONFLICT, "the answer broke off: ask how things are");
    };
    let body = collected.to_bytes();
    let given = Answer { asked, at: Instant::now(), status, kind, body };
    if given.body.len() <= LARGEST {
        *answer = Some(given.clone());
    }
    again(given)
}

fn again(answer: Answer) -> Response {
    let mut response = (answer.status, answer.body).into_response();
    response.headers_mut().remove(CONTENT_TYPE);
    if let Some(kind) = answer.kind {
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    response
}

impl Guard {
    /// Whether this key may ask now: so often in a second, and as many at once.
    fn may(&self, key: &str, rate: u32) -> bool {
        let (now, rate) = (Instant::now(), f64::from(rate));
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, at) = rates.entry(key.to_owned()).or_insert((rate, now));
        *left = (*left + now.duration_since(*at).as_secs_f64() * rate).min(rate);
        *at = now;
        let may = *left >= 1.0;
        if may {
            *left -= 1.0;
        }
        may
    }

    fn place(&self, name: &str) -> Arc<tokio::sync::Mutex<Option<Answer>>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MOST {
            let old = |place: &Arc<tokio::sync::Mutex<Option<Answer>>>| {
                place
                    .try_lock()
                    .is_ok_and(|answer| answer.as_ref().is_none_or(|a| a.at.elapsed() > REMEMBERED))
            };
            answers.retain(|_, place| !old(place));
        }
        if answers.len() >= MOST {
            // All are new: those go that nobody waits for.
            answers.retain(|_, place| Arc::strong_count(place) > 1);
        }
        answers.entry(name.to_owned()).or_default().clone()
    }
}

/// What Prometheus reads.
pub(crate) fn metrics(app: &Service) -> String {
    let counts = &app.guard.counts;
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let mut text = String::from("# TYPE cofferdam_requests_total counter\n");
    for (class, count) in counts.requests.iter().enumerate().skip(1) {
        text += &format!("cofferdam_requests_total{{class=\"{class}xx\"}} {}\n", get(count));
    }
    let gauges = [
        ("cofferdam_sessions_live", app.house.sessions().len() as u64, "gauge"),
        ("cofferdam_sandboxes", app.sandboxes.all().len() as u64, "gauge"),
        ("cofferdam_connections", get(&counts.connections), "gauge"),
        ("cofferdam_sandbox_requests_total", get(&counts.traffic), "counter"),
    ];
    for (name, value, kind) in gauges {
        text += &format!("# TYPE {name} {kind}\n{name} {value}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_asks_too_often_waits_and_others_do_not() {
        let guard = Guard::default();
        assert!((0..3).all(|_| guard.may("a", 3)));
        assert!(!guard.may("a", 3));
        assert!(guard.may("b", 3));
    }
}
