//! Bodies that are looked into: collected where a rule or a declared field needs the whole, and within a
//! bound; else scanned and scrubbed as they pass.

use super::flow::Filter;
use crate::guard::{Guard, Passed};
use crate::rescue::Failure;
use crate::scrub::{Scrubber, Seams};
use crate::sign::Resign;
use crate::swap::RequestScan;
use bytes::{Bytes, BytesMut};
use cofferdam_policy::GuardAction;
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use std::sync::Arc;
use std::time::Duration;

/// A request's body: still on its way, or collected.
pub(crate) enum Payload {
    Live(Incoming),
    Whole(Bytes),
    Begun(Begun),
}

/// A body of which the beginning is here.
pub(crate) struct Begun {
    pub(crate) first: Bytes,
    pub(crate) rest: Incoming,
    /// All of it has come, and these after it.
    pub(crate) trailers: Option<HeaderMap>,
}

impl Payload {
    /// What the policy can be told of it: the bytes where they are here, and the length where it is known.
    pub(crate) fn facts(&self) -> (Option<&[u8]>, Option<u64>) {
        match self {
            Self::Live(body) if body.is_end_stream() => (Some(&[]), Some(0)),
            Self::Live(body) => (None, body.size_hint().exact()),
            Self::Whole(bytes) => (Some(bytes), Some(bytes.len() as u64)),
            Self::Begun(begun) => {
                let rest = begun.rest.size_hint().exact();
                (None, rest.map(|rest| begun.first.len() as u64 + rest))
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.facts().1 == Some(0)
    }

    /// Brings all of it into memory, or refuses when it is longer than `limit`.
    pub(crate) async fn collect(&mut self, limit: usize) -> Result<&mut Bytes, Failure> {
        match self {
            Self::Live(body) => *self = Self::Whole(collect(body, Bytes::new(), limit).await?),
            Self::Begun(Begun { first, rest, .. }) => {
                let first = std::mem::take(first);
                *self = Self::Whole(collect(rest, first, limit).await?);
            }
            Self::Whole(_) => {}
        }
        match self {
            Self::Whole(bytes) => Ok(bytes),
            Self::Live(_) | Self::Begun(_) => Err(Failure::TooLarge { limit }),
        }
    }

    /// Brings in what comes of it: up to `limit` bytes, and as long as the next part comes within `pause`.
    pub(crate) async fn begin(&mut self, limit: usize, pause: Duration) -> Result<(), Failure> {
        let mut body = match self.take() {
            Self::Live(body) => body,
            other => {
                *self = other;
                return Ok(());
            }
        };
        let (mut first, mut trailers) = (BytesMut::new(), None);
        let mut is_whole = false;
        while first.len() < limit {
            let Ok(frame) = tokio::time::timeout(pause, body.frame()).await else { break };
            let Some(frame) = frame else {
                is_whole = true;
                break;
            };
            match frame.map_err(Failure::Body)?.into_data() {
                Ok(chunk) => first.extend_from_slice(&chunk),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
            if trailers.is_some() {
                break;
            }
        }
        let first = first.freeze();
        let is_whole = is_whole || (body.is_end_stream() && trailers.is_none());
        *self = match is_whole && first.len() <= limit {
            true => Self::Whole(first),
            false => Self::Begun(Begun { first, rest: body, trailers }),
        };
        Ok(())
    }

    /// Takes out the beginning that is here already.
    pub(crate) fn take_first(&mut self) -> Bytes {
        match self.take() {
            Self::Begun(begun) => {
                *self = Self::Live(begun.rest);
                begun.first
            }
            other => {
                *self = other;
                Bytes::new()
            }
        }
    }

    /// Hands it over, leaving nothing.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Whole(Bytes::new()))
    }

    /// Reads on for a while after a refusal: many clients look at an answer only once they have sent all.
    pub(crate) async fn linger(self) {
        let (Self::Live(mut body) | Self::Begun(Begun { rest: mut body, .. })) = self else { return };
        let drain = async {
            let mut left = LINGER;
            while let Some(Ok(frame)) = body.frame().await {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
                if left == 0 {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(LINGER_TIME, drain).await;
    }
}

const LINGER: usize = 4 << 20;
const LINGER_TIME: Duration = Duration::from_secs(1);

async fn collect(body: &mut Incoming, mut first: Bytes, limit: usize) -> Result<Bytes, Failure> {
    if body.size_hint().lower() + first.len() as u64 > limit as u64 {
        return Err(Failure::TooLarge { limit });
    }
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame.map_err(Failure::Body)?.into_data() else { continue };
        if first.len() + rest.len() + chunk.len() > limit {
            return Err(Failure::TooLarge { limit });
        }
        if rest.is_empty() && first.is_empty() {
            // Most bodies that rules look at come in one piece, which is not copied.
            first = chunk;
        } else {
            rest.extend_from_slice(&std::mem::take(&mut first));
            rest.extend_from_slice(&chunk);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// Looks through what goes out: no credential may be in it, and nothing that looks like one beyond what the
/// policy lets pass.
pub(crate) struct Outgoing {
    pub(crate) scan: Option<RequestScan>,
    pub(crate) guard: Option<Guard>,
    pub(crate) noticed: Vec<String>,
    /// Bytes that the guard has and did not let go yet.
    behind: usize,
    /// Whether a person can be asked about it, and about what.
    pub(crate) holds: bool,
    pub(crate) doubt: Option<String>,
    /// Comes last: what was looked at is what is signed.
    pub(crate) resign: Option<Resign>,
}

impl Outgoing {
    pub(crate) fn new(scan: Option<RequestScan>, guard: Option<Guard>) -> Self {
        Self { scan, guard, noticed: Vec::new(), behind: 0, holds: false, doubt: None, resign: None }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.scan.is_none() && self.guard.is_none() && self.resign.is_none()
    }

    /// Looks through a body that was collected.
    pub(crate) fn whole(&mut self, body: &Bytes) -> Result<Bytes, Failure> {
        self.holds = true;
        let first = self.pass(body.clone()).map_err(|failure| *failure)?;
        let rest = self.finish().map_err(|failure| *failure)?;
        Ok(if rest.is_empty() { first } else { [first, rest].concat().into() })
    }

    /// What may go out of what the guard has looked at.
    fn guarded(&mut self, passed: Passed) -> Result<Bytes, Box<Failure>> {
        for finding in passed.findings {
            let text = format!("{}: {}", finding.shape, finding.reason);
            match finding.action {
                GuardAction::Deny => return Err(Box::new(Failure::Secret(text))),
                // Only a body that was collected can be held; what streams cannot be taken back.
                GuardAction::Review if self.holds => self.doubt = Some(text),
                GuardAction::Review => return Err(Box::new(Failure::Secret(text))),
                GuardAction::Redact => self.noticed.push(format!("redacted {text}")),
                GuardAction::Flag => self.noticed.push(text),
            }
        }
        self.behind = self.behind.saturating_sub(passed.bytes.len());
        Ok(passed.bytes)
    }

    /// The same bytes under signatures of ours.
    fn signed(&mut self, bytes: Bytes) -> Result<Bytes, Box<Failure>> {
        match &mut self.resign {
            Some(resign) if !bytes.is_empty() => {
                resign.push(bytes).map_err(|refusal| Box::new(refusal.into()))
            }
            _ => Ok(bytes),
        }
    }

    fn scan(&mut self, part: &[u8]) -> Result<(), Box<Failure>> {
        match &mut self.scan {
            Some(scan) => scan.push(part).map_err(|refusal| Box::new(refusal.into())),
            None => Ok(()),
        }
    }
}

impl Filter for Outgoing {
    fn pass(&mut self, chunk: Bytes) -> Result<Bytes, Box<Failure>> {
        self.scan(&chunk)?;
        let Some(guard) = &mut self.guard else { return self.signed(chunk) };
        self.behind += chunk.len();
        let passed = guard.push(chunk).map_err(|error| Box::new(Failure::Secret(error.to_string())))?;
        let passed = self.guarded(passed)?;
        self.signed(passed)
    }

    fn finish(&mut self) -> Result<Bytes, Box<Failure>> {
        let last = self.idle()?;
        let Some(resign) = &mut self.resign else { return Ok(last) };
        let refused = |refusal: crate::swap::Refusal| Box::new(Failure::from(refusal));
        let rest = resign.finish().map_err(refused)?;
        Ok(if last.is_empty() { rest } else { [last, rest].concat().into() })
    }

    fn idle(&mut self) -> Result<Bytes, Box<Failure>> {
        let Some(passed) = self.guard.as_mut().map(Guard::finish) else { return Ok(Bytes::new()) };
        let passed = self.guarded(passed)?;
        self.signed(passed)
    }

    fn is_waiting(&self) -> bool {
        self.behind > 0
    }

    fn trailers(&mut self, trailers: &mut HeaderMap) -> Result<(), Box<Failure>> {
        for (name, value) in trailers.iter() {
            for part in [b"\n", name.as_str().as_bytes(), b": ", value.as_bytes()] {
                self.scan(part)?;
            }
        }
        Ok(())
    }

    fn noticed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.noticed)
    }
}

/// Puts placeholders back in what comes in.
pub(crate) struct Scrubbing {
    pub(crate) scrubber: Scrubber,
    pub(crate) host: Arc<str>,
    pub(crate) told: u64,
}

impl Filter for Scrubbing {
    fn pass(&mut self, chunk: Bytes) -> Result<Bytes, Box<Failure>> {
        self.scrubber.push(chunk).map_err(|error| {
            Box::new(Failure::Unreadable { host: self.host.clone(), reason: error.to_string() })
        })
    }

    fn finish(&mut self) -> Result<Bytes, Box<Failure>> {
        Ok(self.scrubber.finish())
    }

    fn idle(&mut self) -> Result<Bytes, Box<Failure>> {
        Ok(self.scrubber.idle())
    }

    fn is_waiting(&self) -> bool {
        self.scrubber.is_waiting()
    }

    fn seams(&self) -> Option<Seams<bool>> {
        Some(self.scrubber.seams())
    }

    fn trailers(&mut self, trailers: &mut HeaderMap) -> Result<(), Box<Failure>> {
        self.scrubber.trailers(trailers);
        Ok(())
    }

    fn replaced(&mut self) -> u64 {
        let covered = self.scrubber.covered();
        covered - std::mem::replace(&mut self.told, covered)
    }
}
