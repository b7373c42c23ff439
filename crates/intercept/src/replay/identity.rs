//! What makes a request the one that was recorded. Two forms: the exact one, and the one that is left when what the
//! rules declare volatile is taken out, with the words that were taken out beside it.

use super::recording::Request;
use super::rules::Rules;
use super::volatile::{self, Word};
use serde_json::Value as Json;

/// Stands for a volatile word. No text on the wire has it: a NUL is not valid in any of the places looked at, and in
/// a body it would be escaped or the body is taken as it is.
const TAKEN: &[u8] = b"\0?\0";

/// Every byte that counts, each field with its length before it, so that no two requests run together.
pub(super) fn exact(request: &Request, rules: &Rules) -> Vec<u8> {
    let mut key = Vec::with_capacity(request.body.len() + 256);
    let mut field = |bytes: &[u8]| {
        key.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        key.extend_from_slice(bytes);
    };
    for text in [&request.method, &request.scheme, &request.host, &request.port.to_string(), &request.path] {
        field(text.as_bytes());
    }
    field(&[u8::from(request.query.is_some())]);
    field(request.query.as_deref().unwrap_or_default().as_bytes());
    for name in &rules.headers {
        let values: Vec<&[u8]> = request.header(name).collect();
        field(&(values.len() as u64).to_be_bytes());
        values.into_iter().for_each(&mut field);
    }
    field(&request.body);
    key
}

/// A request without what is volatile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) key: Vec<u8>,
    pub(super) words: Vec<Word>,
}

impl Shape {
    pub(super) fn of(request: &Request, rules: &Rules) -> Self {
        let mut shape = Self { key: Vec::with_capacity(request.body.len() + 256), words: Vec::new() };
        let place = format!("{} {}://{}:{} ", request.method, request.scheme, request.host, request.port);
        shape.key.extend_from_slice(place.as_bytes());
        shape.text(&request.path, rules);
        shape.parameters(b'?', request.query.as_deref().unwrap_or_default(), rules);
        for name in &rules.headers {
            shape.key.extend_from_slice(format!("\n{name}:").as_bytes());
            for value in request.header(name) {
                let value = without_boundary(value, request);
                shape.bytes(&value, rules);
                shape.key.push(0);
            }
        }
        shape.key.extend_from_slice(b"\n\n");
        shape.body(request, rules);
        shape
    }

    fn body(&mut self, request: &Request, rules: &Rules) {
        let media = request.media();
        if media == "application/x-www-form-urlencoded"
            && let Ok(form) = std::str::from_utf8(&request.body)
        {
            return self.parameters(b'&', form, rules);
        }
        if let Some(json) = json_body(request) {
            return self.json(&json, &mut Vec::new(), rules);
        }
        self.bytes(&without_boundary(&request.body, request), rules);
    }

    /// By name; those of one name keep their order.
    fn parameters(&mut self, mark: u8, text: &str, rules: &Rules) {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let name = |pair: &str| pair.split('=').next().unwrap_or_default().to_owned();
        let mut kept: Vec<(String, &str)> = pairs.map(|pair| (name(pair), pair)).collect();
        kept.retain(|(name, _)| !rules.ignores_parameter(name));
        kept.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (_, pair) in kept {
            self.key.push(mark);
            self.text(pair, rules);
        }
    }

    fn json(&mut self, value: &Json, at: &mut Vec<String>, rules: &Rules) {
        match value {
            Json::Object(fields) => {
                let mut names: Vec<&String> = fields.keys().collect();
                names.sort();
                self.key.push(b'{');
                for name in names {
                    at.push(name.clone());
                    if !rules.ignores_field(at) {
                        self.text(&Json::from(name.as_str()).to_string(), rules);
                        self.key.push(b':');
                        self.json(&fields[name.as_str()], at, rules);
                        self.key.push(b',');
                    }
                    at.pop();
                }
                self.key.push(b'}');
            }
            Json::Array(items) => {
                self.key.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    at.push(index.to_string());
                    if !rules.ignores_field(at) {
                        self.json(item, at, rules);
                        self.key.push(b',');
                    }
                    at.pop();
                }
                self.key.push(b']');
            }
            scalar => self.text(&scalar.to_string(), rules),
        }
    }

    fn bytes(&mut self, bytes: &[u8], rules: &Rules) {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.text(text, rules),
            Err(_) => self.key.extend_from_slice(bytes),
        }
    }

    fn text(&mut self, text: &str, rules: &Rules) {
        volatile::split(text, &rules.volatile, |before, word| {
            self.key.extend_from_slice(before.as_bytes());
            if let Some(word) = word {
                self.key.extend_from_slice(TAKEN);
                self.words.push(word);
            }
        });
    }
}

/// The body as JSON, where it is meant as that.
pub(super) fn json_body(request: &Request) -> Option<Json> {
    let media = request.media();
    let named = media.ends_with("/json") || media.ends_with("+json");
    let looks = media.is_empty() && matches!(request.body.first(), Some(b'{' | b'['));
    let coded = request.header("content-encoding").next().is_some();
    if coded || !(named || looks) {
        return None;
    }
    // A name that stands twice is lost in reading: then only the bytes say what was sent.
    cofferdam_policy::read_json(&request.body).ok()
}

