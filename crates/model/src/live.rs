//! Sessions that stay: how long they may, what they are doing, and what they use. As plain data: whoever holds
//! them reads the clock.

use crate::{Exit, SessionId, Span, SpecError};
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

/// How a session stays: the table `[live]` of a spec.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Live {
    pub lifetime: Lifetime,
    /// From its beginning; can be extended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
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

fn is_name(name: &str) -> bool {
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

/// What a whole sandbox uses, by the counters of its control groups. Nothing where the host keeps none.
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
    /// The last of them, the oldest first.
    pub execs: Vec<ExecInfo>,
    pub usage: Counters,
}

/// Something that a person or the clock did to a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionChanged {
    /// `pause`, `resume`, `extend`, `kill`.
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
