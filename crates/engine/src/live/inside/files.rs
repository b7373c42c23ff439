//! Files inside: told, listed, read, written, watched. Paths are the inside's, absolute; what they lead to is
//! decided inside, where there is nowhere else to get to.

use super::task::{Task, bytes};
use super::{Account, Inside, InsideError};
use crate::live::errand::TaskAsked;
use bytes::Bytes;
use cofferdam_guest::wire::{self, Change, Entry, Said, Work};
use cofferdam_model::{Body, FileAsked, FileOp, RawPath};
use cofferdam_seal::Hasher;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A listing of more is refused.
const ENTRIES: usize = 200_000;
/// More than this at a time is cut, so that one writer does not hold up the rest.
const PIECE: usize = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    File,
    Directory,
    /// One that leads nowhere.
    Link,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    pub path: PathBuf,
    pub kind: FileKind,
    pub size: u64,
    pub mode: u32,
    pub owner: String,
    pub group: String,
    /// Since the Unix epoch.
    pub modified_s: i64,
    pub modified_ns: u32,
    pub target: Option<PathBuf>,
    pub notes: Vec<(String, String)>,
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

impl FileEntry {
    /// `at` is what was asked for. A name that leads out of it is nonsense.
    fn read(at: &Path, entry: Entry) -> Result<Self, InsideError> {
        let name = path(entry.name);
        let plain = name.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if !plain {
            return Err(InsideError::Nonsense);
        }
        let path_of = if name.as_os_str().is_empty() { at.to_owned() } else { at.join(name) };
        Ok(Self {
            path: path_of,
            kind: match entry.kind {
                wire::FileKind::File => FileKind::File,
                wire::FileKind::Directory => FileKind::Directory,
                wire::FileKind::Link => FileKind::Link,
                wire::FileKind::Other => FileKind::Other,
            },
            size: entry.size,
            mode: entry.mode & 0o7777,
            owner: text(entry.owner),
            group: text(entry.group),
            modified_s: entry.modified_s,
            modified_ns: entry.modified_ns.min(999_999_999),
            target: entry.target.map(path),
            notes: entry.notes.into_iter().map(|(name, value)| (text(name), text(value))).collect(),
        })
    }
}

impl Inside {
    async fn entry(&self, asked: TaskAsked, at: &Path) -> Result<FileEntry, InsideError> {
        match self.begin(asked).await?.said().await? {
            Said::Entry(entry) => FileEntry::read(at, entry),
            _ => Err(InsideError::Nonsense),
        }
    }

    fn recorded(&self, op: FileOp, at: &Path, who: &Account, work: Work) -> TaskAsked {
        let to = match &work {
            Work::Move { to, .. } => Some(RawPath::from(path(to.clone()).as_path())),
            _ => None,
        };
        let record = Body::FileAsked(FileAsked { to, ..self.asked(op, at, who) });
        TaskAsked { owner: Some((who.uid, who.gid)), record: Some(record), ..self.plain(work) }
    }

    fn asked(&self, op: FileOp, at: &Path, who: &Account) -> FileAsked {
        let (path, by, user) = (RawPath::from(at), self.by.clone(), who.name.clone());
        FileAsked { op, path, to: None, by, user, size: None, digest: None }
    }

    pub async fn stat(&self, at: &Path) -> Result<FileEntry, InsideError> {
        self.entry(self.plain(Work::Stat { path: bytes(at) }), at).await
    }

    /// What lies in a directory and, down to `depth` levels, in those in it; in the order of a walk.
    pub async fn list(&self, at: &Path, depth: u32) -> Result<Vec<FileEntry>, InsideError> {
        let mut task = self.begin(self.plain(Work::List { path: bytes(at), depth })).await?;
        let mut found = Vec::new();
        loop {
            match task.said().await? {
                Said::Entry(_) if found.len() >= ENTRIES => return Err(InsideError::TooMany(ENTRIES)),
                Said::Entry(entry) => found.push(FileEntry::read(at, entry)?),
                Said::Done => return Ok(found),
                _ => return Err(InsideError::Nonsense),
            }
        }
    }

    /// With those above it.
    pub async fn make_dir(&self, at: &Path, who: &Account) -> Result<FileEntry, InsideError> {
        let work = Work::MakeDir { path: bytes(at) };
        self.entry(self.recorded(FileOp::MakeDir, at, who, work), at).await
    }

    pub async fn rename(&self, from: &Path, to: &Path, who: &Account) -> Result<FileEntry, InsideError> {
        let work = Work::Move { from: bytes(from), to: bytes(to) };
        self.entry(self.recorded(FileOp::Move, from, who, work), to).await
    }

