use super::*;
use proptest::prelude::*;
use serde_json::json;

const APIS: [Api; 6] =
    [Api::Chat, Api::Responses, Api::Messages, Api::Generate, Api::Ollama, Api::Embeddings];

fn stream(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// What both forms of an answer must say.
fn check(api: Api, whole: &Value, streamed: &str, expected: &Said) {
    let mut one = api.said(whole.to_string().as_bytes());
    let mut other = api.said(streamed.as_bytes());
    assert!(one.first.take().is_some() && other.first.take().is_some(), "{one:?} {other:?}");
    assert_eq!(one, *expected, "whole");
    assert_eq!(other, *expected, "streamed");
}

fn said(model: &str, stop: &str, call: &str, tokens: Tokens) -> Said {
    let call = Call { id: call.into(), name: "refund".into(), arguments: "{\"amount\":5}".into() };
    Said {
        model: model.into(),
        message: Message {
            role: "assistant".into(),
            text: "On it.".into(),
            calls: vec![call],
            answers: String::new(),
        },
        stop: stop.into(),
        tokens: Some(tokens),
        is_over: true,
        ..Said::default()
    }
}

fn chat() -> (Value, String) {
    let usage = json!({ "prompt_tokens": 20, "completion_tokens": 9, "prompt_tokens_details": { "cached_tokens": 8 },
        "completion_tokens_details": { "reasoning_tokens": 3 } });
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "refund", "arguments": "{\"amount\":5}" } });
    let whole = json!({ "model": "gpt-4o-2024-08-06", "usage": usage, "choices": [{ "index": 0, "finish_reason": "tool_calls",
        "message": { "role": "assistant", "content": "On it.", "tool_calls": [call] } }] });
    let delta = |delta: Value| json!({ "model": "gpt-4o-2024-08-06", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
    let part = |part: Value| delta(json!({ "tool_calls": [part] }));
    let streamed = stream(&[
        delta(json!({ "role": "assistant", "content": "" })),
        delta(json!({ "content": "On " })),
        delta(json!({ "content": "it." })),
        part(
            json!({ "index": 0, "id": "c1", "type": "function", "function": { "name": "refund", "arguments": "" } }),
        ),
        part(json!({ "index": 0, "function": { "arguments": "{\"amount\"" } })),
        part(json!({ "index": 0, "function": { "arguments": ":5}" } })),
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] }),
        json!({ "choices": [], "usage": usage }),
    ]);
    (whole, streamed + "data: [DONE]\n\n")
}

fn responses() -> (Value, String) {
    let call = json!({ "type": "function_call", "id": "fc1", "call_id": "c1", "name": "refund", "arguments": "{\"amount\":5}" });
    let message = json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "On it." }] });
    let whole = json!({ "model": "gpt-4.1", "status": "completed", "error": null,
        "output": [{ "type": "reasoning", "summary": [] }, message, call],
        "usage": { "input_tokens": 20, "input_tokens_details": { "cached_tokens": 8 }, "output_tokens": 9,
            "output_tokens_details": { "reasoning_tokens": 3 } } });
    let streamed = stream(&[
        json!({ "type": "response.created", "response": { "model": "gpt-4.1" } }),
        json!({ "type": "response.output_text.delta", "delta": "On " }),
        json!({ "type": "response.output_text.delta", "delta": "it." }),
        json!({ "type": "response.output_item.done", "item": message }),
        json!({ "type": "response.output_item.done", "item": call }),
        json!({ "type": "response.completed", "response": whole }),
    ]);
    (whole, streamed)
}

