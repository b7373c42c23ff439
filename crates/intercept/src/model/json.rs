//! Reading fields of JSON that may be of any shape.

use super::Asked;
use crate::kept::clipped;
use serde_json::Value;

/// Names and ids are short; what is longer is none.
const NAME: usize = 200;
/// A parameter is told, not kept: the bytes are there.
const PARAMETER: usize = 512;
const PARAMETERS: usize = 64;

pub(super) fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A name or an id.
pub(super) fn name(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).map(|text| clipped(text, NAME)).unwrap_or_default()
}

pub(super) fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0).min(MOST)
}

/// A trace holds only integers that every reader keeps, and sums of them.
const MOST: u64 = 1 << 48;

pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// What providers say when it went wrong: all of them have an `error`, as an object or as a text.
pub(super) fn error(value: &Value) -> Option<(String, String)> {
    let error = value.get("error").filter(|error| !error.is_null())?;
    let message = match error.as_str() {
        Some(message) => message.to_owned(),
        None => match error.get("message").and_then(Value::as_str) {
            Some(message) => message.to_owned(),
            None => error.to_string(),
        },
    };
    let kind =
        ["type", "status", "code"].into_iter().map(|field| name(error, field)).find(|kind| !kind.is_empty());
    Some((kind.unwrap_or_default(), clipped(&message, 1000)))
}

/// All fields but those that are told otherwise.
pub(super) fn parameters(body: &Value, but: &[&str], asked: &mut Asked) {
    let Some(fields) = body.as_object() else { return };
    let others = fields.iter().filter(|(name, value)| !but.contains(&name.as_str()) && !value.is_null());
    for (name, value) in others.take(PARAMETERS) {
        asked.parameters.insert(clipped(name, NAME), clipped(&value.to_string(), PARAMETER));
    }
}

/// The text of content that is a text or a list of parts; what is no text stands as its type.
pub(super) fn content(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(part).collect::<Vec<_>>().join("\n"),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn part(part: &Value) -> String {
    if let Some(text) = part.as_str() {
        return text.to_owned();
    }
    for field in ["text", "refusal", "thinking"] {
        if let Some(text) = part.get(field).and_then(Value::as_str) {
            return text.to_owned();
        }
    }
    format!("[{}]", name(part, "type"))
}
