//! A claim as terms: the words and values that carry it, each with its weight, and which sentence of the evidence
//! holds which of them. A sentence's terms are bits of one number, so that a window is an `or`.

use super::cues;
use super::index::Index;
use crate::claims::scan::{Found, Value, scan};
use crate::claims::words::{Word, words};

/// More terms than bits are not weighed: such a claim should have been cut.
pub(crate) const MOST: usize = 127;
/// What a shared beginning of a word counts beside a shared stem.
const ALIKE: f32 = 0.6;

pub(crate) struct Term {
    pub(crate) word: Word,
    pub(crate) value: Option<Found>,
    pub(crate) name: bool,
    pub(crate) weight: f32,
}

/// Terms found as such, and words that only begin alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mask {
    pub(crate) hard: u128,
    pub(crate) soft: u128,
}

impl Mask {
    pub(crate) fn or(self, other: Mask) -> Mask {
        Mask { hard: self.hard | other.hard, soft: self.soft | other.soft }
    }

    pub(crate) fn any(self) -> u128 {
        self.hard | self.soft
    }
}

pub(crate) struct Terms {
    pub(crate) words: Vec<Word>,
    pub(crate) terms: Vec<Term>,
    pub(crate) masks: Vec<Mask>,
    /// The sentences with any term, in order.
    pub(crate) touched: Vec<usize>,
    total: f32,
}

impl Terms {
    /// The terms of `claim`, looked up in the first `upto` sentences.
    pub(crate) fn of(claim: &str, index: &Index, upto: usize) -> Self {
        let words = words(claim);
        let values = scan(claim);
        let mut terms: Vec<Term> = Vec::new();
        for (at, word) in words.iter().enumerate() {
            let value = values
                .iter()
                .find(|f| f.range.start <= word.range().start && word.range().end <= f.range.end);
            if let Some(value) = value {
                if terms.last().is_none_or(|t| t.value.as_ref() != Some(value)) {
                    terms.push(Term { word: *word, value: Some(value.clone()), name: false, weight: 0.0 });
                }
            } else if !word.common && !cues::negates(word) {
                let opens = at == 0 && !words.get(1).is_some_and(|next| next.upper);
                terms.push(Term { word: *word, value: None, name: word.upper && !opens, weight: 0.0 });
            }
        }
        terms.truncate(MOST);
        let mut found =
            Self { words, terms, masks: vec![Mask::default(); upto], touched: Vec::new(), total: 0.0 };
        found.look_up(index, upto);
        found
    }

    fn look_up(&mut self, index: &Index, upto: usize) {
        for (at, term) in self.terms.iter_mut().enumerate() {
            let bit = 1u128 << at;
            let mut held = 0;
            if let Some(value) = &term.value {
                for (sentence, _) in index
                    .values
                    .iter()
                    .take_while(|(s, _)| (*s as usize) < upto)
                    .filter(|(_, f)| value.value.said_by(&f.value))
                {
                    self.masks[*sentence as usize].hard |= bit;
                    held += 1;
                }
            } else {
                for sentence in Index::holding(&index.stems, term.word.stem).filter(|s| *s < upto) {
                    self.masks[sentence].hard |= bit;
                    held += 1;
                }
                for sentence in Index::holding(&index.heads, term.word.head).filter(|s| *s < upto) {
                    self.masks[sentence].soft |= bit & !self.masks[sentence].hard;
                }
            }
            term.weight = weight(term, held as f32, upto as f32);
        }
        self.total = self.terms.iter().map(|t| t.weight).sum::<f32>().max(1e-6);
        self.touched = (0..upto).filter(|s| self.masks[*s].any() != 0).collect();
    }

    pub(crate) fn len(&self) -> usize {
        self.terms.len()
    }

    /// The weight of the terms of a mask.
    pub(crate) fn sum(&self, mut mask: u128) -> f32 {
        let mut sum = 0.0;
        while mask != 0 {
            sum += self.terms[mask.trailing_zeros() as usize].weight;
            mask &= mask - 1;
        }
        sum
    }

    /// The share of the claim that a mask covers.
    pub(crate) fn share(&self, mask: Mask) -> f32 {
        (self.sum(mask.hard) + ALIKE * self.sum(mask.soft & !mask.hard)) / self.total
    }

    pub(crate) fn over(&self, sentences: impl Iterator<Item = usize>) -> Mask {
        sentences.fold(Mask::default(), |m, s| m.or(self.masks[s]))
    }

    /// Bits of the terms that are so.
    pub(crate) fn those(&self, is: impl Fn(&Term) -> bool) -> u128 {
        self.terms.iter().enumerate().filter(|(_, t)| is(t)).fold(0, |m, (at, _)| m | 1 << at)
    }

    /// The share of `of` that is not in `mask`.
    pub(crate) fn lacking(&self, of: u128, mask: u128) -> f32 {
        if of == 0 { 0.0 } else { self.sum(of & !mask) / self.sum(of).max(1e-6) }
    }
}

/// Rare in the evidence, long, or a number: worth more.
fn weight(term: &Term, held: f32, sentences: f32) -> f32 {
    let rare = (1.0 + (sentences + 1.0) / (held + 1.0)).ln().min(3.0);
    let long = 0.6 + 0.05 * (term.word.range().len() as f32).min(12.0);
    rare * long * if term.value.is_some() { 1.2 } else { 1.0 }
}

pub(crate) fn same_kind(a: &Value, b: &Value) -> bool {
    a.like(b)
}
