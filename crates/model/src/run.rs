//! A run as comparison sees it: what an agent was told, said and did, in order. It is reduced from our own
//! trace or read from someone else's format; nothing in it says which sandbox or proxy it came through.

use crate::Verdict;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One reduced run. Equal runs are equal values, whatever the times and ids of their traces were.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Run {
    /// The session's id, or the foreign trace's own name for itself.
    pub id: String,
    /// `cofferdam`, or the foreign format: `openai`, `anthropic`, `otlp`, `agentdojo`, `atif`…
    pub origin: String,
    pub acts: Vec<Act>,
    #[serde(default)]
    pub spent: Spent,
    /// What is missing or unsound in the source, in words: a comparison over it can at best be a review.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
}

/// One thing that was told, said or done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Act {
    /// Where it stands in its source: the event's sequence number, or the message's index.
    pub at: u64,
    /// The act it belongs to, by index: a call to the step it was made in or the message that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<usize>,
    pub kind: ActKind,
    /// The tool's name, the model's, `GET api.example.com/v1/items`, the program, the step.
    pub name: String,
    /// What it was called with; an object wherever the source had one.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub args: Value,
    /// What came back, or what was told or said. JSON stays text here: claims point into it by byte range.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    #[serde(default)]
    pub status: Status,
    #[serde(default)]
    pub effect: EffectOf,
    /// What was decided live, where something was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActKind {
    /// The operator's words: a system prompt.
    Instructed,
    /// The user's words.
    Told,
    /// The model's words to the user or to itself.
    Said,
    /// A model was called (provider and model in `name`, parameters in `args`).
    Model,
    Tool,
    /// A request that left (or wanted to) and is not a tool or model call.
    Egress,
    Exec,
    /// A file of the work dir changed.
    File,
    Browser,
    Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    #[default]
    Ok,
    /// It was carried out and failed; the text says how.
    Failed,
    /// It was not carried out: a policy, a limit or a person said no.
    Refused,
    /// Asked for by the model and never seen to be executed.
    Unanswered,
}

/// Whether an act changes the world, and how that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EffectOf {
    /// The source does not say; the comparison may learn it.
    #[default]
    Unknown,
    Reads,
    Changes,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    pub effect: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// What a run has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spent {
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub tokens_cached: u64,
    pub tokens_reasoning: u64,
    /// In millionths of a US dollar; nothing where a price was not known.
    pub cost_micros: u64,
    pub wall_us: u64,
}
