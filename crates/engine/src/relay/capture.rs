//! What is kept of a stream that passes: the digest of every byte, the first and the last of them.

use cofferdam_model::Digest;
use cofferdam_seal::Hasher;

const HEAD: usize = 64 << 10;
const TAIL: usize = 64 << 10;

pub(crate) struct Capture {
    hasher: Hasher,
    bytes: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
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
        Self { hasher: Hasher::new(), bytes: 0, head: Vec::new(), tail: Vec::new() }
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
