//! Gates: a suite is run, judged and signed here as by the command line; then who asked is told.
//!
//! The webhook's body is the gate as `GET /v1/gates/ID` tells it. Its header `X-Cofferdam-Signature` is `sha256=` and
//! the HMAC-SHA256 of the body in hexadecimal digits, with the key in `service/webhook.key` of the state directory.

use super::wire::{Admin, Input, Problem};
use crate::app::{App, State as Service, now_us};
use crate::disk;
use crate::time::told as time;
use axum::Json;
use axum::extract::{Path, State};
use cofferdam_api::v1;
use cofferdam_engine::gate::{GateResult, Gated, Options, Verdict};
use cofferdam_engine::{Stop, suite};
use http::StatusCode;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};

/// So many are remembered.
const MOST: usize = 200;
/// How long a webhook may take, and how often it is tried.
const PATIENCE: Duration = Duration::from_secs(10);
const TRIES: u32 = 3;

#[derive(Default)]
pub(crate) struct Gates {
    all: Mutex<BTreeMap<String, v1::Gate>>,
}

impl Gates {
    fn put(&self, gate: v1::Gate) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(gate.id.clone(), gate);
        while all.len() > MOST {
            all.pop_first();
        }
    }

    fn get(&self, id: &str) -> Option<v1::Gate> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }
}

pub(super) async fn run(
    State(app): State<App>,
    Admin(caller): Admin,
    Input(asked): Input<v1::GateAsked>,
) -> Result<(StatusCode, Json<v1::Gate>), Problem> {
    let web = |url: &String| url.starts_with("http://") || url.starts_with("https://");
    if asked.webhook.as_ref().is_some_and(|url| !web(url) || url.parse::<http::Uri>().is_err()) {
        return Err(Problem::unfit("`webhook`: an http or https address is needed"));
    }
    if asked.concurrency == Some(0) {
        return Err(Problem::bad("`concurrency`: at least 1 is needed"));
    }
    let path = PathBuf::from(&asked.suite);
    let suite = suite::load(&path)?;
    // Ids sort by time.
    let id = format!("{:013x}{}", now_us() / 1000, disk::random_hex::<4>()?);
    let gate = v1::Gate {
        id: id.clone(),
        suite: asked.suite.clone(),
        state: v1::GateState::Running,
        started_at: time(now_us()),
        ended_at: None,
        error: None,
        published: None,
        result: None,
        check_run: None,
    };
    app.gates.put(gate.clone());
    let (begun, service, by) = (gate.clone(), app.clone(), caller.by());
    let work = move || {
        let ended = judged(&service, begun, &suite, &asked, by);
        service.gates.put(ended.clone());
        if let Some(url) = &asked.webhook {
            let published = Some(publish(&service, url, &ended).is_ok());
            service.gates.put(v1::Gate { published, ..ended });
        }
    };
    std::thread::Builder::new().name("gate".into()).spawn(work)?;
    Ok((StatusCode::ACCEPTED, Json(gate)))
}

fn judged(
    app: &Service,
    gate: v1::Gate,
    suite: &suite::Suite,
    asked: &v1::GateAsked,
    by: String,
) -> v1::Gate {
    let out = app.engine.home().path().join("service").join("gates").join(&gate.id);
    let options = Options {
        out,
        at_once: asked.concurrency.map(|count| count as usize),
        baseline: None,
        shard: None,
        only: Vec::new(),
        retries: 0,
        judged: None,
        key: None,
        by: format!("cofferdam service, for {by}"),
    };
    let ran = Stop::new().and_then(|stop| app.engine.gate(suite, &options, &stop, &|_| {}));
    let ended = v1::Gate { ended_at: Some(time(now_us())), ..gate };
    match ran {
        Ok(Gated::Decided(result)) => v1::Gate {
            state: match result.outcome {
                Verdict::Pass => v1::GateState::Pass,
                Verdict::Fail => v1::GateState::Fail,
                Verdict::Review => v1::GateState::Review,
            },
            check_run: Some(check_run(&result, asked, &ended.id)),
            result: object(serde_json::to_value(&result).ok()),
            ..ended
        },
        Ok(Gated::Stopped { .. }) => {
            v1::Gate { state: v1::GateState::Error, error: Some("it was stopped".into()), ..ended }
        }
        Err(error) => v1::Gate { state: v1::GateState::Error, error: Some(error.to_string()), ..ended },
    }
}

fn object(value: Option<Value>) -> Option<Map<String, Value>> {
    match value {
        Some(Value::Object(object)) => Some(object),
        _ => None,
    }
}

/// For `POST /repos/OWNER/REPO/check-runs`.
fn check_run(result: &GateResult, asked: &v1::GateAsked, id: &str) -> Map<String, Value> {
    let (conclusion, title) = match result.outcome {
        Verdict::Pass => ("success", "pass"),
        Verdict::Fail => ("failure", "fail"),
        Verdict::Review => ("action_required", "review needed"),
    };
    let why = result.why.iter().map(|line| format!("- {line}\n")).collect::<String>();
    let check = json!({
        "name": "cofferdam gate",
        "head_sha": asked.commit.clone().unwrap_or_default(),
        "external_id": id,
        "status": "completed",
        "conclusion": conclusion,
        "output": { "title": title, "summary": if why.is_empty() { "nothing to tell".to_owned() } else { why } },
    });
    object(Some(check)).unwrap_or_default()
}

/// The key that webhooks are signed with; made when it is first needed.
fn webhook_key(app: &Service) -> io::Result<String> {
    let path = app.engine.home().path().join("service").join("webhook.key");
    match std::fs::read_to_string(&path) {
        Ok(key) => Ok(key.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = disk::random_hex::<32>()?;
            disk::write_text(&path, &key)?;
            Ok(key)
        }
        Err(error) => Err(error),
    }
}

fn publish(app: &Service, url: &str, gate: &v1::Gate) -> Result<(), Problem> {
    let body = serde_json::to_vec(gate).map_err(io::Error::from)?;
    let mac = cofferdam_seal::authenticate(webhook_key(app)?.as_bytes(), &body);
    let signature: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    let agent = agent();
    for attempt in 0..TRIES {
        std::thread::sleep(Duration::from_secs(u64::from(attempt)));
        let sent = agent
            .post(url)
            .header("content-type", "application/json")
            .header("x-cofferdam-signature", format!("sha256={signature}"))
            .send(&body[..]);
        if sent.is_ok_and(|response| response.status().is_success()) {
            return Ok(());
        }
    }
    app.log.warn("a webhook was not taken", json!({ "gate": gate.id }));
    Err(Problem::conflict("the webhook was not taken"))
}

fn agent() -> Agent {
    let roots = rustls_native_certs::load_native_certs().certs;
    let roots = roots.iter().map(|cert| ureq::tls::Certificate::from_der(cert).to_owned());
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::new_with_certs(&roots.collect::<Vec<_>>()))
        .build();
    let config = Agent::config_builder().tls_config(tls).timeout_global(Some(PATIENCE)).max_redirects(0);
    config.user_agent("cofferdam").build().into()
}

pub(super) async fn list(State(app): State<App>, _: Admin) -> Json<v1::Gates> {
    let all = app.gates.all.lock().unwrap_or_else(PoisonError::into_inner);
    Json(v1::Gates { gates: all.values().rev().cloned().collect() })
}

pub(super) async fn info(
    State(app): State<App>,
    _: Admin,
    Path(id): Path<String>,
) -> Result<Json<v1::Gate>, Problem> {
    app.gates.get(&id).map(Json).ok_or_else(|| Problem::not_found("gate"))
}
