//! What an agent tells of its own workflow. It is a claim, not an observation: the inside says so, and what it
//! does is on record besides.

use crate::{Content, Verdict};
use serde::{Deserialize, Serialize};

/// How a step came to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepVia {
    /// The session's own endpoint, or `cofferdam step`.
    Endpoint,
    /// A span of OpenTelemetry.
    Otlp,
}

/// A step begins; if its parent is known, that is the event's parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepStarted {
    pub via: StepVia,
    /// As the inside calls it: ours if it named none.
    pub id: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Content>,
    /// `agent`, `tool`, `model`, `retrieval`… where it was said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sort: String,
    pub effect: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When the inside says it began, in microseconds since the Unix epoch, where that is not now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_us: Option<u64>,
}

/// A step is over; its parent is the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepEnded {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Content>,
    /// What went wrong, if the inside says that something did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_us: Option<u64>,
}

/// The agent gave up one plan for another; the event's parent is the step, where it named one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepReplanned {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// What it knew, and what it will do now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Content>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Content>,
}