fn messages() -> (Value, String) {
    let usage = json!({ "input_tokens": 12, "cache_read_input_tokens": 8, "cache_creation_input_tokens": 0, "output_tokens": 9 });
    let whole = json!({ "type": "message", "model": "claude-sonnet-4-5", "stop_reason": "tool_use", "usage": usage,
        "content": [{ "type": "text", "text": "On it." },
            { "type": "tool_use", "id": "c1", "name": "refund", "input": { "amount": 5 } }] });
    let streamed = stream(&[
        json!({ "type": "message_start", "message": { "model": "claude-sonnet-4-5",
            "usage": { "input_tokens": 12, "cache_read_input_tokens": 8, "output_tokens": 1 } } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "ping" }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "On it." } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "content_block_start", "index": 1,
            "content_block": { "type": "tool_use", "id": "c1", "name": "refund", "input": {} } }),
        json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "input_json_delta", "partial_json": "{\"amount\"" } }),
        json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "input_json_delta", "partial_json": ":5}" } }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 9 } }),
        json!({ "type": "message_stop" }),
    ]);
    (whole, streamed)
}

fn gemini() -> (Value, Vec<Value>) {
    let usage = json!({ "promptTokenCount": 20, "candidatesTokenCount": 6, "thoughtsTokenCount": 3, "cachedContentTokenCount": 8 });
    let call = json!({ "functionCall": { "name": "refund", "args": { "amount": 5 } } });
    let thought = json!({ "text": "hm", "thought": true });
    let of = |parts: Value| json!({ "content": { "role": "model", "parts": parts } });
    let mut whole = of(json!([thought, { "text": "On it." }, call]));
    whole["finishReason"] = "STOP".into();
    let mut last = of(json!([call]));
    last["finishReason"] = "STOP".into();
    let parts = vec![
        json!({ "candidates": [of(json!([thought]))], "modelVersion": "gemini-2.5-flash" }),
        json!({ "candidates": [of(json!([{ "text": "On " }]))], "modelVersion": "gemini-2.5-flash" }),
        json!({ "candidates": [of(json!([{ "text": "it." }]))], "modelVersion": "gemini-2.5-flash" }),
        json!({ "candidates": [last], "usageMetadata": usage, "modelVersion": "gemini-2.5-flash" }),
    ];
    (json!({ "candidates": [whole], "usageMetadata": usage, "modelVersion": "gemini-2.5-flash" }), parts)
}

#[test]
fn streamed_or_not_the_same_is_said() {
    let tokens = Tokens { input: 20, output: 9, cached: 8, cache_written: 0, reasoning: 3 };
    let (whole, streamed) = chat();
    check(Api::Chat, &whole, &streamed, &said("gpt-4o-2024-08-06", "tool_calls", "c1", tokens));
    let (whole, streamed) = responses();
    check(Api::Responses, &whole, &streamed, &said("gpt-4.1", "completed", "c1", tokens));
    let (whole, streamed) = messages();
    let unthought = Tokens { reasoning: 0, ..tokens };
    check(Api::Messages, &whole, &streamed, &said("claude-sonnet-4-5", "tool_use", "c1", unthought));
    let (whole, parts) = gemini();
    let expected = said("gemini-2.5-flash", "STOP", "", tokens);
    check(Api::Generate, &whole, &stream(&parts), &expected);
    check(Api::Generate, &whole, &Value::Array(parts.clone()).to_string(), &expected);
    // An array that was cut off says what it said until then.
    let cut = Value::Array(parts).to_string();
    let said = Api::Generate.said(&cut.as_bytes()[..cut.len() - 200]);
    assert_eq!((said.message.text.as_str(), said.is_over), ("On it.", false), "{said:?}");
    assert_eq!(said.problems, ["the answer is not a whole JSON array"]);
}

#[test]
fn errors_are_told_in_the_providers_words() {
    let check = |api: Api, body: &Value, kind: &str, message: &str| {
        let expected = Some((kind.to_owned(), message.to_owned()));
        assert_eq!(api.said(body.to_string().as_bytes()).error, expected);
        assert_eq!(api.said(stream(std::slice::from_ref(body)).as_bytes()).error, expected);
    };
    let openai = json!({ "error": { "message": "slow down", "type": "rate_limit_error", "code": null } });
    check(Api::Chat, &openai, "rate_limit_error", "slow down");
    let anthropic =
        json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
    check(Api::Messages, &anthropic, "overloaded_error", "Overloaded");
    let google = json!({ "error": { "code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED" } });
    check(Api::Generate, &google, "RESOURCE_EXHAUSTED", "quota");
    check(Api::Chat, &json!({ "error": "model not found" }), "", "model not found");
    let failed = json!({ "type": "response.failed", "response": { "status": "failed", "error": { "code": "server_error", "message": "oops" } } });
    let said = Api::Responses.said(stream(&[failed]).as_bytes());
    assert_eq!(said.error, Some(("server_error".into(), "oops".into())));
}

