//! Goes through what a server sends, message by message. Rows pass as they come; what tells how a statement ended is read.

use super::wire::head;
use bytes::{Bytes, BytesMut};
use std::io;

/// The messages that are read are short.
const MOST: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Walk {
    /// What is left of a message that passes.
    left: usize,
}

/// A piece of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Bytes of messages that are nobody's business.
    Pass(Bytes),
    /// A whole message, its payload from the sixth byte on.
    Whole(u8, Bytes),
}

impl Walk {
    /// Whether the stream stands between two messages.
    pub(super) fn is_between(&self) -> bool {
        self.left == 0
    }

    /// The next piece of what has come; none if more must come first.
    pub(super) fn next(&mut self, held: &mut BytesMut) -> io::Result<Option<Piece>> {
        if self.left > 0 {
            let n = self.left.min(held.len());
            self.left -= n;
            return Ok((n > 0).then(|| Piece::Pass(held.split_to(n).freeze())));
        }
        // Messages that pass are taken together as far as they go.
        let mut at = 0;
        while let Some(found) = head(&held[at..]) {
            let (tag, length) = found?;
            if is_read(tag) {
                if at > 0 {
                    break;
                }
                if length > MOST {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                if held.len() < 5 + length {
                    return Ok(None);
                }
                return Ok(Some(Piece::Whole(tag, held.split_to(5 + length).freeze())));
            }
            let whole = 5 + length;
            let there = whole.min(held.len() - at);
            at += there;
            self.left = whole - there;
            if self.left > 0 {
                break;
            }
        }
        Ok((at > 0).then(|| Piece::Pass(held.split_to(at).freeze())))
    }
}

/// How statements end, errors, readiness, settings; and what has no place in a session that has begun.
fn is_read(tag: u8) -> bool {
    matches!(tag, b'C' | b'E' | b'I' | b'K' | b'R' | b'S' | b'Z' | b's')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(tag: u8, payload: &[u8]) -> Vec<u8> {
        [&[tag][..], &(payload.len() as u32 + 4).to_be_bytes(), payload].concat()
    }

    /// All that comes out when bytes come in pieces of this size: the stream, and the tags that were read.
    fn through(bytes: &[u8], piece: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut walk, mut held) = (Walk::default(), BytesMut::new());
        let (mut out, mut tags) = (Vec::new(), Vec::new());
        for chunk in bytes.chunks(piece) {
            held.extend_from_slice(chunk);
            while let Ok(Some(piece)) = walk.next(&mut held) {
                match piece {
                    Piece::Pass(bytes) => out.extend_from_slice(&bytes),
                    Piece::Whole(tag, bytes) => {
                        tags.push(tag);
                        out.extend_from_slice(&bytes);
                    }
                }
            }
        }
        (out, tags)
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            messages in proptest::collection::vec((any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..20),
            piece in 1usize..60,
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(|(tag, payload)| message(*tag, payload)).collect();
            let expected: Vec<u8> = messages.iter().map(|(tag, _)| *tag).filter(|tag| is_read(*tag)).collect();
            prop_assert_eq!(through(&bytes, piece), (bytes.clone(), expected));
        }

        #[test]
        fn any_bytes_are_walked(bytes in proptest::collection::vec(any::<u8>(), 0..300), piece in 1usize..60) {
            let _ = through(&bytes, piece);
        }
    }
}
