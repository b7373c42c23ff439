//! Spans of OTLP/JSON, or of exports that flatten it: found wherever they lie, with attributes as plain values,
//! grouped by trace and in the order in which they began.

use super::detect::Format;
use super::field::ForeignError;
use cofferdam_model::Run;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

pub(super) struct Span {
    pub(super) trace: String,
    pub(super) id: String,
    pub(super) parent: String,
    pub(super) name: String,
    pub(super) started: u64,
    pub(super) ended: u64,
    pub(super) failed: Option<String>,
    pub(super) attributes: Map<String, Value>,
    /// Events with their attributes, as older conventions wrote messages.
    pub(super) events: Vec<(String, Map<String, Value>)>,
}

impl Span {
    pub(super) fn text(&self, key: &str) -> &str {
        self.attributes.get(key).and_then(Value::as_str).unwrap_or("")
    }

    pub(super) fn number(&self, key: &str) -> u64 {
        let value = self.attributes.get(key);
        value.and_then(|v| v.as_u64().or_else(|| v.as_str()?.parse().ok())).unwrap_or(0)
    }

    /// An attribute that is JSON, also where it was written as a text.
    pub(super) fn json(&self, key: &str) -> Value {
        self.attributes.get(key).map_or(Value::Null, super::field::arguments)
    }
}

/// Whose conventions these spans follow; none if there are none.
pub(super) fn flavour(value: &Value) -> Option<Format> {
    let spans = raw(value);
    let mut keys = spans.iter().flat_map(|span| attributes(&span["attributes"])).map(|(key, _)| key);
    let any = !spans.is_empty() && spans.iter().any(|span| trace_id(span).is_some());
    if keys.any(|key| key.starts_with("openinference.") || key.starts_with("llm.input_messages")) {
        return Some(Format::Openinference);
    }
    any.then_some(Format::Otlp)
}

fn trace_id(span: &Value) -> Option<&str> {
    let direct = ["traceId", "trace_id"].iter().find_map(|key| span[*key].as_str());
    direct.or_else(|| span["context"]["trace_id"].as_str())
}

/// The span objects of a document, a list of documents, or a list of spans.
fn raw(value: &Value) -> Vec<&Value> {
    let mut found = Vec::new();
    collect(value, &mut found, 0);
    found
}

/// Deep enough for resource, scope and span within a list of documents, and no deeper.
fn collect<'a>(value: &'a Value, found: &mut Vec<&'a Value>, depth: usize) {
    if depth > 8 {
        return;
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, found, depth + 1)),
        Value::Object(_) if trace_id(value).is_some() && value.get("spans").is_none() => found.push(value),
        Value::Object(map) => {
            const INTO: &[&str] = &[
                "resourceSpans",
                "resource_spans",
                "scopeSpans",
                "scope_spans",
                "instrumentationLibrarySpans",
                "spans",
                "data",
            ];
            INTO.iter().filter_map(|key| map.get(*key)).for_each(|inner| collect(inner, found, depth + 1));
        }
        _ => {}
    }
}

/// Spans by trace, each trace in the order in which its spans began; equal times keep the file's order.
pub(super) fn traces(value: &Value) -> Result<Vec<Vec<Span>>, ForeignError> {
    let spans = raw(value);
    if spans.is_empty() {
        return Err(ForeignError::unknown(value));
    }
    let mut by_trace: BTreeMap<String, Vec<Span>> = BTreeMap::new();
    for span in spans.into_iter().map(span) {
        by_trace.entry(span.trace.clone()).or_default().push(span);
    }
    let mut all: Vec<Vec<Span>> = by_trace.into_values().collect();
    all.iter_mut().for_each(|trace| trace.sort_by_key(|span| span.started));
    Ok(all)
}

fn span(value: &Value) -> Span {
    let text = |keys: &[&str]| keys.iter().find_map(|key| value[*key].as_str()).unwrap_or("").to_owned();
    let nanos = |keys: &[&str]| {
        let found = keys.iter().map(|key| &value[*key]).find(|v| !v.is_null()).unwrap_or(&Value::Null);
        found.as_u64().or_else(|| found.as_str()?.parse().ok()).unwrap_or(0)
    };
    let id = ["spanId", "span_id"].iter().find_map(|key| value[*key].as_str());
    Span {
        trace: trace_id(value).unwrap_or("").to_owned(),
        id: id.or(value["context"]["span_id"].as_str()).unwrap_or("").to_owned(),
        parent: text(&["parentSpanId", "parent_span_id", "parent_id"]),
        name: text(&["name"]),
        started: nanos(&["startTimeUnixNano", "start_time_unix_nano", "startTime", "start_time"]),
        ended: nanos(&["endTimeUnixNano", "end_time_unix_nano", "endTime", "end_time"]),
        failed: failure(value),
        attributes: attributes(&value["attributes"]),
        events: events(&value["events"]),
    }
}

