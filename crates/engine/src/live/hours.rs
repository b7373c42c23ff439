//! How long a session lives, and when it rests: pause, resume, more time or less. Who asked for it is on record before
//! it holds.

use super::holder::Holder;
use crate::error::EngineError;
use cofferdam_model::{LiveState, Span};
use std::time::{Duration, Instant};

impl Holder {
    pub(super) fn pause(&mut self, to: LiveState, by: &str) -> Result<(), EngineError> {
        if !self.is_paused() {
            self.standing.sandbox.pause()?;
            self.relay.stand_still();
            self.read_meter(Instant::now())?;
            self.paused_since = Instant::now();
            self.changed("pause", by, String::new())?;
        }
        self.state = to;
        Ok(())
    }

    pub(super) fn resume(&mut self, by: &str) -> Result<(), EngineError> {
        if self.is_paused() {
            self.read_meter(Instant::now())?;
            self.changed("resume", by, String::new())?;
            self.standing.sandbox.resume()?;
            self.relay.go_on(self.paused_since.elapsed());
            self.state = LiveState::Running;
        }
        Ok(())
    }

    pub(super) fn extend(&mut self, span: Span, by: &str) -> Result<(), EngineError> {
        let now = Instant::now();
        let Some(left) = self.clock.left(now) else {
            return Err(EngineError::Declined("it is perpetual: there is nothing to extend".into()));
        };
        let left = self.operator.within(left + span.0)?;
        self.changed("extend", by, format!("by {span}, {} left", Span(Duration::from_secs(left.as_secs()))))?;
        self.clock.set(left, now);
        Ok(())
    }

    /// Somebody stays with it: who has said nothing of its time has it for as long as that.
    pub(super) fn attended(&mut self, by: &str) -> Result<(), EngineError> {
        match self.spec.live.ttl {
            None if self.clock.left(Instant::now()).is_some() => self.set_time(None, by),
            _ => Ok(()),
        }
    }

    /// From now on; nothing: as long as the operator lets any session be.
    pub(super) fn set_time(&mut self, left: Option<Span>, by: &str) -> Result<(), EngineError> {
        let left = match left {
            Some(left) => self.operator.within(left.0)?,
            None => self.operator.longest(),
        };
        self.changed("extend", by, format!("{} left", Span(Duration::from_secs(left.as_secs()))))?;
        self.clock.set(left, Instant::now());
        Ok(())
    }
}
