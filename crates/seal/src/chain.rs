//! The hash chain: how an event becomes one line of a trace, and what its hash covers.
//!
//! Writing and checking share [`Encoder`], so that they cannot disagree about a single byte.

use crate::{CanonicalError, Hasher, Scratch, append_canonical};
use cofferdam_model::{Body, Digest, Event};
use serde::{Serialize, Serializer};

/// Everything about an event but what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    pub parent: Option<u64>,
    pub prev: Digest,
    pub seq: u64,
    pub time: u64,
}

/// Turns events into lines. Keeps its working space, so that a hot path does not allocate.
#[derive(Default)]
pub struct Encoder {
    scratch: Scratch,
}

const HASH_FIELD: &[u8] = b",\"hash\":\"";

impl Encoder {
    /// Appends an event's canonical bytes, without a line end, and returns its hash. On an error `out` is
    /// as it was.
    pub fn body(&mut self, body: &Body, link: &Link, out: &mut Vec<u8>) -> Result<Digest, CanonicalError> {
        self.line(body.kind(), &Content(body), link, out)
    }

    /// The same for an event that was read. The hash is computed, not copied: where it differs from the
    /// event's own, so do the bytes.
    pub fn event(&mut self, event: &Event, out: &mut Vec<u8>) -> Result<Digest, CanonicalError> {
        let Event { body, kind, parent, prev, seq, time, .. } = event;
        self.line(kind, body, &Link { parent: *parent, prev: *prev, seq: *seq, time: *time }, out)
    }

    fn line<T: Serialize>(
        &mut self,
        kind: &str,
        body: &T,
        link: &Link,
        out: &mut Vec<u8>,
    ) -> Result<Digest, CanonicalError> {
        let start = out.len();
        self.write(kind, body, link, out).inspect_err(|_| out.truncate(start))
    }

    /// The fields stand in canonical order. The hash is over all of them but itself, so room is left for
    /// it and the text on both sides is hashed.
    fn write<T: Serialize>(
        &mut self,
        kind: &str,
        body: &T,
        link: &Link,
        out: &mut Vec<u8>,
    ) -> Result<Digest, CanonicalError> {
        let start = out.len();
        out.extend_from_slice(b"{\"body\":");
        append_canonical(body, out, &mut self.scratch).map_err(|e| e.inside("body"))?;
        let gap = out.len();
        out.extend_from_slice(HASH_FIELD);
        out.extend_from_slice(&[0; 65]);
        let after = out.len();
        self.field(",\"kind\":", kind, out)?;
        if let Some(parent) = link.parent {
            self.field(",\"parent\":", &parent, out)?;
        }
        out.extend_from_slice(b",\"prev\":\"");
        out.extend_from_slice(&link.prev.hex());
        out.push(b'"');
        self.field(",\"seq\":", &link.seq, out)?;
        self.field(",\"time\":", &link.time, out)?;
        out.push(b'}');

        let mut hasher = Hasher::new();
        hasher.update(&out[start..gap]);
        hasher.update(&out[after..]);
        let hash = hasher.finish();
        out[after - 65..after - 1].copy_from_slice(&hash.hex());
        out[after - 1] = b'"';
        Ok(hash)
    }

    fn field<T: Serialize + ?Sized>(
        &mut self,
        name: &str,
        value: &T,
        out: &mut Vec<u8>,
    ) -> Result<(), CanonicalError> {
        out.extend_from_slice(name.as_bytes());
        append_canonical(value, out, &mut self.scratch)
            .map_err(|e| e.inside(name.trim_matches([',', '"', ':'])))
    }
}

/// The hash an event should have: over its canonical bytes without the field `hash`.
pub fn event_hash(event: &Event) -> Result<Digest, CanonicalError> {
    Encoder::default().event(event, &mut Vec::new())
}

