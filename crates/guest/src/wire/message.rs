//! The bodies of frames, each one plain data in postcard's encoding.

use super::{
    CONTROL_MAX, DENY_MAX, Deny, EXEC_MAX, FrameError, Grant, HEADER_LEN, Header, Invite, Kind, PLEA_MAX,
    Stream, TASK_MAX, Task,
};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// In its own pid namespace: 1, except in tests.
    pub pid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec<'a> {
    /// At least the program. As for `env` and `cwd`: bytes without NUL.
    #[serde(borrow)]
    pub argv: Vec<&'a [u8]>,
    /// The whole environment, as `NAME=value`. PATH decides where the program is looked for, and with a
    /// terminal TERM says what it can do.
    #[serde(borrow)]
    pub env: Vec<&'a [u8]>,
    pub cwd: &'a [u8],
    /// Who to become; absent: stay who the guest is.
    pub user: Option<User>,
    /// Run on a terminal. Then there is the one stream `Tty` and no other.
    pub tty: Option<Tty>,
    /// Without meaning on a terminal.
    pub stdin: Stdin,
}

/// An interpreter that is started before there is a script for it. On its input it is asked for copies of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warm<'a> {
    /// The program as scripts name it, and its arguments.
    #[serde(borrow)]
    pub argv: Vec<&'a [u8]>,
    #[serde(borrow)]
    pub env: Vec<&'a [u8]>,
    /// Who it is, and whose scripts it is copied for.
    pub user: Option<User>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdin {
    Piped,
    Null,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tty {
    pub size: Size,
    /// Who sits there can be stopped with it: that it was stopped is told, and it stays so until it is told to go on. Else
    /// nothing that is typed stops it.
    pub stops: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// As the inside sees it.
    pub pid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    pub size: Size,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    pub number: u8,
    pub to: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// The process that was executed.
    Leader,
    /// Its process group.
    Group,
    /// The terminal's foreground group; without a terminal the process group.
    Foreground,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// As the inside sees it.
    pub pid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    pub outcome: Outcome,
    /// Zero if it never ran.
    pub usage: Usage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Code(u8),
    Signal {
        number: u8,
        core: bool,
    },
    /// No such program: a shell's 127.
    NotFound,
    /// Found, and the kernel would not execute it: a shell's 126.
    NotExecutable {
        errno: u16,
    },
    /// Something before that failed.
    Failed {
        step: Step,
        errno: u16,
    },
}

/// What was being done for an exec that did not come to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Too many execs at once, or no process to be had.
    Fork,
    Session,
    Terminal,
    Stdio,
    User,
    Directory,
    /// It had not become its program after [`SECONDS_TO_BEGIN`]: somebody inside has stopped it, or holds back the file.
    Late,
}

/// In which a process has to become its program. Whoever waits for word of it has to have more patience.
pub const SECONDS_TO_BEGIN: u8 = 8;

/// What the guest says an exec has cost, with the children it has waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    pub user_us: u64,
    pub system_us: u64,
    pub max_rss: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// A frame that is none.
    Frame,
    /// An id that is in use.
    Id,
    /// A string with a NUL, or no program.
    Request,
    /// More input than was allowed.
    Credit,
}

/// From a host that has never spoken to this guest: the machine that it lives in was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// What was on its way to the other host ends with these bytes.
    pub mark: [u8; 32],
}

/// What the guest says, but for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToHost {
    Hello(Hello),
    Started(Started),
    Eof,
    Window(Window),
    Exited(Exited),
    Fault(Fault),
    Stopped(Stopped),
}