#[test]
fn requests_are_recognised_by_path_and_shape() {
    let check = |method: &str, path: &str, expected: Option<Api>| {
        assert_eq!(Api::of(method, path), expected, "{path}")
    };
    check("POST", "/v1/chat/completions", Some(Api::Chat));
    check("POST", "/openai/deployments/x/chat/completions", Some(Api::Chat));
    check("POST", "/v1/responses", Some(Api::Responses));
    check("POST", "/v1/messages", Some(Api::Messages));
    check("POST", "/v1beta/models/gemini-2.5-flash:generateContent", Some(Api::Generate));
    check("POST", "/v1beta/models/gemini-2.5-flash:streamGenerateContent", Some(Api::Generate));
    for path in ["/v1/messages/count_tokens", "/v1/completions", "/", "/v1/models/x:countTokens"] {
        check("POST", path, None);
    }
    check("GET", "/v1/responses", None);
    assert!(!Api::Messages.fits(&json!({ "messages": "a mail" })));
    assert!(Api::Chat.fits(&json!({ "messages": [], "model": "m" })));
    let provider = |api: Api, host: &str, expected: &str| assert_eq!(api.provider(host), expected, "{host}");
    provider(Api::Chat, "api.openai.com", "openai");
    provider(Api::Chat, "api.notopenai.com", "openai-compatible");
    provider(Api::Chat, "127.0.0.1", "openai-compatible");
    provider(Api::Generate, "generativelanguage.googleapis.com", "google");
}