fn failure(value: &Value) -> Option<String> {
    let code =
        value.get("status_code").or(value["status"].get("code")).or(value["status"].get("status_code"))?;
    let failed = code.as_u64() == Some(2) || code.as_str().is_some_and(|code| code.ends_with("ERROR"));
    let message = value.get("status_message").or(value["status"].get("message"));
    failed.then(|| message.and_then(Value::as_str).unwrap_or("").to_owned())
}

fn events(value: &Value) -> Vec<(String, Map<String, Value>)> {
    let each = value.as_array().into_iter().flatten();
    each.map(|event| (event["name"].as_str().unwrap_or("").to_owned(), attributes(&event["attributes"])))
        .collect()
}

/// Attributes as OTLP lists them, or as the object that many exporters make of them, nested or flat.
fn attributes(value: &Value) -> Map<String, Value> {
    let mut flat = Map::new();
    match value {
        Value::Array(items) => {
            for item in items {
                if let Some(key) = item["key"].as_str() {
                    flat.insert(key.to_owned(), any_value(&item["value"], 0));
                }
            }
        }
        Value::Object(map) => map.iter().for_each(|(key, inner)| flatten(key.clone(), inner, &mut flat, 0)),
        _ => {}
    }
    flat
}

fn flatten(key: String, value: &Value, into: &mut Map<String, Value>, depth: usize) {
    match value {
        Value::Object(map) if depth < 8 && !map.is_empty() => {
            map.iter().for_each(|(next, inner)| flatten(format!("{key}.{next}"), inner, into, depth + 1));
        }
        Value::Array(items)
            if depth < 8 && items.iter().any(Value::is_object) && !key.starts_with("gen_ai.") =>
        {
            let numbered = items.iter().enumerate();
            numbered.for_each(|(at, inner)| flatten(format!("{key}.{at}"), inner, into, depth + 1));
        }
        other => {
            into.insert(key, other.clone());
        }
    }
}

/// OTLP's `AnyValue` as the value it means.
fn any_value(value: &Value, depth: usize) -> Value {
    let Some((kind, inner)) = value.as_object().and_then(|map| map.iter().next()) else {
        return value.clone();
    };
    match kind.as_str() {
        _ if depth > 32 => Value::Null,
        "stringValue" | "boolValue" | "doubleValue" | "bytesValue" | "string_value" | "bool_value" => {
            inner.clone()
        }
        "intValue" | "int_value" => {
            let number = inner.as_i64().or_else(|| inner.as_str()?.parse().ok());
            number.map_or_else(|| inner.clone(), Value::from)
        }
        "arrayValue" | "array_value" => {
            let items = inner["values"].as_array().into_iter().flatten();
            Value::Array(items.map(|item| any_value(item, depth + 1)).collect())
        }
        "kvlistValue" | "kvlist_value" => {
            let pairs = inner["values"].as_array().into_iter().flatten();
            let named = pairs
                .filter_map(|p| Some((p["key"].as_str()?.to_owned(), any_value(&p["value"], depth + 1))));
            Value::Object(named.collect())
        }
        _ => value.clone(),
    }
}

/// What every run of spans has, whoever wrote them.
pub(super) fn total(run: &mut Run, spans: &[Span]) {
    let begun = spans.iter().map(|span| span.started).min().unwrap_or(0);
    let ended = spans.iter().map(|span| span.ended).max().unwrap_or(0);
    run.spent.wall_us = ended.saturating_sub(begun) / 1000;
    let known = |id: &str| spans.iter().any(|span| span.id == id);
    let mut lost: Vec<&str> =
        spans.iter().map(|s| s.parent.as_str()).filter(|p| !p.is_empty() && !known(p)).collect();
    lost.sort_unstable();
    lost.dedup();
    if let Some(first) = lost.first() {
        run.gaps.push(format!("{} parent spans are not in the file, the first is {first}", lost.len()));
    }
}
