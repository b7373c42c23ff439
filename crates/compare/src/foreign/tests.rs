//! One small run in every format, and every format's bad input.

use super::*;
use cofferdam_model::Act;
use proptest::prelude::*;
use serde_json::json;

/// `kind name(args) status > text`, an act per line.
fn shown(run: &Run) -> String {
    let line = |act: &Act| {
        let args = if act.args.is_null() { String::new() } else { format!("({})", act.args) };
        let within = act.within.map_or(String::new(), |w| format!(" in {w}"));
        format!("{:?} {}{args}{within} {:?} > {}", act.kind, act.name, act.status, act.text)
    };
    run.acts.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn check(value: Value, format: Format, expected: &str) {
    assert_eq!(detect(&value), Some(format));
    let run = read_value(&value).unwrap();
    assert_eq!(run.origin, format.name());
    assert_eq!(shown(&run), expected);
    assert_eq!(read(&value.to_string()).unwrap(), run);
    let own = serde_json::to_value(&run).unwrap();
    assert_eq!(read_value(&own).unwrap(), run, "what is written is read again");
}

/// What all of them tell: a question, a call that fails, one that does not, an answer.
const STORY: &str = "\
Instructed system Ok > be brief
Told user Ok > what does A1 cost?
Said assistant Ok > looking
Tool get_price({\"item\":\"A1\"}) in 2 Failed > Error: no such item
Tool get_price({\"item\":\"a1\"}) Ok > {\"price\": 4}
Said assistant Ok > it costs 4";

#[test]
fn openai_messages() {
    let call = |id: &str, item: &str| {
        json!({"id": id, "type": "function",
            "function": {"name": "get_price", "arguments": format!("{{\"item\":\"{item}\"}}")}})
    };
    let messages = json!([
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "what does A1 cost?"}]},
        {"role": "assistant", "content": "looking", "tool_calls": [call("x", "A1")]},
        {"role": "tool", "tool_call_id": "x", "content": "Error: no such item"},
        {"role": "assistant", "content": null, "tool_calls": [call("x", "a1")]},
        {"role": "tool", "tool_call_id": "x", "content": "{\"price\": 4}"},
        {"role": "assistant", "content": "it costs 4"},
    ]);
    check(json!({"messages": messages}), Format::Openai, STORY);
    check(json!({"traj": messages, "task_id": 1}), Format::Openai, STORY);
    check(messages.clone(), Format::Openai, STORY);
    let (told, last) = messages.as_array().unwrap().split_at(6);
    let exchange = json!({
        "request": {"model": "m", "messages": told},
        "response": {"choices": [{"message": last[0]}], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
    });
    check(exchange.clone(), Format::Openai, STORY);
    assert_eq!(read_value(&exchange).unwrap().spent.tokens_in, 5);
    let lines: Vec<String> = messages.as_array().unwrap().iter().map(Value::to_string).collect();
    assert_eq!(shown(&read(&lines.join("\n")).unwrap()), STORY);
}

#[test]
fn openai_responses() {
    let call = |id: &str, item: &str| {
        json!({"type": "function_call", "call_id": id, "name": "get_price",
            "arguments": format!("{{\"item\":\"{item}\"}}")})
    };
    let value = json!({
        "instructions": "be brief",
        "input": "what does A1 cost?",
        "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "looking"}]},
            call("x", "A1"),
            {"type": "function_call_output", "call_id": "x", "output": "Error: no such item"},
            call("y", "a1"),
            {"type": "function_call_output", "call_id": "y", "output": "{\"price\": 4}"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "it costs 4"}]},
        ],
    });
    check(value, Format::OpenaiResponses, &STORY.replace(" in 2", ""));
}

#[test]
fn anthropic_messages() {
    let value = json!({
        "system": "be brief",
        "messages": [
            {"role": "user", "content": "what does A1 cost?"},
            {"role": "assistant", "content": [
                {"type": "text", "text": "looking"},
                {"type": "tool_use", "id": "x", "name": "get_price", "input": {"item": "A1"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "x", "is_error": true, "content": "Error: no such item"}]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "y", "name": "get_price", "input": {"item": "a1"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "y",
                "content": [{"type": "text", "text": "{\"price\": 4}"}]}]},
            {"role": "assistant", "content": "it costs 4"},
        ],
    });
    check(value, Format::Anthropic, STORY);
}

