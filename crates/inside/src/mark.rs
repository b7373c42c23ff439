//! A mark in a stream of bytes: what comes before it was meant for somebody who is gone. Drawn by the host for one
//! use, so that nothing that was said before can hold it.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark(pub [u8; 32]);

/// Looks for a mark in bytes that come in pieces.
#[derive(Debug)]
pub struct Search {
    mark: Mark,
    tail: Vec<u8>,
}

impl Mark {
    pub const fn search(self) -> Search {
        Search { mark: self, tail: Vec::new() }
    }
}

impl Search {
    /// What follows the mark, once it was found.
    pub fn feed<'a>(&mut self, piece: &'a [u8]) -> Option<&'a [u8]> {
        let before = self.tail.len();
        self.tail.extend_from_slice(piece);
        let length = self.mark.0.len();
        if let Some(at) = self.tail.windows(length).position(|window| window == self.mark.0) {
            // All bytes of the tail that were there before are too few to hold the mark's end.
            return piece.get((at + length).saturating_sub(before)..);
        }
        let over = self.tail.len().saturating_sub(length - 1);
        self.tail.drain(..over);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Mark;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_found_however_it_comes(
            before in proptest::collection::vec(any::<u8>(), 0..200),
            after in proptest::collection::vec(any::<u8>(), 0..50),
            size in 1usize..80,
        ) {
            let mark = Mark([7; 32]);
            prop_assume!(!before.windows(1).any(|byte| byte == [7]));
            let all: Vec<u8> = before.iter().chain(&mark.0).chain(&after).copied().collect();
            let mut search = mark.search();
            let mut found = None;
            for piece in all.chunks(size) {
                match &mut found {
                    None => found = search.feed(piece).map(<[u8]>::to_vec),
                    Some(rest) => rest.extend_from_slice(piece),
                }
            }
            prop_assert_eq!(found, Some(after));
        }
    }
}
