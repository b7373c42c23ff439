//! One JSON-RPC message as MCP uses it. What is not exactly one is refused by name: a message that two programs
//! could read differently is passed on to neither.

use super::json::Strict;
use serde_json::{Map, Value};
use std::fmt;

/// By which an answer finds its question: a text or a whole number, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(String);

impl Id {
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) if text.len() <= 256 => Some(Self(value.to_string())),
            Value::Number(number) if number.is_i64() || number.is_u64() => Some(Self(value.to_string())),
            _ => None,
        }
    }

    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// As a member of another message: `requestId` of a cancellation.
    pub fn member(of: &Value, name: &str) -> Option<Self> {
        Self::read(of.get(name)?)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    Request { id: Id, method: String, params: Value },
    Notification { method: String, params: Value },
    Answer { id: Id, result: Result<Value, Value> },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("no JSON at column {0}")]
    NotJson(usize),
    #[error("an object in it has a name twice")]
    Ambiguous,
    #[error("a batch; send its messages one by one")]
    Batch,
    #[error("no JSON object")]
    NotObject,
    #[error("`jsonrpc` is not \"2.0\"")]
    Version,
    #[error("`id` is neither a text of at most 256 bytes nor a whole number")]
    BadId,
    #[error("`{0}` is no member of a JSON-RPC message")]
    Member(String),
    #[error("`params` is neither an object nor a list")]
    Params,
    #[error("neither a request, a notification nor an answer")]
    Neither,
    #[error("the name of a tool or a method is longer than {} bytes", super::subject::LONGEST_NAME)]
    LongName,
    #[error("longer than {} MiB", super::LONGEST >> 20)]
    TooLong,
}

impl Malformed {
    /// A word that stays the same.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::NotJson(_) => "not-json",
            Self::Ambiguous => "ambiguous",
            Self::Batch => "batch",
            Self::TooLong => "too-long",
            _ => "not-json-rpc",
        }
    }
}

impl Message {
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let Strict(value) = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => Malformed::Ambiguous,
            _ => Malformed::NotJson(error.column()),
        })?;
        match value {
            Value::Object(map) => Self::of(map),
            Value::Array(_) => Err(Malformed::Batch),
            _ => Err(Malformed::NotObject),
        }
    }

    fn of(mut map: Map<String, Value>) -> Result<Self, Malformed> {
        const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
        if let Some(other) = map.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
            return Err(Malformed::Member(other.chars().take(40).collect()));
        }
        if map.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err(Malformed::Version);
        }
        let id = map.get("id").map(|id| Id::read(id).ok_or(Malformed::BadId)).transpose()?;
        let (method, params) = (map.remove("method"), map.remove("params"));
        let params_fit = matches!(params, None | Some(Value::Object(_) | Value::Array(_)));
        match (id, method, map.remove("result"), map.remove("error")) {
            (_, Some(Value::String(_)), None, None) if !params_fit => Err(Malformed::Params),
            (Some(id), Some(Value::String(method)), None, None) => {
                Ok(Self::Request { id, method, params: params.unwrap_or_default() })
            }
            (None, Some(Value::String(method)), None, None) => {
                Ok(Self::Notification { method, params: params.unwrap_or_default() })
            }
            (Some(id), None, Some(result), None) if params.is_none() => {
                Ok(Self::Answer { id, result: Ok(result) })
            }
            (Some(id), None, None, Some(error)) if params.is_none() => {
                Ok(Self::Answer { id, result: Err(error) })
            }
            _ => Err(Malformed::Neither),
        }
    }
}

/// An answer with a result, in one line.
pub fn result(id: &Id, result: &Value) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into_bytes()
}

/// An answer that says what was wrong, in one line. Without an id, where none could be read.
pub fn error(id: Option<&Id>, code: i32, text: &str) -> Vec<u8> {
    let id = id.map_or("null", Id::as_json);
    let text = Value::from(text);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{text}}}}}"#).into_bytes()
}

/// The same, in a server's own words.
pub fn error_value(id: &Id, error: &Value) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let told = match Message::read(text.as_bytes()) {
            Ok(Message::Request { id, method, .. }) => format!("request {id} {method}"),
            Ok(Message::Notification { method, .. }) => format!("notification {method}"),
            Ok(Message::Answer { id, result }) => format!("answer {id} {}", result.is_ok()),
            Err(malformed) => malformed.cause().to_owned(),
        };
        assert_eq!(told, expected, "{text}");
    }

    #[test]
    fn a_message_is_one_thing_or_nothing() {
        check(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{}}"#, "request 1 m");
        check(r#"{"jsonrpc":"2.0","id":"1","method":"m"}"#, r#"request "1" m"#);
        check(r#"{"jsonrpc":"2.0","method":"m"}"#, "notification m");
        check(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "answer 1 true");
        check(r#"{"jsonrpc":"2.0","id":1,"error":{}}"#, "answer 1 false");
        check(r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#, "batch");
        check("", "not-json");
        check("{\"a\"", "not-json");
        check(r#"{"jsonrpc":"2.0","id":1,"method":"m","method":"n"}"#, "ambiguous");
        for odd in [
            r#"{"id":1,"method":"m"}"#,
            r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"m","result":{}}"#,
            // A server in Go would take this for the method.
            r#"{"jsonrpc":"2.0","id":1,"result":{},"Method":"tools/call"}"#,
            r#"{"jsonrpc":"2.0","method":"m","params":3}"#,
            "7",
        ] {
            check(odd, "not-json-rpc");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_message_or_refused(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            let _ = Message::read(&bytes);
        }

        #[test]
        fn what_we_answer_can_be_read(text in "\\PC{0,40}", id in "\\PC{0,20}") {
            let id = Id::read(&Value::from(id)).unwrap();
            let line = error(Some(&id), -32600, &text);
            proptest::prop_assert!(!line.contains(&b'\n'));
            let is_answer = matches!(Message::read(&line), Ok(Message::Answer { id: read, result: Err(_) }) if read == id);
            proptest::prop_assert!(is_answer);
        }
    }
}
