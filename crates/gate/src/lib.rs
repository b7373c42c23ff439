//! From the verdicts of sessions to the verdict of a suite, and to an artifact that proves it: an in-toto
//! Statement in a signed envelope, which other people's verifiers accept.
//!
//! Pure: times, ids, keys and the traces' digests are handed in. It runs nothing and compares nothing.
//!
//! ```text
//! result      what `gate.json` holds
//! sessions    its sessions, kept small
//! decide      sessions and thresholds      → pass, fail or review, and why
//! merge       results of shards            → one result
//! statement   a result                     → subjects, materials, who passed and who did not
//! artifact    a statement and keys         → `gate.dsse.json`, and back with every failure named
//! approval    who let a result through, and why
//! ```

mod approval;
mod artifact;
mod decide;
mod merge;
mod result;
mod sessions;
mod statement;

pub use approval::{APPROVAL, Approval, ApprovalError};
pub use artifact::{Verified, VerifyError, sign, verify, verify_result};
pub use cofferdam_compare::verdict::{Share, Thresholds};
pub use decide::{Decision, decide};
pub use merge::{MergeError, merge};
pub use result::{
    Agent, Attempt, Counts, GateResult, Input, Material, Measures, Rates, RunInfo, Scored, SessionVerdict,
    Shard, TraceRef, VERSION,
};
pub use sessions::Sessions;
pub use statement::{PAYLOAD_TYPE, Resource, STATEMENT, Statement, TEST_RESULT, TestResult, Word};
