//! How the layers that watch a session tell what happened, without knowing that there is a trace.

use crate::{BlobRef, Body};

/// Why a fact is not on record. What it was about must not happen.
#[derive(Debug, thiserror::Error)]
#[error("`{kind}` is not on record ({reason}): what it tells is refused; see the trace's own error")]
pub struct NotRecorded {
    pub kind: &'static str,
    pub reason: String,
}

pub trait Record: Send + Sync {
    /// Appends a fact and tells its sequence number, by which later facts can name it as their parent. An
    /// error means it is not on record, so what it tells must not happen.
    fn append(&self, parent: Option<u64>, body: &Body) -> Result<u64, NotRecorded>;

    /// Keeps bytes that a fact to come names by their digest. They must hold placeholders only: whoever
    /// reads the trace reads them.
    fn keep(&self, bytes: &[u8]) -> Result<BlobRef, NotRecorded>;
}

impl NotRecorded {
    /// Bytes that could not be kept.
    pub fn bytes(reason: impl std::fmt::Display) -> Self {
        Self { kind: "payload", reason: reason.to_string() }
    }
}
