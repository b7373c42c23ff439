//! The trace of a session under way: the writer, with the clock that the writer itself must not read. Several
//! threads tell what they see; each fact is written before its teller goes on.

use crate::error::EngineError;
use crate::relay::{Captured, Seen};
use cofferdam_model::{BlobRef, Body, NotRecorded, OutputCaptured, OutputSeen, Record, Stream};
use cofferdam_trace::{CHECKPOINT_US, WriteError, Writer};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Clones write to the same trace.
#[derive(Clone)]
pub(crate) struct Recorder(Arc<Mutex<Writing>>);

struct Writing {
    /// Nothing once the trace is sealed: who comes later has not been recorded.
    writer: Option<Writer>,
    /// Since when there are events that nobody has signed.
    unsigned_since: Option<Instant>,
}

pub(crate) fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

impl Recorder {
    pub(crate) fn new(writer: Writer) -> Self {
        Self(Arc::new(Mutex::new(Writing { writer: Some(writer), unsigned_since: None })))
    }

    /// A thread that panicked while it held the lock left a whole trace: an event is one write.
    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn append(&self, parent: Option<u64>, body: &Body) -> Result<u64, EngineError> {
        Ok(self.writing().append(parent, body)?)
    }

    /// A whole stream: its digest, and its first and last bytes as payloads.
    pub(crate) fn output(&self, parent: u64, stream: Stream, seen: Captured) -> Result<(), EngineError> {
        if seen.bytes == 0 {
            return Ok(());
        }
        let mut writing = self.writing();
        let mut store = |bytes: &[u8]| -> Result<Option<BlobRef>, EngineError> {
            if bytes.is_empty() { Ok(None) } else { Ok(Some(writing.open()?.blob(bytes)?)) }
        };
        let (head, tail) = (store(&seen.head)?, store(&seen.tail)?);
        let body = OutputCaptured { stream, bytes: seen.bytes, digest: seen.digest, head, tail };
        writing.append(Some(parent), &Body::Output(body))?;
        Ok(())
    }

    /// A stream on its way, as far as it came.
    pub(crate) fn seen(&self, parent: u64, stream: Stream, seen: Seen) -> Result<(), EngineError> {
        let mut writing = self.writing();
        let piece = match seen.piece.is_empty() {
            true => None,
            false => Some(writing.open()?.blob(&seen.piece)?),
        };
        let body = OutputSeen { stream, bytes: seen.bytes, digest: seen.digest, piece };
        writing.append(Some(parent), &Body::OutputSeen(body))?;
        Ok(())
    }

    pub(crate) fn checkpoint(&self) -> Result<(), EngineError> {
        let mut writing = self.writing();
        writing.unsigned_since = None;
        Ok(writing.open()?.checkpoint(now_us())?)
    }

    /// Adds an event and signs it, without waiting for the disk: what follows is begun first, and then `settle` waits for
    /// both.
    pub(crate) fn append_signed(&self, parent: Option<u64>, body: &Body) -> Result<u64, EngineError> {
        let mut writing = self.writing();
        let seq = writing.open()?.append_signed(now_us(), parent, body)?;
        writing.unsigned_since = None;
        Ok(seq)
    }

    pub(crate) fn settle(&self) -> Result<(), EngineError> {
        Ok(self.writing().open()?.settle()?)
    }

    pub(crate) fn checkpoint_if_due(&self) -> Result<(), EngineError> {
        let due = self.next_checkpoint().is_some_and(|wait| wait.is_zero());
        if due { self.checkpoint() } else { Ok(()) }
    }

    /// How long until what is unsigned wants a signature.
    pub(crate) fn next_checkpoint(&self) -> Option<Duration> {
        let since = self.writing().unsigned_since?;
        Some(Duration::from_micros(CHECKPOINT_US).saturating_sub(since.elapsed()))
    }

    pub(crate) fn seal(&self) -> Result<(), EngineError> {
        let writer = self.writing().writer.take().ok_or(WriteError::Sealed)?;
        Ok(writer.seal(now_us()).map(drop)?)
    }
}

impl Writing {
    fn open(&mut self) -> Result<&mut Writer, WriteError> {
        self.writer.as_mut().ok_or(WriteError::Sealed)
    }

    fn append(&mut self, parent: Option<u64>, body: &Body) -> Result<u64, WriteError> {
        let seq = self.open()?.append(now_us(), parent, body)?;
        self.unsigned_since.get_or_insert_with(Instant::now);
        Ok(seq)
    }
}

impl Record for Recorder {
    fn append(&self, parent: Option<u64>, body: &Body) -> Result<u64, NotRecorded> {
        let told = self.writing().append(parent, body);
        told.map_err(|error| NotRecorded { kind: body.kind(), reason: error.to_string() })
    }

    fn keep(&self, bytes: &[u8]) -> Result<BlobRef, NotRecorded> {
        let mut writing = self.writing();
        writing.open().and_then(|writer| writer.blob(bytes)).map_err(NotRecorded::bytes)
    }
}
