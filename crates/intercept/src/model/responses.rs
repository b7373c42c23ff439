//! OpenAI's responses.

use super::json::{content, list, name, number, parameters, text};
use super::{Asked, Call, Message, Said};
use cofferdam_model::Tokens;
use serde_json::Value;

pub(super) fn asked(body: &Value) -> Asked {
    let mut messages = Vec::new();
    let instructions = text(body, "instructions");
    if !instructions.is_empty() {
        messages.push(Message { role: "system".to_owned(), text: instructions, ..Message::default() });
    }
    match &body["input"] {
        Value::String(text) => {
            messages.push(Message { role: "user".to_owned(), text: text.clone(), ..Message::default() });
        }
        Value::Array(items) => messages.extend(items.iter().map(item)),
        _ => {}
    }
    let tool = |tool: &Value| {
        let named = name(tool, "name");
        (if named.is_empty() { name(tool, "type") } else { named }, tool.to_string())
    };
    let mut asked = Asked {
        model: name(body, "model"),
        streamed: body["stream"] == true,
        messages,
        tools: list(body, "tools").iter().map(tool).collect(),
        most: body["max_output_tokens"].as_u64(),
        ..Asked::default()
    };
    parameters(body, &["model", "stream", "input", "instructions", "tools"], &mut asked);
    asked
}

/// One item of a conversation: a message, a call, or what came of one.
fn item(item: &Value) -> Message {
    match item["type"].as_str().unwrap_or("message") {
        "function_call" | "custom_tool_call" => {
            Message { role: "assistant".to_owned(), calls: vec![call(item)], ..Message::default() }
        }
        "function_call_output" | "custom_tool_call_output" => Message {
            role: "tool".to_owned(),
            text: content(&item["output"]),
            answers: name(item, "call_id"),
            ..Message::default()
        },
        "message" => {
            Message { role: name(item, "role"), text: content(&item["content"]), ..Message::default() }
        }
        "reasoning" => {
            Message { role: "assistant".to_owned(), text: content(&item["summary"]), ..Message::default() }
        }
        other => Message { role: "assistant".to_owned(), text: format!("[{other}]"), ..Message::default() },
    }
}

fn call(item: &Value) -> Call {
    let arguments = if item.get("input").is_some() { "input" } else { "arguments" };
    Call { id: name(item, "call_id"), name: name(item, "name"), arguments: text(item, arguments) }
}

pub(super) fn whole(value: &Value, said: &mut Said) {
    said.model = name(value, "model");
    said.stop = name(value, "status");
    let reason = value.pointer("/incomplete_details/reason").and_then(Value::as_str).unwrap_or_default();
    if !reason.is_empty() {
        said.stop = format!("{}: {}", said.stop, crate::kept::clipped(reason, 100));
    }
    said.message = Message { role: "assistant".to_owned(), ..Message::default() };
    list(value, "output").iter().for_each(|item| output(item, said));
    let Some(usage) = value.get("usage").filter(|usage| usage.is_object()) else { return };
    said.tokens = Some(Tokens {
        input: number(usage, "/input_tokens"),
        output: number(usage, "/output_tokens"),
        cached: number(usage, "/input_tokens_details/cached_tokens"),
        cache_written: 0,
        reasoning: number(usage, "/output_tokens_details/reasoning_tokens"),
    });
}

fn output(found: &Value, said: &mut Said) {
    match found["type"].as_str() {
        Some("function_call" | "custom_tool_call") => said.message.calls.push(call(found)),
        Some("message") => {
            let text = content(&found["content"]);
            if !said.message.text.is_empty() {
                said.message.text.push('\n');
            }
            said.message.text.push_str(&text);
        }
        _ => {}
    }
}

pub(super) fn event(value: &Value, said: &mut Said) {
    let kind = value["type"].as_str().unwrap_or_default();
    match kind {
        "response.created" | "response.in_progress" => said.model = name(&value["response"], "model"),
        "response.output_text.delta" | "response.refusal.delta" => {
            said.message.role = "assistant".to_owned();
            said.message.text.push_str(value["delta"].as_str().unwrap_or_default());
        }
        "response.output_item.done" if value["item"]["type"] != "message" => output(&value["item"], said),
        // The last one tells everything once more, as a whole.
        "response.completed" | "response.incomplete" | "response.failed" => {
            whole(&value["response"], said);
            said.error = super::json::error(&value["response"]);
            said.is_over = true;
        }
        "error" => {
            let inner = super::json::error(value);
            let flat = || (name(value, "code"), crate::kept::clipped(&text(value, "message"), 1000));
            said.error = Some(inner.unwrap_or_else(flat));
        }
        _ => {}
    }
}
