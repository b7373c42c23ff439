//! OpenAI's responses API: a list of items, or a request's `input` with its response's `output`.

use super::chat;
use super::field::{ForeignError, arguments, joined, list, rendered, text};
use super::scribe::{Answer, Scribe};
use cofferdam_model::{ActKind, Run};
use serde_json::Value;

pub(super) fn read(value: &Value) -> Result<Run, ForeignError> {
    let (request, response) = match value.get("request") {
        Some(request) => (request, &value["response"]),
        None => (value, value),
    };
    let mut scribe = Scribe::named(chat::id(response));
    if let Some(instructions) = request["instructions"].as_str() {
        scribe.words(0, ActKind::Instructed, instructions.to_owned());
    }
    let mut at = 0;
    let mut take = |scribe: &mut Scribe, items: &Value, under: &str| -> Result<(), ForeignError> {
        match items {
            Value::Null => {}
            Value::String(words) => {
                scribe.words(at, ActKind::Told, words.clone());
                at += 1;
            }
            items => {
                for (index, one) in list(items, under)?.iter().enumerate() {
                    item(scribe, at, one, &format!("{under}[{index}]"))?;
                    at += 1;
                }
            }
        }
        Ok(())
    };
    if value.is_array() {
        take(&mut scribe, value, "items")?;
    } else {
        take(&mut scribe, &request["input"], "input")?;
        take(&mut scribe, &response["output"], "output")?;
    }
    let usage = &response["usage"];
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let spent = &mut scribe.run().spent;
    spent.tokens_in = count(&usage["input_tokens"]);
    spent.tokens_out = count(&usage["output_tokens"]);
    spent.tokens_cached = count(&usage["input_tokens_details"]["cached_tokens"]);
    spent.tokens_reasoning = count(&usage["output_tokens_details"]["reasoning_tokens"]);
    Ok(scribe.finish())
}

fn item(scribe: &mut Scribe, at: usize, item: &Value, path: &str) -> Result<(), ForeignError> {
    match item["type"].as_str().unwrap_or("message") {
        "message" => chat::message(scribe, at, item, path)?,
        "function_call" | "custom_tool_call" => {
            let args = if item["arguments"].is_null() { &item["input"] } else { &item["arguments"] };
            let id = item["call_id"].as_str().unwrap_or("");
            scribe.call(at, None, id, text(item, "name", path)?, arguments(args));
        }
        "mcp_call" => {
            let id = item["id"].as_str().unwrap_or("");
            let name = text(item, "name", path)?;
            scribe.call(at, None, id, name, arguments(&item["arguments"]));
            let failed = !item["error"].is_null();
            let text = rendered(if failed { &item["error"] } else { &item["output"] });
            scribe.answer(at, Answer { id, name, text, failed: Some(failed) });
        }
        "function_call_output" | "custom_tool_call_output" => {
            let id = item["call_id"].as_str().unwrap_or("");
            scribe.answer(at, Answer { id, name: "", text: rendered(&item["output"]), failed: None });
        }
        "reasoning" => {
            let parts = item["summary"].as_array().into_iter().flatten();
            scribe.words(at, ActKind::Said, joined(parts.filter_map(|part| part["text"].as_str())));
        }
        other => scribe.run().gaps.push(format!("{path} is a `{other}`, which is not read")),
    }
    Ok(())
}
