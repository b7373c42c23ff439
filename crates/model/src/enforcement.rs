//! What is *really* enforced for a session, line by line, as the kernel tells it.

use crate::Tier;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// In force, read back from the kernel.
    Enforced,
    /// In force in a weaker form than this tier's best; the detail says which.
    Weaker,
    /// Not in force because it was switched off by request.
    Off,
    /// Not in force because this host cannot.
    Absent,
}

impl State {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Weaker => "weaker",
            Self::Off => "off",
            Self::Absent => "absent",
        }
    }
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// Stable, dotted: `namespace.net`, `seccomp`, `cgroup.memory`.
    pub name: String,
    pub state: State,
    /// One line for people.
    pub detail: String,
    /// What was read, for programs.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

/// The first event of every trace after the session's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnforcementReport {
    pub tier: Tier,
    pub kernel: String,
    pub controls: Vec<Control>,
}

impl EnforcementReport {
    pub fn control(&self, name: &str) -> Option<&Control> {
        self.controls.iter().find(|c| c.name == name)
    }

    /// The lines that are not in full force.
    pub fn weaknesses(&self) -> impl Iterator<Item = &Control> {
        self.controls.iter().filter(|c| c.state != State::Enforced)
    }
}
