//! `cofferdam approve`: requests that a rule holds for a person.

use crate::args::{Approve, ApproveCommand};
use crate::output::{Failure, Output};
use crate::story::{printable, whole, wrap};
use cofferdam_engine::{Engine, Waiting};
use serde_json::json;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

const WIDTH: usize = 80;

pub(crate) fn run(home: Option<PathBuf>, approve: Approve, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    match approve.command {
        ApproveCommand::Ls => list(&engine, output),
        ApproveCommand::Allow { id } => answer(&engine, &id, true, output),
        ApproveCommand::Deny { id } => answer(&engine, &id, false, output),
    }
}

fn list(engine: &Engine, output: &Output) -> Result<u8, Failure> {
    let waiting = engine.waiting()?;
    if output.json {
        let all: Vec<_> = waiting
            .iter()
            .map(|(session, one)| json!({ "id": format!("{session}.{}", one.id), "session": session, "request": one }))
            .collect();
        output.value(&all)?;
        return Ok(0);
    }
    if waiting.is_empty() {
        output.data("nothing waits\n")?;
        return Ok(0);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    for (session, one) in waiting {
        output.data(&format!("{session}.{}\n", one.id))?;
        for line in asked(&one) {
            output.data(&format!("  {}\n", whole(&line, 2, WIDTH)))?;
        }
        let program = one.program.map(|path| format!(" from {}", printable(&path))).unwrap_or_default();
        let spends = match one.credentials.is_empty() {
            true => String::new(),
            false => format!(" with {}", printable(&one.credentials.join(", "))),
        };
        let held = format!("held by rule `{}`{program}{spends}: {}", one.rule, printable(&one.reason));
        output.data(&format!("  {}\n", wrap(&held, 2, WIDTH)))?;
        output.data(&format!("  denied by itself in {} s\n", one.until.saturating_sub(now)))?;
    }
    Ok(0)
}

/// What would be done, to its last character: nobody says yes to what is hidden by what stands before it.
fn asked(one: &Waiting) -> Vec<String> {
    let (method, url) = (printable(&one.method), printable(&one.url));
    match url.starts_with("ssh:") {
        // A command may be long: where it would run comes first.
        true => vec![url, method],
        false => vec![format!("{method} {url}")],
    }
}

fn answer(engine: &Engine, id: &str, allow: bool, output: &Output) -> Result<u8, Failure> {
    let wrong = || {
        Failure::Usage(format!(
            "`{id}` is no id of a request: write SESSION.NUMBER, as `cofferdam approve ls` shows it"
        ))
    };
    let (session, number) = id.rsplit_once('.').ok_or_else(wrong)?;
    let number = number.parse().map_err(|_| wrong())?;
    let session = engine.find_session(session)?;
    engine.answer(&session, number, allow)?;
    if output.json {
        output.value(&json!({ "id": format!("{session}.{number}"), "allowed": allow }))?;
    }
    Ok(0)
}