/// What the host says, but for data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToGuest<'a> {
    Exec(Exec<'a>),
    Task(Task),
    Eof,
    Window(Window),
    Resize(Resize),
    Signal(Signal),
    Attach(Attach),
    Invite(Invite),
    Grant(Grant<'a>),
    Deny(Deny<'a>),
    Warm(Warm<'a>),
}

/// All of the body and nothing else.
pub(super) fn read<'a, T: Deserialize<'a>>(kind: Kind, body: &'a [u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        _ => Err(FrameError::Body(kind)),
    }
}

impl ToHost {
    pub fn decode(kind: Kind, body: &[u8]) -> Result<Self, FrameError> {
        match kind {
            Kind::Hello => read(kind, body).map(Self::Hello),
            Kind::Started => read(kind, body).map(Self::Started),
            Kind::Eof => Ok(Self::Eof),
            Kind::Window => read(kind, body).map(Self::Window),
            Kind::Exited => read(kind, body).map(Self::Exited),
            Kind::Fault => read(kind, body).map(Self::Fault),
            Kind::Stopped => read(kind, body).map(Self::Stopped),
            // A plea is read by itself: it is the one that borrows what it was read from.
            Kind::Plea => Err(FrameError::Body(kind)),
            Kind::Exec | Kind::Task | Kind::Data | Kind::Resize | Kind::Signal | Kind::Attach => {
                Err(FrameError::Side(kind))
            }
            Kind::Invite | Kind::Grant | Kind::Deny | Kind::Warm => Err(FrameError::Side(kind)),
        }
    }
}

impl<'a> ToGuest<'a> {
    pub fn decode(kind: Kind, body: &'a [u8]) -> Result<Self, FrameError> {
        match kind {
            Kind::Exec => read(kind, body).map(Self::Exec),
            Kind::Task => read(kind, body).map(Self::Task),
            Kind::Eof => Ok(Self::Eof),
            Kind::Window => read(kind, body).map(Self::Window),
            Kind::Resize => read(kind, body).map(Self::Resize),
            Kind::Signal => read(kind, body).map(Self::Signal),
            Kind::Attach => read(kind, body).map(Self::Attach),
            Kind::Warm => read(kind, body).map(Self::Warm),
            Kind::Invite => read(kind, body).map(Self::Invite),
            Kind::Grant => read(kind, body).map(Self::Grant),
            Kind::Deny => read(kind, body).map(Self::Deny),
            Kind::Hello
            | Kind::Started
            | Kind::Data
            | Kind::Exited
            | Kind::Fault
            | Kind::Plea
            | Kind::Stopped => Err(FrameError::Side(kind)),
        }
    }
}

/// Appends a whole frame. One that would be too long is not begun.
pub fn put(
    out: &mut Vec<u8>,
    kind: Kind,
    id: u32,
    stream: Option<Stream>,
    body: &impl Serialize,
) -> Result<(), FrameError> {
    let start = out.len();
    let mut bytes = core::mem::take(out);
    bytes.extend_from_slice(&[0; HEADER_LEN]);
    // Writing to memory cannot fail, and these bodies have nothing that cannot be written.
    *out = postcard::to_extend(body, bytes).map_err(|_| FrameError::Body(kind))?;
    let length = u32::try_from(out.len() - start - HEADER_LEN).unwrap_or(u32::MAX);
    let most = match kind {
        Kind::Exec | Kind::Grant | Kind::Warm => EXEC_MAX,
        Kind::Task => TASK_MAX,
        Kind::Plea => PLEA_MAX,
        Kind::Deny => DENY_MAX,
        _ => CONTROL_MAX,
    };
    if length > most {
        out.truncate(start);
        return Err(FrameError::Length { kind, length });
    }
    let header = Header { kind, stream, id, length }.encode();
    if let Some(place) = out.get_mut(start..start + HEADER_LEN) {
        place.copy_from_slice(&header);
    }
    Ok(())
}

/// Appends a frame that has no body: the end of a stream.
pub fn put_empty(out: &mut Vec<u8>, kind: Kind, id: u32, stream: Stream) {
    let header = Header { kind, stream: Some(stream), id, length: 0 };
    out.extend_from_slice(&header.encode());
}
