//! Spans as exporters of OpenTelemetry send them over HTTP, in protobuf and in JSON, and the names that the GenAI
//! conventions (and those before them) give to what went in and came out. Only what a step has a place for is read.

mod json;
mod wire;

pub(crate) use json::from_json;
pub(crate) use wire::{answer, from_protobuf};

use serde_json::{Map, Value};

/// The most spans of one request.
const MOST: usize = 10_000;
/// The longest name and id; what is longer is cut.
const LONGEST_NAME: usize = 200;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Span {
    /// In hexadecimal digits.
    pub(crate) id: String,
    pub(crate) parent: Option<String>,
    pub(crate) name: String,
    pub(crate) start_us: u64,
    pub(crate) end_us: u64,
    /// Empty unless its status is an error.
    pub(crate) error: String,
    pub(crate) attributes: Map<String, Value>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OtlpError {
    #[error("no export request of OTLP in protobuf: {0}")]
    Protobuf(String),
    #[error("no export request of OTLP in JSON: {0}")]
    Json(String),
    #[error("resourceSpans.scopeSpans.spans.spanId: not eight bytes")]
    SpanId,
    #[error("resourceSpans.scopeSpans.spans: more than {MOST}; export in smaller batches")]
    TooMany,
}

const INPUTS: &[&str] = &[
    "gen_ai.tool.call.arguments",
    "gen_ai.input.messages",
    "gen_ai.prompt",
    "input.value",
    "traceloop.entity.input",
];
const OUTPUTS: &[&str] = &[
    "gen_ai.tool.call.result",
    "gen_ai.output.messages",
    "gen_ai.completion",
    "output.value",
    "traceloop.entity.output",
];
const SORTS: &[&str] = &["gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind"];

impl Span {
    /// What went in; where no convention says, all that is known of it.
    pub(crate) fn input(&self) -> Option<Value> {
        let all = || (!self.attributes.is_empty()).then(|| Value::Object(self.attributes.clone()));
        self.first(INPUTS).or_else(all)
    }

    pub(crate) fn output(&self) -> Option<Value> {
        self.first(OUTPUTS)
    }

    pub(crate) fn sort(&self) -> String {
        let sort = self.first(SORTS);
        sort.and_then(|sort| sort.as_str().map(|text| cut(&text.to_lowercase()))).unwrap_or_default()
    }

    /// Conventions put JSON into texts; it is read again where it is some.
    fn first(&self, names: &[&str]) -> Option<Value> {
        let value = names.iter().find_map(|name| self.attributes.get(*name))?;
        let read = value.as_str().and_then(|text| serde_json::from_str(text).ok());
        Some(read.filter(|read: &Value| read.is_object() || read.is_array()).unwrap_or_else(|| value.clone()))
    }
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST_NAME).collect()
}

fn id(bytes: &[u8]) -> Option<String> {
    let is_one = bytes.len() == 8 && bytes.iter().any(|byte| *byte != 0);
    is_one.then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests;
