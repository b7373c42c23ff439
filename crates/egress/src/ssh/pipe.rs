//! Bytes on their way from one connection to another. Whoever sends them was granted room for them, and gets it back when
//! they have gone on: so no more is held than was granted, and nobody waits for anybody in a ring.

use bytes::{Bytes, BytesMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Default)]
struct Held {
    bytes: BytesMut,
    ended: bool,
    /// Gone on, and not yet granted again.
    freed: usize,
}

pub(super) struct Pipe {
    held: Mutex<Held>,
    /// Who sends on.
    filled: Arc<Notify>,
    /// Who grants again.
    drained: Arc<Notify>,
}

/// Less is not worth a message, unless nothing is left to come.
const WORTH: usize = 64 << 10;

impl Pipe {
    pub(super) fn new(filled: Arc<Notify>, drained: Arc<Notify>) -> Self {
        Self { held: Mutex::default(), filled, drained }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, bytes: &[u8]) {
        let mut held = self.held();
        if !held.ended {
            held.bytes.extend_from_slice(bytes);
        }
        drop(held);
        self.filled.notify_one();
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        self.held().ended = true;
        self.filled.notify_one();
    }

    /// What is held goes nowhere, and nothing more comes.
    pub(super) fn clear(&self) {
        self.held().bytes.clear();
    }

    pub(super) fn take(&self, most: usize) -> Option<Bytes> {
        let mut held = self.held();
        let count = held.bytes.len().min(most);
        if count == 0 {
            return None;
        }
        let bytes = held.bytes.split_to(count).freeze();
        held.freed += count;
        let is_worth = held.freed >= WORTH;
        drop(held);
        if is_worth {
            self.drained.notify_one();
        }
        Some(bytes)
    }

    /// What can be granted again, if it is enough to say so.
    pub(super) fn freed(&self) -> usize {
        let mut held = self.held();
        if held.freed < WORTH || held.ended { 0 } else { std::mem::take(&mut held.freed) }
    }

    /// Whether nothing is left and nothing comes.
    pub(super) fn is_done(&self) -> bool {
        let held = self.held();
        held.ended && held.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_gone_on_is_granted_again() {
        let notify = || Arc::new(Notify::new());
        let pipe = Pipe::new(notify(), notify());
        pipe.push(&[7; WORTH]);
        assert_eq!((pipe.freed(), pipe.take(10).map(|bytes| bytes.len()), pipe.freed()), (0, Some(10), 0));
        assert_eq!(pipe.take(usize::MAX).map(|bytes| bytes.len()), Some(WORTH - 10));
        assert_eq!((pipe.freed(), pipe.freed()), (WORTH, 0));
        assert!(!pipe.is_done());
        pipe.push(b"last");
        pipe.end();
        pipe.push(b"too late");
        assert!(!pipe.is_done());
        assert_eq!(pipe.take(100).as_deref(), Some(&b"last"[..]));
        assert!(pipe.is_done() && pipe.take(1).is_none());
    }
}