#[test]
fn agentdojo_runs() {
    let call = |id: &str, item: &str| json!({"id": id, "function": "get_price", "args": {"item": item}});
    let value = json!({
        "suite_name": "shop", "user_task_id": "user_task_1", "duration": 1.5,
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "what does A1 cost?"},
            {"role": "assistant", "content": "looking", "tool_calls": [call("x", "A1")]},
            {"role": "tool", "content": "", "tool_call_id": "x", "error": "Error: no such item"},
            {"role": "assistant", "content": null, "tool_calls": [call("y", "a1")]},
            {"role": "tool", "content": "{\"price\": 4}", "tool_call_id": "y", "error": null},
            {"role": "assistant", "content": "it costs 4", "tool_calls": null},
        ],
    });
    check(value.clone(), Format::Agentdojo, STORY);
    let run = read_value(&value).unwrap();
    assert_eq!((run.id.as_str(), run.spent.wall_us), ("shop/user_task_1", 1_500_000));
}

#[test]
fn atif_trajectories() {
    let step = |message: &str, id: &str, item: &str, result: &str| {
        json!({"source": "agent", "message": message,
            "tool_calls": [{"tool_call_id": id, "function_name": "get_price", "arguments": {"item": item}}],
            "observation": {"results": [{"source_call_id": id, "content": result}]},
            "metrics": {"prompt_tokens": 10, "completion_tokens": 1, "cost_usd": 0.5}})
    };
    let value = json!({
        "schema_version": "ATIF-v1.4", "session_id": "s", "agent": {"name": "a", "version": "1"},
        "steps": [
            {"source": "system", "message": "be brief"},
            {"source": "user", "message": "what does A1 cost?"},
            step("looking", "x", "A1", "Error: no such item"),
            step("", "y", "a1", "{\"price\": 4}"),
            {"source": "agent", "message": "it costs 4"},
        ],
    });
    check(value.clone(), Format::Atif, STORY);
    let spent = read_value(&value).unwrap().spent;
    assert_eq!((spent.tokens_in, spent.cost_micros), (20, 1_000_000));
}

fn attributes(pairs: &[(&str, Value)]) -> Value {
    let one = |(key, value): &(&str, Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        json!({"key": key, "value": {"stringValue": text}})
    };
    pairs.iter().map(one).collect()
}

fn span(id: &str, start: u64, name: &str, pairs: &[(&str, Value)]) -> Value {
    json!({"traceId": "t1", "spanId": id, "name": name, "attributes": attributes(pairs),
        "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 1000).to_string()})
}

fn document(mut spans: Vec<Value>) -> Value {
    // Exporters send spans as they end: the order in the file says nothing.
    spans.reverse();
    json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
}

#[test]
fn genai_spans() {
    let op = |name: &str| ("gen_ai.operation.name", json!(name));
    let told = json!([
        {"role": "system", "parts": [{"type": "text", "content": "be brief"}]},
        {"role": "user", "parts": [{"type": "text", "content": "what does A1 cost?"}]},
    ]);
    let asks = |text: &str, id: &str, item: &str| {
        let mut parts =
            vec![json!({"type": "tool_call", "id": id, "name": "get_price", "arguments": {"item": item}})];
        if !text.is_empty() {
            parts.insert(0, json!({"type": "text", "content": text}));
        }
        json!([{"role": "assistant", "parts": parts}])
    };
    let mut failed = span(
        "b",
        2,
        "execute_tool get_price",
        &[
            op("execute_tool"),
            ("gen_ai.tool.name", json!("get_price")),
            ("gen_ai.tool.call.id", json!("x")),
            ("gen_ai.tool.call.result", json!("Error: no such item")),
        ],
    );
    failed["status"] = json!({"code": 2});
    let answered = json!([told[0], told[1],
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "y", "response": "{\"price\": 4}"}]}]);
    let last = json!([{"role": "assistant", "parts": [{"type": "text", "content": "it costs 4"}]}]);
    let spans = vec![
        span(
            "a",
            1,
            "chat",
            &[
                op("chat"),
                ("gen_ai.input.messages", told.clone()),
                ("gen_ai.output.messages", asks("looking", "x", "A1")),
            ],
        ),
        failed,
        span(
            "c",
            3,
            "chat",
            &[
                op("chat"),
                ("gen_ai.input.messages", told.clone()),
                ("gen_ai.output.messages", asks("", "y", "a1")),
            ],
        ),
        span(
            "d",
            4,
            "chat",
            &[op("chat"), ("gen_ai.input.messages", answered), ("gen_ai.output.messages", last)],
        ),
    ];
    check(document(spans), Format::Otlp, STORY);
}

