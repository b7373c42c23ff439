//! The raw facts a trace is made of. Hot code appends these in order; what they mean is worked out later.

use crate::{
    AlertSent, ApprovalAnswered, BrowserActed, BrowserDone, BrowserEnded, BrowserFault, BrowserSeen,
    BrowserStarted, ControlChanged, CredentialUsed, Digest, EgressDecided, EgressEnded, EgressOpened,
    EgressRefused, EnforcementReport, ExchangeRecorded, FileAsked, FileChange, ModelCalled, NameAsked,
    RawPath, ReplayMissed, ReplayServed, ReplayStarted, SessionChanged, SessionId, SessionSpec, SqlDecided,
    SqlEnded, StepEnded, StepReplanned, StepStarted, StrayPacket, SyscallSeen, ToolCalled, ToolChanged,
    ToolFault, ToolListed, ToolRegistered, ToolReturned,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of a trace. The fields stand in the order of their canonical bytes (sorted by name).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Kept as a JSON value: a reader must be able to check and carry kinds it does not know.
    pub body: Value,
    /// Over the canonical bytes of all other fields.
    pub hash: Digest,
    pub kind: String,
    /// The sequence number of the event this one belongs to, as an output belongs to its exec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    /// The hash of the event before.
    pub prev: Digest,
    pub seq: u64,
    /// Microseconds since the Unix epoch, by the host's clock.
    pub time: u64,
}

/// The kinds this version writes, with what each holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body")]
pub enum Body {
    #[serde(rename = "session.started")]
    SessionStarted(Box<SessionStarted>),
    #[serde(rename = "enforcement")]
    Enforcement(Box<EnforcementReport>),
    #[serde(rename = "exec.started")]
    ExecStarted(ExecStarted),
    #[serde(rename = "output")]
    Output(OutputCaptured),
    #[serde(rename = "output.seen")]
    OutputSeen(OutputSeen),
    #[serde(rename = "exec.exited")]
    ExecExited(ExecExited),
    #[serde(rename = "blocked")]
    Blocked(BlockedAttempt),
    #[serde(rename = "syscall")]
    Syscall(SyscallSeen),
    #[serde(rename = "limit")]
    Limit(LimitHit),
    #[serde(rename = "file.changed")]
    FileChanged(FileChange),
    #[serde(rename = "file.asked")]
    FileAsked(FileAsked),
    #[serde(rename = "changes.decided")]
    ChangesDecided(ChangesDecided),
    #[serde(rename = "egress.opened")]
    EgressOpened(Box<EgressOpened>),
    #[serde(rename = "egress.decided")]
    EgressDecided(Box<EgressDecided>),
    #[serde(rename = "egress.ended")]
    EgressEnded(EgressEnded),
    #[serde(rename = "egress.refused")]
    EgressRefused(Box<EgressRefused>),
    #[serde(rename = "sql.decided")]
    SqlDecided(Box<SqlDecided>),
    #[serde(rename = "sql.ended")]
    SqlEnded(SqlEnded),
    #[serde(rename = "credential.used")]
    CredentialUsed(CredentialUsed),
    #[serde(rename = "approval.answered")]
    ApprovalAnswered(ApprovalAnswered),
    #[serde(rename = "control.changed")]
    ControlChanged(ControlChanged),
    #[serde(rename = "name.asked")]
    NameAsked(NameAsked),
    #[serde(rename = "packet.stray")]
    StrayPacket(StrayPacket),
    #[serde(rename = "alert.sent")]
    AlertSent(AlertSent),
    #[serde(rename = "exchange.recorded")]
    ExchangeRecorded(Box<ExchangeRecorded>),
    #[serde(rename = "model.called")]
    ModelCalled(Box<ModelCalled>),
    #[serde(rename = "tool.listed")]
    ToolListed(ToolListed),
    #[serde(rename = "tool.registered")]
    ToolRegistered(ToolRegistered),
    #[serde(rename = "tool.changed")]
    ToolChanged(ToolChanged),
    #[serde(rename = "tool.called")]
    ToolCalled(Box<ToolCalled>),
    #[serde(rename = "tool.returned")]
    ToolReturned(ToolReturned),
    #[serde(rename = "tool.fault")]
    ToolFault(ToolFault),
    #[serde(rename = "browser.started")]
    BrowserStarted(BrowserStarted),
    #[serde(rename = "browser.acted")]
    BrowserActed(Box<BrowserActed>),
    #[serde(rename = "browser.done")]
    BrowserDone(Box<BrowserDone>),
    #[serde(rename = "browser.seen")]
    BrowserSeen(Box<BrowserSeen>),
    #[serde(rename = "browser.fault")]
    BrowserFault(BrowserFault),
    #[serde(rename = "browser.ended")]
    BrowserEnded(BrowserEnded),
    #[serde(rename = "step.started")]
    StepStarted(Box<StepStarted>),
    #[serde(rename = "step.ended")]
    StepEnded(StepEnded),
    #[serde(rename = "step.replanned")]
    StepReplanned(StepReplanned),
    #[serde(rename = "session.changed")]
    SessionChanged(SessionChanged),
    #[serde(rename = "replay.started")]
    ReplayStarted(ReplayStarted),
    #[serde(rename = "replay.served")]
    ReplayServed(ReplayServed),
    #[serde(rename = "replay.missed")]
    ReplayMissed(Box<ReplayMissed>),
    #[serde(rename = "session.ended")]
    SessionEnded(SessionEnded),
    /// Says who vouches for everything up to here.
    #[serde(rename = "checkpoint")]
    Checkpoint(Checkpoint),
    /// A checkpoint after which nothing may follow.
    #[serde(rename = "head")]
    Head(Checkpoint),
}

