//! Sessions that stay: how long they may, what they are doing, and what they use. As plain data: whoever holds
//! them reads the clock.

use crate::{Digest, Exit, SessionId, Span, SpecError};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;

/// What ends a session that nobody kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lifetime {
    /// The end of its last exec, or its time.
    Ephemeral,
    /// Its time.
    #[default]
    Persistent,
    /// Nothing. Only where the operator allows it.
    Perpetual,
}

impl Lifetime {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ephemeral => "ephemeral",
            Self::Persistent => "persistent",
            Self::Perpetual => "perpetual",
        }
    }
}

impl FromStr for Lifetime {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        [Self::Ephemeral, Self::Persistent, Self::Perpetual].into_iter().find(|l| l.name() == text).ok_or(
            SpecError::Choice {
                field: "live.lifetime",
                value: text.to_owned(),
                allowed: "ephemeral, persistent, perpetual",
            },
        )
    }
}

/// What becomes of a session whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeOver {
    #[default]
    End,
    /// It is paused, for as long as the operator lets any session be; then it ends.
    Pause,
}

impl TimeOver {
    fn is_end(&self) -> bool {
        *self == Self::End
    }
}

/// How a session stays: the table `[live]` of a spec.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Live {
    pub lifetime: Lifetime,
    /// From its beginning; can be extended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
    /// What then becomes of it.
    #[serde(skip_serializing_if = "TimeOver::is_end")]
    pub over: TimeOver,
    /// Paused once no exec has run for so long, until the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Live {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let zero = |span: Option<Span>| span.is_some_and(|span| span.0.is_zero());
        if zero(self.ttl) {
            return Err(SpecError::Zero { field: "live.ttl" });
        }
        if zero(self.idle) {
            return Err(SpecError::Zero { field: "live.idle" });
        }
        match &self.name {
            // Never an id, so that the two are never taken for each other.
            Some(name) if !is_name(name) => Err(SpecError::Name(name.clone())),
            _ => Ok(()),
        }
    }
}

/// Whether a session or a snapshot may be called so.
pub fn is_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_id = name.parse::<SessionId>().is_ok();
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.len() <= 63 && name.chars().all(word) && !is_id
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LiveState {
    Running,
    /// Nothing of it runs until someone resumes it.
    Paused,
    /// The same, until the next exec.
    IdlePaused,
    /// Whoever held it was ended, and it with them.
    Lost,
}

impl LiveState {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::IdlePaused => "idle",
            Self::Lost => "lost",
        }
    }
}

/// What a whole sandbox uses, by the counters of its control groups and of the file system that it writes to. Nothing
/// where the host keeps none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Bytes of files that it has written, where they are limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
}

/// One exec of a session that stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecInfo {
    /// Counts from one within its session.
    pub id: u32,
    pub argv: Vec<String>,
    pub started_us: u64,
    pub detached: bool,
    /// Bytes on its output streams so far.
    pub output: u64,
    /// Nothing while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// What the inside says that it cost; zero while it runs.
    pub usage: crate::Usage,
}

/// A session that stays, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    pub session: SessionId,
    pub state: LiveState,
    /// Why it is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Absent for a `run`, which ends with its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Live>,
    pub started_us: u64,
    /// When its time is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_us: Option<u64>,
    pub workdir: PathBuf,
    pub policy: bool,
    pub running: usize,
    /// Where its browser is driven from outside. Whoever knows it can: it is a secret of its owner's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub browser: Option<String>,
    /// How many transactions are open, each within the one before.
    #[serde(default)]
    pub transactions: usize,
    /// The last of them, the oldest first.
    pub execs: Vec<ExecInfo>,
    pub usage: Counters,
}

/// A change, with what changed in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDifference {
    #[serde(flatten)]
    pub change: crate::FileChange,
    /// A unified difference, for text. Its lines are the inside's: escape them before a terminal sees them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Why there is none where one could be expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<String>,
}

/// What a session used in a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// When the span ended, by the host's clock.
    pub at_us: u64,
    /// How long it was, by a clock that nobody can set.
    pub span_us: u64,
    pub state: LiveState,
    /// Within the span. Nothing where the host counts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    /// At its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

/// The same for all of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageTotal {
    pub session: SessionId,
    pub span_us: u64,
    /// Of these, paused.
    pub paused_us: u64,
    pub cpu_us: u64,
    /// Mebibytes of memory, each times the milliseconds that it was held.
    pub memory_mib_ms: u64,
}

