//! Connect's protocol, as far as it is used: JSON, no compression; one message each way, or envelopes of a flag, a
//! length and a message. What is no such thing is refused before anything is done for it.

use super::fault::{Code, Fault};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io;
use std::time::Duration;

const UNARY: &str = "application/json";
const STREAM: &str = "application/connect+json";
/// The last envelope of a stream.
const LAST: u8 = 0b10;
const COMPRESSED: u8 = 0b1;
/// A ping where the client does not say how often.
const PING: Duration = Duration::from_secs(90);

fn kind(headers: &HeaderMap) -> &str {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim()
}

/// Whether both sides mean the same; the answer that says so if not.
pub(super) fn check(request: &Request<Body>, streams: bool) -> Result<(), Box<Response>> {
    let expected = if streams { STREAM } else { UNARY };
    if request.method() != http::Method::POST {
        return Err(Box::new((StatusCode::METHOD_NOT_ALLOWED, [("allow", "POST")]).into_response()));
    }
    let headers = request.headers();
    if kind(headers) != expected {
        let refused = (StatusCode::UNSUPPORTED_MEDIA_TYPE, [("accept-post", expected)]).into_response();
        return Err(Box::new(refused));
    }
    let encoding = if streams { "connect-content-encoding" } else { "content-encoding" };
    match headers.get(encoding).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(()),
        Some(other) => {
            let other = String::from_utf8_lossy(other).into_owned();
            let text = format!("unknown compression \"{other}\": supported encodings are identity");
            Err(Box::new(refuse(Fault::new(Code::Unimplemented, text), streams)))
        }
    }
}

/// A fault before anything else was said.
pub(super) fn refuse(fault: Fault, streams: bool) -> Response {
    if streams { stream(futures_util::stream::iter([Ok(last(Some(&fault)))])) } else { fault.into_response() }
}

/// The time that a client gives a call; nothing: as long as it takes.
pub(super) fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("connect-timeout-ms")?.to_str().ok()?;
    text.parse().ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}

/// How often something is said so that nobody on the way takes the connection for dead.
pub(super) fn ping(headers: &HeaderMap) -> Duration {
    let asked = headers.get("keepalive-ping-interval").and_then(|value| value.to_str().ok()?.parse().ok());
    asked.filter(|seconds| (1..=3600).contains(seconds)).map_or(PING, Duration::from_secs)
}

/// What is left out and what is null is the same in this kind of JSON.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        other => other,
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    let value = if bytes.is_empty() {
        Value::Object(Default::default())
    } else {
        serde_json::from_slice(bytes)
            .map_err(|error| Fault::invalid(format!("unmarshal message: {error}")))?
    };
    if !value.is_object() {
        return Err(Fault::invalid("unmarshal message: an object is expected"));
    }
    serde_json::from_value(without_nulls(value))
        .map_err(|error| Fault::invalid(format!("unmarshal message: {error}")))
}

/// The message of a call that has one.
pub(super) async fn message<T: DeserializeOwned>(body: Body, most: u64) -> Result<T, Fault> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let whole = http_body_util::Limited::new(body, most).collect().await;
    let whole = whole.map_err(|_| Fault::new(Code::ResourceExhausted, "the message is too large"))?;
    parse(&whole.to_bytes())
}

/// The messages of a call that streams, as they come.
pub(super) struct Messages {
    body: axum::body::BodyDataStream,
    held: BytesMut,
    most: usize,
    over: bool,
}

impl Messages {
    pub(super) fn new(body: Body, most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Self { body: body.into_data_stream(), held: BytesMut::new(), most, over: false }
    }

    /// Nothing once there are no more.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Fault> {
        loop {
            if self.over {
                return Ok(None);
            }
            if let Some((flags, body)) = envelope(&mut self.held, self.most)? {
                if flags & COMPRESSED != 0 {
                    return Err(Fault::new(Code::Internal, "a compressed message without a compression"));
                }
                if flags & LAST != 0 {
                    self.over = true;
                    return Ok(None);
                }
                return parse(&body).map(Some);
            }
            match self.body.next().await {
                Some(Ok(bytes)) => self.held.extend_from_slice(&bytes),
                Some(Err(_)) => return Err(Fault::invalid("the request was cut off")),
                None if self.held.is_empty() => return Ok(None),
                None => return Err(Fault::invalid("protocol error: incomplete envelope: unexpected EOF")),
            }
        }
    }

    pub(super) async fn first<T: DeserializeOwned>(&mut self) -> Result<T, Fault> {
        self.next().await?.ok_or_else(|| Fault::invalid("protocol error: no message was sent"))
    }
}