#[test]
fn openinference_spans() {
    let kind = |name: &str| ("openinference.span.kind", json!(name));
    let spans = vec![
        span(
            "a",
            1,
            "llm",
            &[
                kind("LLM"),
                ("llm.input_messages.0.message.role", json!("system")),
                ("llm.input_messages.0.message.content", json!("be brief")),
                ("llm.input_messages.1.message.role", json!("user")),
                ("llm.input_messages.1.message.content", json!("what does A1 cost?")),
                ("llm.output_messages.0.message.role", json!("assistant")),
                ("llm.output_messages.0.message.content", json!("looking")),
                ("llm.output_messages.0.message.tool_calls.0.tool_call.id", json!("x")),
                ("llm.output_messages.0.message.tool_calls.0.tool_call.function.name", json!("get_price")),
                (
                    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments",
                    json!({"item": "A1"}),
                ),
            ],
        ),
        span(
            "b",
            2,
            "get_price",
            &[
                kind("TOOL"),
                ("tool.name", json!("get_price")),
                ("input.value", json!({"item": "A1"})),
                ("output.value", json!("ok")),
            ],
        ),
        span(
            "c",
            3,
            "docs",
            &[
                kind("RETRIEVER"),
                ("input.value", json!("prices")),
                ("retrieval.documents.0.document.content", json!("A1 is 4")),
            ],
        ),
    ];
    let expected = "\
Instructed system Ok > be brief
Told user Ok > what does A1 cost?
Said assistant Ok > looking
Tool get_price({\"item\":\"A1\"}) in 2 Ok > ok
Tool docs({\"query\":\"prices\"}) Ok > A1 is 4";
    check(document(spans), Format::Openinference, expected);
}

#[test]
fn a_file_may_hold_many_traces() {
    let mut other = span("a", 1, "chat", &[("gen_ai.operation.name", json!("chat"))]);
    other["traceId"] = json!("t2");
    let both = document(vec![span("a", 1, "chat", &[("gen_ai.operation.name", json!("chat"))]), other]);
    assert_eq!(read_all(&both.to_string()).unwrap().len(), 2);
    let error = read(&both.to_string()).unwrap_err().to_string();
    assert_eq!(error, "the file holds 2 runs where one is expected; split it, or compare directories");
}

fn refused(text: &str, expected: &str) {
    let error = read(text).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn what_is_wrong_is_named() {
    refused("{", "line 1 is not JSON");
    refused("7", "a number is in no format that can be read");
    refused("{\"foo\": 1}", "an object with `foo` is in no format");
    refused("[]", "an empty list is in no format");
    refused(r#"{"messages": [{"content": "x"}]}"#, "`messages[0].role` is missing, expected a text");
    refused(r#"{"messages": [{"role": "user", "content": 7}]}"#, "`messages[0].content` is a number");
    refused(
        r#"{"messages": [{"role": "a", "tool_calls": [{"function": {}}]}]}"#,
        "`messages[0].tool_calls[0].function.name`",
    );
    refused(r#"{"steps": {}, "agent": {}}"#, "`steps` is an object, expected a list");
    refused(r#"{"acts": 1, "origin": ""}"#, "not a run of ours");
    refused(&"[".repeat(100_000), "line 1 is not JSON");
    assert!(read(r#"{"messages": []}"#).unwrap().acts.is_empty(), "an empty run is a run");
}

/// Values that look like the formats, with anything in any place.
fn anything() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "messages",
        "role",
        "content",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "type",
        "id",
        "steps",
        "agent",
        "source",
        "message",
        "observation",
        "results",
        "resourceSpans",
        "scopeSpans",
        "spans",
        "traceId",
        "attributes",
        "key",
        "value",
        "stringValue",
        "arrayValue",
        "values",
        "input",
        "output",
        "request",
        "response",
        "choices",
        "system",
        "events",
        "status",
        "parts",
        "suite_name",
        "traj",
        "gen_ai.operation.name",
        "gen_ai.output.messages",
    ]);
    let word = prop::sample::select(vec![
        "user",
        "assistant",
        "tool",
        "text",
        "tool_use",
        "tool_result",
        "function_call",
        "execute_tool",
        "chat",
        "[{}]",
        "openinference.span.kind",
        "LLM",
        "é",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_makes_a_reader_panic(value in anything()) {
        let _ = read_value(&value);
        for format in [Format::Cofferdam, Format::Agentdojo, Format::Openai, Format::OpenaiResponses,
            Format::Anthropic, Format::Otlp, Format::Openinference, Format::Atif] {
            if let Ok(run) = read_as(format, &value) {
                prop_assert!(run.acts.iter().all(|act| act.within.is_none_or(|w| w < run.acts.len()) || format == Format::Cofferdam));
            }
        }
    }

    #[test]
    fn neither_does_text(text in "\\PC{0,80}") {
        let _ = read_all(&text);
    }
}
