//! Differences of texts, as pieces that were replaced: word by word where a text is short, line by line where it is
//! long, and as one piece where it is too long for either to help anybody.

use serde::{Deserialize, Serialize};
use similar::{Algorithm, DiffOp, capture_diff_slices};

/// From this byte of the base's text on, `old` stands there and `new` takes its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hunk {
    pub at: usize,
    pub old: String,
    pub new: String,
}

/// Texts of up to this many bytes are compared by words.
const BY_WORDS: usize = 4096;
/// Texts of more pieces than this are not compared piece by piece: the time goes with the square.
const PIECES: usize = 1500;

pub(super) fn between(base: &str, new: &str) -> Vec<Hunk> {
    let mut head = base.bytes().zip(new.bytes()).take_while(|(a, b)| a == b).count();
    while !base.is_char_boundary(head) {
        head -= 1;
    }
    let (rest, new) = (&base[head..], &new[head..]);
    let mut tail = rest.bytes().rev().zip(new.bytes().rev()).take_while(|(a, b)| a == b).count();
    // what both end with begins with the same byte in both
    while !rest.is_char_boundary(rest.len() - tail) {
        tail -= 1;
    }
    let (rest, new) = (&rest[..rest.len() - tail], &new[..new.len() - tail]);
    if rest.is_empty() && new.is_empty() {
        return Vec::new();
    }
    let by_words = rest.len().max(new.len()) <= BY_WORDS;
    let (old, fresh) = (pieces(rest, by_words), pieces(new, by_words));
    if old.len().max(fresh.len()) > PIECES {
        return vec![Hunk { at: head, old: rest.to_owned(), new: new.to_owned() }];
    }
    replaced(&old, &fresh, head)
}

fn pieces(text: &str, by_words: bool) -> Vec<&str> {
    if by_words {
        text.split_inclusive(char::is_whitespace).collect()
    } else {
        text.split_inclusive('\n').collect()
    }
}

fn replaced(old: &[&str], new: &[&str], head: usize) -> Vec<Hunk> {
    let starts: Vec<usize> = old
        .iter()
        .scan(head, |at, piece| {
            let start = *at;
            *at += piece.len();
            Some(start)
        })
        .collect();
    let end = head + old.iter().map(|piece| piece.len()).sum::<usize>();
    let start = |at: usize| starts.get(at).copied().unwrap_or(end);
    // What lies between the pieces that stayed; how the differ cuts that up is its own affair.
    let mut hunks = Vec::new();
    let (mut i, mut j) = (0, 0);
    let ops = capture_diff_slices(Algorithm::Myers, old, new);
    let same =
        ops.iter().filter(|op| matches!(op, DiffOp::Equal { .. })).map(|op| (op.old_range(), op.new_range()));
    for (left, right) in same.chain([(old.len()..old.len(), new.len()..new.len())]) {
        if i < left.start || j < right.start {
            hunks.push(Hunk {
                at: start(i),
                old: old[i..left.start].concat(),
                new: new[j..right.start].concat(),
            });
        }
        (i, j) = (left.end, right.end);
    }
    hunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn patched(base: &str, hunks: &[Hunk]) -> String {
        let mut text = base.to_owned();
        for hunk in hunks.iter().rev() {
            text.replace_range(hunk.at..hunk.at + hunk.old.len(), &hunk.new);
        }
        text
    }

    #[test]
    fn only_what_differs_is_told() {
        let hunks = between("the total is 4 bags for you", "the total is 6 bags for you");
        assert_eq!(hunks, [Hunk { at: 13, old: "4".into(), new: "6".into() }]);
        assert!(between("same", "same").is_empty());
    }

    proptest! {
        #[test]
        fn hunks_make_the_new_text(a in "[aäb \n]{0,40}", b in "[aäb \n]{0,40}") {
            prop_assert_eq!(patched(&a, &between(&a, &b)), b);
        }
    }
}
