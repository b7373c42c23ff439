//! Ollama's own API: chat and generate, which answer in lines of JSON unless they are asked not to.

use super::json::{content, list, name, number, parameters, text};
use super::{Asked, Call, Message, Said};
use cofferdam_model::Tokens;
use serde_json::Value;

pub(super) fn asked(body: &Value) -> Asked {
    let messages = match body.get("messages") {
        Some(_) => list(body, "messages").iter().map(message).collect(),
        None => prompt(body),
    };
    let mut asked = Asked {
        model: name(body, "model"),
        // It streams if nothing is said.
        streamed: body["stream"] != false,
        messages,
        tools: list(body, "tools")
            .iter()
            .map(|tool| (name(&tool["function"], "name"), tool.to_string()))
            .collect(),
        // Less than nothing is without a bound.
        most: body.pointer("/options/num_predict").and_then(Value::as_u64),
        ..Asked::default()
    };
    parameters(body, &["model", "stream", "messages", "prompt", "system", "tools"], &mut asked);
    asked
}

/// What generate takes.
fn prompt(body: &Value) -> Vec<Message> {
    let said = |role: &str, field: &str| {
        let text = text(body, field);
        (!text.is_empty()).then(|| Message { role: role.to_owned(), text, ..Message::default() })
    };
    said("system", "system").into_iter().chain(said("user", "prompt")).collect()
}

fn message(message: &Value) -> Message {
    let calls = list(message, "tool_calls").iter().map(call).collect();
    let answers = name(message, "tool_name");
    Message { role: name(message, "role"), text: content(&message["content"]), calls, answers }
}

/// Arguments are an object here, and not a text.
fn call(call: &Value) -> Call {
    let function = &call["function"];
    let arguments = function.get("arguments").map(ToString::to_string).unwrap_or_default();
    Call { id: name(call, "id"), name: name(function, "name"), arguments }
}

/// One line; an answer in one piece is one too.
pub(super) fn part(value: &Value, said: &mut Said) {
    if said.model.is_empty() {
        said.model = name(value, "model");
    }
    said.message.role = "assistant".to_owned();
    let new = message(&value["message"]);
    said.message.text.push_str(&new.text);
    said.message.text.push_str(value["response"].as_str().unwrap_or_default());
    said.message.calls.extend(new.calls);
    if value["done"] == true {
        said.stop = name(value, "done_reason");
        said.is_over = true;
        if value.get("eval_count").is_some() || value.get("prompt_eval_count").is_some() {
            let (input, output) = (number(value, "/prompt_eval_count"), number(value, "/eval_count"));
            said.tokens = Some(Tokens { input, output, ..Tokens::default() });
        }
    }
}
