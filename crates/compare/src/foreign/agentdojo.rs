//! AgentDojo runs: messages in which a call's `function` is its name and a result carries its `error`.

use super::field::{ForeignError, content, list, text};
use super::scribe::{Answer, Scribe};
use cofferdam_model::{ActKind, Run};
use serde_json::Value;

pub(super) fn read(value: &Value) -> Result<Run, ForeignError> {
    let parts = ["suite_name", "pipeline_name", "user_task_id", "injection_task_id", "attack_type"];
    let named: Vec<&str> = parts.iter().filter_map(|key| value[*key].as_str()).collect();
    let mut scribe = Scribe::named(&named.join("/"));
    let messages = if value.is_array() { value } else { &value["messages"] };
    for (at, item) in list(messages, "messages")?.iter().enumerate() {
        message(&mut scribe, at, item)?;
    }
    let mut run = scribe.finish();
    if let Some(seconds) = value["duration"].as_f64().filter(|s| s.is_finite() && *s >= 0.0) {
        run.spent.wall_us = (seconds * 1e6) as u64;
    }
    if let Some(error) = value["error"].as_str() {
        run.gaps.push(format!("the run ended with an error: {error}"));
    }
    Ok(run)
}

fn message(scribe: &mut Scribe, at: usize, item: &Value) -> Result<(), ForeignError> {
    let path = format!("messages[{at}]");
    let words = content(&item["content"], &format!("{path}.content"))?;
    match text(item, "role", &path)? {
        "system" => {
            scribe.words(at, ActKind::Instructed, words);
        }
        "user" => {
            scribe.words(at, ActKind::Told, words);
        }
        "tool" => {
            let id = item["tool_call_id"].as_str().or(item["tool_call"]["id"].as_str()).unwrap_or("");
            let name = item["tool_call"]["function"].as_str().unwrap_or("");
            let error = item["error"].as_str();
            let text = if words.is_empty() { error.unwrap_or("").to_owned() } else { words };
            scribe.answer(at, Answer { id, name, text, failed: Some(error.is_some()) });
        }
        _ => {
            let within = scribe.words(at, ActKind::Said, words);
            if !item["tool_calls"].is_null() {
                let calls = list(&item["tool_calls"], &format!("{path}.tool_calls"))?;
                for (index, call) in calls.iter().enumerate() {
                    let name = text(call, "function", &format!("{path}.tool_calls[{index}]"))?;
                    scribe.call(at, within, call["id"].as_str().unwrap_or(""), name, call["args"].clone());
                }
            }
        }
    }
    Ok(())
}
