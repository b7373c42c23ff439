//! Many literal patterns in one pass: a skip table over the last three bytes of a window (Wu and Manber), so that
//! most bytes of ordinary data are never looked at.
//!
//! Written here rather than taken from `aho-corasick` because the patterns are secrets: every copy of them lies in
//! one buffer that is wiped, where an automaton keeps them in tables that are not. It finds literals and nothing else.

use zeroize::Zeroizing;

const GRAM: usize = 3;
/// Longer windows skip further, and fill the table with more grams until nothing is skipped.
const WIDEST: usize = 24;

pub(crate) struct Finder {
    /// All patterns, one after the other.
    arena: Zeroizing<Vec<u8>>,
    ends: Vec<usize>,
    window: usize,
    /// How far to go on when a window ends in this gram; 0: a pattern may start with this window.
    skip: Vec<u8>,
    /// The patterns whose window ends in a gram, by the gram's slot; the longest first.
    slots: Vec<(u32, u32)>,
    /// Patterns in the order of their bytes, to ask whether any starts with a text.
    sorted: Vec<u32>,
    /// Which pairs of bytes a pattern starts with, and which single bytes.
    pairs: Vec<u64>,
    firsts: [bool; 256],
    longest: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Which pattern, by the order in which they were given.
    pub(crate) pattern: usize,
}

impl Finder {
    /// Patterns shorter than a gram never match: [`super::SHORTEST`] is longer.
    pub(crate) fn new(patterns: &[&[u8]]) -> Self {
        let shortest = patterns.iter().map(|p| p.len()).min().unwrap_or(GRAM);
        let mut finder = Self {
            arena: Zeroizing::new(Vec::with_capacity(patterns.iter().map(|p| p.len()).sum())),
            ends: Vec::with_capacity(patterns.len()),
            window: shortest.clamp(GRAM, WIDEST),
            skip: Vec::new(),
            slots: Vec::new(),
            sorted: (0..patterns.len() as u32).collect(),
            pairs: vec![0; 1024],
            firsts: [false; 256],
            longest: patterns.iter().map(|p| p.len()).max().unwrap_or(0),
        };
        for pattern in patterns {
            finder.arena.extend_from_slice(pattern);
            finder.ends.push(finder.arena.len());
        }
        finder.sorted.sort_by_key(|&p| patterns.get(p as usize).copied().unwrap_or_default());
        finder.index_grams(patterns);
        finder.index_starts(patterns);
        finder
    }

    fn index_grams(&mut self, patterns: &[&[u8]]) {
        let grams = patterns.len() * (self.window + 1 - GRAM);
        self.skip =
            vec![(self.window + 1 - GRAM) as u8; (grams * 16).next_power_of_two().clamp(1 << 12, 1 << 16)];
        for (id, pattern) in patterns.iter().enumerate() {
            let head = pattern.get(..self.window).unwrap_or_default();
            for (at, gram) in head.windows(GRAM).enumerate() {
                let slot = self.slot(gram);
                let distance = (self.window - GRAM - at) as u8;
                if let Some(skip) = self.skip.get_mut(slot) {
                    *skip = distance.min(*skip);
                }
                if distance == 0 {
                    self.slots.push((slot as u32, id as u32));
                }
            }
        }
        let length = |id: u32| patterns.get(id as usize).map_or(0, |p| p.len());
        self.slots.sort_by_key(|&(slot, id)| (slot, std::cmp::Reverse(length(id))));
    }

    fn index_starts(&mut self, patterns: &[&[u8]]) {
        for pattern in patterns {
            if let [first, second, ..] = **pattern {
                self.firsts[usize::from(first)] = true;
                let pair = usize::from(first) << 8 | usize::from(second);
                if let Some(word) = self.pairs.get_mut(pair / 64) {
                    *word |= 1 << (pair % 64);
                }
            }
        }
    }

    fn slot(&self, gram: &[u8]) -> usize {
        let &[a, b, c] = gram else { return 0 };
        let key = u32::from(a) | u32::from(b) << 8 | u32::from(c) << 16;
        (key.wrapping_mul(0x9E37_79B1) >> 12) as usize & (self.skip.len() - 1)
    }

    fn pattern(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let start = id.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(id).and_then(|&end| self.arena.get(start..end)).unwrap_or_default()
    }

    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// The first match at or after `from`; of several that start together, the longest.
    pub(crate) fn find(&self, text: &[u8], from: usize) -> Option<Hit> {
        if self.ends.is_empty() {
            return None;
        }
        let mut at = from;
        while let Some(gram) = text.get(at + self.window - GRAM..at + self.window) {
            let slot = self.slot(gram);
            match self.skip.get(slot) {
                Some(0) => {
                    if let Some(hit) = self.at(text, at, slot as u32) {
                        return Some(hit);
                    }
                    at += 1;
                }
                skip => at += skip.map_or(1, |&s| usize::from(s)),
            }
        }
        None
    }

