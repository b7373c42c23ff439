//! How much a session may send and get, all together, per budget of its policy. Requests are counted before
//! they go out, so that many at once cannot overshoot; bytes are counted as they pass, and the one that goes
//! over is cut.

use cofferdam_model::Cap;
use cofferdam_policy::Budget;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// What was used of one budget. It outlives a change of the policy: a new limit counts what went before.
#[derive(Default)]
struct Tally {
    requests: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
}

/// The cap, and what counts against it.
struct Ceiling {
    used: Tally,
    most: Tally,
}

impl Default for Ceiling {
    fn default() -> Self {
        let none = || AtomicU64::new(u64::MAX);
        Self { used: Tally::default(), most: Tally { requests: none(), up: none(), down: none() } }
    }
}

/// The tallies of a session, by the budget's id.
#[derive(Default)]
pub(crate) struct Tallies {
    budgets: Mutex<HashMap<String, Arc<Tally>>>,
    ceiling: Arc<Ceiling>,
}

/// The budgets one exchange draws on.
#[derive(Clone, Default)]
pub(crate) struct Meter {
    draws: Vec<Draw>,
    ceiling: Option<Arc<Ceiling>>,
}

#[derive(Clone)]
struct Draw {
    tally: Arc<Tally>,
    id: String,
    up: u64,
    down: u64,
}

impl Tallies {
    /// Counts from now on.
    pub(crate) fn set_cap(&self, cap: &Cap) {
        let Ceiling { used, most } = &*self.ceiling;
        for (cap, used, most) in [
            (cap.requests, &used.requests, &most.requests),
            (cap.bytes_up, &used.up, &most.up),
            (cap.bytes_down, &used.down, &most.down),
        ] {
            let most_now = cap.map_or(u64::MAX, |cap| used.load(Relaxed).saturating_add(cap));
            most.store(most_now, Relaxed);
        }
    }

    fn count_request(&self) -> Result<(), String> {
        let Ceiling { used, most } = &*self.ceiling;
        let over = |used: &AtomicU64, most: &AtomicU64| used.load(Relaxed) >= most.load(Relaxed);
        if over(&used.up, &most.up) || over(&used.down, &most.down) {
            return Err(over_cap());
        }
        // Counted first, so that of many at once only as many pass as may.
        if used.requests.fetch_add(1, Relaxed) >= most.requests.load(Relaxed) {
            used.requests.fetch_sub(1, Relaxed);
            return Err(over_cap());
        }
        Ok(())
    }

    /// Counts a request against each of these, or says which one is used up.
    pub(crate) fn open<'a>(&self, budgets: impl Iterator<Item = &'a Budget>) -> Result<Meter, String> {
        self.count_request()?;
        let mut meter = Meter { draws: Vec::new(), ceiling: Some(self.ceiling.clone()) };
        for budget in budgets {
            let tally = {
                let mut all = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
                all.entry(budget.id.clone()).or_default().clone()
            };
            let most = budget.requests.unwrap_or(u64::MAX);
            let over =
                |what, most| format!("budget `{}` of {most} {what} is used up: ask for more", budget.id);
            if tally.requests.fetch_add(1, Relaxed) >= most {
                tally.requests.fetch_sub(1, Relaxed);
                return Err(over("requests", most));
            }
            let (up, down) = (budget.bytes_up.unwrap_or(u64::MAX), budget.bytes_down.unwrap_or(u64::MAX));
            if tally.up.load(Relaxed) >= up {
                return Err(over("bytes sent", up));
            }
            if tally.down.load(Relaxed) >= down {
                return Err(over("bytes received", down));
            }
            meter.draws.push(Draw { tally, id: budget.id.clone(), up, down });
        }
        Ok(meter)
    }
}

impl Meter {
    pub(crate) fn up(&self, bytes: u64) -> Result<(), String> {
        if let Some(ceiling) = &self.ceiling {
            within(&ceiling.used.up, bytes, ceiling.most.up.load(Relaxed)).map_err(|()| over_cap())?;
        }
        self.count(bytes, |draw| (&draw.tally.up, draw.up))
    }

    pub(crate) fn down(&self, bytes: u64) -> Result<(), String> {
        if let Some(ceiling) = &self.ceiling {
            within(&ceiling.used.down, bytes, ceiling.most.down.load(Relaxed)).map_err(|()| over_cap())?;
        }
        self.count(bytes, |draw| (&draw.tally.down, draw.down))
    }

    fn count(&self, bytes: u64, of: impl Fn(&Draw) -> (&AtomicU64, u64)) -> Result<(), String> {
        for draw in &self.draws {
            let (used, most) = of(draw);
            within(used, bytes, most)
                .map_err(|()| format!("budget `{}` of {most} bytes is used up: ask for more", draw.id))?;
        }
        Ok(())
    }
}

fn within(used: &AtomicU64, bytes: u64, most: u64) -> Result<(), ()> {
    if used.fetch_add(bytes, Relaxed).saturating_add(bytes) > most { Err(()) } else { Ok(()) }
}

fn over_cap() -> String {
    "the session's cap is reached: ask whoever runs it for more".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_counts_from_when_it_is_set_and_holds_for_open_meters() {
        let tallies = Tallies::default();
        let open = || tallies.open(std::iter::empty());
        let meter = open().unwrap();
        assert!(meter.up(1_000).is_ok());
        tallies.set_cap(&Cap { requests: Some(1), bytes_up: Some(10), ..Cap::default() });
        assert!(meter.up(10).is_ok());
        assert!(meter.down(1 << 40).is_ok());
        assert!(meter.up(1).is_err());
        assert!(open().is_err());
        tallies.set_cap(&Cap { requests: Some(1), ..Cap::default() });
        assert!(open().is_ok());
        assert!(open().is_err());
        tallies.set_cap(&Cap::default());
        assert!(open().is_ok());
    }
}
