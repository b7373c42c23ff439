//! The SDKs of model providers as they are published, inside a sandbox, against a model on this machine: what they
//! ask and get is told in one form, streamed or not, and costs what the table says.

use super::{ALL, Stage, staged_once};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;

/// The calls on record, without what differs from run to run.
fn calls(stage: &Stage<'_>) -> String {
    let events = stage.site.events();
    let of_kind: Vec<&Value> = events.iter().filter(|event| event["kind"] == "model.called").collect();
    let number: HashMap<u64, usize> =
        of_kind.iter().enumerate().map(|(n, event)| (event["seq"].as_u64().unwrap(), n)).collect();
    let mut out = String::new();
    for event in of_kind {
        let mut body = event["body"].clone();
        let exchange = &events[body["exchange"].as_u64().unwrap() as usize];
        assert_eq!((&exchange["kind"], &exchange["parent"]), (&json!("exchange.recorded"), &event["parent"]));
        assert!(body["total_us"].as_u64() >= body["first_token_us"].as_u64());
        let fields = body.as_object_mut().unwrap();
        for name in ["exchange", "total_us", "first_token_us"] {
            fields.remove(name);
        }
        // What a cost comes from is kept with it.
        assert_eq!(fields.remove("price_table").is_some(), fields.contains_key("cost_micros"));
        for name in ["follows", "retries"] {
            if let Some(event) = fields.get_mut(name) {
                *event = json!(format!("call {}", number[&event.as_u64().unwrap()]));
            }
        }
        for tool in fields.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
            assert_eq!(tool["schema"].as_str().unwrap().len(), 64);
            *tool = tool["name"].clone();
        }
        writeln!(out, "{body}").unwrap();
    }
    out
}

const OPENAI: &str = r#"
import openai, os
client = openai.OpenAI(api_key=os.environ["KEY"])
local = openai.OpenAI(api_key=os.environ["KEY"], base_url="http://models.corp.example/v1")
tool = {"type": "function", "function": {"name": "refund", "parameters": {"type": "object", "properties": {}}}}
asked = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "refund it"}]
first = client.chat.completions.create(model="gpt-4o", messages=asked, tools=[tool], temperature=0.5).choices[0].message
done = [{"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "done"}]
last = client.chat.completions.create(model="gpt-4o", messages=[*asked, first, *done], tools=[tool])
print(first.tool_calls[0].function.arguments, last.choices[0].message.content)
counted = {"include_usage": True}
parts = client.chat.completions.create(model="gpt-4o", messages=asked[1:], stream=True, stream_options=counted)
print("".join(part.choices[0].delta.content or "" for part in parts if part.choices))
parts = local.chat.completions.create(model="llama3", messages=asked[1:], stream=True)
print("".join(part.choices[0].delta.content or "" for part in parts))
print(client.responses.create(model="gpt-4.1", instructions="be kind", input="ping").output_text)
for event in client.responses.create(model="gpt-4.1", input="ping", stream=True, max_output_tokens=99):
    if event.type == "response.completed":
        print(event.response.output_text)
"#;

#[test]
fn openai_in_python() {
    staged_once(|stage| {
        let out = stage.python(OPENAI).exits(0).out();
        assert_eq!(out, "{\"amount\": 5} pong\npong\npong\npong\npong\n");
        insta::assert_snapshot!(calls(stage), @r###"
        {"answer":{"calls":[{"arguments":{"text":"{\"amount\": 5}"},"id":"call_1","name":"refund"}],"role":"assistant"},"api":"chat.completions","cost_micros":130,"messages":[{"role":"system","text":{"text":"be kind"}},{"role":"user","text":{"text":"refund it"}}],"model":"gpt-4o","parameters":{"temperature":"0.5"},"price":"gpt-4o of 2025-11-15, not checked","provider":"openai","stop":"tool_calls","streamed":false,"tokens":{"cached":8,"input":20,"output":9,"reasoning":3},"tools":["refund"]}
        {"answer":{"role":"assistant","text":{"text":"pong"}},"api":"chat.completions","cost_micros":130,"follows":"call 0","messages":[{"calls":[{"arguments":{"text":"{\"amount\": 5}"},"id":"call_1","name":"refund"}],"role":"assistant"},{"answers":"call_1","role":"tool","text":{"text":"done"}}],"model":"gpt-4o","price":"gpt-4o of 2025-11-15, not checked","provider":"openai","same":2,"stop":"stop","streamed":false,"tokens":{"cached":8,"input":20,"output":9,"reasoning":3},"tools":["refund"]}
        {"answer":{"role":"assistant","text":{"text":"pong"}},"api":"chat.completions","cost_micros":130,"messages":[{"role":"user","text":{"text":"refund it"}}],"model":"gpt-4o","parameters":{"stream_options":"{\"include_usage\":true}"},"price":"gpt-4o of 2025-11-15, not checked","provider":"openai","stop":"stop","streamed":true,"tokens":{"cached":8,"input":20,"output":9,"reasoning":3}}
        {"answer":{"role":"assistant","text":{"text":"pong"}},"api":"chat.completions","estimated":true,"follows":"call 2","model":"llama3","price":"no price is known for `llama3`","provider":"openai-compatible","same":1,"streamed":true,"tokens":{"input":3,"output":1}}
        {"answer":{"role":"assistant","text":{"text":"pong"}},"api":"responses","cost_micros":100,"follows":"call 1","messages":[{"role":"user","text":{"text":"ping"}}],"model":"gpt-4.1","price":"gpt-4.1 of 2025-11-15, not checked","provider":"openai","same":1,"stop":"completed","streamed":false,"tokens":{"cached":8,"input":20,"output":9,"reasoning":3}}
        {"answer":{"role":"assistant","text":{"text":"pong"}},"api":"responses","cost_micros":100,"messages":[{"role":"user","text":{"text":"ping"}}],"model":"gpt-4.1","parameters":{"max_output_tokens":"99"},"price":"gpt-4.1 of 2025-11-15, not checked","provider":"openai","stop":"completed","streamed":true,"tokens":{"cached":8,"input":20,"output":9,"reasoning":3}}
        "###);
        let id = stage.site.traces().pop().unwrap();
        let shown = stage.site.call(&["trace", "show", &id]).exits(0).out();
        assert!(shown.contains("openai gpt-4o: 20 tokens in, 9 out (8 cached, 3 thought)"), "{shown}");
        let mut lines = shown.lines().skip_while(|line| !line.contains(" model "));
        assert!(lines.clone().count() > 6 && lines.all(|line| line.chars().count() <= 80), "{shown}");
    });
}

const ANTHROPIC: &str = r#"
import anthropic, os
client = anthropic.Anthropic(api_key=os.environ["KEY"])
tools = [{"name": "refund", "input_schema": {"type": "object"}}]
asked = [{"role": "user", "content": "refund it"}]
ask = {"model": "claude-sonnet-4-5", "max_tokens": 64, "system": "be kind", "tools": tools}
with client.messages.stream(messages=asked, **ask) as stream:
    first = stream.get_final_message()
call = first.content[-1]
result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "done"}]}
last = client.messages.create(messages=[*asked, {"role": "assistant", "content": [call.model_dump(include={"type", "id", "name", "input"})]}, result], **ask)
print(call.input, last.content[0].text)
print(client.messages.create(model="flaky", max_tokens=64, messages=asked).content[0].text)
"#;