/// Multipart bodies are divided by a text that is drawn anew every time.
fn without_boundary(bytes: &[u8], request: &Request) -> Vec<u8> {
    match boundary(request) {
        Some(boundary) => replace(bytes, boundary.as_bytes(), b"\0boundary\0"),
        None => bytes.to_vec(),
    }
}

fn boundary(request: &Request) -> Option<String> {
    let text = String::from_utf8_lossy(request.header("content-type").next()?).into_owned();
    if !text.to_ascii_lowercase().starts_with("multipart/") {
        return None;
    }
    let parameter = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let value = value.trim().trim_matches('"');
        (name.trim().eq_ignore_ascii_case("boundary") && value.len() >= 8).then(|| value.to_owned())
    };
    text.split(';').skip(1).find_map(parameter)
}

/// All occurrences of a text, put in another's place.
fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    replace_where(bytes, from, to, |_, _| true)
}

/// The same for a word or a path, where it is not part of a longer one.
pub(super) fn replace_word(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let joins = |at: Option<usize>| {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(b' ');
        at.is_some_and(|at| match byte(at) {
            // The end of a sentence is not the beginning of a suffix.
            b'.' => byte(at + 1).is_ascii_alphanumeric(),
            byte => byte.is_ascii_alphanumeric() || b"_-".contains(&byte),
        })
    };
    replace_where(bytes, from, to, |start, end| !joins(start.checked_sub(1)) && !joins(Some(end)))
}

fn replace_where(bytes: &[u8], from: &[u8], to: &[u8], which: impl Fn(usize, usize) -> bool) -> Vec<u8> {
    if from.is_empty() {
        return bytes.to_vec();
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut done = 0;
    for at in memchr::memmem::find_iter(bytes, from).filter(|at| which(*at, at + from.len())) {
        out.extend_from_slice(&bytes[done..at]);
        out.extend_from_slice(to);
        done = at + from.len();
    }
    out.extend_from_slice(&bytes[done..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(media: &str, body: &str) -> Request {
        Request {
            scheme: "https".into(),
            host: "a.example".into(),
            port: 443,
            method: "POST".into(),
            path: "/v1".into(),
            query: None,
            headers: vec![("content-type".into(), media.into())],
            body: body.into(),
        }
    }

    #[track_caller]
    fn check(media: &str, a: &str, b: &str, rules: &str, same: bool) {
        let rules = Rules::parse(&format!("[replay.ignore]\n{rules}")).unwrap();
        let (a, b) = (post(media, a), post(media, b));
        assert_ne!(exact(&a, &rules), exact(&b, &rules));
        assert_eq!(Shape::of(&a, &rules).key == Shape::of(&b, &rules).key, same, "{a:?} {b:?}");
    }

    #[test]
    fn what_is_not_meant_is_left_out() {
        let json = "application/json";
        check(json, r#"{"a":1,"b":[2]}"#, "{ \"b\" : [ 2 ],\n\"a\":1}", "", true);
        check(json, r#"{"a":1}"#, r#"{"a":2}"#, "", false);
        check(json, r#"{"a":1}"#, r#"{"a":"1"}"#, "", false);
        check(json, r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#, "", false);
        check(json, r#"{"a":1,"n":5}"#, r#"{"a":1}"#, "json = [\"n\"]", true);
        check(json, r#"{"m":[{"id":1}]}"#, r#"{"m":[{"id":2}]}"#, "json = [\"m.*.id\"]", true);
        check(json, r#"{"at":"2026-01-01"}"#, r#"{"at":"2026-01-02"}"#, "", true);
        // A name twice is not read as JSON, so nothing of it is left out.
        check(json, r#"{"a":1,"a":2}"#, r#"{"a":1, "a":2}"#, "", false);
        check("application/x-www-form-urlencoded", "a=1&b=2&ts=3", "b=2&a=1&ts=4", "query = [\"ts\"]", true);
        check("text/plain", "x 12:00:01", "x 12:00:02", "", true);
        check("text/plain", "a b", "a  b", "", false);
    }

    #[test]
    fn a_path_is_replaced_as_a_whole() {
        let check = |text: &str, expected: &str| {
            assert_eq!(replace_word(text.as_bytes(), b"/a/b", b"/x"), expected.as_bytes(), "{text}");
        };
        check("/a/b", "/x");
        check("cd /a/b/c; cat '/a/b'", "cd /x/c; cat '/x'");
        check("file:///a/b is in /a/b.", "file:///x is in /x.");
        check("/a/bc /a/b-c /a/b.d home/a/b", "/a/bc /a/b-c /a/b.d home/a/b");
    }

    #[test]
    fn a_boundary_is_of_no_account() {
        let part = |b: &str| {
            let body = format!("--{b}\r\ncontent-disposition: form-data; name=x\r\n\r\n1\r\n--{b}--\r\n");
            post(&format!("multipart/form-data; boundary={b}"), &body)
        };
        let rules = Rules::default();
        let (a, b) = (part("aaaabbbbcccc"), part("\"dddd-eeee-ffff\""));
        let quoted = replace(&b.body, b"\"", b"");
        let b = Request { body: quoted, ..b };
        assert_eq!(Shape::of(&a, &rules).key, Shape::of(&b, &rules).key);
    }
}
