//! Anthropic messages: content in blocks; calls are `tool_use`, their results `tool_result` in the user's turn.

use super::chat;
use super::field::{ForeignError, content, list, rendered, text};
use super::scribe::{Answer, Scribe};
use cofferdam_model::{ActKind, Run};
use serde_json::Value;

pub(super) fn read(value: &Value) -> Result<Run, ForeignError> {
    let exchanges = match value {
        Value::Array(items) if items.first().is_some_and(|item| item.get("request").is_some()) => {
            items.as_slice()
        }
        Value::Object(map) if map.contains_key("request") => std::slice::from_ref(value),
        _ => &[],
    };
    let mut scribe = Scribe::named(chat::id(value));
    exchanges.iter().for_each(|one| spent(&mut scribe, &one["response"]["usage"]));
    let (request, response) = match exchanges.last() {
        Some(last) => (&last["request"], &last["response"]),
        None => (value, value),
    };
    let system = content(&request["system"], "system")?;
    scribe.words(0, ActKind::Instructed, system);
    let messages = if request.is_array() { request } else { &request["messages"] };
    let messages = list(messages, "messages")?;
    for (at, message) in messages.iter().enumerate() {
        turn(&mut scribe, at, message, &format!("messages[{at}]"))?;
    }
    if response.get("content").is_some() {
        turn(&mut scribe, messages.len(), response, "response")?;
    }
    if exchanges.is_empty() {
        spent(&mut scribe, &value["usage"]);
    }
    Ok(scribe.finish())
}

fn spent(scribe: &mut Scribe, usage: &Value) {
    let count = |key: &str| usage[key].as_u64().unwrap_or(0);
    let spent = &mut scribe.run().spent;
    spent.tokens_in = spent.tokens_in.saturating_add(count("input_tokens"));
    spent.tokens_out = spent.tokens_out.saturating_add(count("output_tokens"));
    spent.tokens_cached = spent.tokens_cached.saturating_add(count("cache_read_input_tokens"));
}

fn turn(scribe: &mut Scribe, at: usize, message: &Value, path: &str) -> Result<(), ForeignError> {
    let kind = match text(message, "role", path)? {
        "user" => ActKind::Told,
        "system" => ActKind::Instructed,
        _ => ActKind::Said,
    };
    let Value::Array(blocks) = &message["content"] else {
        let words = content(&message["content"], &format!("{path}.content"))?;
        scribe.words(at, kind, words);
        return Ok(());
    };
    let mut said = None;
    for (index, block) in blocks.iter().enumerate() {
        let place = format!("{path}.content[{index}]");
        match text(block, "type", &place)? {
            "text" => said = scribe.words(at, kind, text(block, "text", &place)?.to_owned()).or(said),
            "thinking" => {
                let words = block["thinking"].as_str().unwrap_or("").to_owned();
                said = scribe.words(at, ActKind::Said, words).or(said);
            }
            "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                let id = block["id"].as_str().unwrap_or("");
                scribe.call(at, said, id, text(block, "name", &place)?, block["input"].clone());
            }
            other if other.ends_with("tool_result") => {
                let id = block["tool_use_id"].as_str().unwrap_or("");
                let failed = block["is_error"].as_bool();
                scribe.answer(at, Answer { id, name: "", text: rendered(&block["content"]), failed });
            }
            other => scribe.run().gaps.push(format!("{place} is a `{other}`, which is not read")),
        }
    }
    Ok(())
}
