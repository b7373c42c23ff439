//! Looks through what leaves, without changing or delaying it.

use super::state::State;
use super::value::{Secret, joined};
use super::{At, Destination, Refusal};
use crate::forms::runs;
use crate::scrub::coding::Decoder;
use http::HeaderMap;
use std::sync::Arc;

/// The session's credentials as they were when a request began, and where it goes.
pub(super) struct Outward {
    pub(super) state: Arc<State>,
    host: String,
    port: u16,
    program: Option<String>,
}

impl Outward {
    pub(super) fn new(state: Arc<State>, to: &Destination<'_>) -> Self {
        Self { state, host: to.host.to_owned(), port: to.port, program: to.program.map(str::to_owned) }
    }

    pub(super) fn to(&self) -> Destination<'_> {
        Destination { host: &self.host, port: self.port, program: self.program.as_deref() }
    }

    pub(super) fn bare(&self, text: &[u8]) -> Result<(), Refusal> {
        self.state.bare(text, &self.to(), &At::Body)
    }
}

/// A body, or the frames of an upgraded connection, in which no placeholder and no real value may stand in any form.
pub struct RequestScan {
    outward: Outward,
    /// The end of what came, as far as it may be the start of something sought.
    carry: Secret,
    decoder: Option<Box<Decoder>>,
}

impl RequestScan {
    pub(super) fn new(outward: Outward, headers: &HeaderMap) -> Result<Self, Refusal> {
        let decoder = Decoder::of(headers).map_err(Refusal::unreadable)?;
        Ok(Self { outward, carry: Secret::default(), decoder })
    }

    /// Call it with each chunk before that chunk leaves. After a refusal the request is to be cut.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), Refusal> {
        match &mut self.decoder {
            None => self.look(chunk),
            Some(decoder) => {
                let plain = decoder.push(chunk).map_err(Refusal::unreadable)?;
                self.look(&plain)
            }
        }
    }

    /// What follows the body, which no coding covers.
    pub fn trailers(&self, trailers: &HeaderMap) -> Result<(), Refusal> {
        let to = self.outward.to();
        trailers.iter().try_for_each(|(name, value)| {
            self.outward.state.bare_name(name.as_str(), &to, At::HeaderName)?;
            self.outward.state.bare(value.as_bytes(), &to, &At::Header(name.as_str().to_owned()))
        })
    }

    fn look(&mut self, text: &[u8]) -> Result<(), Refusal> {
        let finder = self.outward.state.finder();
        // Lines that break what is sought make it longer, though never twice as long.
        let reach = (2 * finder.longest()).min(text.len());
        if !self.carry.is_empty() {
            let seam = joined(&[&self.carry, text.get(..reach).unwrap_or_default()]);
            let pending = self.pending(&seam)?;
            if reach == text.len() {
                self.carry = joined(&[seam.get(pending..).unwrap_or_default()]);
                return Ok(());
            }
        }
        let pending = self.pending(text)?;
        self.carry = joined(&[text.get(pending..).unwrap_or_default()]);
        Ok(())
    }

    /// Refuses what must not stand in a text, and says from where on it may go on to become such.
    fn pending(&self, text: &[u8]) -> Result<usize, Refusal> {
        self.outward.bare(text)?;
        let finder = self.outward.state.finder();
        let mut pending = finder.pending(text, 0);
        for run in runs(text) {
            self.outward.bare(&run.digits)?;
            if run.is_open {
                let open = run.at.get(finder.pending(&run.digits, 0)).copied();
                pending = pending.min(open.unwrap_or(text.len()));
            }
        }
        Ok(pending)
    }
}
