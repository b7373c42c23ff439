//! What can be wrong with a gate's own files and keys.

use cofferdam_gate::{ApprovalError, MergeError, VerifyError};
use cofferdam_report::evidence::EvidenceError;
use cofferdam_seal::dsse::{EnvelopeError, VerifierError};
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error("--only {id}: the suite has no session of that name{}", hint(.near.as_deref()))]
    NoSession { id: String, near: Option<String> },
    #[error("--shard {index}/{of}: write which part of how many, as in 1/4")]
    Shard { index: u32, of: u32 },
    #[error("--shard {index}/{of} has no sessions: the suite has only {sessions}")]
    EmptyShard { index: u32, of: u32, sessions: usize },
    #[error(
        "--baseline {0}: neither a directory nor a commit of the suite's repository: record one with `cofferdam record`, or name a branch, tag or commit"
    )]
    NoBaselineDir(PathBuf),
    #[error("--baseline {at}: that commit has no baseline in `{dir}`: name one that has, or record one")]
    NotInCommit { at: String, dir: String },
    #[error("--baseline {at}: git cannot give it: {why}")]
    Git { at: String, why: String },
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}: {source}")]
    Key { path: PathBuf, source: VerifierError },
    #[error("{path}: {source}")]
    Unsound { path: PathBuf, source: VerifyError },
    #[error("{path}: {source}")]
    Approval { path: PathBuf, source: ApprovalError },
    #[error("{path}: {source}")]
    Evidence { path: PathBuf, source: EvidenceError },
    #[error(transparent)]
    Approving(#[from] ApprovalError),
    #[error(transparent)]
    Sign(#[from] EnvelopeError),
    #[error(transparent)]
    Merge(#[from] MergeError),
    #[error("{path}: neither a trace of ours nor a format that is known: {problem}")]
    Foreign { path: PathBuf, problem: String },
    #[error("{name} cannot be taken as a run: {why}")]
    Unusable { name: String, why: String },
    #[error("{path} holds {count} runs: name a file with one")]
    Several { path: PathBuf, count: usize },
    #[error("there is nothing in {0} to compare: it holds no traces")]
    NoTraces(PathBuf),
    #[error("{0} results have no history: name the directories of two or more, the oldest first")]
    Short(usize),
    #[error("{dir} is a result of `{}` and not of `{}`: a history is of one suite", .suites[1], .suites[0])]
    OtherSuite { dir: PathBuf, suites: [String; 2] },
    #[error("{0} is a directory and the other is not: compare two files or two directories")]
    Unlike(PathBuf),
}

fn hint(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}
