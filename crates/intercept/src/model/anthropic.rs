//! Anthropic's messages.

use super::json::{content, list, name, number, parameters, text};
use super::{Asked, Call, Message, Said, block};
use cofferdam_model::Tokens;
use serde_json::Value;

pub(super) fn asked(body: &Value) -> Asked {
    let mut messages = Vec::new();
    let system = content(&body["system"]);
    if !system.is_empty() {
        messages.push(Message { role: "system".to_owned(), text: system, ..Message::default() });
    }
    list(body, "messages").iter().for_each(|message| turn(message, &mut messages));
    let mut asked = Asked {
        model: name(body, "model"),
        streamed: body["stream"] == true,
        messages,
        tools: list(body, "tools").iter().map(|tool| (name(tool, "name"), tool.to_string())).collect(),
        most: body["max_tokens"].as_u64(),
        ..Asked::default()
    };
    parameters(body, &["model", "stream", "messages", "system", "tools"], &mut asked);
    asked
}

/// A turn of the user holds the results of tools next to words: each result is a message of its own here.
fn turn(turn: &Value, messages: &mut Vec<Message>) {
    let mut message = Message { role: name(turn, "role"), ..Message::default() };
    let Some(blocks) = turn["content"].as_array() else {
        message.text = content(&turn["content"]);
        messages.push(message);
        return;
    };
    let mut words = Vec::new();
    for block in blocks {
        match block["type"].as_str() {
            Some("tool_result") => messages.push(Message {
                role: "tool".to_owned(),
                text: content(&block["content"]),
                answers: name(block, "tool_use_id"),
                ..Message::default()
            }),
            Some("tool_use" | "server_tool_use") => message.calls.push(call(block)),
            _ => words.push(content(&Value::Array(vec![block.clone()]))),
        }
    }
    message.text = words.join("\n");
    if !message.text.is_empty() || !message.calls.is_empty() {
        messages.push(message);
    }
}

fn call(block: &Value) -> Call {
    let input = block.get("input").filter(|input| !input.is_null());
    Call {
        id: name(block, "id"),
        name: name(block, "name"),
        arguments: input.map(Value::to_string).unwrap_or_default(),
    }
}

pub(super) fn whole(value: &Value, said: &mut Said) {
    said.model = name(value, "model");
    said.stop = name(value, "stop_reason");
    said.message.role = "assistant".to_owned();
    let mut words = Vec::new();
    for block in list(value, "content") {
        match block["type"].as_str() {
            Some("tool_use" | "server_tool_use") => said.message.calls.push(call(block)),
            Some("text") => words.push(text(block, "text")),
            _ => {}
        }
    }
    said.message.text = words.join("\n");
    if let Some(usage) = value.get("usage") {
        said.tokens = Some(tokens(usage));
    }
}

fn tokens(usage: &Value) -> Tokens {
    let (cached, written) =
        (number(usage, "/cache_read_input_tokens"), number(usage, "/cache_creation_input_tokens"));
    Tokens {
        // Its own count leaves out what concerns the cache.
        input: number(usage, "/input_tokens") + cached + written,
        output: number(usage, "/output_tokens"),
        cached,
        cache_written: written,
        reasoning: 0,
    }
}

pub(super) fn event(event: &str, value: &Value, blocks: &mut Vec<Call>, said: &mut Said) {
    let kind = value["type"].as_str().unwrap_or(event);
    match kind {
        "message_start" => {
            said.model = name(&value["message"], "model");
            said.message.role = "assistant".to_owned();
            said.tokens = value["message"].get("usage").map(tokens);
        }
        "content_block_start" => match value["content_block"]["type"].as_str() {
            Some("tool_use" | "server_tool_use") => match block(blocks, number(value, "/index")) {
                // The arguments come in parts; what stands here is an empty object.
                Some(found) => *found = Call { arguments: String::new(), ..call(&value["content_block"]) },
                None => said.problem("a block has an index that is too large"),
            },
            Some("text") => {
                if !said.message.text.is_empty() {
                    said.message.text.push('\n');
                }
                said.message.text.push_str(value["content_block"]["text"].as_str().unwrap_or_default());
            }
            _ => {}
        },
        "content_block_delta" => {
            let delta = &value["delta"];
            said.message.text.push_str(delta["text"].as_str().unwrap_or_default());
            if let Some(json) = delta["partial_json"].as_str()
                && let Some(found) = block(blocks, number(value, "/index"))
            {
                found.arguments.push_str(json);
            }
        }
        "message_delta" => {
            said.stop = name(&value["delta"], "stop_reason");
            if let Some(usage) = value.get("usage") {
                let (now, told) = (tokens(usage), said.tokens.get_or_insert_default());
                // The last count of what was said holds; what was read is told again only by some models.
                told.output = now.output;
                if now.input > 0 {
                    (told.input, told.cached, told.cache_written) =
                        (now.input, now.cached, now.cache_written);
                }
            }
        }
        "message_stop" => said.is_over = true,
        _ => {}
    }
}
