//! A trace as spans of OpenTelemetry, in OTLP's JSON: a span for the session, and within it one for each call of a
//! model, tool call, step, request and command, with the names of the GenAI conventions. Deterministic: ids are made
//! from the session's id and the events' hashes. What is kept by digest stays out.

use cofferdam_model::{
    Body, Content, EgressDecided, Event, Exit, ModelCalled, StepStarted, ToolCalled, ToolOutcome, Verdict,
};
use cofferdam_seal::digest;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const CLIENT: u8 = 3;
const INTERNAL: u8 = 1;
const ERROR: u8 = 2;

/// One export request, for a collector or a file.
pub fn to_otlp(events: &[Event], by: &str) -> Value {
    let mut making = Making { ends: ends(events), ..Making::default() };
    for event in events {
        if let Some(body) = event.typed() {
            making.take(event, &body);
        }
    }
    let resource = attributes(&[
        ("service.name", "cofferdam".into()),
        ("cofferdam.session", making.session.clone().into()),
    ]);
    let spans = making.finish(events);
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": { "name": "cofferdam", "version": by }, "spans": spans }],
    }] })
}

/// What ended an event: the first that names it as its parent and is an end of its kind.
fn ends(events: &[Event]) -> BTreeMap<u64, (u64, Body)> {
    let mut ends = BTreeMap::new();
    for event in events {
        let (Some(parent), Some(body)) = (event.parent, event.typed()) else { continue };
        if matches!(
            body,
            Body::ToolReturned(_) | Body::StepEnded(_) | Body::EgressEnded(_) | Body::ExecExited(_)
        ) {
            ends.entry(parent).or_insert((event.time, body));
        }
    }
    ends
}

#[derive(Default)]
struct Making {
    session: String,
    trace: String,
    root: String,
    spans: Vec<Value>,
    /// The span that an event became.
    made: BTreeMap<u64, String>,
    ends: BTreeMap<u64, (u64, Body)>,
    failed: Option<String>,
}

/// A span to be.
struct Span {
    name: String,
    kind: u8,
    /// In microseconds.
    times: (u64, u64),
    attributes: Vec<(&'static str, Value)>,
    error: Option<String>,
}

impl Making {
    fn take(&mut self, event: &Event, body: &Body) {
        let span = match body {
            Body::SessionStarted(fact) => {
                self.session = fact.session.to_string();
                let whole = digest(self.session.as_bytes()).to_string();
                self.trace = whole.chars().take(32).collect();
                self.root = whole.chars().skip(32).take(16).collect();
                return;
            }
            Body::SessionEnded(fact) => {
                self.failed = fact.error.clone();
                return;
            }
            Body::ModelCalled(fact) => model(event, fact),
            Body::ToolCalled(fact) => self.tool(event, fact),
            Body::StepStarted(fact) => self.step(event, fact),
            Body::EgressDecided(fact) => self.request(event, fact),
            Body::ExecStarted(fact) => {
                let program = fact.argv.first().cloned().unwrap_or_default();
                let (end, error) = match self.ends.get(&event.seq) {
                    Some((time, Body::ExecExited(exited))) => (
                        *time,
                        (exited.exit != Exit::Code(0)).then(|| format!("exit {}", exited.exit.code())),
                    ),
                    _ => (event.time, None),
                };
                let attributes = vec![("process.command_args", json!(fact.argv))];
                Span {
                    name: format!("exec {program}"),
                    kind: INTERNAL,
                    times: (event.time, end),
                    attributes,
                    error,
                }
            }
            _ => return,
        };
        self.push(event, span);
    }

    fn push(&mut self, event: &Event, span: Span) {
        let id: String = event.hash.to_string().chars().take(16).collect();
        let parent = event.parent.and_then(|parent| self.made.get(&parent)).unwrap_or(&self.root).clone();
        self.made.insert(event.seq, id.clone());
        let status = span.error.map_or_else(|| json!({}), |text| json!({ "code": ERROR, "message": text }));
        self.spans.push(json!({
            "traceId": self.trace,
            "spanId": id,
            "parentSpanId": parent,
            "name": span.name,
            "kind": span.kind,
            "startTimeUnixNano": nanos(span.times.0),
            "endTimeUnixNano": nanos(span.times.1.max(span.times.0)),
            "attributes": attributes(&span.attributes),
            "status": status,
        }));
    }

