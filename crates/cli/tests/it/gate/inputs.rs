//! What `compare` makes of records that other tools wrote, and of records that nobody should have written.

use super::{Shop, result_in};
use crate::site;
use cofferdam_testkit::Site;
use serde_json::{Value, json};
use std::fs;

const TASK: &str = "pay the bill";

fn openai(amount: u64) -> Value {
    let arguments = json!({ "amount": amount }).to_string();
    let call = json!({ "id": "x", "type": "function", "function": { "name": "send_money", "arguments": arguments } });
    json!({ "messages": [
        { "role": "user", "content": TASK },
        { "role": "assistant", "content": "", "tool_calls": [call] },
        { "role": "tool", "tool_call_id": "x", "content": "sent" },
        { "role": "assistant", "content": "The bill is paid." },
    ] })
}

fn responses(amount: u64) -> Value {
    let said = json!({ "type": "output_text", "text": "The bill is paid." });
    json!({ "input": TASK, "output": [
        { "type": "function_call", "call_id": "x", "name": "send_money", "arguments": json!({ "amount": amount }).to_string() },
        { "type": "function_call_output", "call_id": "x", "output": "sent" },
        { "type": "message", "role": "assistant", "content": [said] },
    ] })
}

fn anthropic(amount: u64) -> Value {
    let use_of =
        json!({ "type": "tool_use", "id": "x", "name": "send_money", "input": { "amount": amount } });
    let got = json!({ "type": "tool_result", "tool_use_id": "x", "content": "sent" });
    json!({ "system": "be brief", "messages": [
        { "role": "user", "content": TASK },
        { "role": "assistant", "content": [use_of] },
        { "role": "user", "content": [got] },
        { "role": "assistant", "content": "The bill is paid." },
    ] })
}

fn agentdojo(amount: u64) -> Value {
    let call = json!({ "id": "x", "function": "send_money", "args": { "amount": amount } });
    json!({ "suite_name": "banking", "user_task_id": "user_task_0", "messages": [
        { "role": "user", "content": TASK },
        { "role": "assistant", "content": null, "tool_calls": [call] },
        { "role": "tool", "content": "sent", "tool_call_id": "x", "error": null },
        { "role": "assistant", "content": "The bill is paid.", "tool_calls": null },
    ] })
}

fn atif(amount: u64) -> Value {
    json!({ "schema_version": "ATIF-v1.4", "session_id": "s", "agent": { "name": "a", "version": "1" }, "steps": [
        { "source": "user", "message": TASK },
        { "source": "agent", "message": "",
            "tool_calls": [{ "tool_call_id": "x", "function_name": "send_money", "arguments": { "amount": amount } }],
            "observation": { "results": [{ "source_call_id": "x", "content": "sent" }] } },
        { "source": "agent", "message": "The bill is paid." },
    ] })
}