/// A signature over the chain so far. Being an event itself, it is covered by the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// How many events precede this one.
    pub count: u64,
    /// The hash of the last of them.
    pub covers: Digest,
    /// The signer, as the digest of its public key.
    pub key: Digest,
    /// Ed25519, in base64.
    pub signature: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionStarted {
    pub session: SessionId,
    /// The writer: program and version.
    pub by: String,
    pub format: u32,
    pub spec: SessionSpec,
    pub workdir: RawPath,
    pub user: String,
    pub host: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStarted {
    pub argv: Vec<String>,
    /// Names only: values may be secrets.
    pub env: Vec<String>,
    pub cwd: RawPath,
    pub tty: bool,
    pub user: String,
    /// No command of the session's: a part of it, as its browser is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
    /// Asked for from inside, and by what: `sudo`. Its input and output are those of whoever asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    Stdin,
    Stdout,
    Stderr,
    /// Both output streams of a terminal.
    Tty,
}

/// A stored payload, named by the digest of its uncompressed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    pub digest: Digest,
    pub size: u64,
}

/// A whole stream: every byte is under `digest`, the first and last are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputCaptured {
    pub stream: Stream,
    pub bytes: u64,
    pub digest: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<BlobRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<BlobRef>,
}

/// A stream on its way: what there was of it so far, so that a run that is killed leaves more than its beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSeen {
    pub stream: Stream,
    pub bytes: u64,
    /// Of all bytes so far.
    pub digest: Digest,
    /// Those that came since the last time, or the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub piece: Option<BlobRef>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// The program's own code.
    Code(i32),
    /// Ended by this signal.
    Signal(i32),
    /// The program was not found.
    NotFound,
    /// The program was found and could not be executed.
    NotExecutable,
    /// Ended by us: a time-out.
    TimedOut,
    /// Ended by us or by the kernel on our limit.
    LimitReached,
}

impl Exit {
    /// The code a shell would show.
    pub const fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
            Self::NotFound => 127,
            Self::NotExecutable => 126,
            Self::TimedOut => 124,
            Self::LimitReached => 137,
        }
    }
}

/// What a session or an exec has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    pub wall_us: u64,
    pub user_us: u64,
    pub system_us: u64,
    /// Of the largest process, or of the whole cgroup where there is one.
    pub peak_memory: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecExited {
    pub exit: Exit,
    pub usage: Usage,
}