    fn at(&self, text: &[u8], start: usize, slot: u32) -> Option<Hit> {
        let first = self.slots.partition_point(|&(s, _)| s < slot);
        let rest = text.get(start..)?;
        let here = self.slots.get(first..)?.iter().take_while(|&&(s, _)| s == slot);
        let id = here.map(|&(_, id)| id).find(|&id| rest.starts_with(self.pattern(id)))?;
        Some(Hit { start, end: start + self.pattern(id).len(), pattern: id as usize })
    }

    /// The patterns that start with this text.
    pub(crate) fn beginning_with<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let first = self.sorted.partition_point(|&id| self.pattern(id) < text);
        let those = self.sorted.get(first..).unwrap_or_default().iter();
        those.take_while(move |id| self.pattern(**id).starts_with(text)).map(|&id| id as usize)
    }

    /// Where the text's longest tail starts that could be the beginning of a match; its length where none could.
    pub(crate) fn pending(&self, text: &[u8], from: usize) -> usize {
        let start = from.max((text.len() + 1).saturating_sub(self.longest.max(1)));
        let starts = |at: &usize| text.get(*at..).is_some_and(|tail| self.may_grow(tail));
        (start..text.len()).find(starts).unwrap_or(text.len())
    }

    /// Whether some pattern starts with this text and goes on.
    fn may_grow(&self, tail: &[u8]) -> bool {
        match *tail {
            [] => false,
            [first] => self.firsts[usize::from(first)],
            [first, second, ..] => {
                let pair = usize::from(first) << 8 | usize::from(second);
                self.pairs.get(pair / 64).is_some_and(|word| word >> (pair % 64) & 1 == 1)
                    && self.extends(tail)
            }
        }
    }

    fn extends(&self, tail: &[u8]) -> bool {
        let first = self.sorted.partition_point(|&id| self.pattern(id) <= tail);
        self.sorted.get(first).is_some_and(|&id| self.pattern(id).starts_with(tail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(patterns: &[Vec<u8>], text: &[u8], from: usize) -> Option<(usize, usize)> {
        (from..text.len()).find_map(|at| {
            let fits = patterns.iter().filter(|p| text[at..].starts_with(p));
            fits.map(|p| (at, at + p.len())).max()
        })
    }

    #[test]
    fn of_two_that_start_together_the_longer_is_found() {
        let finder = Finder::new(&[b"abcdefgh", b"abcdefghij", b"cdefghij"]);
        assert_eq!(finder.find(b"--abcdefghij", 0), Some(Hit { start: 2, end: 12, pattern: 1 }));
        assert_eq!(finder.find(b"--abcdefghi-", 0), Some(Hit { start: 2, end: 10, pattern: 0 }));
        assert_eq!(finder.find(b"--abcdefghij", 3), Some(Hit { start: 4, end: 12, pattern: 2 }));
        assert_eq!(finder.find(b"--abcdefg-", 0), None);
    }

    #[test]
    fn a_tail_pends_only_while_it_could_grow() {
        let finder = Finder::new(&[b"abcdefgh"]);
        for (text, expected) in
            [(&b"xxabc"[..], 2), (b"xxabd", 5), (b"xxa", 2), (b"abcdefgh", 8), (b"", 0), (b"aab", 1)]
        {
            assert_eq!(finder.pending(text, 0), expected, "{text:?}");
        }
        assert_eq!(Finder::new(&[]).pending(b"abc", 0), 3);
        assert_eq!(Finder::new(&[]).find(b"abcdefghijkl", 0), None);
    }

    proptest! {
        #[test]
        fn finds_what_a_naive_search_finds(
            patterns in prop::collection::vec(prop::collection::vec(0u8..3, 4..9), 0..8),
            text in prop::collection::vec(0u8..3, 0..80),
            from in 0usize..90,
        ) {
            let slices: Vec<&[u8]> = patterns.iter().map(Vec::as_slice).collect();
            let finder = Finder::new(&slices);
            let found = finder.find(&text, from).map(|hit| (hit.start, hit.end));
            prop_assert_eq!(found, naive(&patterns, &text, from));
            let grows = |at: &usize| patterns.iter().any(|p| p.len() > text.len() - at && p.starts_with(&text[*at..]));
            let expected = (from..text.len()).find(grows).unwrap_or(text.len());
            prop_assert_eq!(finder.pending(&text, from), expected);
        }
    }
}
