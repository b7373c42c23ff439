//! What a claim shares with its evidence, in numbers that mean something each. The names are the contract with the
//! weights in `model.rs` and with whoever fits them anew.

use super::cues;
use super::index::{Index, pair};
use super::terms::{Mask, Terms};
use crate::claims::words::Word;
use std::ops::Range;

/// What is measured, in order.
pub const FEATURES: [&str; 22] = [
    "recall",
    "best-sentence",
    "best-window",
    "best-two",
    "together",
    "neighbours-together",
    "pairs-anywhere",
    "pairs-in-window",
    "in-order",
    "longest-run",
    "values-missing",
    "values-missing-in-window",
    "values-differ",
    "names-missing",
    "names-missing-in-window",
    "words-missing-in-window",
    "negation-differs",
    "strong-words-missing",
    "opposites",
    "claim-length",
    "terms-missing",
    "rarest-missing",
];

pub type Features = [f32; FEATURES.len()];

/// A claim measured against evidence, with what the explanation needs.
pub(crate) struct Measured {
    pub(crate) features: Features,
    pub(crate) terms: Terms,
    /// The sentence and the window of three that cover most of the claim.
    pub(crate) sentence: Option<usize>,
    pub(crate) window: Range<usize>,
}

/// The features of a claim against the whole of an index.
pub fn features(claim: &str, index: &Index) -> Features {
    measure(claim, index, index.sentences.len()).features
}

pub(crate) fn measure(claim: &str, index: &Index, upto: usize) -> Measured {
    let terms = Terms::of(claim, index, upto);
    let (best1, first) = best_window(&terms, 1, upto);
    let (best3, from) = best_window(&terms, 3, upto);
    let window = from..(from + 3).min(upto);
    let all = terms.over(terms.touched.iter().copied());
    let inside = terms.over(window.clone());
    let in_window = words_of(index, &window);
    let in_sentence = words_of(index, &(first..(first + 1).min(upto)));
    let values = terms.those(|t| t.value.is_some());
    let names = terms.those(|t| t.name);
    let rest = terms.those(|t| !t.name && t.value.is_none());
    let (together, neighbours) = together(&terms, all);
    let grams = Grams::of(&terms, index, in_window);
    let missing = !all.any() & ((1u128 << terms.len()) - 1);
    let rarest =
        (0..terms.len()).filter(|i| missing >> i & 1 == 1).map(|i| terms.terms[i].weight).fold(0.0, f32::max);
    let features = [
        terms.share(all),
        best1,
        best3,
        best_two(&terms, first),
        together,
        neighbours,
        grams.anywhere,
        grams.in_window,
        in_order(&terms, in_window),
        grams.longest,
        terms.lacking(values, all.hard),
        terms.lacking(values, inside.hard),
        differing(&terms, index, values & !inside.hard, &window).min(2.0),
        terms.lacking(names, all.hard),
        terms.lacking(names, inside.hard),
        terms.lacking(rest, inside.any()),
        f32::from(terms.words.iter().any(cues::negates) != in_sentence.iter().any(cues::negates)),
        absent(&terms, in_window).min(3.0),
        opposed(&terms, in_window).count().min(2) as f32,
        (1.0 + terms.len() as f32).ln(),
        (1.0 + missing.count_ones() as f32).ln(),
        rarest,
    ];
    let sentence = (!terms.touched.is_empty()).then_some(first);
    Measured { features, terms, sentence, window }
}

/// The best share of a claim that `wide` sentences in a row cover, and where they begin.
fn best_window(terms: &Terms, wide: usize, upto: usize) -> (f32, usize) {
    let mut best = (0.0, 0);
    let mut last = None;
    for touched in &terms.touched {
        for from in touched.saturating_sub(wide - 1)..=*touched {
            if last.is_some_and(|l| from <= l) {
                continue;
            }
            last = Some(from);
            let share = terms.share(terms.over(from..(from + wide).min(upto)));
            if share > best.0 + 1e-6 {
                best = (share, from);
            }
        }
    }
    best
}

