//! The append-only writer of one trace.
//!
//! One event is one `write(2)`, made before `append` returns: nothing is kept in user space, so a trace
//! survives `kill -9` of its writer. A signature that is due goes out in the same call as the event that made
//! it due. A failed write cuts its own torn line off again and makes the writer refuse everything after,
//! because a trace with a hole is worse than one that ends.

use crate::blob::BlobWriter;
use crate::{CHECKPOINT_EVENTS, CHECKPOINT_US, EVENTS_FILE, MAX_BLOB, MAX_EVENT};
use cofferdam_model::{BlobRef, Body, Digest};
use cofferdam_seal::{CanonicalError, Encoder, Link, Mark, SigningKey, Statement};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("cannot make the trace `{path}`: {source}")]
    Create { path: PathBuf, source: io::Error },
    #[error("a trace stands at `{0}` already: give each session an id of its own")]
    Exists(PathBuf),
    #[error(
        "cannot write to the trace `{path}` ({source}): its first {events} events are kept; make room and run again"
    )]
    Write { path: PathBuf, events: u64, source: io::Error },
    #[error("cannot store a payload in `{path}`: {source}")]
    Blob { path: PathBuf, source: io::Error },
    #[error("a payload of {0} bytes is over the limit of {MAX_BLOB}: store a part of it")]
    BlobTooLarge(usize),
    #[error("event `{kind}` has no canonical form: {source}")]
    Form { kind: &'static str, source: CanonicalError },
    #[error("event `{kind}` takes {size} bytes of {MAX_EVENT}: store the large part as a payload")]
    TooLarge { kind: &'static str, size: usize },
    #[error("event `{0}` is out of place: a trace begins with `session.started` and holds no other")]
    Order(&'static str),
    #[error("the trace is sealed: nothing can be added to it")]
    Sealed,
    #[error("event `{0}` is the writer's own: call `checkpoint` or `seal`")]
    Reserved(&'static str),
    #[error("event {0} is not in the trace: a parent comes before its children")]
    Parent(u64),
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Wait for the disk at every signature: the trace then survives a loss of power up to the last one.
    pub durable: bool,
}

/// What a finished trace ends in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    pub events: u64,
    pub head: Digest,
}

/// The end of the chain. Advanced on a copy, which replaces the original once the bytes are written.
#[derive(Clone, Copy)]
struct Tip {
    next: u64,
    prev: Digest,
    unsigned: u64,
    signed_us: u64,
}

impl Tip {
    /// The first event is signed at once: from then on a trace without a signature is a forged one.
    fn due(&self, now_us: u64) -> bool {
        self.next == 1
            || self.unsigned >= CHECKPOINT_EVENTS
            || (self.unsigned > 0 && now_us.saturating_sub(self.signed_us) >= CHECKPOINT_US)
    }
}

pub struct Writer {
    /// Locked while it is open: this is how a reader tells a live trace from an abandoned one.
    file: File,
    dir: PathBuf,
    key: Arc<SigningKey>,
    options: Options,
    encoder: Encoder,
    staged: Vec<u8>,
    tip: Tip,
    /// Bytes of the file that hold whole events.
    len: u64,
    /// The errno of the write that failed, if one did.
    failed: Option<Failure>,
    blobs: BlobWriter,
    dirs_synced: bool,
    /// There are signatures that may not be on the disk.
    unsettled: bool,
}

#[derive(Clone, Copy)]
struct Failure {
    errno: Option<i32>,
    kind: io::ErrorKind,
}

impl Writer {
    /// Makes the bundle's directory, which must not exist yet, and an empty trace in it.
    pub fn create(dir: &Path, key: Arc<SigningKey>, options: Options) -> Result<Self, WriteError> {
        let failed = |source| failed_at(dir, source);
        make_dir(dir).map_err(failed)?;
        Self::begin(dir, new_events(dir).map_err(failed)?, key, options)
    }

    /// The same, from a spare that [`prepare`] made ahead; without one, it makes its own.
    pub fn create_from(
        spare: &Path,
        dir: &Path,
        key: Arc<SigningKey>,
        options: Options,
    ) -> Result<Self, WriteError> {
        if std::fs::rename(spare, dir).is_err() {
            return Self::create(dir, key, options);
        }
        let failed = |source| failed_at(dir, source);
        let file = OpenOptions::new().append(true).open(dir.join(EVENTS_FILE)).map_err(failed)?;
        match file.metadata().map_err(failed)?.len() {
            0 => Self::begin(dir, file, key, options),
            _ => Err(WriteError::Exists(dir.to_owned())),
        }
    }

    fn begin(dir: &Path, file: File, key: Arc<SigningKey>, options: Options) -> Result<Self, WriteError> {
        let failed = |source| failed_at(dir, source);
        // Waits for nothing but a reader that asks, in this very moment, whether the trace is live.
        file.lock().map_err(failed)?;
        Ok(Self {
            file,
            dir: dir.to_owned(),
            key,
            options,
            encoder: Encoder::default(),
            staged: Vec::with_capacity(4096),
            tip: Tip { next: 0, prev: Digest::ZERO, unsigned: 0, signed_us: 0 },
            len: 0,
            failed: None,
            blobs: BlobWriter::new(dir),
            dirs_synced: false,
            unsettled: false,
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// How many events the trace holds, its own signatures among them.
    pub fn events(&self) -> u64 {
        self.tip.next
    }

    /// Adds an event and returns its sequence number. An event that is refused for what it is leaves the
    /// writer as it was; a failed write ends it.
    pub fn append(&mut self, now_us: u64, parent: Option<u64>, body: &Body) -> Result<u64, WriteError> {
        let (seq, signed) = self.add(now_us, parent, body, false)?;
        // The first event is followed by what makes a session: nothing is lost with it that the next wait will not have.
        if signed && seq > 0 {
            self.settle()?;
        }
        Ok(seq)
    }

    /// The same with a signature right after it, in one write and without waiting for the disk: for who has something to
    /// begin meanwhile, and settles then.
    pub fn append_signed(
        &mut self,
        now_us: u64,
        parent: Option<u64>,
        body: &Body,
    ) -> Result<u64, WriteError> {
        self.add(now_us, parent, body, true).map(|(seq, _)| seq)
    }

    /// Says whether a signature went with it: one that was wanted, or was due.
    fn add(
        &mut self,
        now_us: u64,
        parent: Option<u64>,
        body: &Body,
        sign: bool,
    ) -> Result<(u64, bool), WriteError> {
        self.usable()?;
        let kind = body.kind();
        if matches!(body, Body::Checkpoint(_) | Body::Head(_)) {
            return Err(WriteError::Reserved(kind));
        }
        if matches!(body, Body::SessionStarted(_)) != (self.tip.next == 0) {
            return Err(WriteError::Order(kind));
        }
        if let Some(parent) = parent.filter(|&parent| parent >= self.tip.next) {
            return Err(WriteError::Parent(parent));
        }
        let mut tip = self.tip;
        self.staged.clear();
        self.stage(&mut tip, now_us, parent, body)?;
        let sign = sign || tip.due(now_us);
        if sign {
            self.stage_mark(&mut tip, now_us, Mark::Checkpoint)?;
        }
        let seq = self.tip.next;
        self.write(tip, sign)?;
        Ok((seq, sign))
    }

    /// Stores a payload and returns what an event needs to name it. To be called before that event is added.
    pub fn blob(&mut self, bytes: &[u8]) -> Result<BlobRef, WriteError> {
        self.usable()?;
        if bytes.len() as u64 > MAX_BLOB {
            return Err(WriteError::BlobTooLarge(bytes.len()));
        }
        let durable = self.options.durable;
        self.blobs
            .put(bytes, durable)
            .map_err(|source| WriteError::Blob { path: self.blobs.dir().to_owned(), source })
    }

    /// Signs everything so far, unless it is signed already.
    pub fn checkpoint(&mut self, now_us: u64) -> Result<(), WriteError> {
        self.usable()?;
        if self.tip.unsigned > 0 {
            let mut tip = self.tip;
            self.staged.clear();
            self.stage_mark(&mut tip, now_us, Mark::Checkpoint)?;
            self.write(tip, true)?;
        }
        self.settle()
    }

    /// Waits until all that is signed is on the disk, if this trace is to be durable.
    pub fn settle(&mut self) -> Result<(), WriteError> {
        self.usable()?;
        if self.unsettled && self.options.durable {
            self.sync().map_err(|error| self.fail(&error))?;
        }
        self.unsettled = false;
        Ok(())
    }

    /// Signs if the last events have waited long enough. For a timer, where no event comes to do it.
    pub fn checkpoint_if_due(&mut self, now_us: u64) -> Result<(), WriteError> {
        if self.tip.due(now_us) { self.checkpoint(now_us) } else { self.usable() }
    }

    /// Ends the trace with its signed head, after which nothing can be added.
    pub fn seal(mut self, now_us: u64) -> Result<Sealed, WriteError> {
        self.usable()?;
        if self.tip.next == 0 {
            return Err(WriteError::Order(Mark::Head.kind()));
        }
        let mut tip = self.tip;
        self.staged.clear();
        self.stage_mark(&mut tip, now_us, Mark::Head)?;
        self.commit(tip, true)?;
        Ok(Sealed { events: self.tip.next, head: self.tip.prev })
    }

    fn stage(
        &mut self,
        tip: &mut Tip,
        now_us: u64,
        parent: Option<u64>,
        body: &Body,
    ) -> Result<(), WriteError> {
        let (kind, start) = (body.kind(), self.staged.len());
        let link = Link { parent, prev: tip.prev, seq: tip.next, time: now_us };
        let hash = self
            .encoder
            .body(body, &link, &mut self.staged)
            .map_err(|source| WriteError::Form { kind, source })?;
        self.staged.push(b'\n');
        let size = self.staged.len() - start;
        if size > MAX_EVENT {
            return Err(WriteError::TooLarge { kind, size });
        }
        *tip = Tip { next: tip.next + 1, prev: hash, unsigned: tip.unsigned + 1, ..*tip };
        Ok(())
    }

    fn stage_mark(&mut self, tip: &mut Tip, now_us: u64, mark: Mark) -> Result<(), WriteError> {
        let statement = Statement { mark, count: tip.next, covers: tip.prev, time: now_us };
        let signed = self.key.attest(&statement);
        let body = match mark {
            Mark::Checkpoint => Body::Checkpoint(signed),
            Mark::Head => Body::Head(signed),
        };
        self.stage(tip, now_us, None, &body)?;
        *tip = Tip { unsigned: 0, signed_us: now_us, ..*tip };
        Ok(())
    }

    fn commit(&mut self, tip: Tip, signed: bool) -> Result<(), WriteError> {
        self.write(tip, signed)?;
        if signed { self.settle() } else { Ok(()) }
    }

    /// Writes what is staged, whole or not at all.
    fn write(&mut self, tip: Tip, signed: bool) -> Result<(), WriteError> {
        if let Err(error) = self.file.write_all(&self.staged) {
            // A torn line is cut off so that the trace ends in a whole event. Where even that fails, the
            // reader finds the torn line and says so.
            let _ = self.file.set_len(self.len);
            return Err(self.fail(&error));
        }
        self.len += self.staged.len() as u64;
        self.tip = tip;
        self.unsettled |= signed;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.blobs.sync()?;
        self.file.sync_data()?;
        if !self.dirs_synced {
            File::open(&self.dir)?.sync_all()?;
            if let Some(parent) = self.dir.parent().filter(|p| !p.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
            self.dirs_synced = true;
        }
        Ok(())
    }

    fn fail(&mut self, error: &io::Error) -> WriteError {
        let failure = Failure { errno: error.raw_os_error(), kind: error.kind() };
        self.failed = Some(failure);
        self.failure(failure)
    }

    fn usable(&self) -> Result<(), WriteError> {
        self.failed.map_or(Ok(()), |failure| Err(self.failure(failure)))
    }

    fn failure(&self, Failure { errno, kind }: Failure) -> WriteError {
        let source = errno.map_or_else(|| kind.into(), io::Error::from_raw_os_error);
        WriteError::Write { path: self.dir.join(EVENTS_FILE), events: self.tip.next, source }
    }
}

fn failed_at(dir: &Path, source: io::Error) -> WriteError {
    match source.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => WriteError::Exists(dir.to_owned()),
        _ => WriteError::Create { path: dir.to_owned(), source },
    }
}

/// Makes an empty bundle for a trace to come, unless there is one: a directory and a file are the slowest thing
/// that a short session asks of a disk. To be called when there is time.
///
/// It is made at `making`, a name of the caller's own, and moved when it is whole: another process may take it at
/// any moment.
pub fn prepare(making: &Path, spare: &Path) -> io::Result<()> {
    if spare.symlink_metadata().is_ok() {
        return Ok(());
    }
    make_dir(making)?;
    let made = new_events(making).and_then(|_| std::fs::rename(making, spare));
    if made.is_err() {
        let _ = std::fs::remove_dir_all(making);
    }
    made
}

fn new_events(dir: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(dir.join(EVENTS_FILE))
}

/// One `mkdir` where everything above is there, as it is but for the first trace of all.
fn make_dir(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    match (builder.create(dir), dir.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            builder.recursive(true).create(parent)?;
            builder.recursive(false).create(dir)
        }
        (made, _) => made,
    }
}
