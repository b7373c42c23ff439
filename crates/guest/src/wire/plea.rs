//! How somebody inside comes to a command as somebody else: by asking the host, and in no other way. Whoever asks gives
//! the guest the descriptors that the command is to have; the guest passes the question on, and what is granted runs
//! as any other exec does.

use super::message::read;
use super::{Account, Exec, FrameError, Kind, Outcome};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Of a plea, with all of its arguments and variables.
pub const PLEA_MAX: u32 = 128 * 1024;
/// Of what an asker says to the guest: a plea is that and a little more.
pub const REQUEST_MAX: usize = 96 * 1024;
/// Of a refusal.
pub const DENY_MAX: u32 = 1024;
/// Open at once, whatever the host allows.
pub const PLEAS_MAX: usize = 16;
/// Where the guest is asked: a name without a file, in the sandbox's own network namespace.
pub const SOCKET: &[u8] = b"cofferdam-sudo";

/// From now on, so many at once may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invite {
    pub most: u16,
}

/// What somebody asks the guest for, and the guest the host. Nothing of it is believed: whoever asks may say anything,
/// and could be anybody that the inside has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request<'a> {
    #[serde(borrow)]
    pub argv: Vec<&'a [u8]>,
    /// On top of what every command of the session has.
    #[serde(borrow)]
    pub env: Vec<&'a [u8]>,
    pub cwd: &'a [u8],
    /// The descriptors are a terminal that is to be the command's own.
    pub tty: bool,
    /// Who the command is to be.
    pub who: Account,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plea<'a> {
    #[serde(borrow)]
    pub request: Request<'a>,
    /// Who asks, as the kernel told the guest: its user, and its session of processes, which is the command that it belongs to
    /// unless it has made itself another. Zero where it has left.
    pub uid: u32,
    pub session: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant<'a> {
    pub plea: u32,
    #[serde(borrow)]
    pub exec: Exec<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deny<'a> {
    pub why: &'a [u8],
}

/// What an asker is told in the end, inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer<'a> {
    Ended(Outcome),
    Denied(&'a [u8]),
}

impl<'a> Plea<'a> {
    pub fn decode(body: &'a [u8]) -> Result<Self, FrameError> {
        read(Kind::Plea, body)
    }
}

impl<'a> Request<'a> {
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        read(Kind::Plea, bytes).ok()
    }

    pub fn encode(&self) -> Option<Vec<u8>> {
        postcard::to_extend(self, Vec::new()).ok()
    }
}

impl<'a> Answer<'a> {
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        read(Kind::Deny, bytes).ok()
    }

    pub fn encode(&self) -> Option<Vec<u8>> {
        postcard::to_extend(self, Vec::new()).ok()
    }
}