fn span(id: &str, start: u64, pairs: &[(&str, Value)]) -> Value {
    let one = |(key, value): &(&str, Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        json!({ "key": key, "value": { "stringValue": text } })
    };
    json!({ "traceId": "t1", "spanId": id, "name": id, "attributes": pairs.iter().map(one).collect::<Value>(),
        "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 1000).to_string() })
}

fn otlp(amount: u64) -> Value {
    let told = json!([{ "role": "user", "parts": [{ "type": "text", "content": TASK }] }]);
    let call =
        json!({ "type": "tool_call", "id": "x", "name": "send_money", "arguments": { "amount": amount } });
    let said =
        json!([{ "role": "assistant", "parts": [{ "type": "text", "content": "The bill is paid." }] }]);
    let spans = json!([
        span(
            "a",
            1,
            &[
                ("gen_ai.operation.name", json!("chat")),
                ("gen_ai.input.messages", told.clone()),
                ("gen_ai.output.messages", json!([{ "role": "assistant", "parts": [call] }]))
            ]
        ),
        span(
            "b",
            2,
            &[
                ("gen_ai.operation.name", json!("execute_tool")),
                ("gen_ai.tool.name", json!("send_money")),
                ("gen_ai.tool.call.id", json!("x")),
                ("gen_ai.tool.call.result", json!("sent"))
            ]
        ),
        span(
            "c",
            3,
            &[
                ("gen_ai.operation.name", json!("chat")),
                ("gen_ai.input.messages", told),
                ("gen_ai.output.messages", said)
            ]
        ),
    ]);
    json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": spans }] }] })
}

fn openinference(amount: u64) -> Value {
    let spans = json!([
        span(
            "a",
            1,
            &[
                ("openinference.span.kind", json!("LLM")),
                ("llm.input_messages.0.message.role", json!("user")),
                ("llm.input_messages.0.message.content", json!(TASK)),
                ("llm.output_messages.0.message.role", json!("assistant")),
                ("llm.output_messages.0.message.tool_calls.0.tool_call.id", json!("x")),
                ("llm.output_messages.0.message.tool_calls.0.tool_call.function.name", json!("send_money")),
                (
                    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments",
                    json!({ "amount": amount })
                )
            ]
        ),
        span(
            "b",
            2,
            &[
                ("openinference.span.kind", json!("TOOL")),
                ("tool.name", json!("send_money")),
                ("input.value", json!({ "amount": amount })),
                ("output.value", json!("sent"))
            ]
        ),
    ]);
    json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": spans }] }] })
}

/// A run of so much, in a format of somebody else's.
type Format = fn(u64) -> Value;

const FORMATS: [(&str, Format); 7] = [
    ("openai", openai),
    ("responses", responses),
    ("anthropic", anthropic),
    ("agentdojo", agentdojo),
    ("atif", atif),
    ("otlp", otlp),
    ("openinference", openinference),
];

/// What is said of the one session of a comparison.
fn reasons(site: &Site) -> String {
    result_in(site, "out")["sessions"][0]["reasons"].to_string()
}

fn compare(site: &Site, base: &str, new: &str) -> i32 {
    site.call(&["compare", base, new, "--out", "out", "-q"]).done().code()
}

#[test]
fn every_format_is_compared_and_a_changed_amount_fails_in_each() {
    let site = site();
    for (name, run) in FORMATS {
        let (base, same, other) =
            (format!("{name}.json"), format!("{name}-2.json"), format!("{name}-3.json"));
        for (file, amount) in [(&base, 100), (&same, 100), (&other, 1000)] {
            site.write(file, run(amount).to_string());
        }
        assert_eq!(compare(&site, &base, &same), 0, "{name}: {}", reasons(&site));
        assert_eq!(compare(&site, &base, &other), 1, "{name}: {}", reasons(&site));
        let said = reasons(&site);
        assert!(said.contains("send_money") && said.contains("1000"), "{name}: {said}");
    }
    // one's baseline may be another's record
    assert_eq!(compare(&site, "openai.json", "anthropic-2.json"), 0, "{}", reasons(&site));
    assert_eq!(compare(&site, "openai.json", "atif-3.json"), 1, "{}", reasons(&site));
}

#[test]
fn a_record_that_cannot_be_read_is_named_and_nothing_is_passed() {
    let site = site();
    site.write("good.json", openai(100).to_string());
    let deep = format!("{{\"messages\": {}1{}}}", "[".repeat(50_000), "]".repeat(50_000));
    let cases: [(&str, Vec<u8>, &str); 7] = [
        ("empty.json", Vec::new(), "empty.json"),
        (
            "latin.json",
            b"{\"messages\": [{\"role\": \"user\", \"content\": \"caf\xe9\"}]}".to_vec(),
            "latin.json",
        ),
        ("half.json", openai(100).to_string().into_bytes()[..120].to_vec(), "line 1 is not JSON"),
        ("deep.json", deep.into_bytes(), "line 1 is not JSON"),
        ("other.json", br#"{"foo": 1}"#.to_vec(), "an object with `foo` is in no format"),
        ("role.json", br#"{"messages": [{"content": "x"}]}"#.to_vec(), "`messages[0].role` is missing"),
        (
            "call.json",
            br#"{"messages": [{"role": "a", "tool_calls": [{"function": {}}]}]}"#.to_vec(),
            "tool_calls[0].function.name",
        ),
    ];
    for (name, bytes, expected) in cases {
        fs::write(site.work().join(name), bytes).unwrap();
        for pair in [["good.json", name], [name, "good.json"]] {
            let done = site.call(&["compare", pair[0], pair[1]]).done();
            assert_eq!(done.code(), 2, "{name}: {}", done.err());
            assert!(done.err().contains(name) && done.err().contains(expected), "{name}: {}", done.err());
        }
    }
}

#[test]
fn odd_records_are_compared_as_what_they_are() {
    let site = site();
    site.write("good.json", openai(100).to_string());
    // nothing at all was done
    site.write("nothing.json", json!({ "messages": [] }).to_string());
    assert_eq!(compare(&site, "nothing.json", "nothing.json"), 0, "{}", reasons(&site));
    assert_eq!(compare(&site, "good.json", "nothing.json"), 1);
    assert!(reasons(&site).contains("send_money"), "{}", reasons(&site));

    // every call has the same id: answers belong to the call before them
    let call = |n: u64| {
        let arguments = json!({ "amount": n }).to_string();
        json!({ "role": "assistant", "content": "", "tool_calls": [{ "id": "x", "type": "function",
            "function": { "name": "send_money", "arguments": arguments } }] })
    };
    let answer = |n: u64| json!({ "role": "tool", "tool_call_id": "x", "content": format!("sent {n}") });
    let twins = |second: u64| {
        let all =
            json!([{ "role": "user", "content": TASK }, call(1), answer(1), call(second), answer(second)]);
        json!({ "messages": all }).to_string()
    };
    site.write("twins.json", twins(2));
    site.write("twins-2.json", twins(3));
    assert_eq!(compare(&site, "twins.json", "twins.json"), 0, "{}", reasons(&site));
    assert_eq!(compare(&site, "twins.json", "twins-2.json"), 1, "{}", reasons(&site));

    // the clock of what exported it went backwards, and the order of the file is another
    let mut back = otlp(100);
    let spans = &mut back["resourceSpans"][0]["scopeSpans"][0]["spans"];
    for (at, start) in [3_000_000_u64, 2_000_000, 1_000_000].iter().enumerate() {
        spans[at]["startTimeUnixNano"] = json!(start.to_string());
        spans[at]["endTimeUnixNano"] = json!("5");
    }
    site.write("back.json", back.to_string());
    assert_eq!(compare(&site, "back.json", "back.json"), 0, "{}", reasons(&site));

    // one result of eight megabytes, and ten thousand calls that are the same
    let huge = "x y ".repeat(2 << 20);
    let mut large = openai(100);
    large["messages"][2]["content"] = json!(huge);
    site.write("large.json", large.to_string());
    assert_eq!(compare(&site, "large.json", "large.json"), 0, "{}", reasons(&site));
    let many = |count: usize| {
        let mut all = vec![json!({ "role": "user", "content": TASK })];
        (0..count).for_each(|_| all.extend([call(1), answer(1)]));
        json!({ "messages": all }).to_string()
    };
    site.write("many.json", many(10_000));
    site.write("fewer.json", many(9_999));
    assert_eq!(compare(&site, "many.json", "many.json"), 0, "{}", reasons(&site));
    assert_eq!(compare(&site, "many.json", "fewer.json"), 1, "{}", reasons(&site));
}

#[test]
fn a_trace_of_ours_that_is_cut_or_changed_is_for_review_or_worse_by_name() {
    let site = site();
    let _shop = Shop::recorded(&site);
    let name = "refund-small.1.tar.zst";
    let whole = fs::read(site.work().join("baseline").join(name)).unwrap();
    for dir in ["good", "cut", "changed"] {
        fs::create_dir(site.work().join(dir)).unwrap();
    }
    let mut changed = whole.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 0x55;
    fs::write(site.work().join("good").join(name), &whole).unwrap();
    fs::write(site.work().join("cut").join(name), &whole[..middle]).unwrap();
    fs::write(site.work().join("changed").join(name), &changed).unwrap();
    assert_eq!(compare(&site, "good", "good"), 0, "{}", reasons(&site));
    for bad in ["cut", "changed"] {
        for (base, new) in [("good", bad), (bad, "good")] {
            let code = compare(&site, base, new);
            assert_eq!(code, 1, "{base} {new}: {}", reasons(&site));
            assert!(reasons(&site).contains(name), "{base} {new}: {}", reasons(&site));
        }
    }
}
