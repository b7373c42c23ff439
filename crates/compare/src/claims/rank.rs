//! Which of the values that were read belongs where a claim stands. Every value of the claim's kind is a candidate; what
//! speaks for one is counted in the features below, each between nothing and one, and weighed by `weights.rs`. If
//! another candidate fits clearly better than what was said, that is a contradiction with the place to look at.

use super::answer::Statement;
use super::evidence::{Seen, Source};
use super::extract::Raw;
use super::link::{About, Judge};
use super::report::{ClaimKind, Quoted};
use super::rival::{LEAST, key_fits};
use super::scan::Value;
use super::words::Word;

pub const FITS: [&str; 24] = [
    "record",
    "record-beside-best",
    "line",
    "line-beside-best",
    "key-named",
    "key-not-named",
    "key-said-near",
    "words-before",
    "words-after",
    "record-of-claim-before",
    "record-of-claim-after",
    "line-of-claim-before",
    "line-of-claim-after",
    "read",
    "done",
    "asked-for",
    "told-by-user",
    "latest",
    "said-in-block",
    "said-elsewhere",
    "usual-key",
    "in-order",
    "id-unasked",
    "same-form",
];

pub type Fit = [f32; FITS.len()];

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

/// What each of them is worth, fitted by `bench/eval/fit_claims.py` on true answers of one half of the tasks of
/// docs/accuracy.md so that the value that was said comes first; nothing that was swapped took part.
const WEIGHTS: Fit = [
    1.02, 2.20, 0.36, 1.71, 1.62, -1.62, 0.82, 3.33, 3.03, 1.39, 1.53, -0.43, -0.80, 1.73, -0.42, -0.21,
    1.29, 2.13, -2.83, -1.54, 1.53, 0.75, -1.54, 0.02,
];
/// What the statement itself says beside the claim is not what was meant in its place: the index of `said-in-block`.
const SAID_BESIDE: usize = 18;
/// How far ahead another value has to be: for at most 3 in 100 true values of either half.
const AHEAD: f32 = 3.0;

/// Words before a claim that may name the key of its value.
const NEAR: usize = 6;
/// Places of a value that are looked at, and candidates of a claim.
const MOST: usize = 4000;

/// What is the same for all candidates of a claim.
struct Setting<'a> {
    about: &'a About,
    wanted: Vec<u64>,
    near_words: Vec<u64>,
    before: &'a [Word],
    after: &'a [Word],
    claim_before: Option<usize>,
    claim_after: Option<usize>,
    last_act: usize,
    siblings: Vec<usize>,
    own_at: usize,
    best: (f32, f32),
}

