//! The one text of a request that is signed. Services differ in how they write its path (`s3` escapes it once, others
//! twice and without `..` and `//`), and clients in how they write its query; so there are several readings, and the
//! one under which a client's own signature fits is the one in which its request is signed anew.

use cofferdam_seal::{Hasher, digest};
use http::HeaderMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    path: PathReading,
    /// The query as it stands, and not escaped anew.
    raw_query: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathReading {
    /// As it stands.
    Raw,
    Once {
        tidy: bool,
    },
    Twice {
        tidy: bool,
    },
}

impl Reading {
    /// The likeliest first.
    pub(super) fn all(is_s3: bool) -> Vec<Self> {
        use PathReading::{Once, Raw, Twice};
        let paths = match is_s3 {
            true => {
                [Once { tidy: false }, Raw, Twice { tidy: true }, Twice { tidy: false }, Once { tidy: true }]
            }
            false => {
                [Twice { tidy: true }, Once { tidy: true }, Twice { tidy: false }, Once { tidy: false }, Raw]
            }
        };
        let with = |raw_query: bool| paths.map(|path| Self { path, raw_query });
        [with(false), with(true)].concat()
    }

    fn path(self, wire: &str) -> String {
        let wire = if wire.is_empty() { "/" } else { wire };
        match self.path {
            PathReading::Raw => wire.to_owned(),
            PathReading::Once { tidy: false } => recoded(wire, b"/"),
            PathReading::Once { tidy: true } => recoded(&tidied(wire), b"/"),
            PathReading::Twice { tidy: false } => escaped(&recoded(wire, b"/")),
            PathReading::Twice { tidy: true } => escaped(&recoded(&tidied(wire), b"/")),
        }
    }

    fn query(self, pairs: &[(String, String)]) -> String {
        let mut coded: Vec<(String, String)> = match self.raw_query {
            true => pairs.to_vec(),
            false => pairs.iter().map(|(name, value)| (recoded(name, b""), recoded(value, b""))).collect(),
        };
        coded.sort_unstable();
        let joined: Vec<String> = coded.iter().map(|(name, value)| format!("{name}={value}")).collect();
        joined.join("&")
    }
}

/// What is signed of a request.
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) pairs: &'a [(String, String)],
    /// Names and values, one line each, with its end.
    pub(super) fields: &'a str,
    /// Names with semicolons between.
    pub(super) signed: &'a str,
    pub(super) payload: &'a str,
}

impl Request<'_> {
    /// The hash of the canonical request.
    pub(super) fn hash(&self, reading: Reading) -> String {
        let mut hasher = Hasher::new();
        let (path, query) = (reading.path(self.path), reading.query(self.pairs));
        for part in [self.method, "\n", &path, "\n", &query, "\n", self.fields, "\n", self.signed, "\n"] {
            hasher.update(part.as_bytes());
        }
        hasher.update(self.payload.as_bytes());
        hasher.finish().to_string()
    }
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    digest(bytes).to_string()
}

/// The fields of these names in their signed form, and whether all are there. `authority` is the host's.
pub(super) fn fields(headers: &HeaderMap, signed: &[String], authority: &str) -> (String, bool) {
    let (mut text, mut whole) = (String::new(), true);
    for name in signed {
        let mut values: Vec<String> =
            headers.get_all(name.as_str()).iter().map(|value| folded(value.as_bytes())).collect();
        if name == "host" {
            values = vec![authority.to_owned()];
        }
        whole &= !values.is_empty();
        text.push_str(&format!("{name}:{}\n", values.join(",")));
    }
    (text, whole)
}

/// Without spaces around, and with one where there are several.
fn folded(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let words: Vec<&str> = text.split([' ', '\t', '\r', '\n']).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn push_escaped(out: &mut String, byte: u8) {
    match is_plain(byte) {
        true => out.push(char::from(byte)),
        false => out.push_str(&format!("%{byte:02X}")),
    }
}

fn escaped(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len() + 16), |mut out, byte| {
        if byte == b'/' {
            out.push('/')
        } else {
            push_escaped(&mut out, byte)
        }
        out
    })
}

/// Escaped once, however much of it was before. An escaped slash stays one: it divides nothing.
fn recoded(text: &str, kept: &[u8]) -> String {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|&b| char::from(b).to_digit(16));
    let mut out = String::with_capacity(text.len() + 16);
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                push_escaped(&mut out, (high * 16 + low) as u8);
                at += 3;
                continue;
            }
            (byte, ..) if kept.contains(&byte) => out.push(char::from(byte)),
            (byte, ..) => push_escaped(&mut out, byte),
        }
        at += 1;
    }
    out
}

/// Without `.`, `..` and empty segments.
fn tidied(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let ends = path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..");
    match (kept.is_empty(), ends) {
        (true, _) => "/".to_owned(),
        (false, true) => format!("/{}/", kept.join("/")),
        (false, false) => format!("/{}", kept.join("/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_each_reading() {
        use PathReading::{Once, Raw, Twice};
        for (wire, path, expected) in [
            ("/a%20b%2Bc/%C3%BC%2520~!*.txt", Once { tidy: false }, "/a%20b%2Bc/%C3%BC%2520~%21%2A.txt"),
            ("/a b+c/ü", Once { tidy: false }, "/a%20b%2Bc/%C3%BC"),
            ("/a%2fb//../c", Once { tidy: false }, "/a%2Fb//../c"),
            ("/a//b/../c/", Once { tidy: true }, "/a/c/"),
            ("/a/..", Once { tidy: true }, "/"),
            (
                "/model/anthropic.claude%3A0/invoke",
                Twice { tidy: true },
                "/model/anthropic.claude%253A0/invoke",
            ),
            ("/a%2fb//", Raw, "/a%2fb//"),
            ("", Twice { tidy: true }, "/"),
        ] {
            assert_eq!(Reading { path, raw_query: false }.path(wire), expected, "{wire} {path:?}");
        }
    }

    #[test]
    fn a_query_is_sorted_and_escaped() {
        let pairs = super::super::claim::pairs("b=2&a=x+y&a=x%20y&list&%E1%88%B4=1");
        let of = |raw_query| Reading { path: PathReading::Raw, raw_query }.query(&pairs);
        assert_eq!(of(false), "%E1%88%B4=1&a=x%20y&a=x%2By&b=2&list=");
        assert_eq!(of(true), "%E1%88%B4=1&a=x%20y&a=x+y&b=2&list=");
    }

    #[test]
    fn fields_are_folded() {
        let mut headers = HeaderMap::new();
        headers.append("my", "  a   b ".parse().unwrap());
        headers.append("my", "\"c  d\"".parse().unwrap());
        let names = ["host".to_owned(), "my".to_owned()];
        assert_eq!(
            fields(&headers, &names, "h.example"),
            ("host:h.example\nmy:a b,\"c d\"\n".to_owned(), true)
        );
        assert!(!fields(&headers, &["gone".to_owned()], "h.example").1);
    }
}
