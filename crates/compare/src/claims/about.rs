//! What a statement is about: how much of its words and values each record, and each line, of what was read shares.

use super::answer::Statement;
use super::evidence::Evidence;
use super::extract::Raw;
use super::link::Judge;
use super::words::{Word, words};
use cofferdam_model::{ActKind, Run};
use std::collections::BTreeMap;

/// How much of what a statement is about each record shares.
pub(super) struct About {
    /// By record and by sentence or line, each with what all of it together would be.
    pub(super) shares: Vec<f32>,
    pub(super) total: f32,
    pub(super) near: Vec<f32>,
    pub(super) near_total: f32,
    /// What each stem is worth, sorted by stem.
    pub(super) stems: Vec<(u64, f32)>,
}

impl About {
    pub(super) fn of_words(evidence: &Evidence, weights: BTreeMap<u64, f32>) -> Self {
        let mut about = Self {
            shares: vec![0.0; evidence.records.len()],
            total: 0.0,
            near: vec![0.0; evidence.segments.len()],
            near_total: 0.0,
            stems: Vec::new(),
        };
        for (stem, weight) in weights {
            let records = evidence.records_with(stem);
            if records.is_empty() || records.len() > 2000 {
                continue;
            }
            about.count(weight, records.iter().map(|(_, r)| *r as usize));
            let before = about.near_total;
            about.count_near(weight, evidence.segments_with(stem).iter().map(|(_, s)| *s as usize));
            about.stems.push((stem, about.near_total - before));
        }
        about
    }

    /// What stands in few places says more of them than what stands in many.
    fn count(&mut self, weight: f32, records: impl ExactSizeIterator<Item = usize>) {
        let weight = weight * (1.0 + self.shares.len() as f32 / records.len() as f32).ln();
        self.total += weight;
        records.for_each(|record| self.shares[record] += weight);
    }

    fn count_near(&mut self, weight: f32, segments: impl ExactSizeIterator<Item = usize>) {
        let weight = weight * (1.0 + self.near.len() as f32 / segments.len().max(1) as f32).ln();
        self.near_total += weight;
        segments.for_each(|segment| self.near[segment] += weight);
    }

    pub(super) fn of(&self, record: usize) -> f32 {
        self.shares.get(record).copied().unwrap_or(0.0)
    }

    pub(super) fn line(&self, segment: usize) -> f32 {
        self.near.get(segment).copied().unwrap_or(0.0)
    }
}

impl Judge<'_> {
    /// Which records the statement around a claim is about: its other words, the nearer the heavier, and its headings.
    pub(super) fn about(&self, raw: &Raw, statement: &Statement) -> About {
        // in one order, so that sums of fractions come out the same every time
        let mut weights: BTreeMap<u64, f32> = BTreeMap::new();
        let own = self.words_in(&statement.range);
        let middle = own.partition_point(|w| w.range().start < raw.range.start);
        for (at, word) in own.iter().enumerate() {
            if !tells(word) || raw.range.contains(&word.range().start) {
                continue;
            }
            let apart = at.abs_diff(middle) as f32;
            let weight = 1.0 / (1.0 + apart / 8.0);
            let held = weights.entry(word.stem).or_default();
            *held = held.max(weight);
        }
        let block = self.words_in(&statement.block);
        for word in block.iter().filter(|w| tells(w) && !raw.range.contains(&w.range().start)).take(80) {
            let held = weights.entry(word.stem).or_default();
            *held = held.max(0.4);
        }
        for (level, range) in statement.under.iter().rev().enumerate() {
            for word in
                self.words_in(range).iter().filter(|w| tells(w) && !raw.range.contains(&w.range().start))
            {
                let held = weights.entry(word.stem).or_default();
                *held = held.max(if level == 0 { 0.9 } else { 0.5 });
            }
        }
        let mut about = About::of_words(self.evidence, weights);
        self.about_values(raw, statement, &mut about);
        about
    }

    /// The values beside a claim say which record is meant, as words do: `May 15, 10:00` is about what is on that day.
    fn about_values(&self, raw: &Raw, statement: &Statement, about: &mut About) {
        for (at, other) in self.answer.claims.iter().enumerate() {
            let here = statement.block.contains(&other.range.start);
            let valued = other.value.is_some() && other.value != raw.value;
            if !here || other.range == raw.range || !valued || self.homes[at].is_empty() {
                continue;
            }
            let same = self.answer.statements[other.statement].range == statement.range;
            let weight = if same { 1.0 } else { 0.6 };
            let mut records: Vec<usize> = self.homes[at].iter().map(|h| h.0).collect();
            records.dedup();
            about.count(weight, records.into_iter());
            let mut segments: Vec<usize> = self.homes[at].iter().map(|h| h.1).collect();
            segments.dedup();
            about.count_near(weight, segments.into_iter());
        }
    }
}

/// The telling words of what the user said last.
pub(super) fn question(run: &Run, before: usize) -> BTreeMap<u64, f32> {
    let told = run.acts[..before].iter().rev().find(|act| act.kind == ActKind::Told);
    let words = told.map(|act| words(&act.text)).unwrap_or_default();
    words.iter().filter(|w| tells(w)).take(200).map(|w| (w.stem, 1.0)).collect()
}

/// Whether a word says what a statement is about: parts of other numbers, like the `30` of a time, do not.
fn tells(word: &Word) -> bool {
    !word.common && (!word.digits || word.range().len() > 3)
}
