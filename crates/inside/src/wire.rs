//! What the host and the program inside a machine say to each other about the machine itself: make the inside, say
//! how it goes, hand over what it changed. Commands and their streams go another way, by the guest's own protocol.
//!
//! Frames of a kind, a length and a body. The inside is hostile: its frames are bounded, and what they say is
//! checked where it is used.

use crate::Mark;
use cofferdam_model::{
    BlockedAttempt, Counters, EnforcementReport, FileDifference, LimitHit, Limits, Mount, Profile, RawPath,
    SyscallSeen, Syscalls, Usage, Weakness,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};

/// Of both sides, which come from one program.
pub const VERSION: u32 = 4;
/// Of one frame from inside: the text of a difference is the longest.
pub const FROM_INSIDE: u32 = 4 << 20;
/// Of one frame from the host, which carries the files that are shown.
pub const FROM_HOST: u32 = 64 << 20;
/// Of one piece of a file.
pub const PIECE: usize = 256 << 10;

/// What the host asks for.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Do all that can be done before anyone knows for whom, for who has a home here.
    Prepare {
        home: RawPath,
        /// Who commits there, in git's own form.
        git: Option<Vec<u8>>,
        /// Bytes that may be changed, unless an inside is made for others.
        room: u64,
    },
    /// Do all that is done for this one, in an inside that nobody gets, and undo it.
    Rehearse(Box<Make>),
    /// Make the inside. The contents of its files follow as pieces.
    Make(Box<Make>),
    /// Look into the directories in which programs are looked for, so that a copy need not read them.
    LookInto {
        path: Vec<RawPath>,
    },
    Counters,
    Occupied,
    /// What time it is, after a while in which the machine stood still.
    Clock(Clock),
    /// Who it is from now on, after it was copied, and what it is shown instead of what it was. The contents follow as
    /// pieces.
    Renew {
        who: Identity,
        files: Vec<(RawPath, u64)>,
    },
    /// Say when the guest has read all that was sent to it.
    Quiet,
    /// Open a transaction. Whatever the guest before it said is over with the mark, which goes by its own channel.
    Begin {
        mark: Mark,
    },
    Difference {
        texts: bool,
    },
    Settle {
        keep: bool,
        mark: Mark,
    },
    /// End everything inside, and hand over what was changed.
    Finish,
}

/// Seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    pub seconds: i64,
    pub nanos: u32,
}

/// What no two machines may have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub clock: Clock,
    pub seed: Vec<u8>,
    pub machine: String,
    pub host: String,
}

/// The inside that is to be made. As a sandbox is asked for, with all paths as the machine has them.
#[derive(Debug, Serialize, Deserialize)]
pub struct Make {
    pub id: String,
    pub who: Identity,
    /// Of the session's disk, to be found at the same path.
    pub show: Vec<RawPath>,
    /// The same of the disk of programs.
    pub programs_at: Vec<RawPath>,
    pub workdir: RawPath,
    pub home: RawPath,
    pub path: Vec<RawPath>,
    pub mounts: Vec<Mount>,
    pub hide: Vec<RawPath>,
    pub profile: Profile,
    pub limits: Limits,
    pub nested: bool,
    pub sudo: bool,
    pub doors: bool,
    pub tracing: bool,
    pub syscalls: Syscalls,
    pub programs: Option<Vec<RawPath>>,
    pub shown_at: Option<RawPath>,
    /// Where each is to be, and how long it is.
    pub files: Vec<(RawPath, u64)>,
    pub accept: Vec<Weakness>,
    /// How many layers lie between the work dir and what is changed now, on the session's disk.
    pub base: usize,
    /// Bytes that may be changed.
    pub disk: u64,
    /// Controls to leave out of the inside, for the escape checks.
    pub without: Vec<String>,
}

/// What the inside has to say.
#[derive(Debug, Serialize, Deserialize)]
pub enum Tell {
    Booted {
        version: u32,
        kernel: String,
    },
    Made(Box<Made>),
    Refused {
        what: String,
        fix: String,
    },
    Counters(Counters),
    Occupied(bool),
    Done,
    Finished {
        usage: Usage,
        limits: Vec<LimitHit>,
    },
    Difference(Box<FileDifference>),
    /// The last of what was changed, or of how it differs.
    End,
}

