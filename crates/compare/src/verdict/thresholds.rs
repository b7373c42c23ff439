//! What a team lives with. The defaults fail a session for one effect that is different for certain, and ask a person
//! about what is not certain.

use crate::delta::Options;
use crate::reason::Outcome;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// A difference of effects of at least this much fails a session…
    pub fail_at: f64,
    /// …and of at least this much is for review.
    pub review_at: f64,
    /// Values that every baseline tells the user: if more than this share is missing, the session is for review.
    pub answers_missing: f64,
    /// The most that words which something read contradicts make of a session that has baselines…
    pub contradicted: Outcome,
    /// …and words that rest on nothing read. Both only where there is more of it than in any baseline.
    pub unsupported: Outcome,
    /// More tokens, or more time, than this many times the baselines' median is for review.
    pub tokens_ratio: Option<f64>,
    pub time_ratio: Option<f64>,
    /// Of the trials of one session, this share has to pass.
    pub trials: f64,
    /// Sessions of a suite that may fail before the suite fails.
    pub failed: usize,
    /// The share of a suite's sessions that may be for review before the suite is.
    pub review: f64,
    /// What is no difference.
    #[serde(flatten)]
    pub options: Options,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            fail_at: 0.5,
            review_at: 0.15,
            answers_missing: 0.5,
            contradicted: Outcome::Review,
            unsupported: Outcome::Pass,
            tokens_ratio: None,
            time_ratio: None,
            trials: 1.0,
            failed: 0,
            review: 0.0,
            options: Options::default(),
        }
    }
}
