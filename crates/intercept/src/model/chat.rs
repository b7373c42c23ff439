//! OpenAI's chat completions, as many others speak them too.

use super::json::{content, list, name, number, parameters, text};
use super::{Asked, Call, Message, Said, block};
use cofferdam_model::Tokens;
use serde_json::Value;

pub(super) fn asked(body: &Value) -> Asked {
    let most =
        ["max_completion_tokens", "max_tokens"].into_iter().find_map(|field| body.get(field)?.as_u64());
    // As many answers as are asked for are paid for.
    let most = most.map(|most| most.saturating_mul(number(body, "/n").max(1)));
    let mut asked = Asked {
        model: name(body, "model"),
        streamed: body["stream"] == true,
        messages: list(body, "messages").iter().map(message).collect(),
        tools: list(body, "tools")
            .iter()
            .map(|tool| (name(&tool["function"], "name"), tool.to_string()))
            .collect(),
        most,
        ..Asked::default()
    };
    parameters(body, &["model", "stream", "messages", "tools"], &mut asked);
    asked
}

fn message(message: &Value) -> Message {
    let calls = list(message, "tool_calls").iter().map(call).collect();
    let mut text = content(&message["content"]);
    if text.is_empty() {
        text = self::text(message, "refusal");
    }
    Message { role: name(message, "role"), text, calls, answers: name(message, "tool_call_id") }
}

fn call(call: &Value) -> Call {
    let function = if call.get("custom").is_some() { &call["custom"] } else { &call["function"] };
    let arguments = if function.get("input").is_some() { "input" } else { "arguments" };
    Call { id: name(call, "id"), name: name(function, "name"), arguments: text(function, arguments) }
}

pub(super) fn whole(value: &Value, said: &mut Said) {
    said.model = name(value, "model");
    let choices = list(value, "choices");
    if let Some(choice) = choices.first() {
        said.message = Message { role: "assistant".to_owned(), ..message(&choice["message"]) };
        said.stop = name(choice, "finish_reason");
    }
    if choices.len() > 1 {
        said.problem(format!("{} answers came; the first is told", choices.len()));
    }
    usage(value, said);
}

pub(super) fn event(value: &Value, blocks: &mut Vec<Call>, said: &mut Said) {
    if said.model.is_empty() {
        said.model = name(value, "model");
    }
    usage(value, said);
    for choice in list(value, "choices") {
        if number(choice, "/index") != 0 {
            said.problem("several answers came; the first is told");
            continue;
        }
        said.message.role = "assistant".to_owned();
        let delta = &choice["delta"];
        for field in ["content", "refusal"] {
            said.message.text.push_str(delta[field].as_str().unwrap_or_default());
        }
        for part in list(delta, "tool_calls") {
            let Some(found) = block(blocks, number(part, "/index")) else {
                said.problem("a call has an index that is too large");
                continue;
            };
            let new = call(part);
            if !new.id.is_empty() {
                found.id = new.id;
            }
            found.name.push_str(&new.name);
            found.arguments.push_str(&new.arguments);
        }
        let stop = name(choice, "finish_reason");
        if !stop.is_empty() {
            said.stop = stop;
        }
    }
}

fn usage(value: &Value, said: &mut Said) {
    let Some(usage) = value.get("usage").filter(|usage| usage.is_object()) else { return };
    said.tokens = Some(Tokens {
        input: number(usage, "/prompt_tokens"),
        output: number(usage, "/completion_tokens"),
        cached: number(usage, "/prompt_tokens_details/cached_tokens"),
        cache_written: 0,
        reasoning: number(usage, "/completion_tokens_details/reasoning_tokens"),
    });
}
