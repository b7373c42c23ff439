//! Fields of outside JSON: what is missing or of another type is named with where it stands.

use cofferdam_model::Run;
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub enum ForeignError {
    #[error("line {line} is not JSON: {source}; give one JSON document, or one per line")]
    NotJson { line: usize, source: serde_json::Error },
    #[error(
        "{found} is in no format that can be read: expected `messages`, `traj`, `input` and `output`, `steps`, \
         `resourceSpans`, spans or `acts`; export the trace in one of the formats of docs/compare.md"
    )]
    Unknown { found: String },
    #[error("`{at}` is {found}, expected {wanted}; correct the file or export it again")]
    Field { at: String, wanted: &'static str, found: &'static str },
    #[error("the file holds {count} runs where one is expected; split it, or compare directories")]
    NotOne { count: usize },
    #[error("not a run of ours: {0}; export it again with this version")]
    Own(#[source] serde_json::Error),
}

impl ForeignError {
    pub(super) fn unknown(value: &Value) -> Self {
        let found = match value {
            Value::Object(map) if map.is_empty() => "an object without fields".to_owned(),
            Value::Object(map) => {
                let names: Vec<_> = map.keys().take(8).map(|key| format!("`{}`", short(key))).collect();
                format!("an object with {}", names.join(", "))
            }
            Value::Array(items) if items.is_empty() => "an empty list".to_owned(),
            Value::Array(items) => format!("a list of {} whose first is {}", items.len(), kind(&items[0])),
            other => kind(other).to_owned(),
        };
        Self::Unknown { found }
    }
}

fn short(key: &str) -> String {
    key.chars().take(40).collect()
}

pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "missing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn wrong(at: String, wanted: &'static str, value: &Value) -> ForeignError {
    ForeignError::Field { at, wanted, found: kind(value) }
}

pub(super) fn list<'a>(value: &'a Value, at: &str) -> Result<&'a [Value], ForeignError> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| wrong(at.to_owned(), "a list", value))
}

pub(super) fn text<'a>(value: &'a Value, key: &str, at: &str) -> Result<&'a str, ForeignError> {
    value[key].as_str().ok_or_else(|| wrong(format!("{at}.{key}"), "a text", &value[key]))
}

/// The text of a content that is a text, nothing, or a list of parts of which some are texts.
pub(super) fn content(value: &Value, at: &str) -> Result<String, ForeignError> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => Ok(joined(parts.iter().filter_map(part))),
        other => Err(wrong(at.to_owned(), "a text or a list of parts", other)),
    }
}

fn part(part: &Value) -> Option<&str> {
    let keys = ["text", "content", "refusal", "output"];
    part.as_str().or_else(|| keys.iter().find_map(|key| part[*key].as_str()))
}

pub(super) fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

/// A result as text: JSON stays what it is, in its own bytes.
pub(super) fn rendered(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) if !parts.is_empty() && parts.iter().all(|p| part(p).is_some()) => {
            joined(parts.iter().filter_map(part))
        }
        other => other.to_string(),
    }
}

/// Arguments, which many formats keep as JSON in a text.
pub(super) fn arguments(value: &Value) -> Value {
    match value {
        Value::String(text) if text.trim().is_empty() => Value::Null,
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| value.clone()),
        other => other.clone(),
    }
}

/// A run as we write it ourselves.
pub(super) fn own(value: &Value) -> Result<Run, ForeignError> {
    serde_json::from_value(value.clone()).map_err(ForeignError::Own)
}
