//! What is on record, what was used, and what waits for a person.

use super::wire::{Caller, Input, Problem, number};
use crate::app::{App, State as Service, blocking};
use crate::keys::KeyKind;
use crate::route;
use crate::time::told as time;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use cofferdam_api::v1;
use cofferdam_engine::{EngineError, Query, Summary, TraceState};
use cofferdam_model::{Event, SessionId, UsageTotal};
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{StatusCode, Uri};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

/// How often a trace that goes on is looked at for more.
const LOOK: Duration = Duration::from_millis(250);
const MOST_LISTED: usize = 10_000;

impl Caller {
    /// A session of this tenant, whether or not it is still there.
    fn owned(&self, app: &Service, id: &str) -> Result<SessionId, Problem> {
        let id: SessionId = id.parse().map_err(|_| Problem::not_found("trace"))?;
        let owner = app.owners.of(&id);
        let mine = self.0.kind == KeyKind::Admin || owner.is_some_and(|tenant| tenant == self.0.tenant);
        if mine { Ok(id) } else { Err(Problem::not_found("trace")) }
    }
}

fn told(summary: &Summary) -> v1::Trace {
    v1::Trace {
        id: summary.id.to_string(),
        state: match summary.state {
            TraceState::Running => v1::TraceState::Running,
            TraceState::Finished => v1::TraceState::Complete,
            TraceState::Incomplete => v1::TraceState::Incomplete,
            TraceState::Unreadable => v1::TraceState::Damaged,
        },
        started_at: time(summary.started_us),
        ended_at: summary.ended_us.map(time),
        events: summary.events,
    }
}

