//! What was recorded of a session's exchanges, as plain data. Where it was read from is not known here.

use crate::body::decoded;
use std::borrow::Cow;
use std::time::Duration;

/// A request as it came from inside, with placeholders where credentials go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    pub scheme: String,
    pub host: String,
    pub port: u16,
    pub method: String,
    pub path: String,
    pub query: Option<String>,
    /// Names are lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
}

impl Request {
    /// As people write it.
    pub fn line(&self) -> String {
        let usual = matches!((self.scheme.as_str(), self.port), ("https", 443) | ("http", 80));
        let port = if usual { String::new() } else { format!(":{}", self.port) };
        let query = self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{} {}://{}{port}{}{query}", self.method, self.scheme, self.host, self.path)
    }

    /// All values of a header, in their order.
    pub fn header<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let of_name = move |(held, _): &&(String, Vec<u8>)| held.eq_ignore_ascii_case(name);
        self.headers.iter().filter(of_name).map(|(_, value)| value.as_slice())
    }

    /// The media type without its parameters, in lower case.
    pub(super) fn media(&self) -> String {
        let text = self.header("content-type").next().map(String::from_utf8_lossy).unwrap_or_default();
        text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }
}

/// An answer as the inside got it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    /// The parts of the body as they came, still encoded as on the wire, each with the wait before it.
    pub parts: Vec<(Duration, Vec<u8>)>,
    /// From the request to the answer's head.
    pub first: Duration,
}

impl Response {
    pub(super) fn coding(&self) -> Option<String> {
        let field = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-encoding"))?;
        Some(String::from_utf8_lossy(&field.1).into_owned())
    }

    /// The body in one piece, decompressed. One that cannot be read stays as it is.
    pub(super) fn plain(&self) -> Vec<u8> {
        let whole: Vec<u8> = self.parts.iter().flat_map(|(_, part)| part.iter().copied()).collect();
        let plain = decoded(&whole, &self.coding().unwrap_or_default()).map(Cow::into_owned);
        plain.unwrap_or(whole)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The event by which the recording tells of it.
    pub seq: u64,
    pub request: Request,
    pub answer: Answered,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    Whole(Response),
    /// There is nothing to serve, for this reason: none came, it broke off, or it was not kept.
    Not(String),
}

/// All exchanges of a session, in the order in which they began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recording {
    pub exchanges: Vec<Recorded>,
    /// Texts from outside of the agent besides the answers, such as its command line: what stands in one of them
    /// was not made up by the agent.
    pub given: Vec<String>,
}
