//! One step as it is posted. What is wrong is named by its field.

use crate::mcp::json::Strict;
use serde_json::{Map, Value};

const LONGEST_NAME: usize = 200;
const LONGEST_ERROR: usize = 4 << 10;

#[derive(Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) name: String,
    pub(super) id: Option<String>,
    pub(super) parent: Option<String>,
    pub(super) input: Option<Value>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Told {
    Start(Asked),
    End { id: String, output: Option<Value>, error: String },
    Replan(Asked, Option<Value>),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(super) struct Wrong {
    pub(super) field: &'static str,
    why: String,
}

fn wrong<T>(field: &'static str, why: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { field, why: why.into() })
}

pub(super) fn step(body: &[u8]) -> Result<Told, Wrong> {
    let Ok(Strict(Value::Object(mut map))) = serde_json::from_slice(body) else {
        return wrong("body", "not one JSON object in which no name stands twice");
    };
    let Some(event) = text(&mut map, "event", 20)? else {
        return wrong("event", "say `start`, `end` or `replan`");
    };
    let told = match event.as_str() {
        "start" => Told::Start(asked(&mut map)?),
        "end" => {
            let Some(id) = text(&mut map, "id", LONGEST_NAME)? else {
                return wrong("id", "which step is over? `start` has answered with its id");
            };
            let error = text(&mut map, "error", LONGEST_ERROR)?.unwrap_or_default();
            Told::End { id, output: map.remove("output"), error }
        }
        "replan" => {
            let output = map.remove("output");
            Told::Replan(asked(&mut map)?, output)
        }
        _ => return wrong("event", "there are `start`, `end` and `replan`"),
    };
    match map.keys().next() {
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            wrong("body", format!("`{other}` is no field of `{event}`"))
        }
        None => Ok(told),
    }
}

fn asked(map: &mut Map<String, Value>) -> Result<Asked, Wrong> {
    let Some(name) = text(map, "name", LONGEST_NAME)?.filter(|name| !name.is_empty()) else {
        return wrong("name", "a step has a name");
    };
    let (id, parent) = (text(map, "id", LONGEST_NAME)?, text(map, "parent", LONGEST_NAME)?);
    Ok(Asked { name, id, parent, input: map.remove("input") })
}

fn text(map: &mut Map<String, Value>, field: &'static str, longest: usize) -> Result<Option<String>, Wrong> {
    match map.remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.len() <= longest => Ok(Some(text)),
        Some(Value::String(_)) => wrong(field, format!("longer than {longest} bytes")),
        Some(_) => wrong(field, "not a text"),
    }
}
