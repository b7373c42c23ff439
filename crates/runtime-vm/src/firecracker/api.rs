//! Speaks to Firecracker over its socket: HTTP/1.1, one question after the other on one connection, JSON in both
//! directions. What it answers is bounded.

use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Of all lines before an answer's body, and of that.
const HEAD: u64 = 16 << 10;
const BODY: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Api {
    reader: BufReader<UnixStream>,
}

fn broken(what: impl Into<String>) -> io::Error {
    io::Error::other(format!("Firecracker answers {}", what.into()))
}

impl Api {
    pub(super) fn new(stream: UnixStream, patience: Duration) -> io::Result<Self> {
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    pub(super) fn get(&mut self, path: &str) -> io::Result<Value> {
        self.ask("GET", path, None)
    }

    pub(super) fn put(&mut self, path: &str, body: &Value) -> io::Result<()> {
        self.ask("PUT", path, Some(body)).map(drop)
    }

    pub(super) fn patch(&mut self, path: &str, body: &Value) -> io::Result<()> {
        self.ask("PATCH", path, Some(body)).map(drop)
    }

    fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> io::Result<Value> {
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n");
        if !body.is_empty() {
            text.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&body);
        self.reader.get_mut().write_all(&bytes)?;
        let (status, body) = self.answer()?;
        match status {
            200..=299 => Ok(body),
            _ => {
                let fault =
                    body.get("fault_message").and_then(Value::as_str).unwrap_or("it does not say why");
                Err(io::Error::other(format!("`{method} {path}`: {fault}")))
            }
        }
    }

    fn answer(&mut self) -> io::Result<(u16, Value)> {
        let mut head = Read::take(&mut self.reader, HEAD);
        let mut line = String::new();
        let mut next = |line: &mut String| -> io::Result<()> {
            line.clear();
            match head.read_line(line)? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(()),
            }
        };
        next(&mut line)?;
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.ok_or_else(|| broken("no HTTP"))?;
        let mut length = 0;
        loop {
            next(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(|_| broken("no length"))?;
            }
        }
        if !line.trim_end().is_empty() || length > BODY {
            return Err(broken("what cannot be"));
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        let body = if body.is_empty() { Ok(json!(null)) } else { serde_json::from_slice(&body) };
        Ok((status, body.map_err(|error| broken(error.to_string()))?))
    }
}