#[test]
fn anthropic_in_python() {
    staged_once(|stage| {
        assert_eq!(stage.python(ANTHROPIC).exits(0).out(), "{'amount': 5} pong\npong\n");
        insta::assert_snapshot!(calls(stage), @r###"
        {"answer":{"calls":[{"arguments":{"text":"{\"amount\": 5}"},"id":"toolu_1","name":"refund"}],"role":"assistant"},"api":"messages","cost_micros":174,"messages":[{"role":"system","text":{"text":"be kind"}},{"role":"user","text":{"text":"refund it"}}],"model":"claude-sonnet-4-5","parameters":{"max_tokens":"64"},"price":"claude-sonnet-4-5 of 2025-11-15, not checked","provider":"anthropic","stop":"tool_use","streamed":true,"tokens":{"cached":8,"input":20,"output":9},"tools":["refund"]}
        {"answer":{"role":"assistant","text":{"text":"pong"}},"api":"messages","cost_micros":174,"follows":"call 0","messages":[{"calls":[{"arguments":{"text":"{\"amount\":5}"},"id":"toolu_1","name":"refund"}],"role":"assistant"},{"answers":"toolu_1","role":"tool","text":{"text":"done"}}],"model":"claude-sonnet-4-5","parameters":{"max_tokens":"64"},"price":"claude-sonnet-4-5 of 2025-11-15, not checked","provider":"anthropic","same":2,"stop":"end_turn","streamed":false,"tokens":{"cached":8,"input":20,"output":9},"tools":["refund"]}
        {"api":"messages","error":{"kind":"overloaded_error","message":"Overloaded","status":529},"messages":[{"role":"user","text":{"text":"refund it"}}],"model":"flaky","parameters":{"max_tokens":"64"},"price":"no price is known for `flaky`","provider":"anthropic","streamed":false,"tokens":{"input":0,"output":0}}
        {"answer":{"role":"assistant","text":{"text":"pong"}},"api":"messages","follows":"call 2","model":"flaky","parameters":{"max_tokens":"64"},"price":"no price is known for `flaky`","provider":"anthropic","retries":"call 2","same":1,"stop":"end_turn","streamed":false,"tokens":{"cached":8,"input":20,"output":9}}
        "###);
    });
}

const GOOGLE: &str = r#"
import os
from google import genai
from google.genai import types
client = genai.Client(api_key=os.environ["KEY"])
refund = types.FunctionDeclaration(name="refund", parameters_json_schema={"type": "object", "properties": {}})
config = types.GenerateContentConfig(system_instruction="be kind", temperature=0.5, tools=[types.Tool(function_declarations=[refund])])
model = "gemini-2.5-flash"
print(client.models.generate_content(model=model, contents="refund it", config=config).function_calls[0].args)
print(client.models.generate_content(model=model, contents="ping").text)
print("".join(part.text for part in client.models.generate_content_stream(model=model, contents="ping")))
"#;

#[test]
fn google_in_python() {
    staged_once(|stage| {
        assert_eq!(stage.python(GOOGLE).exits(0).out(), "{'amount': 5}\npong\npong\n");
        insta::assert_snapshot!(calls(stage), @r###"
        {"answer":{"calls":[{"arguments":{"text":"{\"amount\":5}"},"name":"refund"}],"role":"assistant"},"api":"generateContent","cost_micros":27,"messages":[{"role":"system","text":{"text":"be kind"}},{"role":"user","text":{"text":"refund it"}}],"model":"gemini-2.5-flash","parameters":{"temperature":"0.5"},"price":"gemini-2.5-flash of 2025-11-15, not checked","provider":"google","stop":"STOP","streamed":false,"tokens":{"cached":8,"input":20,"output":9,"reasoning":3},"tools":["refund"]}
        {"answer":{"role":"assistant","text":{"text":"pong"}},"api":"generateContent","cost_micros":27,"messages":[{"role":"user","text":{"text":"ping"}}],"model":"gemini-2.5-flash","price":"gemini-2.5-flash of 2025-11-15, not checked","provider":"google","stop":"STOP","streamed":false,"tokens":{"cached":8,"input":20,"output":9,"reasoning":3}}
        {"answer":{"role":"assistant","text":{"text":"pong"}},"api":"generateContent","cost_micros":27,"follows":"call 1","model":"gemini-2.5-flash","price":"gemini-2.5-flash of 2025-11-15, not checked","provider":"google","same":1,"stop":"STOP","streamed":true,"tokens":{"cached":8,"input":20,"output":9,"reasoning":3}}
        "###);
    });
}

const NODE: &str = r#"
const OpenAI = require("openai");
const client = new OpenAI({ apiKey: process.env.KEY });
const messages = [{ role: "user", content: "ping" }];
(async () => {
  const whole = await client.chat.completions.create({ model: "gpt-4o-mini", messages });
  console.log(whole.choices[0].message.content);
  let text = "";
  for await (const part of await client.chat.completions.create({ model: "gpt-4o-mini", messages, stream: true })) {
    text += part.choices[0]?.delta?.content ?? "";
  }
  console.log(text);
  console.log((await client.responses.create({ model: "gpt-4o-mini", input: "ping" })).output_text);
})();
"#;

#[test]
fn openai_in_node() {
    staged_once(|stage| {
        let path = format!("NODE_PATH={}/node_modules", stage.server.packages().display());
        let out = stage.run(&["node", "-e", NODE]).with(&["--env", &path]).exits(0).out();
        assert_eq!(out, "pong\npong\npong\n");
        insta::assert_snapshot!(calls(stage), @r###"
        {"answer":{"role":"assistant","text":{"text":"pong"}},"api":"chat.completions","cost_micros":8,"messages":[{"role":"user","text":{"text":"ping"}}],"model":"gpt-4o-mini","price":"gpt-4o-mini of 2025-11-15, not checked","provider":"openai","stop":"stop","streamed":false,"tokens":{"cached":8,"input":20,"output":9,"reasoning":3}}
        {"answer":{"role":"assistant","text":{"text":"pong"}},"api":"chat.completions","cost_micros":1,"estimated":true,"follows":"call 0","model":"gpt-4o-mini","price":"gpt-4o-mini of 2025-11-15, not checked","provider":"openai","same":1,"streamed":true,"tokens":{"input":1,"output":1}}
        {"answer":{"role":"assistant","text":{"text":"pong"}},"api":"responses","cost_micros":8,"follows":"call 1","model":"gpt-4o-mini","price":"gpt-4o-mini of 2025-11-15, not checked","provider":"openai","same":1,"stop":"completed","streamed":false,"tokens":{"cached":8,"input":20,"output":9,"reasoning":3}}
        "###);
    });
}

#[test]
fn a_budget_stops_the_next_call_before_it_leaves() {
    staged_once(|stage| {
        stage.policy(&format!(
            "{ALL}\n[[budget]]\nid = \"models\"\nhost = \"api.openai.com\"\nspend = 0.0005\n"
        ));
        let program = r#"
import openai, os
client = openai.OpenAI(api_key=os.environ["KEY"])
for n in range(9):
    try:
        client.chat.completions.create(model="gpt-4o", max_tokens=9, messages=[{"role": "user", "content": "ping"}])
    except openai.PermissionDeniedError as error:
        print(n, error.body["type"], error.body["message"])
        break
"#;
        let out = stage.python(program).exits(0).out();
        assert!(
            out.contains("spend-cap the call can cost $") && out.contains("budget `models` has $"),
            "{out}"
        );
        let went = stage.server.seen_with(&stage.real).len();
        assert!(out.starts_with(&format!("{went} ")) && went > 0, "{out}");
        assert_eq!(stage.refused("spend-cap").len(), 1);
        assert_eq!(stage.site.bodies("model.called").len(), went);
    });
}
