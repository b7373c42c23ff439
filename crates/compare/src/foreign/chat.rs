//! OpenAI chat messages: a log of messages, a request with its response, or a list of such exchanges, of which the
//! last one holds the whole conversation.

use super::field::{ForeignError, arguments, content, list, text};
use super::scribe::{Answer, Scribe};
use cofferdam_model::{ActKind, Run, Spent};
use serde_json::Value;

pub(super) fn read(value: &Value) -> Result<Run, ForeignError> {
    let mut scribe = Scribe::named(id(value));
    match value {
        Value::Array(items) if items.first().is_some_and(|item| item.get("request").is_some()) => {
            exchanges(&mut scribe, items)?;
        }
        Value::Object(map) if map.contains_key("request") => {
            exchanges(&mut scribe, std::slice::from_ref(value))?
        }
        Value::Array(items) => messages(&mut scribe, items, "messages")?,
        _ => {
            let key = if value.get("messages").is_some() { "messages" } else { "traj" };
            if value.get(key).is_some() {
                messages(&mut scribe, list(&value[key], key)?, key)?;
            }
            choices(&mut scribe, value)?;
            spent(&mut scribe, &value["usage"]);
        }
    }
    Ok(scribe.finish())
}

/// What a record calls itself.
pub(super) fn id(value: &Value) -> &str {
    ["id", "session_id", "trace_id", "conversation_id"]
        .iter()
        .find_map(|key| value[*key].as_str())
        .unwrap_or("")
}

fn exchanges(scribe: &mut Scribe, items: &[Value]) -> Result<(), ForeignError> {
    for item in items {
        spent(scribe, &item["response"]["usage"]);
    }
    let Some(last) = items.last() else {
        return Ok(());
    };
    let told = &last["request"]["messages"];
    messages(scribe, list(told, "request.messages")?, "request.messages")?;
    choices(scribe, &last["response"])
}

fn choices(scribe: &mut Scribe, response: &Value) -> Result<(), ForeignError> {
    let Some(choice) = response["choices"].get(0) else {
        return Ok(());
    };
    let at = scribe.run().acts.last().map_or(0, |act| act.at as usize + 1);
    message(scribe, at, &choice["message"], "choices[0].message")
}

fn spent(scribe: &mut Scribe, usage: &Value) {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let spent: &mut Spent = &mut scribe.run().spent;
    spent.tokens_in = spent.tokens_in.saturating_add(count(&usage["prompt_tokens"]));
    spent.tokens_out = spent.tokens_out.saturating_add(count(&usage["completion_tokens"]));
    let cached = count(&usage["prompt_tokens_details"]["cached_tokens"]);
    spent.tokens_cached = spent.tokens_cached.saturating_add(cached);
    let reasoning = count(&usage["completion_tokens_details"]["reasoning_tokens"]);
    spent.tokens_reasoning = spent.tokens_reasoning.saturating_add(reasoning);
}

pub(super) fn messages(scribe: &mut Scribe, items: &[Value], under: &str) -> Result<(), ForeignError> {
    let mut each = items.iter().enumerate();
    each.try_for_each(|(at, item)| message(scribe, at, item, &format!("{under}[{at}]")))
}

pub(super) fn message(scribe: &mut Scribe, at: usize, item: &Value, path: &str) -> Result<(), ForeignError> {
    let words = content(&item["content"], &format!("{path}.content"))?;
    match text(item, "role", path)? {
        "system" | "developer" => {
            scribe.words(at, ActKind::Instructed, words);
        }
        "user" => {
            scribe.words(at, ActKind::Told, words);
        }
        "tool" | "function" => {
            let id = item["tool_call_id"].as_str().unwrap_or("");
            let name = item["name"].as_str().unwrap_or("");
            scribe.answer(at, Answer { id, name, text: words, failed: None });
        }
        // Whatever else a model is called: it is the one that speaks and calls.
        _ => {
            let within = scribe.words(at, ActKind::Said, words);
            calls(scribe, at, within, item, path)?;
        }
    }
    Ok(())
}

fn calls(
    scribe: &mut Scribe,
    at: usize,
    within: Option<usize>,
    item: &Value,
    path: &str,
) -> Result<(), ForeignError> {
    if let Some(old) = item.get("function_call").filter(|call| call.is_object()) {
        let name = text(old, "name", &format!("{path}.function_call"))?;
        scribe.call(at, within, "", name, arguments(&old["arguments"]));
    }
    if item["tool_calls"].is_null() {
        return Ok(());
    }
    for (index, call) in list(&item["tool_calls"], &format!("{path}.tool_calls"))?.iter().enumerate() {
        let function = &call["function"];
        let name = text(function, "name", &format!("{path}.tool_calls[{index}].function"))?;
        scribe.call(at, within, call["id"].as_str().unwrap_or(""), name, arguments(&function["arguments"]));
    }
    Ok(())
}