impl Judge<'_> {
    /// All candidates for the place of a claim that has a value.
    pub(super) fn candidates(&self, raw: &Raw, statement: &Statement, about: &About) -> Vec<Candidate> {
        let Some(value) = &raw.value else { return Vec::new() };
        let before = self.evidence.seen.partition_point(|s| self.evidence.pieces[s.piece].act < self.act);
        let like: Vec<usize> = (0..before)
            .filter(|at| {
                let seen = &self.evidence.seen[*at];
                value.like(&seen.found.value) || value.said_by(&seen.found.value)
            })
            .take(MOST)
            .collect();
        let setting = self.setting(raw, statement, about, &like);
        like.into_iter()
            .map(|at| {
                let seen = &self.evidence.seen[at];
                let fit = self.fit(raw, statement, &setting, seen);
                Candidate { says: value.said_by(&seen.found.value), fit, seen: at, value: seen.same }
            })
            .collect()
    }

    /// The value that fits the place of a claim clearly better than what was said.
    pub(super) fn outranked(
        &self,
        raw: &Raw,
        statement: &Statement,
        about: &About,
    ) -> Option<(Option<String>, Quoted)> {
        if about.near_total < LEAST {
            return None;
        }
        let worth = |c: &Candidate| c.fit.iter().zip(WEIGHTS).map(|(x, w)| x * w).sum::<f32>();
        let (mut own, mut best) = (f32::NEG_INFINITY, None::<(f32, usize)>);
        for candidate in self.candidates(raw, statement, about) {
            let worth = worth(&candidate);
            if candidate.says {
                own = own.max(worth);
            } else if candidate.fit[SAID_BESIDE] == 0.0
                && self.counts(self.evidence.seen[candidate.seen].record)
                && best.is_none_or(|(most, _)| worth > most)
            {
                best = Some((worth, candidate.seen));
            }
        }
        let (worth, at) = best?;
        // what stands there only as words has no place among values
        if own == f32::NEG_INFINITY || worth < own + AHEAD {
            return None;
        }
        let seen = &self.evidence.seen[at];
        let key = seen.slot.map(|s| self.evidence.slots[s].key.clone());
        Some((key, self.quote(seen.piece, seen.found.range.clone())))
    }

    fn setting<'a>(
        &'a self,
        raw: &Raw,
        statement: &Statement,
        about: &'a About,
        like: &[usize],
    ) -> Setting<'a> {
        let all = &self.answer.words;
        let first = all.partition_point(|w| w.range().start < raw.range.start);
        let end = all.partition_point(|w| w.range().start < raw.range.end);
        let from =
            all.partition_point(|w| w.range().start < statement.range.start).max(first.saturating_sub(NEAR));
        let to = all.partition_point(|w| w.range().start < statement.range.end).min(end + 3).max(end);
        let near = all[from.min(first)..first].iter().chain(&all[end..to]);
        let own_at = self.answer.claims.iter().position(|c| c.range == raw.range).unwrap_or(0);
        let valued = |at: &usize| {
            *at != own_at
                && !self.homes[*at].is_empty()
                && statement.block.contains(&self.answer.claims[*at].range.start)
        };
        let share = |at: &usize| {
            let seen = &self.evidence.seen[*at];
            (about.of(seen.record), about.near.get(seen.segment).copied().unwrap_or(0.0))
        };
        let best = like.iter().map(share).fold((0.0_f32, 0.0_f32), |m, s| (m.0.max(s.0), m.1.max(s.1)));
        let like_kind = |c: &Raw| c.kind == raw.kind && c.range != raw.range;
        Setting {
            about,
            wanted: self.wanted(raw, statement),
            near_words: near.filter(|w| !w.common).map(|w| w.stem).collect(),
            before: &all[first.saturating_sub(3)..first],
            after: &all[end..(end + 3).min(all.len())],
            claim_before: (0..own_at).rev().find(valued),
            claim_after: (own_at + 1..self.answer.claims.len()).find(valued),
            last_act: self
                .evidence
                .pieces
                .iter()
                .filter(|p| p.act < self.act && p.source == Source::Read)
                .map(|p| p.act)
                .max()
                .unwrap_or(0),
            siblings: (0..self.answer.claims.len())
                .filter(|at| like_kind(&self.answer.claims[*at]) && !self.homes[*at].is_empty())
                .collect(),
            own_at,
            best,
        }
    }

    fn fit(&self, raw: &Raw, statement: &Statement, setting: &Setting<'_>, seen: &Seen) -> Fit {
        let piece = &self.evidence.pieces[seen.piece];
        let slot = seen.slot.map(|s| &self.evidence.slots[s]);
        let about = setting.about;
        let record = about.of(seen.record);
        let line = about.near.get(seen.segment).copied().unwrap_or(0.0);
        let named = slot.is_some_and(|s| key_fits(&s.stems, &setting.wanted));
        let key_said = slot.is_some_and(|s| s.stems.iter().any(|stem| setting.near_words.contains(stem)));
        let (left, right) = self.same_words(setting, seen);
        let homes = |claim: Option<usize>, same: &dyn Fn(&(usize, usize)) -> bool| {
            let homes = claim.map(|at| self.homes[at].as_slice()).unwrap_or_default();
            if homes.iter().any(same) { 1.0 / (homes.len() as f32).sqrt() } else { 0.0 }
        };
        let in_record = |home: &(usize, usize)| home.0 == seen.record;
        let in_line = |home: &(usize, usize)| home.1 == seen.segment;
        let (here, elsewhere) = self.said_again(raw, statement, seen);
        let id = slot.is_some_and(|s| s.key == "id" || s.key.ends_with(" id"));
        let is = |yes: bool| if yes { 1.0 } else { 0.0 };
        [
            record / about.total.max(0.1),
            record / setting.best.0.max(0.1),
            line / about.near_total.max(0.1),
            line / setting.best.1.max(0.1),
            is(named),
            is(!setting.wanted.is_empty() && !named),
            is(key_said),
            left,
            right,
            homes(setting.claim_before, &in_record),
            homes(setting.claim_after, &in_record),
            homes(setting.claim_before, &in_line),
            homes(setting.claim_after, &in_line),
            is(piece.source == Source::Read),
            is(piece.done),
            is(piece.source == Source::Did && !piece.done),
            is(piece.source == Source::User || self.evidence.users.contains(&seen.same)),
            is(piece.act == setting.last_act),
            is(here),
            is(elsewhere),
            self.usual_key(setting, seen),
            self.in_order(setting, seen),
            is(id && raw.kind != ClaimKind::Id && !key_said && !named),
            is(same_form(raw.value.as_ref(), &seen.found.value)),
        ]
    }

    /// How many of the three words on each side are the same as beside the claim.
    fn same_words(&self, setting: &Setting<'_>, seen: &Seen) -> (f32, f32) {
        let words = &self.evidence.pieces[seen.piece].words;
        let first = words.partition_point(|w| w.range().start < seen.found.range.start);
        let end = words.partition_point(|w| w.range().start < seen.found.range.end);
        let left = setting.before.iter().rev().zip(words[..first].iter().rev());
        let right = setting.after.iter().zip(&words[end..]);
        let same = |pairs: &mut dyn Iterator<Item = (&Word, &Word)>| {
            pairs.take_while(|(a, b)| a.stem == b.stem).count() as f32 / 3.0
        };
        (same(&mut left.into_iter()), same(&mut right.into_iter()))
    }

    /// Whether another claim says this value: in the same block, in another.
    fn said_again(&self, raw: &Raw, statement: &Statement, seen: &Seen) -> (bool, bool) {
        let (mut here, mut elsewhere) = (false, false);
        for other in self.answer.claims.iter().filter(|c| c.range != raw.range) {
            if other.value.as_ref().is_some_and(|v| v.said_by(&seen.found.value)) {
                let beside = statement.block.contains(&other.range.start);
                here |= beside;
                elsewhere |= !beside;
            }
        }
        (here, elsewhere)
    }

    /// The share of the answer's other claims of this kind that were read under this key.
    fn usual_key(&self, setting: &Setting<'_>, seen: &Seen) -> f32 {
        let Some(slot) = seen.slot else { return 0.0 };
        let key = &self.evidence.slots[slot].key;
        let under = |at: &&usize| self.keys[**at].iter().any(|s| self.evidence.slots[*s].key == *key);
        if setting.siblings.is_empty() {
            return 0.0;
        }
        setting.siblings.iter().filter(under).count() as f32 / setting.siblings.len() as f32
    }

    /// Whether it comes after what the claim of this kind before was read in, and before the next one's.
    fn in_order(&self, setting: &Setting<'_>, seen: &Seen) -> f32 {
        let sole = |at: &usize| match self.homes[*at].as_slice() {
            [one] => Some(one.0),
            _ => None,
        };
        let before = setting.siblings.iter().rev().find(|at| **at < setting.own_at).and_then(sole);
        let after = setting.siblings.iter().find(|at| **at > setting.own_at).and_then(sole);
        match (before, after) {
            (None, None) => 0.0,
            (before, after) => {
                let fits = before.is_none_or(|b| b <= seen.record) && after.is_none_or(|a| seen.record <= a);
                if fits { 1.0 } else { 0.0 }
            }
        }
    }
}

/// Numbers of one kind: with a unit or without, whole or with a fraction.
fn same_form(said: Option<&Value>, read: &Value) -> bool {
    match (said, read) {
        (Some(Value::Amount(a)), Value::Amount(b)) => {
            (a.step < 1.0) == (b.step < 1.0) && (b.unit.is_none() || a.unit == b.unit)
        }
        _ => true,
    }
}
