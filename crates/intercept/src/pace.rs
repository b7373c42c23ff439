//! How fast the inside may tell: a bucket that fills again, so that bursts pass and a flood does not.

use std::time::Instant;

/// Events at once, and a second.
const BURST: f64 = 10_000.0;
const RATE: f64 = 2_000.0;

pub(crate) struct Pace {
    left: f64,
    at: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self { left: BURST, at: Instant::now() }
    }
}

impl Pace {
    /// Whether so many more may be told now.
    pub(crate) fn takes(&mut self, count: usize) -> bool {
        self.takes_at(count, Instant::now())
    }

    fn takes_at(&mut self, count: usize, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * RATE).min(BURST);
        self.at = now;
        let fits = self.left >= count as f64;
        if fits {
            self.left -= count as f64;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_flood_is_stopped_and_a_second_later_some_may_pass() {
        let mut pace = Pace::default();
        let now = pace.at;
        assert!(pace.takes_at(10_000, now));
        assert!(!pace.takes_at(1, now));
        let later = now + Duration::from_secs(1);
        assert!(pace.takes_at(2_000, later) && !pace.takes_at(1, later));
        assert!(!pace.takes_at(10_001, later + Duration::from_secs(3600)));
    }
}
