//! A body in which a field is declared: gathered, swapped there, and looked through everywhere else.

use super::scan::Outward;
use super::value::{Secret, Swapping, joined};
use super::{At, Refusal, Used, Why};
use crate::forms::{self, Kind};
use bytes::Bytes;
use cofferdam_vault::Place;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::request;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::ops::Range;

/// Bodies with credentials in them are small: logins, token exchanges.
const LIMIT: usize = 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Json,
    Form,
}

impl Shape {
    /// None where no field is declared for this destination, or the body is not one that is swapped in: then it is
    /// scanned, and a placeholder in it is refused.
    pub(super) fn of(outward: &Outward, head: &request::Parts) -> Option<Self> {
        let host = outward.to().host;
        let here = outward.state.entries.iter().filter(|entry| entry.goes_to(host));
        let declared = here.flat_map(|entry| &entry.credential.places).any(|p| matches!(p, Place::Body(_)));
        let length = head.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
        if !declared || head.headers.contains_key(CONTENT_ENCODING) || length.is_some_and(|l| l > LIMIT) {
            return None;
        }
        let kind =
            head.headers.get(CONTENT_TYPE).map(|v| v.as_bytes().to_ascii_lowercase()).unwrap_or_default();
        let kind = kind.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
        match kind {
            b"application/x-www-form-urlencoded" => Some(Self::Form),
            b"application/json" => Some(Self::Json),
            kind if kind.starts_with(b"application/") && kind.ends_with(b"+json") => Some(Self::Json),
            _ => None,
        }
    }
}

/// Gathers a body within [`Self::limit`] and gives it back swapped.
pub struct BodySwap {
    outward: Outward,
    shape: Shape,
    body: Secret,
}

impl BodySwap {
    pub(super) fn new(outward: Outward, shape: Shape) -> Self {
        Self { outward, shape, body: Secret::default() }
    }

    pub fn limit(&self) -> usize {
        LIMIT
    }

    pub fn push(&mut self, chunk: &[u8]) -> Result<(), Refusal> {
        if self.body.len() + chunk.len() > LIMIT {
            return Err(Refusal::unreadable(Why::TooLarge(LIMIT)));
        }
        self.body.extend_from_slice(chunk);
        Ok(())
    }

    /// The body to send, whose length may be another, and what it holds added to `used`.
    pub fn finish(self, used: &mut Used) -> Result<Bytes, Refusal> {
        let to = self.outward.to();
        let mut swapping = Swapping { state: &self.outward.state, to: &to, used: std::mem::take(used) };
        let is_field = |place: &Place, name: &str| matches!(place, Place::Body(path) if path == name);
        let swapped = match self.shape {
            Shape::Form => swapping.pairs(&self.body, At::Field, is_field)?,
            Shape::Json => swapping.json(&self.body)?,
        };
        *used = swapping.used;
        Ok(Bytes::copy_from_slice(&swapped.unwrap_or(self.body)))
    }
}

impl Swapping<'_> {
    /// Only the bytes of declared fields change: spelling, order and numbers of the rest stay.
    fn json(&mut self, body: &[u8]) -> Result<Option<Secret>, Refusal> {
        if self.state.find(body, 0).is_none() {
            return Ok(None);
        }
        let mut changes: Vec<(Range<usize>, Secret)> = Vec::new();
        for path in self.fields() {
            let at = At::Field(path.clone());
            let Some((span, content)) = locate(body, &path) else { continue };
            let is_field = |place: &Place| matches!(place, Place::Body(declared) if *declared == path);
            if let Some(real) = self.value(content.as_bytes(), &at, &is_field)? {
                let culprit = || self.used.credentials.last().map_or("", |used| &used.name);
                let text = forms::encode(Kind::Json { slash: false }, &real);
                let text = text.ok_or_else(|| Refusal::of(culprit(), at, Why::Unsendable))?;
                changes.push((span, joined(&[b"\"", &text, b"\""])));
            }
        }
        changes.sort_by_key(|(span, _)| span.start);
        let mut out = Secret::default();
        let mut done = 0;
        for (span, text) in &changes {
            let between = body.get(done..span.start).unwrap_or_default();
            self.state.bare(between, self.to, &At::Body)?;
            out = joined(&[&out, between, text]);
            done = span.end;
        }
        let rest = body.get(done..).unwrap_or_default();
        self.state.bare(rest, self.to, &At::Body)?;
        Ok(Some(joined(&[&out, rest])))
    }

    /// The fields that credentials of this destination declare, each once.
    fn fields(&self) -> Vec<String> {
        let here = self.state.entries.iter().filter(|entry| entry.goes_to(self.to.host));
        let mut paths: Vec<String> = here
            .flat_map(|entry| &entry.credential.places)
            .filter_map(|place| if let Place::Body(path) = place { Some(path.clone()) } else { None })
            .collect();
        paths.sort();
        paths.dedup();
        paths
    }
}

/// Where the string at a path stands, and what it says. None where it is no string, or where a name on the way
/// stands twice, so that two readers could disagree.
fn locate(body: &[u8], path: &str) -> Option<(Range<usize>, String)> {
    let mut value: &RawValue = serde_json::from_slice(body).ok()?;
    for name in path.split('.') {
        let fields: Fields<'_> = serde_json::from_str(value.get()).ok()?;
        let mut found = fields.0.into_iter().filter(|(field, _)| field == name);
        value = found.next()?.1;
        if found.next().is_some() {
            return None;
        }
    }
    let start = (value.get().as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    let content = serde_json::from_str(value.get()).ok()?;
    Some((start..start + value.get().len(), content))
}

/// An object as it stands, repeated names included.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    fields.push((name, value));
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Object).map(Fields)
    }
}