/// A system call, told on a stream of its own and answered with `HEARD` before its caller goes on.
#[derive(Debug, Serialize, Deserialize)]
pub enum Note {
    Refused(BlockedAttempt),
    Passed(SyscallSeen),
}

/// The whole answer to a note that is on record.
pub const HEARD: u8 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Made {
    pub report: EnforcementReport,
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: RawPath,
}

/// One step of a walk through what was changed. Names are single ones: whoever follows is always in a directory
/// that it made itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// Into a directory, which is made; the first one is the layer itself, without a name.
    Enter {
        name: Vec<u8>,
        opaque: bool,
        stat: Stat,
    },
    /// Out of it.
    Leave,
    File {
        name: Vec<u8>,
        size: u64,
        stat: Stat,
    },
    /// The bytes of the file begun last, which follow as a piece, and where they belong.
    Bytes {
        at: u64,
    },
    Link {
        name: Vec<u8>,
        target: Vec<u8>,
        stat: Stat,
    },
    Fifo {
        name: Vec<u8>,
        stat: Stat,
    },
    /// What was there is gone.
    Gone {
        name: Vec<u8>,
    },
    /// Another name of a file that was told of before, by how many files came before that.
    Same {
        name: Vec<u8>,
        file: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    pub mode: u32,
    pub seconds: i64,
    pub nanos: u32,
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

const MESSAGE: u8 = 1;
const RAW: u8 = 2;
const ENTRY: u8 = 3;

/// A frame, by what is in it.
#[derive(Debug)]
pub enum Frame<T> {
    Message(T),
    Piece(Vec<u8>),
    Entry(Entry),
}

pub fn send<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    frame(to, MESSAGE, &body)
}

pub fn send_piece(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    frame(to, RAW, bytes)
}

/// There may be many: as short as can be.
pub fn send_entry(to: &mut impl Write, entry: &Entry) -> io::Result<()> {
    frame(to, ENTRY, &postcard::to_stdvec(entry).map_err(io::Error::other)?)
}

fn frame(to: &mut impl Write, kind: u8, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut bytes = Vec::with_capacity(5 + body.len());
    bytes.push(kind);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(body);
    to.write_all(&bytes)
}

pub fn receive<T: DeserializeOwned>(from: &mut impl Read, most: u32) -> io::Result<Frame<T>> {
    let mut head = [0u8; 5];
    from.read_exact(&mut head)?;
    let [kind, length @ ..] = head;
    let length = u32::from_le_bytes(length);
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    if length > most {
        return Err(broken("a frame longer than any"));
    }
    let mut body = vec![0; length as usize];
    from.read_exact(&mut body)?;
    match kind {
        MESSAGE => {
            serde_json::from_slice(&body).map(Frame::Message).map_err(|error| broken(&error.to_string()))
        }
        RAW => Ok(Frame::Piece(body)),
        ENTRY => match postcard::take_from_bytes(&body) {
            Ok((entry, [])) => Ok(Frame::Entry(entry)),
            _ => Err(broken("an entry that is none")),
        },
        _ => Err(broken("a frame of no kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_sent_is_received() {
        let mut bytes = Vec::new();
        let entry = Entry::File {
            name: b"a\xff".to_vec(),
            size: 3,
            stat: Stat {
                mode: 0o644,
                seconds: -1,
                nanos: 5,
                attributes: vec![(b"user.x".to_vec(), vec![0])],
            },
        };
        send_entry(&mut bytes, &entry).unwrap();
        send_piece(&mut bytes, b"abc").unwrap();
        let mut from = bytes.as_slice();
        assert!(matches!(receive::<Tell>(&mut from, 1000).unwrap(), Frame::Entry(e) if e == entry));
        assert!(matches!(receive::<Tell>(&mut from, 1000).unwrap(), Frame::Piece(piece) if piece == b"abc"));
        assert!(receive::<Tell>(&mut from, 1000).is_err());
        assert!(receive::<Tell>(&mut bytes.as_slice(), 4).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fall(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
            let _ = receive::<Tell>(&mut bytes.as_slice(), FROM_INSIDE);
        }
    }
}