#[test]
fn what_was_asked_reads_the_same_everywhere() {
    let check = |api: Api, path: &str, body: Value| {
        let asked = api.asked(path, &body);
        let turns: Vec<String> = asked
            .messages
            .iter()
            .map(|message| {
                let calls: Vec<_> =
                    message.calls.iter().map(|call| format!("{}({})", call.name, call.arguments)).collect();
                format!("{}: {}{}", message.role, message.text, calls.concat())
            })
            .collect();
        assert_eq!(
            turns,
            ["system: be kind", "user: refund it", "assistant: refund({\"amount\":5})", "tool: done"],
            "{api:?}"
        );
        let (tools, model) =
            (asked.tools.iter().map(|tool| tool.0.as_str()).collect::<Vec<_>>(), asked.model.as_str());
        assert_eq!(
            (tools, model, asked.most, asked.streamed),
            (vec!["refund"], "m", Some(64), true),
            "{api:?}"
        );
        assert_eq!(asked.parameters.get("temperature").map(String::as_str), Some("0.5"), "{api:?}");
    };
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "refund", "arguments": "{\"amount\":5}" } });
    check(
        Api::Chat,
        "",
        json!({ "model": "m", "stream": true, "max_tokens": 64, "temperature": 0.5,
        "tools": [{ "type": "function", "function": { "name": "refund" } }], "messages": [
            { "role": "system", "content": "be kind" }, { "role": "user", "content": [{ "type": "text", "text": "refund it" }] },
            { "role": "assistant", "content": null, "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "c1", "content": "done" }] }),
    );
    check(
        Api::Responses,
        "",
        json!({ "model": "m", "stream": true, "max_output_tokens": 64, "temperature": 0.5,
        "instructions": "be kind", "tools": [{ "type": "function", "name": "refund" }], "input": [
            { "role": "user", "content": "refund it" },
            { "type": "function_call", "call_id": "c1", "name": "refund", "arguments": "{\"amount\":5}" },
            { "type": "function_call_output", "call_id": "c1", "output": "done" }] }),
    );
    check(
        Api::Messages,
        "",
        json!({ "model": "m", "stream": true, "max_tokens": 64, "temperature": 0.5,
        "system": "be kind", "tools": [{ "name": "refund" }], "messages": [
            { "role": "user", "content": "refund it" },
            { "role": "assistant", "content": [{ "type": "tool_use", "id": "c1", "name": "refund", "input": { "amount": 5 } }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c1", "content": [{ "type": "text", "text": "done" }] }] }] }),
    );
    let body = json!({ "systemInstruction": { "parts": [{ "text": "be kind" }] },
        "generationConfig": { "maxOutputTokens": 64, "temperature": 0.5 },
        "tools": [{ "functionDeclarations": [{ "name": "refund" }] }], "contents": [
            { "role": "user", "parts": [{ "text": "refund it" }] },
            { "role": "model", "parts": [{ "functionCall": { "name": "refund", "args": { "amount": 5 } } }] },
            { "role": "tool", "parts": [{ "functionResponse": { "name": "refund", "response": "done" } }] }] });
    let asked = Api::Generate.asked("/v1beta/models/m:streamGenerateContent", &body);
    assert_eq!(asked.messages.last().map(|message| message.text.as_str()), Some("\"done\""));
    let mut body = body;
    body["contents"][2] = json!({ "role": "tool", "parts": [{ "text": "done" }] });
    check(Api::Generate, "/v1beta/models/m:streamGenerateContent", body);
}

/// Any JSON, with the names that the readers look for among the keys.
fn anything() -> impl Strategy<Value = Value> {
    let names = "messages|content|role|tool_calls|function|arguments|choices|delta|index|usage|input|output|type|item|parts|\
        candidates|text|tools|contents|error|message|content_block|response|model|functionCall|args|prompt_tokens";
    let names: Vec<String> = names.split('|').map(|name| name.trim().to_owned()).collect();
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "[a-z_.]{0,12}".prop_map(Value::from),
        prop::sample::select(vec![
            "message_start",
            "content_block_delta",
            "content_block_start",
            "message_delta",
            "response.completed",
            "response.output_item.done",
            "tool_use",
            "text",
            "function_call"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        let keys = prop::sample::select(names.clone());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((keys, inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_shape_is_survived(one in anything(), other in anything()) {
        for api in APIS {
            let _ = api.fits(&one);
            let _ = api.asked("/v1/models/x:generateContent", &one);
            let _ = api.said(one.to_string().as_bytes());
            let _ = api.said(stream(&[one.clone(), other.clone()]).as_bytes());
            let _ = api.said(json!([one, other]).to_string().as_bytes());
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for api in APIS {
            let _ = api.said(&bytes);
        }
    }

    #[test]
    fn a_damaged_answer_is_survived(cut in 0usize..3000, at in 0usize..3000, byte in any::<u8>()) {
        let (_, gemini) = gemini();
        let answers = [(Api::Chat, chat().1), (Api::Responses, responses().1), (Api::Messages, messages().1),
            (Api::Generate, stream(&gemini)), (Api::Generate, Value::Array(gemini).to_string())];
        for (api, answer) in answers {
            let mut bytes = answer.into_bytes();
            bytes.truncate(cut);
            if let Some(spot) = bytes.get_mut(at) {
                *spot = byte;
            }
            let said = api.said(&bytes);
            prop_assert!(said.message.text.len() <= bytes.len());
        }
    }
}

#[test]
fn ollama_is_understood_in_lines_and_in_one_piece() {
    let body = json!({ "model": "llama3.2:1b", "messages": [{ "role": "user", "content": "refund ch_1" }],
        "tools": [{ "type": "function", "function": { "name": "refund" } }], "options": { "num_predict": 50 } });
    let asked = Api::Ollama.asked("/api/chat", &body);
    assert_eq!((asked.model.as_str(), asked.streamed, asked.most), ("llama3.2:1b", true, Some(50)));
    assert_eq!((asked.messages.len(), asked.tools[0].0.as_str()), (1, "refund"));
    let call = json!({ "function": { "name": "refund", "arguments": { "amount": 5 } } });
    let end = json!({ "model": "llama3.2:1b", "done": true, "done_reason": "stop", "prompt_eval_count": 20, "eval_count": 9,
        "message": { "role": "assistant", "content": "" } });
    let part =
        |message: Value| json!({ "model": "llama3.2:1b", "message": message, "done": false }).to_string();
    let streamed = [
        part(json!({ "role": "assistant", "content": "On " })),
        part(json!({ "role": "assistant", "content": "it." })),
        part(json!({ "role": "assistant", "content": "", "tool_calls": [call.clone()] })),
        end.to_string(),
    ]
    .join("\n");
    let mut whole = end;
    whole["message"] = json!({ "role": "assistant", "content": "On it.", "tool_calls": [call] });
    let tokens = Tokens { input: 20, output: 9, ..Tokens::default() };
    check(Api::Ollama, &whole, &streamed, &said("llama3.2:1b", "stop", "", tokens));
    let cut = Api::Ollama.said(&streamed.as_bytes()[..streamed.len() - 30]);
    assert!(!cut.is_over && cut.message.text == "On it." && !cut.problems.is_empty(), "{cut:?}");

    let body = json!({ "model": "m", "prompt": "why?", "system": "be short", "stream": false });
    assert!(Api::Ollama.fits(&body));
    let asked = Api::Ollama.asked("/api/generate", &body);
    assert_eq!((asked.streamed, asked.messages[1].text.as_str()), (false, "why?"));
    let answer = Api::Ollama.said(br#"{"model":"m","response":"because","done":true,"done_reason":"stop"}"#);
    assert_eq!(
        (answer.message.text.as_str(), answer.stop.as_str(), answer.tokens),
        ("because", "stop", None)
    );
    let failed = Api::Ollama.said(br#"{"error":"model 'm' not found"}"#);
    assert_eq!(failed.error.unwrap().1, "model 'm' not found");
}

#[test]
fn embeddings_are_counted_and_say_nothing() {
    let openai = json!({ "model": "text-embedding-3-small", "input": ["a", "b"], "dimensions": 8 });
    let asked = Api::Embeddings.asked("/v1/embeddings", &openai);
    assert_eq!((asked.messages.len(), asked.most), (2, Some(0)));
    let answer = json!({ "model": "text-embedding-3-small", "data": [{ "embedding": [0.5] }], "usage": { "prompt_tokens": 7 } });
    let told = Api::Embeddings.said(answer.to_string().as_bytes());
    assert_eq!(told.tokens, Some(Tokens { input: 7, ..Tokens::default() }));
    assert!(told.message.text.is_empty() && told.is_over && told.problems.is_empty(), "{told:?}");
    let ollama = Api::Embeddings.said(br#"{"model":"m","embeddings":[[0.1]],"prompt_eval_count":3}"#);
    assert_eq!(ollama.tokens.unwrap().input, 3);
    let gemini = json!({ "content": { "parts": [{ "text": "hello" }] } });
    let asked = Api::Embeddings.asked("/v1beta/models/gemini-embedding-001:embedContent", &gemini);
    assert_eq!((asked.model.as_str(), asked.messages[0].text.as_str()), ("gemini-embedding-001", "hello"));
    assert!(!Api::Embeddings.fits(&json!({ "name": "x" })));
}

#[test]
fn paths_of_more_apis() {
    for (path, expected) in [
        ("/api/chat", Some(Api::Ollama)),
        ("/ollama/api/generate", Some(Api::Ollama)),
        ("/chat", None),
        ("/v1/generate", None),
        ("/v1/embeddings", Some(Api::Embeddings)),
        ("/api/embed", Some(Api::Embeddings)),
        ("/v1beta/models/m:batchEmbedContents", Some(Api::Embeddings)),
    ] {
        assert_eq!(Api::of("POST", path), expected, "{path}");
    }
}
