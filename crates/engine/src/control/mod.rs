//! How people reach a session while it runs: a socket of its own in the state directory, a question and its
//! answer, a line of JSON each. The supervisor has one more such socket, for sessions that are yet to be. Nobody
//! inside can see any of them; who asks is told by the kernel, not by the question.

mod ask;
mod hall;
mod lines;
mod serve;

pub(crate) use ask::{asking, unexpected};
pub(crate) use lines::{Lines, ask as tell, send};
pub(crate) use serve::{Answers, Asked, Control, Desk, Socket};

use crate::error::EngineError;
use cofferdam_egress::Held;
use cofferdam_model::{
    BoxUser, Bytes, Cap, Changes, ChangesDecided, ExecTx, Exit, PoolInfo, Provenance, SessionId, SessionInfo,
    SessionSpec, Settled, Span, Usage,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What can be asked. Each session answers for itself; `create` is the supervisor's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Let something out, or nothing.
    Egress {
        open: bool,
    },
    /// Bounds what it may still use.
    Cap(Cap),
    Show,
    /// With the command's input, if it has any, output and errors as descriptors.
    Exec(Box<ExecAsked>),
    Signal {
        exec: u32,
        number: u8,
        /// For the command's first process, and not for those it has started.
        #[serde(default)]
        alone: bool,
    },
    /// Of the exec that this connection is about.
    Resize {
        rows: u16,
        columns: u16,
    },
    /// Make the descriptor that comes along a file inside.
    Put {
        path: PathBuf,
        user: Option<String>,
    },
    /// Write a file of the inside to the descriptor that comes along.
    Get {
        path: PathBuf,
    },
    MakeDir {
        path: PathBuf,
        user: Option<String>,
    },
    Pause,
    Resume,
    Extend {
        by: Span,
    },
    /// Name the files as they are now.
    Snapshot {
        name: String,
        /// End whatever runs first.
        #[serde(default)]
        force: bool,
    },
    /// So long it may still be; nothing: as long as the operator allows.
    SetTime {
        left: Option<Span>,
    },
    /// Go back to the files of a snapshot.
    Restore {
        name: String,
    },
    /// Of the supervisor: make sessions that begin with the files of this one.
    Fork {
        session: SessionId,
        count: usize,
    },
    /// Of the supervisor: remove a snapshot.
    Forget {
        name: String,
    },
    /// Of the supervisor: write the files of a session or a snapshot to the descriptor that comes along.
    Archive {
        session: Option<SessionId>,
        snapshot: Option<String>,
    },
    /// Of the supervisor: make a snapshot from the descriptor that comes along.
    Unarchive {
        name: String,
    },
    /// Of the supervisor: what is prepared.
    Pool,
    SetPool {
        size: usize,
    },
    /// Another registry of tools.
    SetTools {
        path: PathBuf,
    },
    /// Open a transaction.
    Begin,
    /// Write what was done in the innermost one to the descriptor that comes along.
    Diff {
        texts: bool,
    },
    /// Keep or drop the innermost one.
    Settle {
        keep: bool,
        /// End whatever runs first.
        force: bool,
    },
    /// It lasts as long as this connection, and no longer than it may.
    Attend,
    End {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        changes: Option<Changes>,
    },
    Create(Box<CreateAsked>),
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecAsked {
    pub(crate) argv: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) user: Option<BoxUser>,
    /// Rows and columns of its terminal.
    pub(crate) tty: Option<(u16, u16)>,
    /// Who asks sits there, and can be stopped with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stops: bool,
    pub(crate) timeout: Option<Span>,
    pub(crate) output: Option<Bytes>,
    /// Whether the first descriptor is its input.
    pub(crate) stdin: bool,
    /// Goes on without who asked; its output is kept for who asks later.
    pub(crate) detach: bool,
    /// Is a transaction of its own.
    pub(crate) tx: Option<ExecTx>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateAsked {
    pub(crate) spec: SessionSpec,
    pub(crate) by: String,
    pub(crate) durable: bool,
    /// What of the asker's environment may be known inside.
    pub(crate) caller: BTreeMap<String, String>,
    /// Begin with the files of this snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot: Option<String>,
    /// Begin with the files of a session that is being forked. Nobody asks for this by a question.
    #[serde(skip)]
    pub(crate) from: Option<Origin>,
}

/// Frozen layers, by their ids.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Origin {
    pub(crate) layers: Vec<SessionId>,
    pub(crate) since: Provenance,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Reply {
    Pending(Vec<Waiting>),
    /// Done; so many exchanges were cut by it.
    Done {
        cut: u64,
    },
    Info(Box<SessionInfo>),
    Created {
        session: SessionId,
    },
    Started {
        exec: u32,
    },
    /// It was stopped, and goes on when it is told to.
    Stopped,
    /// The last line about an exec.
    Exited {
        exit: Exit,
        usage: Usage,
        /// What ended it, if it was not its own doing.
        reason: Option<String>,
        /// Where it was a transaction of its own: what became of that.
        settled: Option<Box<Settled>>,
    },
    Settled(Box<Settled>),
    Pool(Box<PoolInfo>),
    Forked {
        sessions: Vec<SessionId>,
    },
    Ended {
        changes: Option<ChangesDecided>,
    },
    /// It cannot be had on this host.
    Unenforceable(String),
    Refused(String),
}

impl Reply {
    pub(crate) fn error(error: &EngineError) -> Self {
        match error.is_refusal() {
            true => Self::Unenforceable(error.to_string()),
            false => Self::Refused(error.to_string()),
        }
    }
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
    /// What would be spent on it, as far as its head tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<String>,
    /// Seconds since the Unix epoch.
    pub since: u64,
    pub until: u64,
}

impl From<Held> for Waiting {
    fn from(held: Held) -> Self {
        let Held { id, rule, reason, method, url, program, credentials, since, until } = held;
        Self { id, rule, reason, method, url, program, credentials, since, until }
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

/// Whoever opens a socket, or removes one that was left behind, is alone with it.
fn locked(dir: &Path) -> io::Result<Alone> {
    let open = std::fs::File::open(dir)?;
    open.lock()?;
    Ok(Alone(open))
}

/// Ends with this, and not with the last copy of the descriptor: a child that another thread starts just now has one,
/// and may wait for who waits for this.
struct Alone(std::fs::File);

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}
