//! Pass, fail or review. Several baselines of one input are one set: the nearest explains what differs, and what the
//! baselines do differently from each other is normal. What changed the world decides; what was read, said or tried in
//! vain is told and rarely weighs enough. What cannot be told is review, and never a pass.

mod answers;
mod deeds;
mod judge;
mod sentences;
mod statistics;
mod suite;
mod thresholds;

pub use judge::{Evidence, judge};
pub use statistics::{Drift, Paired, drift, paired, wilson};
pub use suite::{Aggregate, Kept, Share, Trial, aggregate};
pub use thresholds::Thresholds;

use crate::claims::ClaimReport;
use crate::delta::Diff;
use crate::enforce::Enforced;
use crate::ground::GroundReport;
use crate::reason::{Outcome, Reason};
use serde::{Deserialize, Serialize};

/// Everything that is known of one session: what reports show and gates decide on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The baselines' ids, in the order they were given.
    pub bases: Vec<String>,
    pub new: String,
    /// Which of them the new run is nearest to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<usize>,
    /// What differs from that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<Diff>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Enforced>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<ClaimReport>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ground: Option<GroundReport>,
    pub features: Features,
    pub verdict: SessionVerdict,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SessionVerdict {
    pub outcome: Outcome,
    /// How far from the baselines, in effects: 0 is the same, 1 is one effect more or less. It orders sessions; the
    /// reasons explain it.
    pub score: f64,
    /// Gravest first.
    pub reasons: Vec<Reason>,
}

/// What the verdict is made of, for those who want to decide otherwise.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Features {
    pub baselines: usize,
    /// Effects that were carried out.
    pub effects: usize,
    /// To the nearest baseline: effects more, fewer, and with other arguments.
    pub effects_added: usize,
    pub effects_removed: usize,
    pub effects_changed: usize,
    /// The distance that these make.
    pub effect_distance: f64,
    /// How far the baselines are from each other, each to its nearest.
    pub spread: f64,
    /// Tools that change the world and that no baseline has called.
    pub strange_tools: Vec<String>,
    /// Effects that were tried in vain, beyond what any baseline did.
    pub vain_attempts: usize,
    /// It gives up to a person where no baseline does, or the other way round.
    pub hands_over_otherwise: bool,
    /// Values that every baseline tells the user, and how many of them this run does not.
    pub answers: usize,
    pub answers_missing: usize,
    /// The share of readings of the nearest baseline that this run did not make, and of its own that are new.
    pub readings_differ: f64,
    /// Tokens and time against the median of the baselines; none where they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_ratio: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ratio: Option<f64>,
}

#[cfg(test)]
mod tests;