    fn finish(mut self, events: &[Event]) -> Vec<Value> {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Vec::new() };
        let status = self.failed.map_or_else(|| json!({}), |text| json!({ "code": ERROR, "message": text }));
        let named = [
            ("gen_ai.operation.name", "invoke_agent".into()),
            ("gen_ai.conversation.id", self.session.into()),
        ];
        let root = json!({
            "traceId": self.trace,
            "spanId": self.root,
            "name": "invoke_agent",
            "kind": INTERNAL,
            "startTimeUnixNano": nanos(first.time),
            "endTimeUnixNano": nanos(last.time),
            "attributes": attributes(&named),
            "status": status,
        });
        self.spans.insert(0, root);
        self.spans
    }

    fn tool(&self, event: &Event, fact: &ToolCalled) -> Span {
        let mut attributes = vec![
            ("gen_ai.operation.name", "execute_tool".into()),
            ("gen_ai.tool.name", fact.tool.clone().into()),
            ("gen_ai.tool.call.id", fact.call.clone().into()),
            ("cofferdam.server", fact.server.clone().into()),
        ];
        attributes.extend(text(&fact.arguments).map(|text| ("gen_ai.tool.call.arguments", text)));
        decided(&mut attributes, fact.effect, fact.rule.as_deref());
        let (mut end, mut error) = (event.time, None);
        if let Some((time, Body::ToolReturned(returned))) = self.ends.get(&event.seq) {
            end = *time;
            error = (returned.outcome != ToolOutcome::Ok).then(|| word(&json!(returned.outcome)));
            attributes.extend(
                returned.result.as_ref().and_then(text).map(|text| ("gen_ai.tool.call.result", text)),
            );
        }
        Span {
            name: format!("execute_tool {}", fact.tool),
            kind: INTERNAL,
            times: (event.time, end),
            attributes,
            error,
        }
    }

    fn step(&self, event: &Event, fact: &StepStarted) -> Span {
        let mut attributes = vec![("cofferdam.step.id", fact.id.clone().into())];
        attributes.extend(fact.input.as_ref().and_then(text).map(|text| ("input.value", text)));
        decided(&mut attributes, fact.effect, fact.rule.as_deref());
        let (mut times, mut error) = ((fact.claimed_us.unwrap_or(event.time), event.time), None);
        if let Some((time, Body::StepEnded(ended))) = self.ends.get(&event.seq) {
            times.1 = ended.claimed_us.unwrap_or(*time);
            error = Some(ended.error.clone()).filter(|text| !text.is_empty());
            attributes.extend(ended.output.as_ref().and_then(text).map(|text| ("output.value", text)));
        }
        Span { name: fact.name.clone(), kind: INTERNAL, times, attributes, error }
    }

    fn request(&self, event: &Event, fact: &EgressDecided) -> Span {
        let url = format!("{}://{}:{}{}", fact.scheme, fact.host, fact.port, fact.path);
        let mut attributes = vec![
            ("http.request.method", fact.method.clone().into()),
            ("server.address", fact.host.clone().into()),
            ("server.port", fact.port.into()),
            ("url.full", url.into()),
        ];
        decided(&mut attributes, fact.effect, fact.rule.as_deref());
        let mut error = (fact.effect == Verdict::Deny).then(|| fact.reason.clone());
        let mut end = event.time;
        if let Some((time, Body::EgressEnded(ended))) = self.ends.get(&event.seq) {
            end = *time;
            attributes.extend(ended.status.map(|status| ("http.response.status_code", status.into())));
            error = error
                .or_else(|| ended.status.filter(|status| *status >= 400).map(|status| status.to_string()));
        }
        let name = if fact.method.is_empty() { fact.scheme.clone() } else { fact.method.clone() };
        Span { name, kind: CLIENT, times: (event.time, end), attributes, error }
    }
}

