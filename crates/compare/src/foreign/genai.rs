//! OpenTelemetry spans by the GenAI conventions: model calls with their messages as attributes (or, by the older
//! conventions, as events), tool calls as `execute_tool` spans.

use super::field::{ForeignError, arguments, joined, rendered};
use super::scribe::{Answer, Scribe, blank};
use super::spans::{self, Span};
use cofferdam_model::{Act, ActKind, Run, Status};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

pub(super) fn read(value: &Value) -> Result<Vec<Run>, ForeignError> {
    Ok(spans::traces(value)?.iter().map(|trace| reduce(trace)).collect())
}

fn reduce(trace: &[Span]) -> Run {
    let mut reader = Reader::default();
    let id = trace.first().map_or("", |span| span.trace.as_str());
    reader.scribe = Scribe::named(id);
    for (at, span) in trace.iter().enumerate() {
        match span.text("gen_ai.operation.name") {
            "execute_tool" => reader.tool(at, span),
            "chat" | "text_completion" | "generate_content" => reader.model(at, span),
            // Agents and workflows hold the same messages as the calls within them.
            "invoke_agent" | "create_agent" | "embeddings" => {}
            _ if span.attributes.contains_key("gen_ai.tool.name") => reader.tool(at, span),
            _ if span.attributes.keys().any(|key| key.starts_with("gen_ai.")) => reader.model(at, span),
            _ => {}
        }
    }
    let mut run = reader.scribe.finish();
    run.origin = "otlp".to_owned();
    spans::total(&mut run, trace);
    run
}

/// Every model call repeats the conversation so far: what was told already is not told again.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) scribe: Scribe,
    told: BTreeSet<(ActKind, String)>,
}

impl Reader {
    fn model(&mut self, at: usize, span: &Span) {
        self.told(at, ActKind::Instructed, &words(&span.json("gen_ai.system_instructions")));
        for message in span.json("gen_ai.input.messages").as_array().into_iter().flatten() {
            self.input(at, message);
        }
        for (name, attributes) in &span.events {
            self.event(at, name, attributes);
        }
        for message in span.json("gen_ai.output.messages").as_array().into_iter().flatten() {
            self.output(at, message);
        }
        let spent = &mut self.scribe.run().spent;
        spent.tokens_in = spent.tokens_in.saturating_add(span.number("gen_ai.usage.input_tokens"));
        spent.tokens_out = spent.tokens_out.saturating_add(span.number("gen_ai.usage.output_tokens"));
        let cached = span.number("gen_ai.usage.cache_read.input_tokens");
        spent.tokens_cached = spent.tokens_cached.saturating_add(cached);
    }

    pub(super) fn told(&mut self, at: usize, kind: ActKind, text: &str) {
        if !text.is_empty() && self.told.insert((kind, text.to_owned())) {
            self.scribe.words(at, kind, text.to_owned());
        }
    }

    /// One message that a model was given.
    pub(super) fn input(&mut self, at: usize, message: &Value) {
        match message["role"].as_str().unwrap_or("") {
            "system" | "developer" => self.told(at, ActKind::Instructed, &words(message)),
            "user" => {
                self.told(at, ActKind::Told, &words(message));
                self.results(at, message);
            }
            "tool" => self.results(at, message),
            _ => {}
        }
    }

    /// Results that no tool span has told yet.
    fn results(&mut self, at: usize, message: &Value) {
        let parts = message["parts"].as_array().into_iter().flatten();
        let mut found: Vec<(&str, String)> = parts
            .filter(|part| part["type"] == "tool_call_response")
            .map(|part| {
                let text = if part["response"].is_null() { &part["result"] } else { &part["response"] };
                (part["id"].as_str().unwrap_or(""), rendered(text))
            })
            .collect();
        if let Some(id) = message["tool_call_id"].as_str().or(message["id"].as_str()) {
            found.push((id, rendered(&message["content"])));
        }
        for (id, text) in found {
            if self.scribe.is_open(id) {
                self.scribe.answer(at, Answer { id, name: "", text, failed: None });
            }
        }
    }

    /// One message that a model gave.
    pub(super) fn output(&mut self, at: usize, message: &Value) {
        let text = words(message);
        let said = self.scribe.words(at, ActKind::Said, text);
        let parts = message["parts"].as_array().into_iter().flatten();
        for part in parts.filter(|part| part["type"] == "tool_call") {
            let (id, name) = (part["id"].as_str().unwrap_or(""), part["name"].as_str().unwrap_or(""));
            self.scribe.call(at, said, id, name, arguments(&part["arguments"]));
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            let (id, name) = (call["id"].as_str().unwrap_or(""), function["name"].as_str().unwrap_or(""));
            self.scribe.call(at, said, id, name, arguments(&function["arguments"]));
        }
    }

    /// Messages as events, by the conventions before 1.37.
    fn event(&mut self, at: usize, name: &str, attributes: &Map<String, Value>) {
        let mut message = Value::Object(attributes.clone());
        for key in ["message", "tool_calls"] {
            if let Some(text) = attributes.get(key) {
                message[key] = arguments(text);
            }
        }
        match name {
            "gen_ai.choice" => {
                let inner = if message["message"].is_object() { message["message"].clone() } else { message };
                self.output(at, &inner);
            }
            "gen_ai.system.message" => self.told(at, ActKind::Instructed, &words(&message)),
            "gen_ai.user.message" => self.told(at, ActKind::Told, &words(&message)),
            "gen_ai.tool.message" => self.results(at, &message),
            _ => {}
        }
    }

    fn tool(&mut self, at: usize, span: &Span) {
        let id = span.text("gen_ai.tool.call.id");
        let name = match span.text("gen_ai.tool.name") {
            "" => span.name.trim_start_matches("execute_tool "),
            name => name,
        };
        let args = span.json("gen_ai.tool.call.arguments");
        let result = span.attributes.get("gen_ai.tool.call.result").map_or_else(String::new, rendered);
        self.executed(at, id, name, args, result, span.failed.as_deref());
    }

    /// A tool ran: the call that asked for it is answered, or, if no model was seen to ask, stands alone.
    pub(super) fn executed(
        &mut self,
        at: usize,
        id: &str,
        name: &str,
        args: Value,
        result: String,
        failed: Option<&str>,
    ) {
        let index = self.scribe.claim(id, name).unwrap_or_else(|| {
            self.scribe.push(Act { args: args.clone(), ..blank(at, ActKind::Tool, name) })
        });
        if let Some(act) = self.scribe.run().acts.get_mut(index) {
            if act.args.is_null() {
                act.args = args;
            }
            act.status = if failed.is_some() { Status::Failed } else { Status::Ok };
            act.text = if result.is_empty() { failed.unwrap_or("").to_owned() } else { result };
        }
    }
}

/// The text of a message: its content, or its text parts.
fn words(message: &Value) -> String {
    if let Some(content) = message.get("content").filter(|content| !content.is_null()) {
        return rendered(content);
    }
    let parts = message.get("parts").unwrap_or(message).as_array().into_iter().flatten();
    let texts = parts.filter(|p| matches!(p["type"].as_str(), Some("text" | "reasoning")));
    joined(texts.filter_map(|p| p["content"].as_str()))
}
