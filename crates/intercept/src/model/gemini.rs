//! Google's generateContent and streamGenerateContent.

use super::json::{list, name, number, parameters, text};
use super::{Asked, Call, Message, Said};
use crate::kept::clipped;
use cofferdam_model::Tokens;
use serde_json::Value;

/// The model and what is asked of it, which stand last in a path.
fn named(path: &str) -> (&str, &str) {
    let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    last.rsplit_once(':').unwrap_or((last, ""))
}

/// The model that a path names, if it does.
pub(super) fn model(path: &str) -> String {
    let (model, verb) = named(path);
    if verb.is_empty() { String::new() } else { clipped(model, 200) }
}

pub(super) fn asked(path: &str, body: &Value) -> Asked {
    let (model, verb) = named(path);
    let either =
        |one: &str, other: &str| body.get(one).or_else(|| body.get(other)).cloned().unwrap_or_default();
    let mut messages = Vec::new();
    let system = either("systemInstruction", "system_instruction");
    if !system.is_null() {
        messages.extend(
            turn(&system).into_iter().map(|message| Message { role: "system".to_owned(), ..message }),
        );
    }
    messages.extend(list(body, "contents").iter().flat_map(turn));
    let declared = |tool: &Value| {
        let functions = tool.get("functionDeclarations").or_else(|| tool.get("function_declarations"));
        match functions.and_then(Value::as_array) {
            Some(functions) => functions.iter().map(|f| (name(f, "name"), f.to_string())).collect(),
            // A tool of Google's own: its one field is its name.
            None => tool.as_object().map_or_else(Vec::new, |tool| {
                tool.iter().map(|(name, value)| (name.clone(), value.to_string())).collect()
            }),
        }
    };
    let config = either("generationConfig", "generation_config");
    let most =
        config.get("maxOutputTokens").or_else(|| config.get("max_output_tokens")).and_then(Value::as_u64);
    let mut asked = Asked {
        model: crate::kept::clipped(model, 200),
        streamed: verb == "streamGenerateContent",
        messages,
        tools: list(body, "tools").iter().flat_map(declared).collect(),
        most,
        ..Asked::default()
    };
    let told = [
        "contents",
        "systemInstruction",
        "system_instruction",
        "tools",
        "generationConfig",
        "generation_config",
    ];
    parameters(body, &told, &mut asked);
    parameters(&config, &[], &mut asked);
    asked
}

/// The results of functions stand among the parts; each is a message of its own here.
fn turn(turn: &Value) -> Vec<Message> {
    let role = match turn["role"].as_str() {
        Some("model") => "assistant".to_owned(),
        None => "user".to_owned(),
        Some(_) => name(turn, "role"),
    };
    let mut messages = Vec::new();
    let mut message = Message { role, ..Message::default() };
    let mut words = Vec::new();
    for part in list(turn, "parts") {
        if let Some(result) = part.get("functionResponse").or_else(|| part.get("function_response")) {
            let id = name(result, "id");
            messages.push(Message {
                role: "tool".to_owned(),
                text: result["response"].to_string(),
                answers: if id.is_empty() { name(result, "name") } else { id },
                ..Message::default()
            });
        } else if let Some(found) = call(part) {
            message.calls.push(found);
        } else if let Some(text) = part["text"].as_str() {
            words.push(text.to_owned());
        } else {
            let kind = part.as_object().and_then(|part| part.keys().next()).map_or("", String::as_str);
            words.push(format!("[{}]", crate::kept::clipped(kind, 40)));
        }
    }
    message.text = words.join("\n");
    if !message.text.is_empty() || !message.calls.is_empty() {
        messages.push(message);
    }
    messages
}

fn call(part: &Value) -> Option<Call> {
    let call = part.get("functionCall").or_else(|| part.get("function_call"))?;
    let arguments = call.get("args").filter(|args| !args.is_null()).map(Value::to_string);
    Some(Call { id: name(call, "id"), name: name(call, "name"), arguments: arguments.unwrap_or_default() })
}

/// A whole answer, or one part of a stream: both have the same shape.
pub(super) fn part(value: &Value, said: &mut Said) {
    let model = name(value, "modelVersion");
    if !model.is_empty() {
        said.model = model;
    }
    let candidates = list(value, "candidates");
    if candidates.len() > 1 {
        said.problem(format!("{} answers came; the first is told", candidates.len()));
    }
    if let Some(candidate) = candidates.first() {
        said.message.role = "assistant".to_owned();
        for part in list(&candidate["content"], "parts") {
            match call(part) {
                Some(found) => said.message.calls.push(found),
                // What it thinks is not what it says.
                None if part["thought"] == true => {}
                None => said.message.text.push_str(&text(part, "text")),
            }
        }
        let stop = name(candidate, "finishReason");
        if !stop.is_empty() {
            said.stop = stop;
            said.is_over = true;
        }
    }
    let blocked = value.pointer("/promptFeedback/blockReason").and_then(Value::as_str).unwrap_or_default();
    if !blocked.is_empty() {
        said.stop = format!("blocked: {}", crate::kept::clipped(blocked, 100));
        said.is_over = true;
    }
    let Some(usage) = value.get("usageMetadata").filter(|usage| usage.is_object()) else { return };
    let thought = number(usage, "/thoughtsTokenCount");
    said.tokens = Some(Tokens {
        input: number(usage, "/promptTokenCount") + number(usage, "/toolUsePromptTokenCount"),
        output: number(usage, "/candidatesTokenCount") + thought,
        cached: number(usage, "/cachedContentTokenCount"),
        cache_written: 0,
        reasoning: thought,
    });
}
