//! Which of the values that were read belongs where a claim stands. Each of the claim's kind is a candidate; what speaks
//! for one is counted by the features of `fit.rs`, each between nothing and one, and weighed. If another candidate fits
//! clearly better than what was said, that is a doubt with the place to look at; if none fits better, rules that go by
//! the words around it are not believed.

use super::about::About;
use super::answer::Statement;
use super::evidence::Seen;
use super::extract::Raw;
use super::fit::{Fit, SAID_BESIDE, SAID_ELSEWHERE, Setting};
use super::link::Judge;
use super::report::Quoted;
use super::rival::LEAST;
use super::scan::Value;
use std::collections::HashMap;

/// A candidate with what speaks for it.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub says: bool,
    pub fit: Fit,
    /// Index of the value among those that were read.
    pub seen: usize,
    /// The same for equal values.
    pub value: u64,
}

/// How what was said stands beside everything else that was read.
pub(super) struct Ranking {
    /// How far the best of all others is ahead; less than nothing where what was said fits best.
    pub(super) by: f32,
    /// The same of those that may contradict it, and which that is.
    best: Option<(f32, usize)>,
    /// What was said, without what is said of it elsewhere in the answer.
    pub(super) own: f32,
    /// Each other value in its best place (an index among what was read), likewise.
    pub(super) others: Vec<(usize, f32)>,
}

/// What each of the features is worth, fitted by `bench/eval/fit_claims.py` on one half of the tasks of docs/accuracy.md
/// so that the value that belongs there comes first.
const WEIGHTS: Fit = [
    1.76, 2.59, 0.34, 1.59, 1.69, -1.69, -0.01, 2.88, 2.28, 0.90, 0.97, 0.82, -0.41, 2.23, -1.61, -0.20,
    1.07, 1.60, -2.43, -0.45, 1.61, 0.85, -1.25, -0.16, -0.10, 0.90, -0.07, -0.19, 0.22, 0.06, -0.23, 0.71,
    0.11, -0.77, -1.78,
];
/// How far ahead another value has to be; numbers are taken for one another more often.
const AHEAD: f32 = 1.75;
const AHEAD_NUMBER: f32 = 2.75;
/// Equal values in one slot of one line that are looked at.
const ALIKE: usize = 3;
/// Candidates of a claim that are looked at.
const MOST: usize = 4000;

impl Judge<'_> {
    /// All candidates for the place of a claim that has a value.
    pub(super) fn candidates(&self, raw: &Raw, statement: &Statement, about: &About) -> Vec<Candidate> {
        let Some(value) = &raw.value else { return Vec::new() };
        let before = self.evidence.seen.partition_point(|s| self.evidence.pieces[s.piece].act < self.act);
        let like = |at: &usize| {
            let read = &self.evidence.seen[*at].found.value;
            value.like(read) || value.said_by(read)
        };
        let mut kept: Vec<usize> = Vec::new();
        for at in (0..before).filter(like) {
            // a long list of one value tells no more than its beginning
            if kept.len() < ALIKE || !kept[kept.len() - ALIKE..].iter().all(|last| self.alike(*last, at)) {
                kept.push(at);
            }
            if kept.len() == MOST {
                break;
            }
        }
        let setting = Setting::of(self, raw, statement, about, &kept);
        let of = |(place, at): (usize, usize)| {
            let seen: &Seen = &self.evidence.seen[at];
            let says = value.said_by(&seen.found.value);
            Candidate { says, fit: setting.fit(place, seen), seen: at, value: seen.same }
        };
        kept.into_iter().enumerate().map(of).collect()
    }

    fn alike(&self, one: usize, other: usize) -> bool {
        let of = |at: usize| {
            let seen = &self.evidence.seen[at];
            (seen.same, seen.piece, seen.segment, seen.slot)
        };
        of(one) == of(other)
    }

    /// How what was said stands beside the rest of what was read. Nothing where either is missing.
    pub(super) fn ranking(&self, raw: &Raw, statement: &Statement, about: &About) -> Option<Ranking> {
        const NONE: f32 = f32::NEG_INFINITY;
        let (mut own, mut own_bare, mut any, mut best) = (NONE, NONE, NONE, None::<(f32, usize)>);
        let mut others: HashMap<u64, (usize, f32)> = HashMap::new();
        for candidate in self.candidates(raw, statement, about) {
            let worth: f32 = candidate.fit.iter().zip(WEIGHTS).map(|(x, w)| x * w).sum();
            let again = [SAID_BESIDE, SAID_ELSEWHERE].map(|at| candidate.fit[at] * WEIGHTS[at]);
            let bare = worth - again.iter().sum::<f32>();
            if candidate.says {
                own = own.max(worth);
                own_bare = own_bare.max(bare);
                continue;
            }
            any = any.max(worth);
            let other = others.entry(candidate.value).or_insert((candidate.seen, bare));
            if bare > other.1 {
                *other = (candidate.seen, bare);
            }
            let allowed =
                candidate.fit[SAID_BESIDE] == 0.0 && self.counts(self.evidence.seen[candidate.seen].record);
            if allowed && best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, candidate.seen));
            }
        }
        let known = own > NONE && any > NONE;
        let mut others: Vec<(usize, f32)> = others.into_values().collect();
        others.sort_unstable_by_key(|(seen, _)| *seen);
        let best = best.map(|(worth, seen)| (worth - own, seen));
        known.then_some(Ranking { by: any - own, best, own: own_bare, others })
    }

    /// What fits the place of a claim clearly better than what was said.
    pub(super) fn outranked(
        &self,
        raw: &Raw,
        ranking: Option<&Ranking>,
        about: &About,
    ) -> Option<(Option<String>, Quoted)> {
        let ahead = if matches!(raw.value, Some(Value::Amount(_))) { AHEAD_NUMBER } else { AHEAD };
        let ahead = ahead * self.caution;
        let (_, at) = ranking?.best.filter(|(by, _)| *by >= ahead && about.near_total >= LEAST)?;
        Some(self.read_at(at))
    }

    /// A value that was read, with its key.
    pub(super) fn read_at(&self, seen: usize) -> (Option<String>, Quoted) {
        let seen = &self.evidence.seen[seen];
        let key = seen.slot.map(|s| self.evidence.slots[s].key.clone());
        (key, self.quote(seen.piece, seen.found.range.clone()))
    }
}
