//! What is told of a session that runs again from the recording of another: what it is a repetition of, which
//! recorded answer each request got, and why one got none.

use crate::SessionId;
use serde::{Deserialize, Serialize};

/// When a request is the one that was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Matching {
    /// Byte for byte.
    Strict,
    /// But for what the rules declare volatile.
    #[default]
    Normalised,
}

/// What becomes of a request that was not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fallback {
    /// It is refused.
    #[default]
    Error,
    /// It is refused, and a person should look at the run.
    Review,
    /// It goes out, with real credentials.
    Live,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speed {
    #[default]
    Full,
    Recorded,
}

/// Everything after this is a repetition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayStarted {
    pub of: SessionId,
    /// Exchanges that can be served.
    pub exchanges: u64,
    pub matching: Matching,
    pub fallback: Fallback,
    pub speed: Speed,
    /// What the inside takes for the time, where that is not the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// What of the recorded session is not repeated, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}

/// A request got a recorded answer; its parent is the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayServed {
    /// The exchange, by its event in the recording.
    pub recorded: u64,
    pub matching: Matching,
    /// It was served before, and the rules let it be served again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Miss {
    /// Nothing was ever sent to this host.
    UnknownHost,
    /// The host was asked for other things.
    Different,
    /// It was recorded, and all its answers are used.
    UsedUp,
    /// It was recorded without an answer that could be served.
    NoAnswer,
}

/// One thing in which a request is not the recorded one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// `method`, `host`, `path`, `query.NAME`, `header.NAME`, `body`, `body.messages[2].content`.
    pub at: String,
    /// Absent where it was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
}

/// The recorded request that comes nearest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nearest {
    /// By its event in the recording.
    pub recorded: u64,
    pub request: String,
    pub differences: Vec<Difference>,
    /// How many more there are than are listed.
    #[serde(default, skip_serializing_if = "crate::change::is_none")]
    pub more: u64,
}

/// A request that has no recorded answer; its parent is the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayMissed {
    pub why: Miss,
    pub request: String,
    pub fallback: Fallback,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<Nearest>,
}
