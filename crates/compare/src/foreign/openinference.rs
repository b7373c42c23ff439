//! OpenInference spans: messages numbered in flat attributes, tools and retrievers as spans of their own kind.

use super::field::{ForeignError, arguments, joined};
use super::genai::Reader;
use super::scribe::Scribe;
use super::spans::{self, Span};
use cofferdam_model::Run;
use serde_json::{Value, json};

pub(super) fn read(value: &Value) -> Result<Vec<Run>, ForeignError> {
    Ok(spans::traces(value)?.iter().map(|trace| reduce(trace)).collect())
}

fn reduce(trace: &[Span]) -> Run {
    let mut reader = Reader::default();
    let id = trace.first().map_or("", |span| span.trace.as_str());
    reader.scribe = Scribe::named(id);
    for (at, span) in trace.iter().enumerate() {
        match span.text("openinference.span.kind").to_ascii_uppercase().as_str() {
            "LLM" => model(&mut reader, at, span),
            "TOOL" => tool(&mut reader, at, span),
            "RETRIEVER" => retrieval(&mut reader, at, span),
            _ => {}
        }
    }
    let mut run = reader.scribe.finish();
    run.origin = "openinference".to_owned();
    spans::total(&mut run, trace);
    run
}

fn model(reader: &mut Reader, at: usize, span: &Span) {
    messages(span, "llm.input_messages").iter().for_each(|message| reader.input(at, message));
    messages(span, "llm.output_messages").iter().for_each(|message| reader.output(at, message));
    let spent = &mut reader.scribe.run().spent;
    spent.tokens_in = spent.tokens_in.saturating_add(span.number("llm.token_count.prompt"));
    spent.tokens_out = spent.tokens_out.saturating_add(span.number("llm.token_count.completion"));
    let cached = span.number("llm.token_count.prompt_details.cache_read");
    spent.tokens_cached = spent.tokens_cached.saturating_add(cached);
}

/// `PREFIX.0.message.role` and its like, as the messages they are.
fn messages(span: &Span, prefix: &str) -> Vec<Value> {
    let numbered = (0..).map(|at| format!("{prefix}.{at}.message"));
    let held = numbered.take_while(|under| has(span, under));
    held.map(|under| message(span, &under)).collect()
}

fn has(span: &Span, under: &str) -> bool {
    span.attributes.keys().any(|key| key.starts_with(under) && key[under.len()..].starts_with('.'))
}

fn message(span: &Span, under: &str) -> Value {
    let text = |key: &str| span.text(&format!("{under}.{key}")).to_owned();
    let parts = (0..).map(|at| format!("{under}.contents.{at}")).take_while(|part| has(span, part));
    let texts: Vec<_> =
        parts.map(|part| span.text(&format!("{part}.message_content.text")).to_owned()).collect();
    let content = text("content");
    let content = if content.is_empty() { joined(texts.iter().map(String::as_str)) } else { content };
    let calls = (0..).map(|at| format!("{under}.tool_calls.{at}")).take_while(|call| has(span, call));
    let calls: Vec<_> = calls.map(|call| tool_call(span, &format!("{call}.tool_call"))).collect();
    let mut message = json!({ "role": text("role"), "content": content, "tool_calls": calls });
    let answers = text("tool_call_id");
    if !answers.is_empty() {
        message["tool_call_id"] = Value::from(answers);
    }
    message
}

fn tool_call(span: &Span, under: &str) -> Value {
    let text = |key: &str| span.text(&format!("{under}.{key}"));
    let function = json!({ "name": text("function.name"), "arguments": text("function.arguments") });
    json!({ "id": text("id"), "function": function })
}

fn tool(reader: &mut Reader, at: usize, span: &Span) {
    let name = if span.text("tool.name").is_empty() { &span.name } else { span.text("tool.name") };
    let args = match span.json("tool.parameters") {
        Value::Null => span.json("input.value"),
        args => args,
    };
    let id = match span.text("tool_call.id") {
        "" => span.text("tool.id"),
        id => id,
    };
    let result = span.text("output.value").to_owned();
    reader.executed(at, id, name, args, result, span.failed.as_deref());
}

fn retrieval(reader: &mut Reader, at: usize, span: &Span) {
    let documents = (0..).map(|at| format!("retrieval.documents.{at}.document"));
    let held = documents.take_while(|under| has(span, under));
    let texts: Vec<_> = held.map(|under| span.text(&format!("{under}.content")).to_owned()).collect();
    let found = joined(texts.iter().map(String::as_str));
    let found = if found.is_empty() { span.text("output.value").to_owned() } else { found };
    let query = span.attributes.get("input.value").map_or(Value::Null, arguments);
    let name = if span.name.is_empty() { "retrieve" } else { &span.name };
    reader.executed(at, "", name, json!({ "query": query }), found, span.failed.as_deref());
}
