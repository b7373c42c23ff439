//! `cofferdam trace`: list, show, verify, query, diff, export, import.

mod diff;
mod query;

use crate::args::{Format, Trace as Args, TraceCommand};
use crate::command::trace_out::unwritable;
use crate::output::{Failure, Output, Paint};
use crate::story;
use cofferdam_engine::{Engine, State, Summary, TraceState, Verification};
use serde_json::json;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// An unfinished trace: neither valid nor broken.
const INCOMPLETE: u8 = 3;
const BROKEN: u8 = 1;

pub(crate) fn run(home: Option<PathBuf>, args: Args, output: &Output) -> Result<u8, Failure> {
    let engine = Engine::open(home)?;
    match args.command {
        TraceCommand::Ls { limit } => list(&engine, limit, output),
        TraceCommand::Show { trace, full } => show(&engine, &trace, full, output),
        TraceCommand::Verify { trace, key } => verify(&engine, &trace, &key, output),
        TraceCommand::Export { trace, format, out, to } => match to {
            Some(to) => query::post(&engine, &trace, format, &to),
            None => export(&engine, &trace, format, out.as_deref(), output),
        },
        TraceCommand::Query(asked) => query::run(&engine, asked, output),
        TraceCommand::Diff { base, new, full } => diff::run(&engine, &base, &new, full, output),
        TraceCommand::Import { file } => import(&engine, &file, output),
    }
}

fn list(engine: &Engine, limit: usize, output: &Output) -> Result<u8, Failure> {
    let traces = engine.list_traces(limit)?;
    if output.json {
        output.value(&traces)?;
        return Ok(0);
    }
    if traces.is_empty() {
        output.remark("no traces yet; `cofferdam run -- CMD` makes one");
        return Ok(0);
    }
    let mut text =
        format!("{:<20}  {:<16}  {:<10}  {:>6}  {}\n", "ID", "STARTED", "STATE", "EXIT", "COMMAND");
    for trace in &traces {
        text.push_str(&row(trace));
    }
    output.data(&text)?;
    Ok(0)
}

fn row(trace: &Summary) -> String {
    let state = match trace.state {
        TraceState::Running => "running",
        TraceState::Finished => "finished",
        TraceState::Incomplete => "incomplete",
        TraceState::Unreadable => "unreadable",
    };
    let exit = trace.exit.map_or_else(|| "-".into(), |exit| exit.code().to_string());
    let command = story::fit(&story::command_line(&trace.command), 80 - 62);
    // One whose first event could not be written has no time.
    let started = if trace.started_us == 0 { "-".into() } else { story::minute(trace.started_us) };
    format!("{}  {started:<16}  {state:<10}  {exit:>6}  {command}\n", trace.id)
}

fn show(engine: &Engine, name: &str, full: bool, output: &Output) -> Result<u8, Failure> {
    let trace = engine.find_trace(name)?;
    let story = engine.story(&trace)?;
    if output.json {
        output.value(&story)?;
        return Ok(0);
    }
    let payload = |wanted: &cofferdam_model::BlobRef| engine.payload(&trace, wanted).ok();
    output.data(&story::tell(&story, full, &payload, output))?;
    Ok(0)
}

fn verify(engine: &Engine, name: &str, keys: &[PathBuf], output: &Output) -> Result<u8, Failure> {
    let trace = engine.find_trace(name)?;
    let found = engine.verify_trace(&trace, keys)?;
    let code = match found.state {
        State::Valid => 0,
        State::Incomplete { .. } => INCOMPLETE,
        State::Broken => BROKEN,
    };
    if output.json {
        output.value(&found)?;
    } else if !output.quiet {
        output.data(&verdict(&found, output))?;
    }
    Ok(code)
}

fn verdict(found: &Verification, output: &Output) -> String {
    let what = match found.signer {
        Some(key) => {
            format!("{} events, {} signed by key {:.16}", found.events, found.signed, key.to_string())
        }
        None => format!("{} events, none signed", found.events),
    };
    match found.state {
        State::Valid => {
            format!("{}: {what}; {} payloads\n", output.paint(Paint::Good, "valid"), found.payloads.sound)
        }
        State::Incomplete { live } => {
            let why = if live {
                "its session is still running"
            } else {
                "its writer ended before it was sealed, or its end was cut off"
            };
            let tail = if found.torn_tail { "; the last line is torn" } else { "" };
            let unsigned = found.unsigned();
            let word = output.paint(Paint::Care, "incomplete");
            format!("{word}: {why};\n  {what}, {unsigned} sound but unsigned{tail}\n")
        }
        State::Broken => {
            let word = output.paint(Paint::Bad, "broken");
            match &found.first_bad {
                Some(bad) => {
                    let kind = bad.kind.as_deref().map(|kind| format!(" ({kind})")).unwrap_or_default();
                    let line = format!("event {}{kind} on line {}: {}", bad.seq, bad.line, bad.reason);
                    // A payload is looked at once all events are known to hang together.
                    let of = if found.events > bad.seq { "all of it" } else { "before it" };
                    format!("{word}: {}\n  {of}: {what}\n", story::wrap(&line, 2, 72))
                }
                None => format!("{word}: {what}\n"),
            }
        }
    }
}

fn export(
    engine: &Engine,
    name: &str,
    format: Format,
    out: Option<&Path>,
    output: &Output,
) -> Result<u8, Failure> {
    let trace = engine.find_trace(name)?;
    let mut to: Box<dyn io::Write> = match out {
        Some(path) => Box::new(File::create(path).map_err(|error| unwritable("--out ", path, &error))?),
        None => Box::new(output.stream()),
    };
    match format {
        Format::Jsonl => engine.export_events(&trace, &mut to)?,
        Format::Bundle => engine.export_bundle(&trace, to)?,
        Format::Otlp => document(&mut to, &engine.export_otlp(&trace)?)?,
        Format::Atif => document(&mut to, &engine.export_atif(&trace)?)?,
    }
    Ok(0)
}

fn document(to: &mut dyn io::Write, value: &serde_json::Value) -> io::Result<()> {
    serde_json::to_writer(&mut *to, value).map_err(io::Error::from)?;
    to.write_all(b"\n")
}

fn import(engine: &Engine, file: &Path, output: &Output) -> Result<u8, Failure> {
    let from = File::open(file)
        .map_err(|error| Failure::Usage(format!("cannot read {}: {error}", file.display())))?;
    let id = engine.import_bundle(from)?;
    if output.json {
        output.value(&json!({ "session": id }))?;
    } else {
        output.data(&format!("{id}\n"))?;
        output.remark(format!("imported; check it with `cofferdam trace verify {id}`"));
    }
    Ok(0)
}
