//! The protobuf form: the messages of `opentelemetry.proto.collector.trace.v1`, as far as they are read. Fields
//! that are not named here are skipped.

use super::{MOST, OtlpError, Span, cut, id};
use prost::Message;
use serde_json::{Map, Value};

/// Values within values, at most.
const DEEPEST: usize = 16;

#[derive(Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Message)]
struct ResourceSpans {
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<WireSpan>,
}

#[derive(Message)]
struct WireSpan {
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Message)]
struct AnyValue {
    #[prost(oneof = "OneValue", tags = "1, 2, 3, 4, 5, 6, 7")]
    value: Option<OneValue>,
}

#[derive(prost::Oneof)]
enum OneValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    Array(ArrayValue),
    #[prost(message, tag = "6")]
    Map(KeyValueList),
    #[prost(bytes, tag = "7")]
    Bytes(Vec<u8>),
}

#[derive(Message)]
struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

#[derive(Message)]
struct KeyValueList {
    #[prost(message, repeated, tag = "1")]
    values: Vec<KeyValue>,
}

#[derive(Message)]
struct Response {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// What an exporter expects to hear.
pub(crate) fn answer(rejected: usize, why: &str) -> Vec<u8> {
    let partial_success = (rejected > 0)
        .then(|| PartialSuccess { rejected_spans: rejected as i64, error_message: why.to_owned() });
    Response { partial_success }.encode_to_vec()
}

pub(crate) fn from_protobuf(bytes: &[u8]) -> Result<Vec<Span>, OtlpError> {
    let request = Request::decode(bytes).map_err(|error| OtlpError::Protobuf(error.to_string()))?;
    let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    let spans: Vec<WireSpan> = scopes.flat_map(|scope| scope.spans).collect();
    if spans.len() > MOST {
        return Err(OtlpError::TooMany);
    }
    spans.into_iter().map(span).collect()
}

fn span(wire: WireSpan) -> Result<Span, OtlpError> {
    let error = wire.status.filter(|status| status.code == 2);
    Ok(Span {
        id: id(&wire.span_id).ok_or(OtlpError::SpanId)?,
        parent: id(&wire.parent_span_id),
        name: cut(&wire.name),
        start_us: wire.start_time_unix_nano / 1000,
        end_us: wire.end_time_unix_nano / 1000,
        error: error.map_or_else(String::new, |status| match status.message.is_empty() {
            true => "error".to_owned(),
            false => status.message.chars().take(4096).collect(),
        }),
        attributes: members(wire.attributes, 0),
    })
}

fn members(all: Vec<KeyValue>, depth: usize) -> Map<String, Value> {
    all.into_iter().map(|member| (member.key, value(member.value, depth))).collect()
}

fn value(of: Option<AnyValue>, depth: usize) -> Value {
    match of.and_then(|any| any.value) {
        Some(OneValue::Text(text)) => text.into(),
        Some(OneValue::Bool(value)) => value.into(),
        Some(OneValue::Int(value)) => value.into(),
        Some(OneValue::Double(value)) => value.into(),
        Some(OneValue::Array(array)) if depth < DEEPEST => {
            array.values.into_iter().map(|one| value(Some(one), depth + 1)).collect()
        }
        Some(OneValue::Map(list)) if depth < DEEPEST => Value::Object(members(list.values, depth + 1)),
        Some(OneValue::Bytes(bytes)) => format!("{} bytes", bytes.len()).into(),
        _ => Value::Null,
    }
}
