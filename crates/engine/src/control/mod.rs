//! How people reach a session while it runs: a socket of its own in the state directory, one question and one
//! answer a connection, a line of JSON each. Nobody inside can see it; who asks is told by the kernel, not by
//! the question.

mod ask;
mod serve;

pub(crate) use serve::Control;

use cofferdam_egress::Held;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What can be asked of a running session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Question {
    /// Requests that wait for a person.
    Pending,
    Answer {
        id: u64,
        allow: bool,
    },
    /// Put the policy of this file in force.
    SetPolicy {
        path: PathBuf,
    },
    Revoke {
        secret: String,
    },
    /// Take the value that the vault holds now.
    Rotate {
        secret: String,
    },
    /// Let nothing out.
    Pause,
    Resume,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Reply {
    Pending(Vec<Waiting>),
    /// Done; so many exchanges were cut by it.
    Done {
        cut: u64,
    },
    Refused(String),
}

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    pub id: u64,
    pub rule: String,
    pub reason: String,
    pub method: String,
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Seconds since the Unix epoch.
    pub since: u64,
    pub until: u64,
}

impl From<Held> for Waiting {
    fn from(held: Held) -> Self {
        let Held { id, rule, reason, method, url, program, since, until } = held;
        Self { id, rule, reason, method, url, program, since, until }
    }
}

/// No question or answer is longer.
const LONGEST: usize = 1 << 20;

/// The path of a socket through its open directory: the kernel allows 107 bytes, and a home may be deep.
fn address(dir: &OwnedFd, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}