impl UsageTotal {
    pub fn of(session: SessionId, records: &[UsageRecord]) -> Self {
        let paused = |record: &&UsageRecord| record.state != LiveState::Running;
        let bytes = |record: &UsageRecord| u128::from(record.memory.unwrap_or(0));
        let held: u128 = records.iter().map(|record| bytes(record) * u128::from(record.span_us)).sum();
        Self {
            session,
            span_us: records.iter().map(|record| record.span_us).sum(),
            paused_us: records.iter().filter(paused).map(|record| record.span_us).sum(),
            cpu_us: records.iter().filter_map(|record| record.cpu_us).sum(),
            memory_mib_ms: u64::try_from(held / (1 << 20) / 1000).unwrap_or(u64::MAX),
        }
    }
}

/// What becomes of a command's changes where it is a transaction of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecTx {
    /// Kept if it exits with 0.
    #[default]
    Auto,
    Commit,
    Rollback,
}

impl ExecTx {
    pub const fn keeps(self, exit: Exit) -> bool {
        match self {
            Self::Auto => exit.code() == 0,
            Self::Commit => true,
            Self::Rollback => false,
        }
    }
}

impl FromStr for ExecTx {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text {
            "auto" => Ok(Self::Auto),
            "commit" => Ok(Self::Commit),
            "rollback" => Ok(Self::Rollback),
            _ => Err(SpecError::Choice {
                field: "tx",
                value: text.to_owned(),
                allowed: "auto, commit, rollback",
            }),
        }
    }
}

/// What became of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    pub kept: bool,
    /// How many are still open around it.
    pub depth: usize,
    /// Where it was the session's own: what became of it on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<crate::ChangesDecided>,
    /// What it did outside, which no rollback takes back; told where it was rolled back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<String>,
    /// How many more of them there are than are told.
    #[serde(default, skip_serializing_if = "crate::change::is_none")]
    pub more: u64,
}

/// What has to be known of frozen layers to go on over them: from when on a change in the work dir is someone
/// else's, by the clock that stamps files, and whose ids their files carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    pub seconds: i64,
    pub nanos: u32,
    /// That clock's lead over one that nobody can set, in nanoseconds.
    pub lead: i64,
    /// Which range of the host's ids stands behind the inside's; nothing where they are the caller's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<u32>,
}

/// The files of a session as they were at some moment: layers that nobody changes any more, over a work dir.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub name: String,
    /// Whose files they were.
    pub session: SessionId,
    pub taken_us: u64,
    pub workdir: PathBuf,
    /// By their ids, the upper ones first.
    pub layers: Vec<SessionId>,
    pub since: Provenance,
    /// The image that they lie over, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Digest>,
}

/// Sandboxes that are prepared before anyone asks for a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolInfo {
    /// How many of each kind there are to be.
    pub size: usize,
    pub kinds: Vec<PoolKind>,
    /// Sessions that began with one.
    pub claimed: u64,
    /// Sessions that found none, and were made from nothing.
    pub missed: u64,
}

/// What has to be known before a sandbox is prepared; all else is bound when it is claimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolKind {
    pub tier: crate::Tier,
    pub profile: crate::Profile,
    pub users: crate::UserMode,
    /// Whether something may leave it, by a policy.
    pub egress: bool,
    /// Whether there is a `sudo` in it.
    pub sudo: bool,
    /// Whether the work dir is to stand where the inside's user is at home.
    pub at_home: bool,
    pub ready: usize,
}

/// Something that a person or the clock did to a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionChanged {
    /// `pause`, `resume`, `extend`, `kill`, `begin`, `commit`, `rollback`, `snapshot`, `restore`, `fork`.
    pub what: String,
    pub by: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let check = |name: &str, good: bool| {
            let live = Live { name: Some(name.into()), ..Live::default() };
            assert_eq!(live.check().is_ok(), good, "{name}");
        };
        check("build", true);
        check("agent-7", true);
        for bad in
            ["", "7up", "Build", "a/b", "a b", "../x", "-a", &"x".repeat(64), SessionId::new(1, 2).as_str()]
        {
            check(bad, false);
        }
    }

    #[test]
    fn no_time_is_no_lifetime() {
        let none = Some(Span(std::time::Duration::ZERO));
        assert!(Live { ttl: none, ..Live::default() }.check().is_err());
        assert!(Live { idle: none, ..Live::default() }.check().is_err());
    }
}
