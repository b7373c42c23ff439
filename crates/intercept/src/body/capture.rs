//! The bytes of one direction while they pass: all of them up to a bound, beyond it the first and the last, and
//! always the digest of all. What all exchanges of a session hold at a time is bounded too.

use cofferdam_model::{NotRecorded, Part, Payload, Record};
use cofferdam_seal::Hasher;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// The largest body that is kept as a whole.
const WHOLE: usize = 8 << 20;
/// What is kept of a longer one, at each end.
const END: usize = 64 << 10;
/// What a session's exchanges hold at a time beyond their ends.
const ROOM: usize = 96 << 20;
/// Parts whose times are kept.
const PARTS: usize = 4096;

/// The room that a session's bodies share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room(Arc<AtomicUsize>);

impl Room {
    fn take(&self, bytes: usize) -> bool {
        let fits = self.0.fetch_add(bytes, Relaxed).saturating_add(bytes) <= ROOM;
        if !fits {
            self.0.fetch_sub(bytes, Relaxed);
        }
        fits
    }
}

pub(crate) struct Capture {
    room: Room,
    /// Of the shared room.
    taken: usize,
    head: Vec<u8>,
    /// The last bytes, once the head takes no more.
    tail: Option<VecDeque<u8>>,
    bytes: u64,
    hasher: Hasher,
    parts: Vec<Part>,
    last: Instant,
}

impl Capture {
    pub(crate) fn new(room: &Room) -> Self {
        Self {
            room: room.clone(),
            taken: 0,
            head: Vec::new(),
            tail: None,
            bytes: 0,
            hasher: Hasher::new(),
            parts: Vec::new(),
            last: Instant::now(),
        }
    }

    /// From here on the wait for the first part counts.
    pub(crate) fn begin(&mut self) {
        self.last = Instant::now();
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) {
        let now = Instant::now();
        let waited = micros(now.duration_since(std::mem::replace(&mut self.last, now)));
        if self.parts.len() < PARTS {
            self.parts.push(Part(waited, chunk.len() as u64));
        } else if let Some(Part(_, bytes)) = self.parts.last_mut() {
            *bytes += chunk.len() as u64;
        }
        self.bytes += chunk.len() as u64;
        self.hasher.update(chunk);
        let kept = if self.tail.is_some() { 0 } else { self.grow(chunk.len()) };
        let (kept, rest) = chunk.split_at(kept);
        self.head.extend_from_slice(kept);
        if !rest.is_empty() {
            let tail = self.tail.get_or_insert_default();
            tail.extend(rest.iter().skip(rest.len().saturating_sub(END)));
            tail.drain(..tail.len().saturating_sub(END));
        }
    }

    /// How many of these bytes the head takes: all, or as many as the first bytes of a body that is not kept.
    fn grow(&mut self, bytes: usize) -> usize {
        let free = END.saturating_sub(self.head.len());
        let more = bytes.saturating_sub(free);
        if more == 0 {
            return bytes;
        }
        if self.head.len() + bytes <= WHOLE && self.room.take(more) {
            self.taken += more;
            return bytes;
        }
        // It will not be whole, so it needs no more than its ends: what the head has beyond that is let go.
        let last = self.head.len().saturating_sub(END).max(END).min(self.head.len());
        self.tail = Some(self.head.split_off(last).into());
        self.head.truncate(END);
        self.head.shrink_to_fit();
        self.room.0.fetch_sub(std::mem::take(&mut self.taken), Relaxed);
        END.saturating_sub(self.head.len()).min(bytes)
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes
    }

    /// Every byte, if every byte is here.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        self.tail.is_none().then_some(self.head.as_slice())
    }

    /// When the byte at `offset` came, in microseconds after the beginning.
    pub(crate) fn came_at(&self, offset: u64) -> u64 {
        let (mut waited, mut seen) = (0, 0);
        for Part(wait, bytes) in &self.parts {
            waited += wait;
            seen += bytes;
            if offset < seen {
                break;
            }
        }
        waited
    }

    /// The parts in which it came, if there was more than one.
    pub(crate) fn parts(&self) -> Vec<Part> {
        if self.parts.len() > 1 { self.parts.clone() } else { Vec::new() }
    }

    /// Puts the bytes on record. None if there were none.
    pub(crate) fn keep(&mut self, record: &dyn Record) -> Result<Option<Payload>, NotRecorded> {
        if self.bytes == 0 {
            return Ok(None);
        }
        let head = record.keep(&self.head)?;
        let tail = match &mut self.tail {
            Some(tail) => Some(record.keep(tail.make_contiguous())?),
            None => None,
        };
        let digest = if tail.is_none() { head.digest } else { self.hasher.clone().finish() };
        Ok(Some(Payload { bytes: self.bytes, digest, head, tail }))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.room.0.fetch_sub(self.taken, Relaxed);
    }
}

pub(crate) fn micros(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::tests::Kept;
    use proptest::prelude::*;

    fn captured(room: &Room, chunks: &[&[u8]]) -> Capture {
        let mut capture = Capture::new(room);
        chunks.iter().for_each(|chunk| capture.push(chunk));
        capture
    }

    #[test]
    fn what_is_too_long_is_kept_by_its_ends() {
        let (room, record) = (Room::default(), Kept::default());
        let long: Vec<u8> = (0..WHOLE + 1000).map(|n| (n % 251) as u8).collect();
        let mut capture = captured(&room, &long.chunks(10_000).collect::<Vec<_>>());
        assert_eq!(capture.whole(), None);
        let payload = capture.keep(&record).unwrap().unwrap();
        assert_eq!(payload.digest, cofferdam_seal::digest(&long));
        assert_eq!((payload.bytes, payload.is_whole()), (long.len() as u64, false));
        assert!(record.bytes(&payload.head) == long[..END]);
        assert!(record.bytes(&payload.tail.unwrap()) == long[long.len() - END..]);
        drop(capture);
        assert_eq!(room.0.load(Relaxed), 0);
    }

    #[test]
    fn all_exchanges_share_one_room() {
        let room = Room::default();
        let body = vec![7; WHOLE];
        let held: Vec<Capture> = (0..20).map(|_| captured(&room, &[&body])).collect();
        let whole = held.iter().filter(|capture| capture.whole().is_some()).count();
        assert_eq!(whole, ROOM / (WHOLE - END));
        assert!(held.iter().map(|capture| capture.head.len()).sum::<usize>() <= ROOM + 20 * END);
        drop(held);
        assert!(captured(&room, &[&body]).whole().is_some());
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same(bytes in prop::collection::vec(any::<u8>(), 1..5000), cut in 1usize..900) {
            let record = Kept::default();
            let mut capture = captured(&Room::default(), &bytes.chunks(cut).collect::<Vec<_>>());
            prop_assert_eq!(capture.whole(), Some(bytes.as_slice()));
            let payload = capture.keep(&record).unwrap().unwrap();
            prop_assert!(payload.is_whole());
            prop_assert_eq!(payload.digest, cofferdam_seal::digest(&bytes));
            let all: u64 = capture.parts().iter().map(|part| part.1).sum();
            prop_assert!(all == bytes.len() as u64 || capture.parts().is_empty());
        }
    }
}
