//! Many sessions, some of them tried several times: one verdict, with what the counts can and cannot tell.

use super::{Thresholds, statistics::wilson};
use crate::reason::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Sessions that a sentence names before it counts the rest.
const NAMED: usize = 5;

/// One run of one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    pub session: String,
    pub outcome: Outcome,
}

/// A share with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Share {
    pub hits: usize,
    pub n: usize,
    pub low: f64,
    pub high: f64,
}

impl Share {
    pub fn of(hits: usize, n: usize) -> Self {
        let (low, high) = wilson(hits, n);
        Self { hits, n, low, high }
    }
}

/// One session over all its trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    pub session: String,
    pub outcome: Outcome,
    pub passed: Share,
    pub reviewed: usize,
    /// It passes sometimes and fails sometimes.
    pub flaky: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Aggregate {
    pub outcome: Outcome,
    pub passed: Share,
    pub failed: Share,
    pub reviewed: Share,
    pub flaky: usize,
    /// By name.
    pub sessions: Vec<Kept>,
    /// In words, gravest first.
    pub reasons: Vec<String>,
}

/// The order of the trials does not matter. Nothing run is nothing known: an empty suite is for review.
pub fn aggregate(trials: &[Trial], thresholds: &Thresholds) -> Aggregate {
    let mut by_session: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for trial in trials {
        by_session.entry(&trial.session).or_default()[trial.outcome as usize] += 1;
    }
    let sessions: Vec<Kept> =
        by_session.into_iter().map(|(name, counts)| kept(name, counts, thresholds)).collect();
    let count = |outcome| sessions.iter().filter(|s| s.outcome == outcome).count();
    let n = sessions.len();
    let (passed, failed, reviewed) = (count(Outcome::Pass), count(Outcome::Fail), count(Outcome::Review));
    let mut reasons = Vec::new();
    let names = |outcome| {
        let named = sessions.iter().filter(|s| s.outcome == outcome).map(|s| s.session.as_str());
        let named: Vec<&str> = named.collect();
        let (told, rest) = named.split_at(named.len().min(NAMED));
        let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        format!("{}{more}", told.join(", "))
    };
    let mut outcome = Outcome::Pass;
    if failed > thresholds.failed {
        outcome = Outcome::Fail;
        let most = match thresholds.failed {
            0 => String::new(),
            most => format!(", and the suite allows {most}"),
        };
        reasons.push(format!("{failed} of {n} sessions failed{most}: {}", names(Outcome::Fail)));
    }
    if reviewed as f64 > thresholds.review * n as f64 {
        outcome = outcome.max(Outcome::Review);
        reasons.push(format!("{reviewed} of {n} sessions are for review: {}", names(Outcome::Review)));
    }
    if n == 0 {
        outcome = Outcome::Review;
        reasons.push("no session was run; check the suite's `[[session]]` tables".to_owned());
    }
    let flaky = sessions.iter().filter(|s| s.flaky).count();
    let share = |hits| Share::of(hits, n);
    Aggregate {
        outcome,
        passed: share(passed),
        failed: share(failed),
        reviewed: share(reviewed),
        flaky,
        sessions,
        reasons,
    }
}

/// A session passes if enough of its trials do, fails if not even the reviews could make up for it, and is else for
/// review.
fn kept(session: &str, [passed, reviewed, failed]: [usize; 3], thresholds: &Thresholds) -> Kept {
    let n = passed + reviewed + failed;
    let wanted = (thresholds.trials.clamp(0.0, 1.0) * n as f64).ceil() as usize;
    let outcome = match () {
        () if passed >= wanted => Outcome::Pass,
        () if passed + reviewed < wanted => Outcome::Fail,
        () => Outcome::Review,
    };
    Kept {
        session: session.to_owned(),
        outcome,
        passed: Share::of(passed, n),
        reviewed,
        flaky: passed > 0 && failed > 0,
    }
}
