//! Reads the events of a trace one after the other, and its payloads by reference.
//!
//! It does not say whether the trace is sound: that is [`verify`](crate::verify).

use crate::blob::{self, BlobError};
use crate::lines::{Lines, Next};
use crate::{EVENTS_FILE, MAX_EVENT};
use cofferdam_model::{BlobRef, Event};
use std::fs::{self, File, TryLockError};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("there is no trace at `{0}`: name a bundle's directory or its events file")]
    NotFound(PathBuf),
    #[error("`{0}` is not a regular file: copy it into one first")]
    NotAFile(PathBuf),
    #[error("cannot read `{path}`: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("`{path}`, line {line}: longer than {MAX_EVENT} bytes; run `cofferdam trace verify`")]
    TooLong { path: PathBuf, line: u64 },
    #[error("`{path}`, line {line}: not an event ({source}); run `cofferdam trace verify`")]
    NotAnEvent { path: PathBuf, line: u64, source: serde_json::Error },
    #[error(transparent)]
    Blob(#[from] BlobError),
}

pub struct Reader {
    path: PathBuf,
    /// Absent for a bare file of events, which has no payloads.
    bundle: Option<PathBuf>,
    lines: Lines<BufReader<File>>,
    line: u64,
    live: bool,
    torn: bool,
    ended: bool,
}

impl Reader {
    /// Opens a bundle's directory or a bare file of events.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let bundle = path.is_dir().then(|| path.to_owned());
        let path = if bundle.is_some() { path.join(EVENTS_FILE) } else { path.to_owned() };
        let file = open_regular(&path)?;
        let live = is_locked(&file);
        let lines = Lines::new(BufReader::with_capacity(64 << 10, file));
        Ok(Self { path, bundle, lines, line: 0, live, torn: false, ended: false })
    }

    /// Whether a writer held the trace when it was opened.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Whether the events, read to their end, stopped within a line.
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    /// The plain bytes of a payload, after checking them against its reference.
    pub fn read_blob(&self, wanted: &BlobRef) -> Result<Vec<u8>, ReadError> {
        let bundle = self.bundle.as_deref().ok_or(BlobError::Missing(wanted.digest))?;
        Ok(blob::read(bundle, wanted)?)
    }

    fn advance(&mut self) -> Result<Option<Event>, ReadError> {
        self.line += 1;
        let (path, line) = (&self.path, self.line);
        match self.lines.next() {
            Ok(Next::Line(bytes)) => serde_json::from_slice(bytes)
                .map(Some)
                .map_err(|source| ReadError::NotAnEvent { path: path.clone(), line, source }),
            Ok(Next::TooLong) => Err(ReadError::TooLong { path: path.clone(), line }),
            Ok(Next::Torn) => {
                self.torn = true;
                Ok(None)
            }
            Ok(Next::End) => Ok(None),
            Err(source) => Err(ReadError::Io { path: path.clone(), source }),
        }
    }
}

/// Ends after the first error: what follows a line that is no event cannot be relied on.
impl Iterator for Reader {
    type Item = Result<Event, ReadError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = self.advance().transpose();
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }
}

/// A pipe or a device in place of the file could block or feed us for ever.
pub(crate) fn open_regular(path: &Path) -> Result<File, ReadError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => ReadError::NotFound(path.to_owned()),
        _ => ReadError::Io { path: path.to_owned(), source },
    };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(ReadError::NotAFile(path.to_owned()));
    }
    File::open(path).map_err(failed)
}

/// Asked before anything is read: if no writer holds the file now, what is read is all there will ever be.
pub(crate) fn is_locked(file: &File) -> bool {
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            false
        }
        Err(TryLockError::WouldBlock) => true,
        // A file system without locks: nobody can hold one.
        Err(TryLockError::Error(_)) => false,
    }
}
