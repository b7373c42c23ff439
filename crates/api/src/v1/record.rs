//! What is on record, what waits for a person, what was used, and gates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TraceState {
    Running,
    Complete,
    Incomplete,
    Damaged,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    pub id: String,
    pub state: TraceState,
    pub started_at: String,
    pub ended_at: Option<String>,
    pub events: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Traces {
    pub traces: Vec<Trace>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TraceEvent {
    pub trace: String,
    pub seq: u64,
    pub time_us: u64,
    pub kind: String,
    pub body: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TraceEvents {
    pub events: Vec<TraceEvent>,
}

/// A request that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approval {
    pub session: String,
    pub id: u64,
    pub rule: String,
    pub reason: String,
    pub method: String,
    pub url: String,
    pub until: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approvals {
    pub approvals: Vec<Approval>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalAnswer {
    pub allow: bool,
}

/// A credential of the vault: never its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Secret {
    pub name: String,
    /// Where it may be sent.
    pub hosts: Vec<String>,
    /// The variable that holds its placeholder inside.
    pub env: String,
    pub revoked: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Secrets {
    pub secrets: Vec<Secret>,
}

#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSecret {
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"))]
    pub name: String,
    #[schemars(length(min = 1))]
    pub value: String,
    #[schemars(length(min = 1))]
    pub hosts: Vec<String>,
    /// `bearer`, `basic`, `header:NAME`, `query:NAME`, `body:PATH`; `bearer` unless said.
    #[serde(default)]
    pub places: Vec<String>,
    pub env: Option<String>,
}

/// What a session has used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    pub session: String,
    pub span_us: u64,
    pub paused_us: u64,
    pub cpu_us: u64,
    pub memory_mib_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageList {
    pub usage: Vec<Usage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateAsked {
    /// The suite's file on the machine of the service.
    pub suite: String,
    /// Told of the verdict by a signed POST.
    pub webhook: Option<String>,
    /// The commit that is judged, for a check of GitHub.
    pub commit: Option<String>,
    /// Sessions at a time.
    #[schemars(range(min = 1, max = 256))]
    #[serde(default, deserialize_with = "super::whole")]
    pub concurrency: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GateState {
    Running,
    Pass,
    Fail,
    Review,
    /// It could not be run to its end.
    Error,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gate {
    pub id: String,
    pub suite: String,
    pub state: GateState,
    pub started_at: String,
    pub ended_at: Option<String>,
    /// Why it could not be run.
    pub error: Option<String>,
    /// Whether the webhook took it; nothing where there is none.
    pub published: Option<bool>,
    /// As `gate.json` has it.
    pub result: Option<Map<String, Value>>,
    /// What GitHub's `POST /repos/OWNER/REPO/check-runs` takes.
    pub check_run: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gates {
    pub gates: Vec<Gate>,
}
