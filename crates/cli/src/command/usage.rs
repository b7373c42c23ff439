//! `cofferdam usage`: what sessions that stay have used, as it was written down.

use super::session::list::usage_words;
use crate::output::{Failure, Output, Paint};
use crate::story::second;
use cofferdam_engine::Engine;
use cofferdam_model::{Bytes, SessionId};
use serde_json::json;
use std::path::PathBuf;

pub(crate) fn run(home: Option<PathBuf>, session: Option<String>, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    match session {
        Some(session) => records(&engine, find(&engine, &session)?, output),
        None => totals(&engine, output),
    }
}

/// What an ended one has used is known by its id alone.
fn find(engine: &Engine, name: &str) -> Result<SessionId, Failure> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let known = engine.usage()?;
    let mut found = known.iter().filter(|total| total.session.as_str().starts_with(name));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.session.clone()),
        _ => Ok(engine.find_session(name)?),
    }
}

fn totals(engine: &Engine, output: &Output) -> Result<u8, Failure> {
    let all = engine.usage()?;
    if output.json {
        output.value(&all)?;
        return Ok(0);
    }
    for total in &all {
        let id = output.paint(Paint::Bold, &total.session);
        output.data(&format!("{id}  {}\n", usage_words(total)))?;
    }
    Ok(0)
}

fn records(engine: &Engine, session: SessionId, output: &Output) -> Result<u8, Failure> {
    let records = engine.usage_records(&session)?;
    if output.json {
        let total = engine.usage_of(session)?;
        output.value(&json!({ "total": total, "records": records }))?;
        return Ok(0);
    }
    for record in &records {
        let cpu = record.cpu_us.map_or("-".into(), |us| format!("{:.3}s", us as f64 / 1e6));
        let memory = record.memory.map_or("-".into(), |bytes| Bytes(bytes).to_string());
        let span = record.span_us as f64 / 1e6;
        let (at, state) = (second(record.at_us), record.state.word());
        output.data(&format!("{at}  {span:>8.3}s  {state:<8} {cpu:>8} of CPU  {memory}\n"))?;
    }
    Ok(0)
}
