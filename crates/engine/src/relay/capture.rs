//! What is kept of a stream that passes: the digest of every byte, the first and the last of them.

use cofferdam_model::Digest;
use cofferdam_seal::Hasher;

const HEAD: usize = 64 << 10;
const TAIL: usize = 64 << 10;
/// Of what comes after the beginning, kept on the way.
const PIECE: usize = 8 << 10;

pub(crate) struct Capture {
    hasher: Hasher,
    bytes: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
    /// So many were told of on the way.
    told: u64,
}

/// A stream on its way.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) digest: Digest,
    pub(crate) bytes: u64,
    pub(crate) piece: Vec<u8>,
}

/// The end of it. `tail` is empty where `head` holds everything.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    pub(crate) digest: Digest,
    pub(crate) bytes: u64,
    pub(crate) head: Vec<u8>,
    pub(crate) tail: Vec<u8>,
}

impl Capture {
    pub(crate) fn new() -> Self {
        Self { hasher: Hasher::new(), bytes: 0, head: Vec::new(), tail: Vec::new(), told: 0 }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        let room = HEAD - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        if rest.len() >= TAIL {
            self.tail.clear();
            self.tail.extend_from_slice(&rest[rest.len() - TAIL..]);
            return;
        }
        // Moved down only when it has doubled, so that many small pieces cost no more than their copy.
        if self.tail.len() + rest.len() > 2 * TAIL {
            self.tail.drain(..self.tail.len() + rest.len() - TAIL);
        }
        self.tail.extend_from_slice(rest);
    }

    /// What there is so far and was not told before: of the beginning all of it, of the rest the last.
    pub(crate) fn seen(&mut self) -> Option<Seen> {
        if self.bytes == self.told {
            return None;
        }
        let from = usize::try_from(self.told).unwrap_or(usize::MAX);
        let fresh = usize::try_from(self.bytes - self.told).unwrap_or(usize::MAX);
        let piece = match self.head.get(from..).filter(|_| self.bytes as usize <= HEAD) {
            Some(piece) => piece,
            None => {
                let kept = if self.tail.is_empty() { &self.head } else { &self.tail };
                kept.get(kept.len().saturating_sub(fresh.min(PIECE))..).unwrap_or_default()
            }
        };
        let piece = piece.to_vec();
        self.told = self.bytes;
        Some(Seen { digest: self.hasher.clone().finish(), bytes: self.bytes, piece })
    }

    pub(crate) fn finish(mut self) -> Captured {
        let surplus = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..surplus);
        Captured { digest: self.hasher.finish(), bytes: self.bytes, head: self.head, tail: self.tail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[usize]) {
        let total: usize = pieces.iter().sum();
        let all: Vec<u8> = (0..total).map(|n| (n % 251) as u8).collect();
        let mut capture = Capture::new();
        let mut at = 0;
        for piece in pieces {
            capture.add(&all[at..at + piece]);
            at += piece;
        }
        let end = capture.finish();
        assert_eq!(end.bytes, total as u64);
        assert_eq!(end.digest, cofferdam_seal::digest(&all));
        assert_eq!(end.head, all[..total.min(HEAD)]);
        let behind_head = total.saturating_sub(HEAD);
        assert_eq!(end.tail, all[total - behind_head.min(TAIL)..]);
    }

    #[test]
    fn what_is_seen_on_the_way_adds_up_and_is_bounded() {
        let mut capture = Capture::new();
        assert_eq!(capture.seen(), None);
        capture.add(b"one ");
        assert_eq!(capture.seen().unwrap().piece, b"one ");
        capture.add(b"two");
        let seen = capture.seen().unwrap();
        assert_eq!((&seen.piece[..], seen.bytes), (&b"two"[..], 7));
        assert_eq!(seen.digest, cofferdam_seal::digest(b"one two"));
        assert_eq!(capture.seen(), None);
        let much = vec![7; HEAD * 3];
        capture.add(&much);
        let seen = capture.seen().unwrap();
        assert_eq!((seen.piece.len(), seen.bytes), (PIECE, 7 + much.len() as u64));
        capture.add(b"end");
        assert_eq!(capture.seen().unwrap().piece, b"end");
        assert_eq!(capture.finish().bytes, 10 + much.len() as u64);
    }

    #[test]
    fn head_and_tail_are_the_first_and_last_bytes() {
        check(&[]);
        check(&[5]);
        check(&[HEAD - 1, 2]);
        check(&[HEAD, TAIL]);
        check(&[HEAD + TAIL + 1]);
        check(&[7_000; 40]);
        check(&[300_000, 10, 20, 30]);
    }
}
