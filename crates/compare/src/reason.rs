//! Why a run is judged as it is: the one form in which every scorer speaks to the verdict. A score without a
//! reason does not exist.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What is said of a session or of a suite. Not to be confused with a policy's allow, deny and review.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    #[default]
    Pass,
    /// It cannot be told, or a person has to.
    Review,
    Fail,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "pass",
            Self::Review => "review",
            Self::Fail => "fail",
        })
    }
}

/// Who says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scorer {
    /// The trace itself: it is cut short, or cannot be verified.
    Trace,
    Policy,
    Diff,
    Claims,
    Groundedness,
    /// A scorer of the user's own.
    Custom,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    Base,
    #[default]
    New,
}

/// Where to look: an act, and in it an argument or a range of its text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Place {
    pub side: Side,
    /// The act's index in its run.
    pub act: usize,
    /// A JSON pointer into its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Bytes of its text, from and to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<(usize, usize)>,
}

impl Place {
    pub fn base(act: usize) -> Self {
        Self { side: Side::Base, act, ..Self::default() }
    }

    pub fn new(act: usize) -> Self {
        Self { act, ..Self::default() }
    }

    #[must_use]
    pub fn path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    #[must_use]
    pub fn bytes(mut self, from: usize, to: usize) -> Self {
        self.bytes = Some((from, to));
        self
    }
}

/// One reason, for programs (`scorer`, `code`, `places`) and for the person whose deploy it stops (`text`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    pub scorer: Scorer,
    /// Stays the same between versions: `effect-added`, `argument-changed`, `policy-denied`, `claim-contradicted`…
    pub code: String,
    /// The rule of the policy that says so, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What this reason alone would make of the session.
    pub outcome: Outcome,
    /// Orders reasons of the same outcome: 1 is certain and grave, 0 is worth a line.
    pub weight: f64,
    /// One sentence: what is different, from what to what, and what to look at.
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
}

/// Gravest first; equal ones in the order of the run, so that the order of scorers does not matter.
pub fn in_order(reasons: &mut [Reason]) {
    reasons.sort_by(|a, b| {
        let gravest = b.outcome.cmp(&a.outcome).then(b.weight.total_cmp(&a.weight));
        let place = gravest.then_with(|| a.places.cmp(&b.places));
        place.then_with(|| (a.scorer, &a.code, &a.text).cmp(&(b.scorer, &b.code, &b.text)))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_comes_first_whatever_the_order() {
        let reason = |outcome, weight, act| Reason {
            scorer: Scorer::Diff,
            code: "x".into(),
            rule: None,
            outcome,
            weight,
            text: String::new(),
            places: vec![Place::new(act)],
        };
        let sorted = [
            reason(Outcome::Fail, 0.1, 9),
            reason(Outcome::Review, 0.9, 3),
            reason(Outcome::Review, 0.5, 1),
            reason(Outcome::Review, 0.5, 2),
            reason(Outcome::Pass, 1.0, 0),
        ];
        let mut mixed: Vec<_> = [3, 0, 4, 2, 1].iter().map(|i| sorted[*i].clone()).collect();
        in_order(&mut mixed);
        assert_eq!(mixed, sorted);
    }
}
