//! System calls on record: which are, and what is known of one.

use crate::SpecError;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Which system calls are put on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Syscalls {
    /// What is refused: the ways out.
    #[default]
    Surface,
    /// Also what is let through and does something: programs executed, files opened and changed, addresses
    /// connected to and bound.
    All,
}

impl Syscalls {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl FromStr for Syscalls {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text {
            "surface" => Ok(Self::Surface),
            "all" => Ok(Self::All),
            _ => {
                Err(SpecError::Choice { field: "syscalls", value: text.to_owned(), allowed: "surface, all" })
            }
        }
    }
}

/// A system call that was let through, told before it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyscallSeen {
    pub syscall: String,
    /// What it does: `exec`, `open`, `change`, `network`.
    pub class: String,
    #[serde(with = "crate::wide::many")]
    pub args: Vec<u64>,
    /// Of the process, inside the sandbox's own pid namespace where the kernel tells it.
    pub pid: u32,
    pub program: String,
    /// What its pointers led to when it was told: the arguments of a program, paths as they were given, an address.
    /// The caller's own words, which it could change after; nothing was decided by them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<String>,
    /// How many like it were folded into this event.
    pub times: u64,
}
