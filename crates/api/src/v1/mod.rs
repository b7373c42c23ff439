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
    Extend, ForkAsked, Forks, Mounted, NewSession, NewVolume, OnTimeout, Pause, Policy, Resume, Session,
    SessionState, Sessions, Snapshot, SnapshotAsked, Snapshots, Volume, Volumes,
};
pub use work::{
    Difference, Exec, ExecAsked, ExecEvent, ExecExit, ExecResult, Execs, FileEntry, FileKind, Files, Settle,
    SettledTransaction, Transaction,
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

/// Something without NUL in it.
pub const WORD: &str = r"^[^\x00]+$";

/// Variables: a name has no `=` and no NUL in it, a value no NUL.
pub(crate) fn variables(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": { "pattern": r"^[^=\x00]+$" },
        "additionalProperties": { "type": "string", "pattern": r"^[^\x00]*$" },
        "default": {},
    })
}

/// A number that is whole is one also where it is written with a point, as JSON Schema has it.
pub(crate) fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Whole(u32),
        Point(f64),
    }
    let number = Option::<Number>::deserialize(from)
        .map_err(|_| serde::de::Error::custom("a whole number from 0 to 4294967295 is needed"))?;
    match number {
        None => Ok(None),
        Some(Number::Whole(number)) => Ok(Some(number)),
        Some(Number::Point(number))
            if number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number) =>
        {
            Ok(Some(number as u32))
        }
        Some(Number::Point(number)) => {
            Err(serde::de::Error::custom(format!("a whole number is needed, and not {number}")))
        }
    }
}

/// The same where it has to be said.
pub(crate) fn needed<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    whole(from)?.ok_or_else(|| serde::de::Error::custom("a whole number is needed"))
}

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
