//! Nouns that are no names. `Security` may be read in `Facebook Security Team`, at the beginning of a sentence and in
//! `security@…`; if sentences have it without a capital and nothing else is called so, then nobody is.

use super::answer::Statement;
use super::evidence::{Piece, Source};
use super::link::{Hit, Judge};
use super::report::Quoted;
use super::words::Word;

/// Places where a word is looked at.
const PLACES: usize = 64;

/// What a place where a word was read says of it.
#[derive(PartialEq)]
enum Reading {
    /// Without a capital, in a sentence.
    Noun,
    /// With one where nothing but a name has it.
    Name,
    Neither,
}

impl Judge<'_> {
    /// The line in which a word was read as a noun, if it was read as a name nowhere, and nowhere with a capital beside the words
    /// that the statement has beside it.
    pub(super) fn only_a_noun(&self, word: &Word, statement: &Statement) -> Option<Quoted> {
        if word.common {
            return None;
        }
        let own = self.words_in(&statement.range);
        let beside = neighbours(own, own.partition_point(|w| w.start < word.start));
        let mut noun = None;
        for (number, at) in self.evidence.where_is(word.exact, self.act, PLACES) {
            let piece = &self.evidence.pieces[number];
            let kept = neighbours(&piece.words, at).iter().zip(beside).any(|(a, b)| b.is_some() && *a == b);
            match reading(piece, at) {
                Reading::Name => return None,
                Reading::Neither if kept && piece.words[at].upper => return None,
                Reading::Noun if noun.is_none() => noun = Some((number, piece.words[at].range())),
                _ => {}
            }
        }
        let (piece, range) = noun?;
        let record = self.evidence.record_of(piece, range.start);
        Some(self.line_of(&Hit { piece, range, record, slot: None }))
    }
}

/// The words before and after one.
fn neighbours(words: &[Word], at: usize) -> [Option<u64>; 2] {
    let of = |at: Option<usize>| at.and_then(|at| words.get(at)).map(|w| w.exact);
    [of(at.checked_sub(1)), of(Some(at + 1))]
}

fn reading(piece: &Piece, at: usize) -> Reading {
    let (text, words) = (&piece.text, &piece.words);
    let range = words[at].range();
    let (lead, rest) = (&text[..range.start], &text[range.end..]);
    if !words[at].upper {
        let opens = lead.ends_with([' ', '\n', '(', '"']);
        let noun = opens && ends_word(rest) && piece.source != Source::Did;
        return if noun { Reading::Noun } else { Reading::Neither };
    }
    let joined = |a: usize, b: usize| match (words.get(a), words.get(b)) {
        (Some(a), Some(b)) => a.upper && b.upper && &text[a.range().end..b.range().start] == " ",
        _ => false,
    };
    let longer = at.checked_sub(1).is_some_and(|before| joined(before, at)) || joined(at, at + 1);
    let lead = lead.trim_end_matches([' ', '"', '\'', '(', '*']);
    let opens = lead.is_empty() || lead.ends_with(['.', '!', '?', ':', '\n', '-', '|']);
    // a field that holds nothing else
    let fills = opens && rest.trim_start_matches(['"', '\'']).starts_with(['\n', ',', '}']);
    if fills || !longer && !opens { Reading::Name } else { Reading::Neither }
}

/// Whether a word ends where this begins, and no address or longer name goes on.
fn ends_word(rest: &str) -> bool {
    let rest = rest.strip_prefix([',', '.', ')', '"', '!', '?']).unwrap_or(rest);
    rest.is_empty() || rest.starts_with(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_word_ends_before_a_mark_and_a_gap_but_not_inside_an_address() {
        for (rest, ends) in [
            (" code", true),
            (". Next", true),
            (".", true),
            (".smith@x.org", false),
            ("@x.org", false),
            ("-team", false),
        ] {
            assert_eq!(ends_word(rest), ends, "{rest}");
        }
    }

    proptest! {
        #[test]
        fn every_word_of_any_text_can_be_read(text in "(?s).{0,60}|(Security|security|é|\\.|: |\n| |@|-){0,16}") {
            let words = super::super::words::words(&text);
            let piece = Piece { act: 0, source: Source::Read, text, leaves: Vec::new(), words, records: 0..0, done: false };
            for at in 0..piece.words.len() {
                let lower = !piece.words[at].upper;
                prop_assert!(reading(&piece, at) != Reading::Name || !lower);
            }
        }
    }
}
