//! What a gate found: the whole of `gate.json`. The same inputs give the same text, but for times and ids, which
//! stand in fields of their own.

use crate::Sessions;
use cofferdam_compare::verdict::{Share, Thresholds};
use cofferdam_compare::{Outcome, Reason};
use cofferdam_model::{Digest, Exit, SessionId, Tier};
use serde::{Deserialize, Serialize};

pub const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateResult {
    pub version: u32,
    pub outcome: Outcome,
    /// One sentence each, the gravest first.
    pub why: Vec<String>,
    pub counts: Counts,
    pub rates: Rates,
    pub thresholds: Thresholds,
    pub suite: Material,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Material>,
    pub agent: Agent,
    /// In the order of the suite.
    pub sessions: Sessions,
    pub run: RunInfo,
}

/// A file that the verdict rests on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Material {
    /// Its path from the suite's directory.
    pub name: String,
    pub digest: Digest,
}

/// Which version was judged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    pub command: Vec<String>,
    /// Of the repository that the agent lies in, if it lies in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Whether its files are not those of that commit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub modified: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    pub sessions: u64,
    pub pass: u64,
    pub review: u64,
    pub fail: u64,
    /// Of those that passed at least once and not every time.
    pub flaky: u64,
}

/// What the counts can and cannot tell: shares of the sessions, each with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    pub passed: Share,
    pub failed: Share,
    pub reviewed: Share,
}

/// What is said of one session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionVerdict {
    /// Its name in the suite.
    pub id: String,
    pub outcome: Outcome,
    /// How far from the baselines, in effects: it orders sessions.
    pub score: f64,
    /// Of the attempt that is told of, the gravest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
    /// What the suite's own scorers said of that attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<Scored>,
    /// The file with what scorers and the judge were asked and answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Material>,
    pub input: Input,
    /// What it was compared with; several where the suite was recorded several times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baselines: Vec<TraceRef>,
    /// In order; more than one where it was tried again.
    pub attempts: Vec<Attempt>,
    /// The attempt whose reasons these are: the worst.
    pub told: usize,
    /// Of the baselines, on average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Measures>,
    /// Of the attempt that is told of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<Measures>,
    /// The command that shows it again.
    pub reproduce: Vec<String>,
}

impl SessionVerdict {
    /// How many of the attempts passed.
    pub fn passed(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.outcome == Outcome::Pass).count()
    }

    /// Whether it passed, but not every time.
    pub fn is_flaky(&self) -> bool {
        (1..self.attempts.len()).contains(&self.passed())
    }
}

/// The word of one scorer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scored {
    /// Its name in the suite; `judge` for the judge.
    pub scorer: String,
    /// Review where it gave no answer.
    pub outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
}

/// What the agent was started with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// After the agent's own command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The beginning of what it could read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdin: String,
    /// Of all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The file that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// A trace, by what proves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceRef {
    /// Its path from the suite's directory for a baseline, from the output's for a new one.
    pub name: String,
    /// As its first event says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The hash of its last event: with it, all others are known. Of a foreign trace, the digest of the file.
    pub head: Digest,
    pub events: u64,
    /// Who signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<Digest>,
}

/// One time that a session was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    pub outcome: Outcome,
    /// Absent where the sandbox could not be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Of the enforcement report: what held the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<Digest>,
    pub wall_us: u64,
}

/// What can be counted of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measures {
    pub acts: u64,
    pub model_calls: u64,
    pub tool_calls: u64,
    /// Acts that were not let through.
    pub refused: u64,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub cost_micros: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// From one.
    pub index: u32,
    pub of: u32,
}

/// When, by what, and which part of the suite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunInfo {
    /// Program and version.
    pub by: String,
    pub started_us: u64,
    pub ended_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// Sessions that were picked by name: then nothing is said of the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
}
