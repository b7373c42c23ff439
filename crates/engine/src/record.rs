//! The trace of a session under way: the writer, with the clock that the writer itself must not read.

use crate::error::EngineError;
use cofferdam_model::{BlobRef, Body, OutputCaptured, Stream};
use cofferdam_trace::{CHECKPOINT_US, Sealed, Writer};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::relay::Captured;

pub(crate) struct Recorder {
    writer: Writer,
    /// Since when there are events that nobody has signed.
    unsigned_since: Option<Instant>,
}

pub(crate) fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

impl Recorder {
    pub(crate) fn new(writer: Writer) -> Self {
        Self { writer, unsigned_since: None }
    }

    pub(crate) fn append(&mut self, parent: Option<u64>, body: &Body) -> Result<u64, EngineError> {
        let seq = self.writer.append(now_us(), parent, body)?;
        self.unsigned_since.get_or_insert_with(Instant::now);
        Ok(seq)
    }

    /// A whole stream: its digest, and its first and last bytes as payloads.
    pub(crate) fn output(&mut self, parent: u64, stream: Stream, seen: Captured) -> Result<(), EngineError> {
        if seen.bytes == 0 {
            return Ok(());
        }
        let mut store = |bytes: &[u8]| -> Result<Option<BlobRef>, EngineError> {
            if bytes.is_empty() { Ok(None) } else { Ok(Some(self.writer.blob(bytes)?)) }
        };
        let (head, tail) = (store(&seen.head)?, store(&seen.tail)?);
        let body = OutputCaptured { stream, bytes: seen.bytes, digest: seen.digest, head, tail };
        self.append(Some(parent), &Body::Output(body)).map(drop)
    }

    pub(crate) fn checkpoint(&mut self) -> Result<(), EngineError> {
        self.unsigned_since = None;
        Ok(self.writer.checkpoint(now_us())?)
    }

    pub(crate) fn checkpoint_if_due(&mut self) -> Result<(), EngineError> {
        let due = self.next_checkpoint().is_some_and(|wait| wait.is_zero());
        if due { self.checkpoint() } else { Ok(()) }
    }

    /// How long until what is unsigned wants a signature.
    pub(crate) fn next_checkpoint(&self) -> Option<Duration> {
        let since = self.unsigned_since?;
        Some(Duration::from_micros(CHECKPOINT_US).saturating_sub(since.elapsed()))
    }

    pub(crate) fn seal(self) -> Result<Sealed, EngineError> {
        Ok(self.writer.seal(now_us())?)
    }
}