    /// With all that is in it. What is not there is gone already.
    pub async fn remove(&self, at: &Path, who: &Account) -> Result<(), InsideError> {
        let work = Work::Remove { path: bytes(at) };
        match self.begin(self.recorded(FileOp::Remove, at, who, work)).await?.said().await? {
            Said::Done => Ok(()),
            _ => Err(InsideError::Nonsense),
        }
    }

    /// From a place on, and no more than `most` bytes.
    pub async fn read(&self, at: &Path, from: u64, most: Option<u64>) -> Result<FileReader, InsideError> {
        let mut task = self.begin(self.plain(Work::Read { path: bytes(at), from, most })).await?;
        match task.said().await? {
            Said::Entry(entry) => Ok(FileReader { entry: FileEntry::read(at, entry)?, task }),
            _ => Err(InsideError::Nonsense),
        }
    }

    /// The file appears as a whole when it is finished, and not at all if that never comes. `notes` replace what is
    /// noted with it.
    pub async fn write(
        &self,
        at: &Path,
        who: &Account,
        notes: Option<Vec<(String, String)>>,
    ) -> Result<FileWriter, InsideError> {
        let notes = notes.map(|all| all.into_iter().map(|(n, v)| (n.into_bytes(), v.into_bytes())).collect());
        let work = Work::Write { path: bytes(at), mode: None, notes };
        let asked = TaskAsked { owner: Some((who.uid, who.gid)), ..self.plain(work) };
        let task = self.begin(asked).await?;
        let record = self.asked(FileOp::Write, at, who);
        Ok(FileWriter { task, at: at.to_owned(), record, hasher: Hasher::new(), size: 0 })
    }

    /// Changes in a directory and, if `recursive`, in all below it.
    pub async fn watch(&self, at: &Path, recursive: bool, entries: bool) -> Result<Watch, InsideError> {
        let work = Work::Watch { path: bytes(at), recursive, entries };
        let mut task = self.begin(TaskAsked { idle: true, ..self.plain(work) }).await?;
        match task.said().await? {
            Said::Done => Ok(Watch { task, at: at.to_owned() }),
            _ => Err(InsideError::Nonsense),
        }
    }
}

/// The bytes of a file.
pub struct FileReader {
    pub entry: FileEntry,
    task: Task,
}

impl FileReader {
    /// Nothing at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, InsideError> {
        self.task.bytes().await
    }
}

/// A file on its way in. Dropped before it is finished, it never was.
pub struct FileWriter {
    task: Task,
    at: PathBuf,
    record: FileAsked,
    hasher: Hasher,
    size: u64,
}

impl FileWriter {
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<(), InsideError> {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE));
            self.hasher.update(&piece);
            self.size += piece.len() as u64;
            match self.task.feed(piece).await {
                Ok(()) => {}
                // It has said why it takes no more.
                Err(InsideError::Gone) => return Err(self.why().await),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn why(&mut self) -> InsideError {
        self.task.said().await.err().unwrap_or(InsideError::Gone)
    }

    pub async fn finish(mut self) -> Result<FileEntry, InsideError> {
        let digest = std::mem::replace(&mut self.hasher, Hasher::new()).finish();
        let body = FileAsked { size: Some(self.size), digest: Some(digest), ..self.record.clone() };
        self.task.end_feed(Some(Body::FileAsked(body))).await?;
        match self.task.said().await? {
            Said::Entry(entry) => FileEntry::read(&self.at, entry),
            _ => Err(InsideError::Nonsense),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchChange {
    Created,
    Written,
    Removed,
    Renamed,
    Attributes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchEvent {
    pub change: WatchChange,
    /// Below what is watched.
    pub name: String,
    pub entry: Option<FileEntry>,
}

/// Changes as they happen. Dropped, nobody looks any more.
pub struct Watch {
    task: Task,
    at: PathBuf,
}

impl Watch {
    /// Changes that were too many to be told are passed over.
    pub async fn next(&mut self) -> Result<WatchEvent, InsideError> {
        loop {
            let (change, name, entry) = match self.task.said().await? {
                Said::Changed { change, name, entry } => (change, name, entry),
                Said::Missed => continue,
                _ => return Err(InsideError::Nonsense),
            };
            let change = match change {
                Change::Created => WatchChange::Created,
                Change::Written => WatchChange::Written,
                Change::Removed => WatchChange::Removed,
                Change::Renamed => WatchChange::Renamed,
                Change::Attributes => WatchChange::Attributes,
            };
            let at = self.at.join(path(name.clone()));
            let entry = entry.map(|entry| FileEntry::read(&at, entry)).transpose()?;
            return Ok(WatchEvent { change, name: text(name), entry });
        }
    }
}