pub(super) async fn traces(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<v1::Traces>, Problem> {
    let limit = number(&route::query(&uri), "limit", 1..=1000, 100)?;
    let found = blocking(&app, move |app| {
        let all = app.engine.list_traces(MOST_LISTED)?;
        let mine = all.iter().filter(|summary| caller.owned(app, summary.id.as_str()).is_ok());
        Ok(mine.take(limit).map(told).collect())
    });
    Ok(Json(v1::Traces { traces: found.await? }))
}

pub(super) async fn trace(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<v1::Trace>, Problem> {
    let id = caller.owned(&app, &id)?;
    let found = blocking(&app, move |app| {
        let all = app.engine.list_traces(usize::MAX)?;
        let found = all.iter().find(|summary| summary.id == id).map(told);
        found.ok_or_else(|| EngineError::NoTrace(id.to_string()))
    });
    Ok(Json(found.await?))
}

fn event(trace: &SessionId, event: Event) -> v1::TraceEvent {
    let body = match event.body {
        serde_json::Value::Object(body) => body,
        _ => serde_json::Map::new(),
    };
    v1::TraceEvent { trace: trace.to_string(), seq: event.seq, time_us: event.time, kind: event.kind, body }
}

pub(super) async fn events(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Json<v1::TraceEvents>, Problem> {
    let id = caller.owned(&app, &id)?;
    let query = route::query(&uri);
    let get = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let limit = number(&query, "limit", 1..=10_000, 1000)?;
    let (kind, host, tool) = (get("kind"), get("host"), get("tool"));
    let (decision, text) = (get("decision"), get("text"));
    if decision.as_ref().is_some_and(|word| !["allow", "deny", "review"].contains(&word.as_str())) {
        return Err(Problem::bad("`decision`: there are `allow`, `deny` and `review`"));
    }
    let wanted = Query { kind, host, tool, decision, text, ..Query::default() };
    let found = blocking(&app, move |app| {
        let trace = app.engine.find_trace(id.as_str())?;
        app.engine.query(Some(&trace), &wanted, limit)
    });
    let events = found.await?.into_iter().map(|(trace, found)| event(&trace, found));
    Ok(Json(v1::TraceEvents { events: events.collect() }))
}

pub(super) async fn export(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let id = caller.owned(&app, &id)?;
    let format = route::query(&uri).into_iter().find(|(name, _)| name == "format").map(|(_, value)| value);
    let format = format.unwrap_or_else(|| "jsonl".into());
    if !["jsonl", "otlp", "bundle"].contains(&format.as_str()) {
        return Err(Problem::bad("`format`: there are `jsonl`, `otlp` and `bundle`"));
    }
    let bytes = blocking(&app, move |app| {
        let trace = app.engine.find_trace(id.as_str())?;
        let mut to = Vec::new();
        match format.as_str() {
            "jsonl" => app.engine.export_events(&trace, &mut to)?,
            "bundle" => app.engine.export_bundle(&trace, &mut to)?,
            _ => to = app.engine.export_otlp(&trace)?.to_string().into_bytes(),
        }
        Ok(to)
    });
    Ok(([(CONTENT_TYPE, "application/octet-stream")], Body::from(bytes.await?)).into_response())
}

/// Where a stream of events is.
struct Following {
    app: App,
    trace: SessionId,
    ready: VecDeque<Event>,
    next: u64,
    over: bool,
}

impl Following {
    /// What has come since; whether it is over.
    async fn look(&mut self) -> Result<(), EngineError> {
        let (trace, next) = (self.trace.clone(), self.next);
        // Asked first: what is written before the end is then read.
        let live = self.app.house.holds(&self.trace);
        let found = blocking(&self.app, move |app| {
            let trace = app.engine.find_trace(trace.as_str())?;
            let mut all = app.engine.events(&trace)?;
            all.retain(|event| event.seq >= next);
            Ok(all)
        });
        let found = found.await?;
        self.next = found.last().map_or(self.next, |last| last.seq + 1);
        self.over = !live && found.is_empty();
        self.ready.extend(found);
        Ok(())
    }
}

pub(super) async fn stream(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<impl IntoResponse, Problem> {
    let trace = caller.owned(&app, &id)?;
    let mut following = Following { app, trace, ready: VecDeque::new(), next: 0, over: false };
    following.look().await?;
    let events = stream::unfold(following, |mut following| async {
        loop {
            if let Some(next) = following.ready.pop_front() {
                let told = event(&following.trace, next);
                let text = serde_json::to_string(&told).unwrap_or_default();
                let sent = Sent::default().event("event").id(told.seq.to_string()).data(text);
                return Some((Ok::<_, Infallible>(sent), following));
            }
            if following.over {
                return None;
            }
            tokio::time::sleep(LOOK).await;
            following.look().await.ok()?;
        }
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

fn used(total: UsageTotal) -> v1::Usage {
    let UsageTotal { session, span_us, paused_us, cpu_us, memory_mib_ms } = total;
    v1::Usage { session: session.to_string(), span_us, paused_us, cpu_us, memory_mib_ms }
}

pub(super) async fn usage(State(app): State<App>, caller: Caller) -> Result<Json<v1::UsageList>, Problem> {
    let all = blocking(&app, move |app| {
        let mut all = app.engine.usage()?;
        all.retain(|total| caller.owned(app, total.session.as_str()).is_ok());
        Ok(all)
    });
    Ok(Json(v1::UsageList { usage: all.await?.into_iter().map(used).collect() }))
}

pub(super) async fn usage_of(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<v1::Usage>, Problem> {
    let session = caller.owned(&app, &id)?;
    let total = blocking(&app, move |app| app.engine.usage_of(session)).await?;
    Ok(Json(used(total)))
}

pub(super) async fn approvals(
    State(app): State<App>,
    caller: Caller,
) -> Result<Json<v1::Approvals>, Problem> {
    let waiting = blocking(&app, move |app| {
        let mut waiting = app.engine.waiting()?;
        waiting.retain(|(session, _)| caller.owned(app, session.as_str()).is_ok());
        Ok(waiting)
    });
    let told = waiting.await?.into_iter().map(|(session, one)| v1::Approval {
        session: session.to_string(),
        id: one.id,
        rule: one.rule,
        reason: one.reason,
        method: one.method,
        url: one.url,
        until: time(one.until.saturating_mul(1_000_000)),
    });
    Ok(Json(v1::Approvals { approvals: told.collect() }))
}

pub(super) async fn answer(
    State(app): State<App>,
    caller: Caller,
    Path((session, id)): Path<(String, String)>,
    Input(asked): Input<v1::ApprovalAnswer>,
) -> Result<StatusCode, Problem> {
    let session = caller.owned(&app, &session)?;
    let id: u64 = id.parse().map_err(|_| Problem::not_found("request that waits"))?;
    let done = blocking(&app, move |app| {
        let waits = app.engine.waiting()?.iter().any(|(of, one)| *of == session && one.id == id);
        if waits { app.engine.answer(&session, id, asked.allow).map(|()| true) } else { Ok(false) }
    });
    match done.await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found("request that waits")),
    }
}
