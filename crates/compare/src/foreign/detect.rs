//! Which format a JSON value is in, by fields that only that format has.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// A reduced run as we write it.
    Cofferdam,
    Agentdojo,
    /// Chat messages, alone or as requests with their responses; τ-bench's `traj` is this too.
    Openai,
    OpenaiResponses,
    Anthropic,
    /// OpenTelemetry spans by the GenAI conventions.
    Otlp,
    Openinference,
    Atif,
}

impl Format {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cofferdam => "cofferdam",
            Self::Agentdojo => "agentdojo",
            Self::Openai => "openai",
            Self::OpenaiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Otlp => "otlp",
            Self::Openinference => "openinference",
            Self::Atif => "atif",
        }
    }
}

/// Blocks that only Anthropic's messages have.
const BLOCKS: &[&str] = &["tool_use", "tool_result", "thinking", "server_tool_use", "redacted_thinking"];
/// Items that only the responses API has.
const ITEMS: &[&str] = &["function_call", "function_call_output", "reasoning", "mcp_call"];

pub fn detect(value: &Value) -> Option<Format> {
    match value {
        Value::Object(map) => {
            let has = |key: &str| map.contains_key(key);
            if has("acts") && has("origin") {
                Some(Format::Cofferdam)
            } else if has("steps") && (has("schema_version") || has("agent")) {
                Some(Format::Atif)
            } else if has("resourceSpans") || has("resource_spans") || has("spans") || has("data") {
                super::spans::flavour(value)
            } else if has("suite_name") && has("messages") {
                Some(Format::Agentdojo)
            } else if let Some(request) = map.get("request").filter(|_| has("response")) {
                detect(request).map(|format| of_exchange(format, &map["response"]))
            } else if has("messages") || has("traj") {
                let messages = map.get("messages").or(map.get("traj"))?;
                let told_apart = has("system") || has("stop_reason");
                if told_apart || any_block(messages) {
                    Some(Format::Anthropic)
                } else {
                    dojo_or_chat(messages)
                }
            } else if is_response(map) {
                Some(Format::OpenaiResponses)
            } else {
                has("choices").then_some(Format::Openai)
            }
        }
        Value::Array(items) => of_list(value, items),
        _ => None,
    }
}

/// A request to the responses API, its answer, or both in one.
fn is_response(map: &Map<String, Value>) -> bool {
    let has = |key: &str| map.contains_key(key);
    let asked = has("input") && (has("output") || has("instructions") || has("model"));
    asked || map.get("object") == Some(&Value::from("response"))
}

fn of_list(value: &Value, items: &[Value]) -> Option<Format> {
    let first = items.first()?;
    let typed = |name: &Value| name.as_str().is_some_and(|name| ITEMS.contains(&name));
    if items.iter().any(|item| typed(&item["type"])) {
        return Some(Format::OpenaiResponses);
    }
    if first.get("role").is_some_and(Value::is_string) {
        return if any_block(value) { Some(Format::Anthropic) } else { dojo_or_chat(value) };
    }
    if first.get("request").is_some() && first.get("response").is_some() {
        return detect(first);
    }
    super::spans::flavour(value)
}

fn of_exchange(request: Format, response: &Value) -> Format {
    if response.get("stop_reason").is_some() { Format::Anthropic } else { request }
}

fn any_block(messages: &Value) -> bool {
    let blocks = messages.as_array().into_iter().flatten().filter_map(|m| m["content"].as_array());
    let mut kinds = blocks.flatten().filter_map(|block| block["type"].as_str());
    kinds.any(|kind| BLOCKS.contains(&kind))
}

/// AgentDojo writes the call's name as a text where OpenAI has an object.
fn dojo_or_chat(messages: &Value) -> Option<Format> {
    let mut calls = messages.as_array()?.iter().filter_map(|m| m["tool_calls"].as_array()).flatten();
    let dojo = calls.any(|call| call["function"].is_string());
    Some(if dojo { Format::Agentdojo } else { Format::Openai })
}
