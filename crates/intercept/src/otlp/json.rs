//! The JSON form: names in camel case, ids in hexadecimal digits, whole numbers of 64 bits as texts.

use super::{MOST, OtlpError, Span, cut};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    #[serde(default)]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans {
    #[serde(default)]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Deserialize)]
struct ScopeSpans {
    #[serde(default)]
    spans: Vec<WireSpan>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpan {
    span_id: String,
    #[serde(default)]
    parent_span_id: String,
    name: String,
    #[serde(default)]
    start_time_unix_nano: Number,
    #[serde(default)]
    end_time_unix_nano: Number,
    #[serde(default)]
    attributes: Vec<KeyValue>,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    message: String,
    #[serde(default)]
    code: Code,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Code {
    Number(i64),
    Name(String),
}

impl Default for Code {
    fn default() -> Self {
        Self::Number(0)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Whole(u64),
    Text(String),
}

impl Default for Number {
    fn default() -> Self {
        Self::Whole(0)
    }
}

impl Number {
    fn micros(&self) -> Result<u64, OtlpError> {
        match self {
            Self::Whole(nanos) => Ok(nanos / 1000),
            Self::Text(text) => match text.parse::<u64>() {
                Ok(nanos) => Ok(nanos / 1000),
                Err(_) => Err(OtlpError::Json("a time in nanoseconds is no whole number".to_owned())),
            },
        }
    }
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    #[serde(default)]
    value: Value,
}

pub(crate) fn from_json(bytes: &[u8]) -> Result<Vec<Span>, OtlpError> {
    let request: Request =
        serde_json::from_slice(bytes).map_err(|error| OtlpError::Json(error.to_string()))?;
    let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    let spans: Vec<WireSpan> = scopes.flat_map(|scope| scope.spans).collect();
    if spans.len() > MOST {
        return Err(OtlpError::TooMany);
    }
    spans.into_iter().map(span).collect()
}

fn span(wire: WireSpan) -> Result<Span, OtlpError> {
    let is_error = match &wire.status.code {
        Code::Number(code) => *code == 2,
        Code::Name(name) => name == "STATUS_CODE_ERROR",
    };
    let message = if wire.status.message.is_empty() { "error".to_owned() } else { wire.status.message };
    Ok(Span {
        id: id(&wire.span_id).ok_or(OtlpError::SpanId)?,
        parent: id(&wire.parent_span_id),
        name: cut(&wire.name),
        start_us: wire.start_time_unix_nano.micros()?,
        end_us: wire.end_time_unix_nano.micros()?,
        error: if is_error { message.chars().take(4096).collect() } else { String::new() },
        attributes: members(wire.attributes),
    })
}

fn id(text: &str) -> Option<String> {
    let is_one = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let text = text.to_ascii_lowercase();
    (is_one && text.bytes().any(|byte| byte != b'0')).then_some(text)
}

fn members(all: Vec<KeyValue>) -> Map<String, Value> {
    all.into_iter().map(|member| (member.key, value(member.value))).collect()
}

/// `{"stringValue": "x"}` as `"x"`.
fn value(of: Value) -> Value {
    let Value::Object(map) = of else { return Value::Null };
    match map.into_iter().next() {
        Some((kind, inner)) => match (kind.as_str(), inner) {
            ("intValue", Value::String(text)) => {
                text.parse::<i64>().map_or_else(|_| Value::String(text.clone()), Value::from)
            }
            ("arrayValue", Value::Object(mut list)) => match list.remove("values") {
                Some(Value::Array(all)) => all.into_iter().map(value).collect(),
                _ => Value::Array(Vec::new()),
            },
            ("kvlistValue", Value::Object(mut list)) => {
                let all = list.remove("values").unwrap_or_default();
                Value::Object(serde_json::from_value(all).map(members).unwrap_or_default())
            }
            (_, inner) => inner,
        },
        None => Value::Null,
    }
}
