//! Our own REST, version 1. Unknown fields of a request are errors: a misspelt one would be a wish that is not
//! fulfilled.

mod record;
mod session;
mod work;

pub use record::{
    Approval, ApprovalAnswer, Approvals, Gate, GateAsked, GateState, Gates, NewSecret, Secret, Secrets,
    Trace, TraceEvent, TraceEvents, TraceState, Traces, Usage, UsageList,
};
pub use session::{
    Extend, ForkAsked, Forks, NewSession, OnTimeout, Pause, Policy, Resume, Session, SessionState, Sessions,
    Snapshot, SnapshotAsked, Snapshots,
};
pub use work::{
    Difference, Exec, ExecAsked, ExecEvent, ExecExit, ExecResult, Execs, FileEntry, FileKind, Files, Settle,
    SettledTransaction, Transaction,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Every error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Error {
    /// For programs; it stays the same when the message changes.
    pub code: String,
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
