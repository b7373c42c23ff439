//! `cofferdam step`, inside a session: what the agent says it is doing, told to the session's own endpoint.

use crate::args::{Step, StepCommand};
use crate::output::{Failure, Output};
use cofferdam_engine::{STEPS_URL, tell_step};
use serde_json::{Map, Value};

pub(crate) fn run(step: Step, output: &Output) -> Result<u8, Failure> {
    let Ok(url) = std::env::var(STEPS_URL) else {
        return Err(Failure::Usage(format!(
            "there is no {STEPS_URL} here: steps are told inside a session that has a policy (an empty file is one that lets nothing out)"
        )));
    };
    let told = tell_step(&url, &Value::Object(body(step.command)?))?;
    match (output.json, told.get("id").and_then(Value::as_str)) {
        (true, _) => output.value(&told)?,
        (false, Some(id)) => output.data(&format!("{id}\n"))?,
        (false, None) => {}
    }
    Ok(0)
}

fn body(command: StepCommand) -> Result<Map<String, Value>, Failure> {
    let mut map = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            map.insert(name.to_owned(), value);
        }
    };
    match command {
        StepCommand::Start { name, input, parent, id } => {
            set("event", Some("start".into()));
            set("name", Some(name.into()));
            set("input", json("--input", input)?);
            set("parent", parent.map(Value::from));
            set("id", id.map(Value::from));
        }
        StepCommand::End { id, output, error } => {
            set("event", Some("end".into()));
            set("id", Some(id.into()));
            set("output", json("--output", output)?);
            set("error", error.map(Value::from));
        }
        StepCommand::Replan { name, input, output, parent } => {
            set("event", Some("replan".into()));
            set("name", Some(name.into()));
            set("input", json("--input", input)?);
            set("output", json("--output", output)?);
            set("parent", parent.map(Value::from));
        }
    }
    Ok(map)
}

fn json(flag: &str, text: Option<String>) -> Result<Option<Value>, Failure> {
    let Some(text) = text else { return Ok(None) };
    match serde_json::from_str(&text) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(Failure::Usage(format!(
            "{flag}: no JSON: {error}; a text needs quotes of its own: '\"text\"'"
        ))),
    }
}
