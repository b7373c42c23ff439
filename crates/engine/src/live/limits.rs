//! The limits of a session that is held: what was used is written down, and what was reached is told.

use super::holder::{Ending, Holder};
use crate::error::EngineError;
use cofferdam_model::{Body, Exit, LimitHit, Span};
use std::time::{Duration, Instant};

/// A limit that was reached so long ago is why a command ends.
const JUST: Duration = Duration::from_secs(2);

impl Holder {
    pub(super) fn read_meter(&mut self, now: Instant) -> Result<(), EngineError> {
        self.limits_hit(now, None)?;
        self.meter.read(self.state, self.standing.sandbox.counters(), now)
    }

    /// Puts on record which limits were reached, by the command that has ended if it was the only one; and says once, in
    /// words for who waits for it, also which were reached just before.
    pub(super) fn limits_hit(
        &mut self,
        now: Instant,
        exec: Option<u64>,
    ) -> Result<Option<String>, EngineError> {
        let hits = self.standing.sandbox.hits();
        let alone = exec.filter(|_| self.running() == 0);
        for hit in &hits {
            self.standing.recorder.append(alone, &Body::Limit(hit.clone()))?;
        }
        if !hits.is_empty() {
            let words: Vec<&str> = hits.iter().map(|hit| hit.detail.as_str()).collect();
            self.hit = Some((now, words.join("; ")));
        }
        let last = exec.and_then(|_| self.hit.take());
        Ok(last.filter(|(at, _)| now.duration_since(*at) < JUST).map(|(_, words)| words))
    }

    pub(super) fn time_over(&self, after: Duration) -> Ending {
        let allowed = self.spec.live.ttl.map_or(after, |ttl| ttl.0).as_millis() as u64;
        let seen = after.as_millis() as u64;
        let detail = format!("ended: its time was over after {}", Span(Duration::from_millis(seen)));
        let limit = Some(LimitHit { limit: "ttl".into(), allowed, seen, detail: detail.clone() });
        Ending { exit: Exit::TimedOut, limit, ..Ending::by("ttl", detail) }
    }
}