/// The first envelope of these bytes, once it is whole.
fn envelope(held: &mut BytesMut, most: usize) -> Result<Option<(u8, Bytes)>, Fault> {
    let Some(head) = held.first_chunk::<5>() else { return Ok(None) };
    let [flags, a, b, c, d] = *head;
    let size = u32::from_be_bytes([a, b, c, d]) as usize;
    if size > most {
        let text = format!("message size {size} exceeds sendMaxBytes {most}");
        return Err(Fault::new(Code::ResourceExhausted, text));
    }
    if held.len() < 5 + size {
        return Ok(None);
    }
    held.advance(5);
    Ok(Some((flags, held.split_to(size).freeze())))
}

fn wrapped(flags: u8, body: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(5 + body.len());
    bytes.put_u8(flags);
    bytes.put_u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
    bytes.put_slice(body);
    bytes.freeze()
}

/// A message of an answer that streams.
pub(super) fn wrap(message: &impl Serialize) -> Bytes {
    wrapped(0, &serde_json::to_vec(message).unwrap_or_default())
}

/// The end of an answer that streams.
pub(super) fn last(fault: Option<&Fault>) -> Bytes {
    let body = match fault {
        Some(fault) => serde_json::json!({ "error": fault.json() }).to_string(),
        None => "{}".to_owned(),
    };
    wrapped(LAST, body.as_bytes())
}

/// An answer that streams. An error in it breaks the connection off, which is how a client learns that the sandbox
/// itself is gone.
pub(super) fn stream(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Response {
    ([(CONTENT_TYPE, STREAM)], Body::from_stream(pieces)).into_response()
}

pub(super) fn unary(message: &impl Serialize) -> Response {
    ([(CONTENT_TYPE, UNARY)], serde_json::to_vec(message).unwrap_or_default()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_api::e2b::StartRequest;
    use proptest::prelude::*;

    fn messages(pieces: Vec<Vec<u8>>) -> Messages {
        let pieces = pieces.into_iter().map(|piece| Ok::<_, io::Error>(Bytes::from(piece)));
        Messages::new(Body::from_stream(futures_util::stream::iter(pieces)), 1000)
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn a_message_is_found_however_it_is_cut() {
        let whole = wrap(&serde_json::json!({ "process": { "cmd": "x", "cwd": null }, "stdin": null }));
        for size in 1..whole.len() + 1 {
            let pieces = whole.chunks(size).map(<[u8]>::to_vec).collect();
            let mut messages = messages(pieces);
            let start: StartRequest = run(messages.first()).unwrap();
            assert_eq!((start.process.cmd.as_str(), start.stdin), ("x", None));
            assert!(run(messages.next::<StartRequest>()).unwrap().is_none());
        }
    }

    #[test]
    fn what_is_no_envelope_is_refused() {
        let check = |bytes: &[u8], expected: Code| {
            let found = run(messages(vec![bytes.to_vec()]).first::<StartRequest>());
            assert_eq!(found.unwrap_err().code, expected, "{bytes:?}");
        };
        check(b"", Code::InvalidArgument);
        check(b"\0\0", Code::InvalidArgument);
        check(b"\0\0\0\0\x09{}", Code::InvalidArgument);
        check(b"\0\xff\xff\xff\xff{}", Code::ResourceExhausted);
        check(b"\x01\0\0\0\x02{}", Code::Internal);
        check(b"\0\0\0\0\x02{]", Code::InvalidArgument);
        check(b"\0\0\0\0\x0d{\"process\":1}", Code::InvalidArgument);
        check(b"\x02\0\0\0\x02{}", Code::InvalidArgument);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6)) {
            let mut messages = messages(pieces);
            while let Ok(Some(_)) = run(messages.next::<StartRequest>()) {}
        }
    }
}
