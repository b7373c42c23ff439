//! When a session's time is over and when it has been idle for too long. Takes the time, and never reads it.

use cofferdam_model::{Lifetime, Live, LiveState, TimeOver};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Clock {
    lifetime: Lifetime,
    began: Instant,
    until: Option<Instant>,
    over: TimeOver,
    idle: Option<Duration>,
    /// Since when no exec has run.
    quiet_since: Option<Instant>,
    /// Whether there has been one.
    used: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing(Option<Instant>),
    Pause,
    /// Its time is over, and it is to be paused.
    Rest,
    /// Its time is over: so long it was.
    TimeOver(Duration),
    /// Its last exec is over, and it was made for nothing else.
    Unused,
}

impl Clock {
    pub(super) fn new(live: &Live, ttl: Option<Duration>, now: Instant) -> Self {
        Self {
            lifetime: live.lifetime,
            began: now,
            until: ttl.map(|ttl| now + ttl),
            over: live.over,
            idle: live.idle.map(|idle| idle.0),
            quiet_since: Some(now),
            used: false,
        }
    }

    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(now))
    }

    pub(super) fn set(&mut self, left: Duration, now: Instant) {
        self.until = Some(now + left);
    }

    /// To be told whenever the number of running execs may have changed.
    pub(super) fn running(&mut self, execs: usize, now: Instant) {
        self.used |= execs > 0;
        self.quiet_since = match execs {
            0 => self.quiet_since.or(Some(now)),
            _ => None,
        };
    }

    /// As if an exec had just ended.
    pub(super) fn restart_idle(&mut self, now: Instant) {
        self.quiet_since = self.quiet_since.map(|_| now);
    }

    pub(super) fn due(&self, state: LiveState, now: Instant) -> Due {
        if self.until.is_some_and(|until| now >= until) {
            if self.over == TimeOver::Pause && state == LiveState::Running {
                return Due::Rest;
            }
            return Due::TimeOver(now.duration_since(self.began));
        }
        if self.lifetime == Lifetime::Ephemeral && self.used && self.quiet_since.is_some() {
            return Due::Unused;
        }
        let pause = match (self.idle, self.quiet_since, state) {
            (Some(idle), Some(since), LiveState::Running) => Some(since + idle),
            _ => None,
        };
        match pause {
            Some(at) if now >= at => Due::Pause,
            _ => Due::Nothing([self.until, pause].into_iter().flatten().min()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::Span;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn time_is_over_when_it_is_and_can_be_extended_before() {
        let now = Instant::now();
        let mut clock = Clock::new(&Live::default(), Some(10 * SECOND), now);
        assert_eq!(clock.due(LiveState::Running, now), Due::Nothing(Some(now + 10 * SECOND)));
        assert_eq!(clock.due(LiveState::Paused, now + 10 * SECOND), Due::TimeOver(10 * SECOND));
        clock.set(10 * SECOND, now + 9 * SECOND);
        assert_eq!(clock.left(now + 10 * SECOND), Some(9 * SECOND));
        assert_eq!(clock.due(LiveState::Running, now + 10 * SECOND), Due::Nothing(Some(now + 19 * SECOND)));
        assert_eq!(
            Clock::new(&Live::default(), None, now).due(LiveState::Running, now + 99 * SECOND),
            Due::Nothing(None)
        );
    }

    #[test]
    fn idle_is_counted_from_the_last_exec_and_only_while_it_runs() {
        let now = Instant::now();
        let live = Live { idle: Some(Span(5 * SECOND)), ..Live::default() };
        let mut clock = Clock::new(&live, None, now);
        assert_eq!(clock.due(LiveState::Running, now + 5 * SECOND), Due::Pause);
        clock.running(1, now + 2 * SECOND);
        assert_eq!(clock.due(LiveState::Running, now + 50 * SECOND), Due::Nothing(None));
        clock.running(0, now + 50 * SECOND);
        clock.running(0, now + 52 * SECOND);
        assert_eq!(clock.due(LiveState::Running, now + 52 * SECOND), Due::Nothing(Some(now + 55 * SECOND)));
        assert_eq!(clock.due(LiveState::IdlePaused, now + 60 * SECOND), Due::Nothing(None));
        clock.restart_idle(now + 60 * SECOND);
        assert_eq!(clock.due(LiveState::Running, now + 60 * SECOND), Due::Nothing(Some(now + 65 * SECOND)));
    }

    #[test]
    fn an_ephemeral_one_ends_with_its_last_exec_and_not_before_its_first() {
        let now = Instant::now();
        let live = Live { lifetime: Lifetime::Ephemeral, ..Live::default() };
        let mut clock = Clock::new(&live, None, now);
        assert_eq!(clock.due(LiveState::Running, now), Due::Nothing(None));
        clock.running(1, now);
        assert_eq!(clock.due(LiveState::Running, now), Due::Nothing(None));
        clock.running(0, now);
        assert_eq!(clock.due(LiveState::Running, now), Due::Unused);
    }
}
