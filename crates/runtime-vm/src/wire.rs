//! What the host and the program inside a machine say to each other about the machine itself: make the inside, say
//! how it goes, hand over what it changed. Commands and their streams go another way, by the guest's own protocol.
//!
//! Frames of a kind, a length and a body. The inside is hostile: its frames are bounded, and what they say is
//! checked where it is used.

use cofferdam_model::{
    Counters, EnforcementReport, LimitHit, Limits, Mount, Profile, RawPath, Usage, Weakness,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};

/// Of both sides, which come from one program.
pub(crate) const VERSION: u32 = 1;
/// Of one frame from inside.
pub(crate) const FROM_INSIDE: u32 = 1 << 20;
/// Of one frame from the host, which carries the files that are shown.
pub(crate) const FROM_HOST: u32 = 64 << 20;
/// Of one piece of a file.
pub(crate) const PIECE: usize = 256 << 10;

/// What the host asks for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    Make(Box<Make>),
    Counters,
    Occupied,
    /// What time it is, after a while in which the machine stood still.
    Clock(Clock),
    /// Who it is from now on, after it was copied.
    Renew(Identity),
    /// End everything inside, and hand over what was changed.
    Finish,
}

/// Seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Clock {
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
}

/// What no two machines may have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) clock: Clock,
    pub(crate) seed: Vec<u8>,
    pub(crate) machine: String,
    pub(crate) host: String,
}

/// The inside that is to be made. As a sandbox is asked for, with all paths as the machine has them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Make {
    pub(crate) id: String,
    pub(crate) who: Identity,
    /// Of the session's disk, to be found at the same path.
    pub(crate) show: Vec<RawPath>,
    pub(crate) workdir: RawPath,
    pub(crate) home: RawPath,
    pub(crate) path: Vec<RawPath>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) hide: Vec<RawPath>,
    pub(crate) profile: Profile,
    pub(crate) limits: Limits,
    pub(crate) nested: bool,
    pub(crate) doors: bool,
    pub(crate) files: Vec<(RawPath, Vec<u8>)>,
    pub(crate) accept: Vec<Weakness>,
    /// How many layers lie between the work dir and what is changed now, on the session's disk.
    pub(crate) base: usize,
    /// Bytes that may be changed.
    pub(crate) disk: u64,
    /// Controls to leave out of the inside, for the escape checks.
    pub(crate) without: Vec<String>,
}

/// What the inside has to say.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Tell {
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
    Entry(Entry),
    /// The last of what was changed.
    End,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(crate) report: EnforcementReport,
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: RawPath,
}

/// One step of a walk through what was changed. Names are single ones: whoever follows is always in a directory
/// that it made itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry {
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
pub(crate) struct Stat {
    pub(crate) mode: u32,
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
    pub(crate) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

const MESSAGE: u8 = 1;
const RAW: u8 = 2;

/// A frame, by what is in it.
#[derive(Debug)]
pub(crate) enum Frame<T> {
    Message(T),
    Piece(Vec<u8>),
}

pub(crate) fn send<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    frame(to, MESSAGE, &body)
}

pub(crate) fn send_piece(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    frame(to, RAW, bytes)
}

fn frame(to: &mut impl Write, kind: u8, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut bytes = Vec::with_capacity(5 + body.len());
    bytes.push(kind);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(body);
    to.write_all(&bytes)
}

pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl Read, most: u32) -> io::Result<Frame<T>> {
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
        send(&mut bytes, &Tell::Entry(entry.clone())).unwrap();
        send_piece(&mut bytes, b"abc").unwrap();
        let mut from = bytes.as_slice();
        assert!(
            matches!(receive::<Tell>(&mut from, 1000).unwrap(), Frame::Message(Tell::Entry(e)) if e == entry)
        );
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