fn model(event: &Event, fact: &ModelCalled) -> Span {
    let mut attributes = vec![
        ("gen_ai.operation.name", "chat".into()),
        ("gen_ai.provider.name", fact.provider.clone().into()),
        ("gen_ai.request.model", fact.model.clone().into()),
        ("gen_ai.usage.input_tokens", fact.tokens.input.into()),
        ("gen_ai.usage.output_tokens", fact.tokens.output.into()),
    ];
    if !fact.answered_by.is_empty() {
        attributes.push(("gen_ai.response.model", fact.answered_by.clone().into()));
    }
    if !fact.stop.is_empty() {
        attributes.push(("gen_ai.response.finish_reasons", json!([fact.stop])));
    }
    attributes.extend(fact.cost_micros.map(|cost| ("cofferdam.cost_micros", cost.into())));
    let times = (event.time.saturating_sub(fact.total_us), event.time);
    let error = fact.error.as_ref().map(|error| word(&json!(error)));
    Span { name: format!("chat {}", fact.model), kind: CLIENT, times, attributes, error }
}

fn decided(attributes: &mut Vec<(&'static str, Value)>, effect: Verdict, rule: Option<&str>) {
    attributes.push(("cofferdam.effect", json!(effect)));
    attributes.extend(rule.map(|rule| ("cofferdam.rule", rule.into())));
}

fn text(content: &Content) -> Option<Value> {
    match content {
        Content::Text(text) => Some(text.clone().into()),
        Content::Kept(_) => None,
    }
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Whole numbers of 64 bits are texts in OTLP's JSON.
fn nanos(us: u64) -> String {
    u128::from(us).saturating_mul(1000).to_string()
}

fn attributes(all: &[(&str, Value)]) -> Vec<Value> {
    all.iter().map(|(key, value)| json!({ "key": key, "value": any(value) })).collect()
}

fn any(value: &Value) -> Value {
    match value {
        Value::Bool(value) => json!({ "boolValue": value }),
        Value::Number(number) if number.is_f64() => json!({ "doubleValue": number }),
        Value::Number(number) => json!({ "intValue": number.to_string() }),
        Value::Array(all) => json!({ "arrayValue": { "values": all.iter().map(any).collect::<Vec<_>>() } }),
        other => json!({ "stringValue": word(other) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::{Digest, ToolReturned, ToolVia};

    fn event(seq: u64, parent: Option<u64>, body: &Body) -> Event {
        Event {
            body: serde_json::to_value(body).unwrap()["body"].take(),
            hash: Digest::from_bytes([seq as u8 + 1; 32]),
            kind: body.kind().into(),
            parent,
            prev: Digest::ZERO,
            seq,
            time: 1000 + seq,
        }
    }

    #[test]
    fn a_call_is_a_span_with_its_end_and_its_decision() {
        let called = Body::ToolCalled(Box::new(ToolCalled {
            via: ToolVia::McpStdio,
            server: "desk".into(),
            tool: "refund".into(),
            call: "7".into(),
            arguments: Content::Text("{\"amount\":1}".into()),
            effect: Verdict::Deny,
            rule: Some("no".into()),
            reason: String::new(),
            credentials: Vec::new(),
        }));
        let returned =
            Body::ToolReturned(ToolReturned { outcome: ToolOutcome::Refused, result: None, total_us: 1 });
        let told = to_otlp(&[event(0, None, &called), event(1, Some(0), &returned)], "1");
        let spans = &told["resourceSpans"][0]["scopeSpans"][0]["spans"];
        assert_eq!(spans[0]["name"], "invoke_agent");
        let span = &spans[1];
        assert_eq!(
            (&span["name"], &span["spanId"]),
            (&json!("execute_tool refund"), &json!("0101010101010101"))
        );
        assert_eq!(
            (&span["startTimeUnixNano"], &span["endTimeUnixNano"]),
            (&json!("1000000"), &json!("1001000"))
        );
        assert_eq!(span["status"], json!({ "code": 2, "message": "refused" }));
        let rule = json!({ "key": "cofferdam.rule", "value": { "stringValue": "no" } });
        assert!(span["attributes"].as_array().unwrap().contains(&rule), "{span}");
    }
}