/// A system call that was refused, with what it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedAttempt {
    pub syscall: String,
    #[serde(with = "crate::wide::many")]
    pub args: Vec<u64>,
    /// Inside the sandbox's own pid namespace where the kernel tells it.
    pub pid: u32,
    pub program: String,
    /// Its arguments, as the process tells them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    pub reason: String,
    /// How many like it were folded into this event.
    pub times: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitHit {
    /// The field of the spec: `memory`, `pids`, `timeout`, `output`…
    pub limit: String,
    #[serde(with = "crate::wide::one")]
    pub allowed: u64,
    #[serde(with = "crate::wide::one")]
    pub seen: u64,
    pub detail: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedChange {
    pub path: RawPath,
    pub reason: String,
    /// The inside's version of it lies where `ChangesDecided::aside` says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aside: bool,
}

impl SkippedChange {
    pub fn new(path: impl Into<RawPath>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into(), aside: false }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangesDecided {
    pub kept: bool,
    pub by: String,
    pub created: u64,
    pub modified: u64,
    #[serde(default, skip_serializing_if = "crate::change::is_none")]
    pub renamed: u64,
    pub deleted: u64,
    /// Changes that were not carried out, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedChange>,
    /// What those are kept under that the inside has made: the name of a conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEnded {
    pub exit: Exit,
    pub usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Body {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::SessionStarted(_) => "session.started",
            Self::Enforcement(_) => "enforcement",
            Self::ExecStarted(_) => "exec.started",
            Self::Output(_) => "output",
            Self::OutputSeen(_) => "output.seen",
            Self::ExecExited(_) => "exec.exited",
            Self::Blocked(_) => "blocked",
            Self::Syscall(_) => "syscall",
            Self::Limit(_) => "limit",
            Self::FileChanged(_) => "file.changed",
            Self::FileAsked(_) => "file.asked",
            Self::ChangesDecided(_) => "changes.decided",
            Self::EgressOpened(_) => "egress.opened",
            Self::EgressDecided(_) => "egress.decided",
            Self::EgressEnded(_) => "egress.ended",
            Self::EgressRefused(_) => "egress.refused",
            Self::SqlDecided(_) => "sql.decided",
            Self::SqlEnded(_) => "sql.ended",
            Self::CredentialUsed(_) => "credential.used",
            Self::ApprovalAnswered(_) => "approval.answered",
            Self::ControlChanged(_) => "control.changed",
            Self::NameAsked(_) => "name.asked",
            Self::StrayPacket(_) => "packet.stray",
            Self::AlertSent(_) => "alert.sent",
            Self::ExchangeRecorded(_) => "exchange.recorded",
            Self::ModelCalled(_) => "model.called",
            Self::ToolListed(_) => "tool.listed",
            Self::ToolRegistered(_) => "tool.registered",
            Self::ToolChanged(_) => "tool.changed",
            Self::ToolCalled(_) => "tool.called",
            Self::ToolReturned(_) => "tool.returned",
            Self::ToolFault(_) => "tool.fault",
            Self::BrowserStarted(_) => "browser.started",
            Self::BrowserActed(_) => "browser.acted",
            Self::BrowserDone(_) => "browser.done",
            Self::BrowserSeen(_) => "browser.seen",
            Self::BrowserFault(_) => "browser.fault",
            Self::BrowserEnded(_) => "browser.ended",
            Self::StepStarted(_) => "step.started",
            Self::StepEnded(_) => "step.ended",
            Self::StepReplanned(_) => "step.replanned",
            Self::SessionChanged(_) => "session.changed",
            Self::ReplayStarted(_) => "replay.started",
            Self::ReplayServed(_) => "replay.served",
            Self::ReplayMissed(_) => "replay.missed",
            Self::SessionEnded(_) => "session.ended",
            Self::Checkpoint(_) => "checkpoint",
            Self::Head(_) => "head",
        }
    }
}

impl Event {
    /// The typed body, or `None` for a kind that this version does not know or a body of another shape.
    pub fn typed(&self) -> Option<Body> {
        serde_json::from_value(serde_json::json!({ "kind": self.kind, "body": self.body })).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_reads_back_through_its_event() {
        let body = Body::Limit(LimitHit {
            limit: "pids".into(),
            allowed: 64,
            seen: 64,
            detail: "fork refused".into(),
        });
        let json = serde_json::to_value(&body).unwrap();
        let event = Event {
            body: json["body"].clone(),
            hash: Digest::ZERO,
            kind: body.kind().into(),
            parent: None,
            prev: Digest::ZERO,
            seq: 0,
            time: 0,
        };
        assert_eq!(json["kind"], body.kind());
        assert_eq!(event.typed(), Some(body));
        assert_eq!(Event { kind: "of.the.future".into(), ..event }.typed(), None);
    }
}
