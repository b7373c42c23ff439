//! Small requests of our own: to a session's endpoint for steps, from inside, and to a collector of spans.

use crate::error::EngineError;
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A step that a rule holds waits for a person this long, and a little more.
const PATIENCE: Duration = Duration::from_secs(330);
/// No answer of the endpoint's is longer.
const LONGEST: u64 = 64 << 10;

/// Tells a step to the endpoint at `url`; what it answers, or why it refuses.
pub fn tell_step(url: &str, step: &Value) -> Result<Value, EngineError> {
    post(url, step, "tell the session of a step")
}

/// Posts to a collector of spans, without TLS: one that is elsewhere is reached through one that is here.
pub fn post_json(url: &str, body: &Value) -> Result<(), EngineError> {
    post(url, body, "post to the collector").map(drop)
}

fn post(url: &str, body: &Value, doing: &'static str) -> Result<Value, EngineError> {
    let failed = |source| EngineError::Io { doing, source };
    let wrong =
        || EngineError::Declined(format!("`{url}` is no address to post to: write http://HOST:PORT/PATH"));
    let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
    let (authority, path) = rest.split_once('/').ok_or_else(wrong)?;
    let body = body.to_string();
    let nobody = |error: io::Error| {
        EngineError::Declined(format!("{doing}: {authority}: {error}; check that something listens there"))
    };
    let mut stream = TcpStream::connect(authority).map_err(nobody)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let head = format!(
        "POST /{path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer).map_err(failed)?;
    read(&answer).ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?
}

/// Nothing where it is no answer.
fn read(answer: &[u8]) -> Option<Result<Value, EngineError>> {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(length) = head.parse(answer).ok()? else { return None };
    // A collector may say nothing at all, or something else than JSON.
    let value: Value = serde_json::from_slice(answer.get(length..)?).unwrap_or_default();
    let code = head.code?;
    if code < 300 {
        return Some(Ok(value));
    }
    let Some(error) = value.get("error") else {
        return Some(Err(EngineError::Declined(format!("it was refused with status {code}"))));
    };
    let field = error.get("field").and_then(Value::as_str).unwrap_or_default();
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    let line = if field.is_empty() { message.to_owned() } else { format!("{field}: {message}") };
    Some(Err(EngineError::Declined(line)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_a_value_or_a_reason() {
        let ok = read(b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n\r\n{\"id\":\"step-1\"}\n");
        assert_eq!(ok.unwrap().unwrap(), json!({"id": "step-1"}));
        let no = read(b"HTTP/1.1 400 Bad Request\r\n\r\n{\"error\":{\"field\":\"name\",\"message\":\"a step has a name\"}}");
        assert_eq!(no.unwrap().unwrap_err().to_string(), "name: a step has a name");
        assert_eq!(read(b"HTTP/1.1 200 OK\r\n\r\n").unwrap().unwrap(), Value::Null);
        let no = read(b"HTTP/1.1 503 No\r\n\r\nbusy").unwrap().unwrap_err();
        assert_eq!(no.to_string(), "it was refused with status 503");
        assert!(read(b"HTTP/1.1 200 OK\r\n").is_none() && read(b"").is_none());
    }
}
