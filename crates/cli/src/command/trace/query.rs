//! Finding events, and sending a trace to a collector.

use crate::args::{Format, Query as Asked};
use crate::output::{Failure, Output};
use crate::story::{fit, printable, second};
use cofferdam_engine::{Engine, Query, post_json};
use cofferdam_model::Span;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) fn run(engine: &Engine, asked: Asked, output: &Output) -> Result<u8, Failure> {
    let of = asked.trace.as_deref().map(|name| engine.find_trace(name)).transpose()?;
    let query = Query {
        kind: asked.kind,
        tool: asked.tool,
        model: asked.model,
        host: asked.host,
        decision: asked.decision,
        since_us: moment("--since", asked.since.as_deref())?,
        until_us: moment("--until", asked.until.as_deref())?,
        text: asked.text,
    };
    let found = engine.query(of.as_ref(), &query, asked.limit)?;
    if output.json {
        let all: Vec<Value> = found
            .iter()
            .map(|(session, event)| {
                json!({
                    "session": session,
                    "seq": event.seq,
                    "time_us": event.time,
                    "kind": event.kind,
                    "parent": event.parent,
                    "body": event.body,
                })
            })
            .collect();
        output.value(&all)?;
        return Ok(0);
    }
    for (session, event) in &found {
        let body = fit(&printable(&event.body.to_string()), 200);
        output.data(&format!(
            "{session} {:>5}  {}  {}\n  {body}\n",
            event.seq,
            second(event.time),
            event.kind
        ))?;
    }
    if found.is_empty() {
        output.remark("no event is about that");
    }
    Ok(0)
}

/// A point in time, or so long ago.
fn moment(flag: &str, text: Option<&str>) -> Result<Option<u64>, Failure> {
    let Some(text) = text else { return Ok(None) };
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Ok(Some(u64::try_from(at.as_microsecond()).unwrap_or(0)));
    }
    let span: Span = text.parse().map_err(|_| {
        Failure::Usage(format!(
            "{flag} {text}: write a time as 2026-01-31T12:00:00Z, or a span before now as 2h"
        ))
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Some(now.saturating_sub(span.0).as_micros() as u64))
}

/// Posts a trace to a collector.
pub(super) fn post(engine: &Engine, name: &str, format: Format, to: &str) -> Result<u8, Failure> {
    if format != Format::Otlp {
        return Err(Failure::Usage("--to: a collector takes spans; add --format otlp".into()));
    }
    let trace = engine.find_trace(name)?;
    let url = format!("{}/v1/traces", to.trim_end_matches('/').trim_end_matches("/v1/traces"));
    post_json(&url, &engine.export_otlp(&trace)?)?;
    Ok(0)
}
