//! Evidence made ready to be asked: sentences, where each word stands, which values each sentence holds. Built once
//! per body of evidence, in time linear in its text but for one sort.

use crate::claims::scan::{Found, scan};
use crate::claims::words::{Word, words};
use std::ops::Range;

/// One sentence of the evidence.
#[derive(Debug, Clone)]
pub(crate) struct Sentence {
    pub(crate) passage: u32,
    /// Byte range in its passage.
    pub(crate) range: Range<usize>,
    /// Its words, as a range in `Index::words`.
    pub(crate) words: Range<usize>,
}

/// Passages of evidence, indexed.
#[derive(Debug, Default)]
pub struct Index {
    pub(crate) words: Vec<Word>,
    pub(crate) sentences: Vec<Sentence>,
    /// (stem, sentence) and (head, sentence), sorted.
    pub(crate) stems: Vec<(u64, u32)>,
    pub(crate) heads: Vec<(u64, u32)>,
    pub(crate) values: Vec<(u32, Found)>,
    /// Pairs of neighbouring stems, sorted.
    pub(crate) pairs: Vec<u64>,
}

impl Index {
    pub fn new<'t>(passages: impl IntoIterator<Item = &'t str>) -> Self {
        let mut index = Self::default();
        for (number, passage) in (0u32..).zip(passages) {
            index.add(number, passage);
        }
        for list in [&mut index.stems, &mut index.heads] {
            list.sort_unstable();
            list.dedup();
        }
        index.pairs.sort_unstable();
        index.pairs.dedup();
        index
    }

    fn add(&mut self, passage: u32, text: &str) {
        let words = words(text);
        let mut values = scan(text).into_iter().peekable();
        let mut rest = words.iter().peekable();
        for range in sentences(text) {
            let first = self.words.len();
            while let Some(word) = rest.next_if(|w| w.range().start < range.end) {
                self.words.push(*word);
            }
            if self.words.len() == first {
                continue;
            }
            let Ok(number) = u32::try_from(self.sentences.len()) else { return };
            for word in self.words[first..].iter().filter(|w| !w.common) {
                self.stems.push((word.stem, number));
                if word.head != 0 {
                    self.heads.push((word.head, number));
                }
            }
            self.pairs.extend(self.words[first..].windows(2).map(|w| pair(w[0].stem, w[1].stem)));
            while let Some(found) = values.next_if(|f| f.range.start < range.end) {
                self.values.push((number, found));
            }
            self.sentences.push(Sentence { passage, range, words: first..self.words.len() });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.sentences.is_empty()
    }

    /// The sentences that hold a key of one of the sorted lists.
    pub(crate) fn holding(list: &[(u64, u32)], key: u64) -> impl Iterator<Item = usize> {
        let from = list.partition_point(|(k, _)| *k < key);
        list[from..].iter().take_while(move |(k, _)| *k == key).map(|(_, s)| *s as usize)
    }
}

pub(crate) fn pair(a: u64, b: u64) -> u64 {
    a.rotate_left(17) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Byte ranges of the sentences of a text: a line break ends one, and so does a full stop, question or exclamation
/// mark before white space, unless it follows one letter or a title.
pub(crate) fn sentences(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let ends = match byte {
            b'\n' => true,
            b'!' | b'?' => bytes.get(at + 1).is_none_or(|b| b.is_ascii_whitespace() || b"\"')".contains(b)),
            b'.' => {
                bytes.get(at + 1).is_none_or(|b| b.is_ascii_whitespace() || b"\"')".contains(b))
                    && !abbreviated(&text[start..at])
            }
            _ => false,
        };
        if ends {
            push_trimmed(text, start..at + 1, &mut found);
            start = at + 1;
        }
    }
    push_trimmed(text, start..text.len(), &mut found);
    found
}

fn push_trimmed(text: &str, range: Range<usize>, into: &mut Vec<Range<usize>>) {
    let piece = &text[range.clone()];
    let lead = piece.len() - piece.trim_start().len();
    let kept = piece.trim();
    if !kept.is_empty() {
        into.push(range.start + lead..range.start + lead + kept.len());
    }
}

fn abbreviated(before: &str) -> bool {
    let last = before.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    let one_letter = last.len() == 1 && last.starts_with(char::is_alphabetic);
    one_letter
        || last.contains('.') && last.len() <= 5
        || [
            "Mr", "Mrs", "Ms", "Dr", "Prof", "St", "No", "vs", "Jr", "Sr", "Inc", "Ltd", "Co", "Nov", "Dec",
            "Jan", "Feb", "Aug", "Sept", "Oct", "e.g", "i.e", "approx",
        ]
        .contains(&last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_where_a_reader_would_say() {
        let text = "Dr. Lee of the U.S. office left. Did he? Yes!\nA new line; v1.2 stays.";
        let found: Vec<&str> = sentences(text).into_iter().map(|r| &text[r]).collect();
        assert_eq!(found, ["Dr. Lee of the U.S. office left.", "Did he?", "Yes!", "A new line; v1.2 stays."]);
    }

    #[test]
    fn a_word_is_found_by_any_of_its_forms() {
        let index = Index::new(["Two reports came.", "He reported it. None followed."]);
        let stem = words("reporting")[0].stem;
        assert_eq!(Index::holding(&index.stems, stem).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(index.values.len(), 1);
    }
}
