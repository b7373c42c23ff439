//! `GET /files`: the bytes of a file, whole or in part, as they are or packed.

use super::fault::Fault;
use super::{Call, may_touch, who};
use crate::route;
use async_compression::tokio::bufread::GzipEncoder;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use cofferdam_engine::inside::{FileEntry, FileReader};
use futures_util::stream::{Stream, unfold};
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, HeaderMap, HeaderValue, IF_MODIFIED_SINCE, LAST_MODIFIED, RANGE, VARY,
};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use std::io;
use tokio_util::io::{ReaderStream, StreamReader};

pub(super) async fn serve(call: Call, request: Request<Body>) -> Response {
    if let Err(refused) = may_touch(&call, "read", &request) {
        return *refused;
    }
    let (parts, _) = request.into_parts();
    read(&call, &parts).await.unwrap_or_else(Fault::into_plain)
}

async fn read(call: &Call, request: &Parts) -> Result<Response, Fault> {
    let query = route::query(&request.uri);
    let get = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let text = get("path").unwrap_or_default();
    let who = call.account(get("username")).await?;
    let at = who::path(text, &who)?;
    let headers = &request.headers;
    let range = headers.get(RANGE).and_then(|value| value.to_str().ok()).map(parse_range);
    let wanted = Wanted::of(headers);
    // One question where nothing has to be known before; a range needs the size.
    let (part, size) = match range.flatten() {
        None => (None, None),
        Some(range) => {
            let entry = call.inside.stat(&at).await.map_err(|error| Fault::of(error, text))?;
            match range.within(entry.size) {
                Some(part) => (Some(part), Some(entry.size)),
                None => return Ok(unsatisfiable(entry.size)),
            }
        }
    };
    let (from, most) = part.map_or((0, None), |(from, count)| (from, Some(count)));
    let reader = call.inside.read(&at, from, most).await.map_err(|error| Fault::of(error, text))?;
    let (entry, modified) = (reader.entry.clone(), stamp(&reader.entry));
    let mut answer = match (part, size) {
        (Some((from, count)), Some(size)) => {
            let mut answer = body(reader, Some(count), &request.method, false);
            *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
            set(&mut answer, CONTENT_RANGE, &format!("bytes {from}-{}/{size}", from + count - 1));
            answer
        }
        _ if unchanged(headers, &modified) => StatusCode::NOT_MODIFIED.into_response(),
        _ => body(reader, Some(entry.size), &request.method, wanted == Wanted::Gzip),
    };
    set(&mut answer, LAST_MODIFIED, &modified);
    set(&mut answer, ACCEPT_RANGES, "bytes");
    set(&mut answer, VARY, "Accept-Encoding");
    if let Some(name) = entry.path.file_name() {
        let name: String =
            name.to_string_lossy().chars().filter(|c| c.is_ascii_graphic() && *c != '"').collect();
        set(&mut answer, CONTENT_DISPOSITION, &format!("inline; filename=\"{name}\""));
    }
    Ok(answer)
}

fn set(answer: &mut Response, name: http::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
}

/// Packed only for who wants just that: most clients take anything, and are quicker without.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    AsItIs,
    Gzip,
}

impl Wanted {
    fn of(headers: &HeaderMap) -> Self {
        match headers.get(ACCEPT_ENCODING).map(HeaderValue::as_bytes) {
            Some(b"gzip") => Self::Gzip,
            _ => Self::AsItIs,
        }
    }
}

fn body(reader: FileReader, size: Option<u64>, method: &Method, packed: bool) -> Response {
    let mut answer = match (method, packed) {
        (&Method::HEAD, _) => Response::new(Body::empty()),
        (_, false) => Response::new(Body::from_stream(pieces(reader, size))),
        (_, true) => {
            let packing = GzipEncoder::new(StreamReader::new(Box::pin(pieces(reader, size))));
            Response::new(Body::from_stream(ReaderStream::with_capacity(packing, 64 << 10)))
        }
    };
    set(&mut answer, CONTENT_TYPE, "application/octet-stream");
    match (packed, size) {
        (true, _) => set(&mut answer, CONTENT_ENCODING, "gzip"),
        (false, Some(size)) => set(&mut answer, CONTENT_LENGTH, &size.to_string()),
        _ => {}
    }
    answer
}

/// Exactly as many as were promised: a file that grows meanwhile is cut, one that shrinks breaks the answer off.
fn pieces(reader: FileReader, size: Option<u64>) -> impl Stream<Item = io::Result<Bytes>> + Send {
    unfold(Some((reader, size)), |state| async move {
        let (mut reader, left) = state?;
        if left == Some(0) {
            return None;
        }
        match (reader.next().await, left) {
            (Ok(Some(mut bytes)), Some(left)) => {
                bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                let left = left - bytes.len() as u64;
                Some((Ok(bytes), Some((reader, Some(left)))))
            }
            (Ok(Some(bytes)), None) => Some((Ok(bytes), Some((reader, None)))),
            (Ok(None), None) => None,
            (Ok(None), Some(_)) => Some((Err(io::ErrorKind::UnexpectedEof.into()), None)),
            (Err(_), _) => Some((Err(io::ErrorKind::ConnectionAborted.into()), None)),
        }
    })
}

/// As it is in HTTP's dates.
fn stamp(entry: &FileEntry) -> String {
    let when = jiff::Timestamp::from_second(entry.modified_s).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    when.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

fn unchanged(headers: &HeaderMap, modified: &str) -> bool {
    headers.get(IF_MODIFIED_SINCE).is_some_and(|since| since.as_bytes() == modified.as_bytes())
}

fn unsatisfiable(size: u64) -> Response {
    let mut answer = StatusCode::RANGE_NOT_SATISFIABLE.into_response();
    set(&mut answer, CONTENT_RANGE, &format!("bytes */{size}"));
    answer
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Range {
    From(u64, Option<u64>),
    Last(u64),
}

/// One range; of several, or of another unit, the whole file is sent, as may be.
fn parse_range(text: &str) -> Option<Range> {
    let (from, to) = text.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match (from.trim(), to.trim()) {
        ("", last) => number(last).map(Range::Last),
        (from, "") => number(from).map(|from| Range::From(from, None)),
        (from, to) => {
            let (from, to) = (number(from)?, number(to)?);
            (from <= to).then_some(Range::From(from, Some(to)))
        }
    }
}

impl Range {
    /// Where it begins, and how many bytes it has.
    fn within(self, size: u64) -> Option<(u64, u64)> {
        let (from, to) = match self {
            Self::Last(0) => return None,
            Self::Last(count) => (size.saturating_sub(count), size.checked_sub(1)?),
            Self::From(from, to) => (from, to.unwrap_or(u64::MAX).min(size.checked_sub(1)?)),
        };
        (from <= to).then(|| (from, to - from + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let check = |text: &str, size: u64, expected: Option<(u64, u64)>| {
            assert_eq!(parse_range(text).and_then(|range| range.within(size)), expected, "{text} of {size}");
        };
        check("bytes=0-4", 10, Some((0, 5)));
        check("bytes=5-", 10, Some((5, 5)));
        check("bytes=-3", 10, Some((7, 3)));
        check("bytes=-30", 10, Some((0, 10)));
        check("bytes=8-99", 10, Some((8, 2)));
        check("bytes=10-", 10, None);
        check("bytes=0-", 0, None);
        check("bytes=-0", 10, None);
        check("bytes=4-2", 10, None);
        check("bytes=0-1,4-5", 10, None);
        check("bytes=18446744073709551615-", 10, None);
        check("lines=1-2", 10, None);
    }
}
