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
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Of both sides, which come from one program.
pub const VERSION: u32 = 6;
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

/// Who a machine is from now on, after it was copied, and what it is shown instead of what it was. The contents follow as
/// pieces. Whoever waits for a copy waits for this, and an emulator has never seen the code that reads it: so it has a form of
/// its own that takes little to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    pub who: Identity,
    pub files: Vec<(RawPath, u64)>,
}

impl Renewal {
    /// Numbers in their own size, all else with its length before it.
    fn encode(&self) -> io::Result<Vec<u8>> {
        let Self { who: Identity { clock, seed, machine, host }, files } = self;
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&clock.seconds.to_le_bytes());
        bytes.extend_from_slice(&clock.nanos.to_le_bytes());
        let mut put = |part: &[u8], number: &[u8]| -> io::Result<()> {
            let length = u32::try_from(part.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(part);
            bytes.extend_from_slice(number);
            Ok(())
        };
        [seed, machine.as_bytes(), host.as_bytes()].into_iter().try_for_each(|part| put(part, &[]))?;
        files.iter().try_for_each(|(path, length)| put(path.as_bytes(), &length.to_le_bytes()))?;
        Ok(bytes)
    }

    /// Nothing for bytes that are none.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let clock = Clock {
            seconds: i64::from_le_bytes(number(&mut rest)?),
            nanos: u32::from_le_bytes(number(&mut rest)?),
        };
        let text = |rest: &mut &[u8]| String::from_utf8(part(rest)?.to_vec()).ok();
        let seed = part(&mut rest)?.to_vec();
        let who = Identity { clock, seed, machine: text(&mut rest)?, host: text(&mut rest)? };
        let mut files = Vec::new();
        while !rest.is_empty() {
            let path = RawPath::from(Path::new(OsStr::from_bytes(part(&mut rest)?)));
            files.push((path, u64::from_le_bytes(number(&mut rest)?)));
        }
        Some(Self { who, files })
    }
}

fn number<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*number)
}

fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_le_bytes(number(rest)?) as usize;
    let (part, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(part)
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
const RENEWAL: u8 = 4;

/// A frame, by what is in it.
#[derive(Debug)]
pub enum Frame<T> {
    Message(T),
    Piece(Vec<u8>),
    Entry(Entry),
    Renewal(Renewal),
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

pub fn send_renewal(to: &mut impl Write, renewal: &Renewal) -> io::Result<()> {
    frame(to, RENEWAL, &renewal.encode()?)
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
        RENEWAL => Renewal::decode(&body).map(Frame::Renewal).ok_or_else(|| broken("a renewal that is none")),
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

    fn renewal(files: &[(&[u8], u64)]) -> Renewal {
        let clock = Clock { seconds: -2, nanos: 7 };
        let who =
            Identity { clock, seed: vec![9; 64], machine: "ab".repeat(16), host: "cofferdam-ab".into() };
        let raw = |path: &[u8]| RawPath::from(Path::new(OsStr::from_bytes(path)));
        Renewal { who, files: files.iter().map(|(path, length)| (raw(path), *length)).collect() }
    }

    #[test]
    fn a_renewal_is_what_was_sent_and_no_part_of_one_is_another() {
        for sent in [renewal(&[]), renewal(&[(b"/etc/a\xff", 3), (b"", u64::MAX)])] {
            let mut bytes = Vec::new();
            send_renewal(&mut bytes, &sent).unwrap();
            let told = receive::<Ask>(&mut bytes.as_slice(), FROM_HOST).unwrap();
            assert!(matches!(told, Frame::Renewal(told) if told == sent));
            let body = sent.encode().unwrap();
            // Files follow each other to the end, so between two of them it would be one with fewer.
            let fewer = (0..sent.files.len()).map(|count| {
                let files = sent.files.iter().take(count).cloned().collect();
                Renewal { who: sent.who.clone(), files }.encode().unwrap()
            });
            let fewer: Vec<Vec<u8>> = fewer.collect();
            for end in 0..body.len() {
                let part = &body[..end];
                assert_eq!(Renewal::decode(part).is_some(), fewer.iter().any(|one| one == part), "{end}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fall(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
            let _ = receive::<Tell>(&mut bytes.as_slice(), FROM_INSIDE);
            if let Some(renewal) = Renewal::decode(&bytes) {
                prop_assert_eq!(renewal.encode().unwrap(), bytes);
            }
        }

        #[test]
        fn a_renewal_with_a_wrong_byte_is_another_or_none(at in 0_usize..200, bit in 0_u8..8) {
            let sent = renewal(&[(b"/etc/hosts", 3)]);
            let mut bytes = sent.encode().unwrap();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert_ne!(Renewal::decode(&bytes), Some(sent));
        }
    }
}