/// A body without the tag that [`Body`]'s own form puts around it.
struct Content<'a>(&'a Body);

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Body::SessionStarted(body) => body.serialize(to),
            Body::Enforcement(body) => body.serialize(to),
            Body::ExecStarted(body) => body.serialize(to),
            Body::Output(body) => body.serialize(to),
            Body::OutputSeen(body) => body.serialize(to),
            Body::ExecExited(body) => body.serialize(to),
            Body::Blocked(body) => body.serialize(to),
            Body::Syscall(body) => body.serialize(to),
            Body::Limit(body) => body.serialize(to),
            Body::FileChanged(body) => body.serialize(to),
            Body::FileAsked(body) => body.serialize(to),
            Body::ChangesDecided(body) => body.serialize(to),
            Body::ExchangeRecorded(body) => body.serialize(to),
            Body::ModelCalled(body) => body.serialize(to),
            Body::ToolListed(body) => body.serialize(to),
            Body::ToolRegistered(body) => body.serialize(to),
            Body::ToolChanged(body) => body.serialize(to),
            Body::ToolCalled(body) => body.serialize(to),
            Body::ToolReturned(body) => body.serialize(to),
            Body::ToolFault(body) => body.serialize(to),
            Body::BrowserStarted(body) => body.serialize(to),
            Body::BrowserActed(body) => body.serialize(to),
            Body::BrowserDone(body) => body.serialize(to),
            Body::BrowserSeen(body) => body.serialize(to),
            Body::BrowserFault(body) => body.serialize(to),
            Body::BrowserEnded(body) => body.serialize(to),
            Body::StepStarted(body) => body.serialize(to),
            Body::StepEnded(body) => body.serialize(to),
            Body::StepReplanned(body) => body.serialize(to),
            Body::SessionChanged(body) => body.serialize(to),
            Body::SessionEnded(body) => body.serialize(to),
            Body::EgressOpened(body) => body.serialize(to),
            Body::EgressDecided(body) => body.serialize(to),
            Body::EgressEnded(body) => body.serialize(to),
            Body::EgressRefused(body) => body.serialize(to),
            Body::SqlDecided(body) => body.serialize(to),
            Body::SqlEnded(body) => body.serialize(to),
            Body::CredentialUsed(body) => body.serialize(to),
            Body::ApprovalAnswered(body) => body.serialize(to),
            Body::ControlChanged(body) => body.serialize(to),
            Body::NameAsked(body) => body.serialize(to),
            Body::StrayPacket(body) => body.serialize(to),
            Body::AlertSent(body) => body.serialize(to),
            Body::ReplayStarted(body) => body.serialize(to),
            Body::ReplayServed(body) => body.serialize(to),
            Body::ReplayMissed(body) => body.serialize(to),
            Body::Checkpoint(body) | Body::Head(body) => body.serialize(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Problem, digest};
    use cofferdam_model::LimitHit;

    fn limit(detail: &str) -> Body {
        Body::Limit(LimitHit { limit: "pids".into(), allowed: 64, seen: 65, detail: detail.into() })
    }

    fn link(parent: Option<u64>) -> Link {
        Link { parent, prev: Digest::from_bytes([7; 32]), seq: 3, time: 1_700_000_000_000_000 }
    }

    #[test]
    fn a_line_is_the_canonical_form_of_its_event() {
        for parent in [None, Some(1)] {
            let mut line = Vec::new();
            let hash = Encoder::default().body(&limit("ü \"quoted\""), &link(parent), &mut line).unwrap();
            let event: Event = serde_json::from_slice(&line).unwrap();
            assert_eq!(event.hash, hash);
            assert_eq!(event.typed(), Some(limit("ü \"quoted\"")));
            assert_eq!(crate::canonical(&event).unwrap(), line);
            assert_eq!(event_hash(&event).unwrap(), hash);
        }
    }

    #[test]
    fn the_hash_is_over_the_line_without_its_hash_field() {
        let mut line = Vec::new();
        let hash = Encoder::default().body(&limit("x"), &link(None), &mut line).unwrap();
        let text = String::from_utf8(line).unwrap();
        let without = text.replace(&format!("\"hash\":\"{hash}\","), "");
        assert_ne!(without, text);
        assert_eq!(digest(without.as_bytes()), hash);
    }

    #[test]
    fn every_field_is_covered() {
        let mut line = Vec::new();
        Encoder::default().body(&limit("x"), &link(Some(1)), &mut line).unwrap();
        let event: Event = serde_json::from_slice(&line).unwrap();
        let mut body = event.body.clone();
        body["seen"] = 66.into();
        let changed = [
            Event { body, ..event.clone() },
            Event { kind: "limit2".into(), ..event.clone() },
            Event { parent: None, ..event.clone() },
            Event { prev: Digest::ZERO, ..event.clone() },
            Event { seq: 4, ..event.clone() },
            Event { time: 0, ..event.clone() },
        ];
        for other in changed {
            assert_ne!(event_hash(&other).unwrap(), event.hash, "{other:?}");
        }
    }

    #[test]
    fn a_number_that_is_not_exact_is_named() {
        let far = Link { time: u64::MAX, ..link(None) };
        let error = Encoder::default().body(&limit("x"), &far, &mut Vec::new()).unwrap_err();
        assert_eq!((error.path(), error.problem()), ("time", &Problem::Integer(u64::MAX.into())));
    }
}
