//! Tasks: what the guest does itself, in a child of its own, instead of running a program: files, watching them,
//! connecting to a port inside. A task has one input and one output stream, as a command has, and answers on its
//! output with *records*; what follows the first record of a read or of a connection are bare bytes.
//!
//! A record is its length in four bytes, little-endian, and a `Said` in postcard's encoding. The host takes none
//! that is longer than `RECORD_MAX`, whatever the guest says.

use super::User;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Of a request: some paths and what is to be noted with a file.
pub const TASK_MAX: u32 = 64 * 1024;
/// Of a record: a few paths and what is noted with a file.
pub const RECORD_MAX: usize = 48 * 1024;
/// What may be noted with one file, names and values together.
pub const NOTES_MAX: usize = 16 * 1024;
/// Directories that one watch looks at.
pub const WATCHES_MAX: usize = 8192;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Who does it; absent: the guest as it is.
    pub user: Option<User>,
    /// Whose the files are that it makes; absent: its own.
    pub owner: Option<(u32, u32)>,
    pub work: Work,
}

/// Paths are absolute, without NUL, as the inside sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// `Entry`.
    Stat { path: Vec<u8> },
    /// An `Entry` for each, in order of their names, down to `depth` levels.
    List { path: Vec<u8>, depth: u32 },
    /// `Entry`, then the bytes.
    Read { path: Vec<u8>, from: u64, most: Option<u64> },
    /// The input becomes the file, as one, once it has ended; then `Entry`. Directories on the way are made.
    Write { path: Vec<u8>, mode: Option<u32>, notes: Option<Vec<(Vec<u8>, Vec<u8>)>> },
    /// With those above it; `Entry`.
    MakeDir { path: Vec<u8> },
    /// `Entry`. Directories on the way are made.
    Move { from: Vec<u8>, to: Vec<u8> },
    /// With all that is in it; `Done`, also where there is nothing.
    Remove { path: Vec<u8> },
    /// `Done` once it looks, then a `Changed` for each change, until it is ended.
    Watch { path: Vec<u8>, recursive: bool, entries: bool },
    /// `Done`, then bytes in both directions.
    Connect { port: u16 },
    /// A `Port` for each that something listens at, then `Done`.
    Ports,
    /// `Account`.
    Account { name: Vec<u8> },
    /// `Space` of the file system there.
    Space { path: Vec<u8> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    Done,
    Entry(Entry),
    Changed {
        change: Change,
        name: Vec<u8>,
        entry: Option<Entry>,
    },
    /// Changes were lost: there were too many, or too many directories.
    Missed,
    Port {
        port: u16,
        everywhere: bool,
    },
    Account(Account),
    Space {
        total: u64,
        free: u64,
    },
    /// The last record.
    Failed {
        why: Why,
        errno: u16,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// What the kernel said is all there is.
    Kernel,
    /// A directory was asked for as a file.
    IsDirectory,
    /// A file was asked for as a directory.
    NotDirectory,
    /// Neither a file nor a directory.
    Special,
    NoAccount,
    /// Deeper than anyone nests directories.
    TooDeep,
    /// It could not become the user that it should.
    User,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    File,
    Directory,
    /// One that leads nowhere: of any other, it is said what it leads to.
    Link,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Below what was asked for; empty for that itself.
    pub name: Vec<u8>,
    pub kind: FileKind,
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub owner: Vec<u8>,
    pub group: Vec<u8>,
    pub modified_s: i64,
    pub modified_ns: u32,
    /// Where a link leads, in the end.
    pub target: Option<Vec<u8>>,
    pub notes: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    Created,
    Written,
    Removed,
    Renamed,
    Attributes,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub name: Vec<u8>,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: Vec<u8>,
    pub shell: Vec<u8>,
}

impl Work {
    /// Every path and name in it.
    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        let (one, two): (&[u8], &[u8]) = match self {
            Self::Stat { path }
            | Self::List { path, .. }
            | Self::Read { path, .. }
            | Self::Write { path, .. }
            | Self::MakeDir { path }
            | Self::Remove { path }
            | Self::Watch { path, .. }
            | Self::Space { path } => (path, &[]),
            Self::Move { from, to } => (from, to),
            Self::Account { name } => (name, &[]),
            Self::Connect { .. } | Self::Ports => (&[], &[]),
        };
        [one, two].into_iter()
    }
}

/// A record that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("a record of {0} bytes")]
    Length(u32),
    #[error("a record that cannot be read")]
    Body,
}

impl Said {
    /// The whole record. None of what the guest has to say can be too long for one.
    pub fn record(&self) -> Vec<u8> {
        let bytes = alloc::vec![0_u8; 4];
        // Writing to memory cannot fail, and there is nothing in here that cannot be written.
        let mut bytes = postcard::to_extend(self, bytes).unwrap_or_default();
        let length = bytes.len().saturating_sub(4) as u32;
        if let Some(place) = bytes.get_mut(..4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        bytes
    }

    /// The first record of these bytes and how many it took; nothing while it is not all there.
    pub fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, RecordError> {
        let Some((head, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head);
        if length == 0 || length as usize > RECORD_MAX {
            return Err(RecordError::Length(length));
        }
        let Some(body) = rest.get(..length as usize) else { return Ok(None) };
        match postcard::take_from_bytes(body) {
            Ok((said, [])) => Ok(Some((said, 4 + length as usize))),
            _ => Err(RecordError::Body),
        }
    }
}
