//! Runs from other people's records, so that a team can compare before it adopts anything: message logs of OpenAI
//! and Anthropic, OpenTelemetry GenAI and OpenInference spans, AgentDojo and ATIF trajectories.
//!
//! What a record leaves out is left out here as well and named in the run's `gaps`. Nothing is guessed about who did
//! what: a result without its call stays a result without its call.

mod agentdojo;
mod anthropic;
mod atif;
mod chat;
mod detect;
mod field;
mod genai;
mod openinference;
mod responses;
mod scribe;
mod spans;

pub use detect::{Format, detect};
pub use field::ForeignError;

use cofferdam_model::Run;
use serde_json::Value;

/// The one run that a file holds.
pub fn read(text: &str) -> Result<Run, ForeignError> {
    let mut runs = read_all(text)?;
    match runs.len() {
        1 => Ok(runs.remove(0)),
        count => Err(ForeignError::NotOne { count }),
    }
}

/// Every run that a file holds: a JSON document, or one of them per line.
pub fn read_all(text: &str) -> Result<Vec<Run>, ForeignError> {
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        return runs_of(&value);
    }
    let numbered = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|source| ForeignError::NotJson { line: number + 1, source })
    };
    let values = numbered.map(parse).collect::<Result<Vec<Value>, _>>()?;
    // Lines of one record (messages, exchanges, spans) belong together; lines that are records do not.
    let whole = Value::Array(values);
    match detect(&whole) {
        Some(_) => runs_of(&whole),
        None => whole.as_array().into_iter().flatten().map(runs_of).collect::<Result<Vec<_>, _>>().map(flat),
    }
}

fn flat(runs: Vec<Vec<Run>>) -> Vec<Run> {
    runs.into_iter().flatten().collect()
}

fn runs_of(value: &Value) -> Result<Vec<Run>, ForeignError> {
    match detect(value) {
        Some(Format::Otlp) => genai::read(value),
        Some(Format::Openinference) => openinference::read(value),
        Some(format) => read_as(format, value).map(|run| vec![run]),
        None => Err(ForeignError::unknown(value)),
    }
}

/// The one run that a JSON value holds, in whatever format it is.
pub fn read_value(value: &Value) -> Result<Run, ForeignError> {
    let mut runs = runs_of(value)?;
    match runs.len() {
        1 => Ok(runs.remove(0)),
        count => Err(ForeignError::NotOne { count }),
    }
}

/// The one run that a JSON value holds, in this format.
pub fn read_as(format: Format, value: &Value) -> Result<Run, ForeignError> {
    let spans = |runs: Vec<Run>| match <[Run; 1]>::try_from(runs) {
        Ok([run]) => Ok(run),
        Err(runs) => Err(ForeignError::NotOne { count: runs.len() }),
    };
    let mut run = match format {
        Format::Cofferdam => return field::own(value),
        Format::Agentdojo => agentdojo::read(value)?,
        Format::Openai => chat::read(value)?,
        Format::OpenaiResponses => responses::read(value)?,
        Format::Anthropic => anthropic::read(value)?,
        Format::Atif => atif::read(value)?,
        Format::Otlp => genai::read(value).and_then(spans)?,
        Format::Openinference => openinference::read(value).and_then(spans)?,
    };
    run.origin = format.name().to_owned();
    Ok(run)
}

#[cfg(test)]
mod tests;