/// The share that the best sentence and any one other cover.
fn best_two(terms: &Terms, first: usize) -> f32 {
    let mine = terms.masks.get(first).copied().unwrap_or_default();
    let with = |s: &usize| terms.share(mine.or(terms.masks[*s]));
    terms.touched.iter().map(with).fold(terms.share(mine), f32::max)
}

/// How much of the claim's pairs of terms, and of its neighbouring ones, some sentence holds together.
fn together(terms: &Terms, all: Mask) -> (f32, f32) {
    let n = terms.len();
    let mut beside = vec![0u128; n];
    for sentence in &terms.touched {
        let mask = terms.masks[*sentence].any();
        let mut left = mask;
        while left != 0 {
            beside[left.trailing_zeros() as usize] |= mask;
            left &= left - 1;
        }
    }
    if n < 2 {
        return (terms.share(all), 0.0);
    }
    let (mut hit, mut whole, mut next) = (0.0, 0.0, 0.0);
    for (i, beside) in beside.iter().enumerate() {
        for j in i + 1..n {
            let weight = terms.terms[i].weight * terms.terms[j].weight;
            let held = beside >> j & 1 == 1;
            whole += weight;
            hit += if held { weight } else { 0.0 };
            next += if held && j == i + 1 { 1.0 } else { 0.0 };
        }
    }
    (hit / whole, next / (n - 1) as f32)
}

struct Grams {
    anywhere: f32,
    in_window: f32,
    longest: f32,
}

impl Grams {
    /// Pairs of words in a row that the evidence has as well, and the longest run of them.
    fn of(terms: &Terms, index: &Index, window: &[Word]) -> Self {
        let mine: Vec<u64> = terms.words.windows(2).map(|w| pair(w[0].stem, w[1].stem)).collect();
        let mut theirs: Vec<u64> = window.windows(2).map(|w| pair(w[0].stem, w[1].stem)).collect();
        theirs.sort_unstable();
        let of = mine.len().max(1) as f32;
        let (mut anywhere, mut inside, mut run, mut longest) = (0, 0, 0, 0);
        for gram in &mine {
            anywhere += usize::from(index.pairs.binary_search(gram).is_ok());
            let here = theirs.binary_search(gram).is_ok();
            inside += usize::from(here);
            run = if here { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        Self { anywhere: anywhere as f32 / of, in_window: inside as f32 / of, longest: longest as f32 / of }
    }
}

fn words_of<'i>(index: &'i Index, sentences: &Range<usize>) -> &'i [Word] {
    let held = index.sentences.get(sentences.clone()).unwrap_or_default();
    let (Some(first), Some(last)) = (held.first(), held.last()) else { return &[] };
    &index.words[first.words.start..last.words.end]
}

/// The share of the terms that the window has in the claim's order: the longest common subsequence, bit by bit.
fn in_order(terms: &Terms, window: &[Word]) -> f32 {
    let mut row = u128::MAX;
    for word in window {
        let same =
            terms.those(|t| t.word.stem == word.stem || (t.word.head != 0 && t.word.head == word.head));
        if same != 0 {
            row = row.wrapping_add(row & same) | (row & !same);
        }
    }
    let mask = (1u128 << terms.len()) - 1;
    (!row & mask).count_ones() as f32 / terms.len().max(1) as f32
}

/// Values of the claim that the window lacks while it has another of their kind.
fn differing(terms: &Terms, index: &Index, lacking: u128, window: &Range<usize>) -> f32 {
    let of = |at: usize| super::score::rival(terms, index, at, window).is_some();
    (0..terms.len()).filter(|at| lacking >> at & 1 == 1 && of(*at)).count() as f32
}

fn absent(terms: &Terms, window: &[Word]) -> f32 {
    terms.words.iter().filter(|w| cues::strengthens(w) && !window.iter().any(|e| e.stem == w.stem)).count()
        as f32
}

/// Words of the claim that the window lacks while it has their opposite: both.
pub(crate) fn opposed<'w>(terms: &'w Terms, window: &'w [Word]) -> impl Iterator<Item = (Word, Word)> + 'w {
    terms.words.iter().filter(|w| !window.iter().any(|e| e.stem == w.stem)).filter_map(|w| {
        cues::opposites(w).find_map(|o| window.iter().find(|e| e.stem == o)).map(|e| (*w, *e))
    })
}
