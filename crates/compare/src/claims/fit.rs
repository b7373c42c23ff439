//! How well something that was read fits the place of a claim: one number for each thing that speaks for it or against it.

use super::about::About;
use super::answer::Statement;
use super::evidence::{Seen, Source};
use super::extract::Raw;
use super::link::Judge;
use super::report::ClaimKind;
use super::rival::key_fits;
use super::scan::Value;
use super::words::Word;

pub const FITS: [&str; 35] = [
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
    "near",
    "near-beside-best",
    "question-record",
    "question-line",
    "key-of-same-label",
    "cue-fits",
    "cue-of-other",
    "key-of-own",
    "short-slot",
    "starts",
    "ends",
];

pub type Fit = [f32; FITS.len()];

/// What the statement itself says beside the claim is not what was meant in its place: the index of `said-in-block`.
pub(super) const SAID_BESIDE: usize = 18;
/// And of `said-elsewhere`.
pub(super) const SAID_ELSEWHERE: usize = 19;

/// Words before a claim that may name the key of its value.
const NEAR: usize = 6;
/// Words on either side of a candidate that may be the statement's own.
const AROUND: usize = 14;
/// A slot longer than this is a text, and no value.
const SHORT: usize = 60;

/// Little words with the keys that they announce.
const CUES: [(&[&str], &[&str]); 5] = [
    (&["from", "by", "sender"], &["sender", "from", "author", "owner", "creator", "by", "organizer"]),
    (&["to", "recipient", "recipients"], &["recipient", "recipients", "to", "receiver", "cc", "shared"]),
    (
        &["with", "participants", "attendees", "invite", "invited"],
        &["participants", "attendees", "members", "guests", "shared"],
    ),
    (
        &["at", "in", "location", "room"],
        &["location", "place", "address", "room", "city", "venue", "channel"],
    ),
    (&["titled", "called", "named", "title", "subject"], &["title", "name", "subject", "filename", "file"]),
];

/// Beginnings of keys that hold when something begins, and when it ends.
pub(super) const STARTS: [&str; 4] = ["start", "begin", "from", "depart"];
pub(super) const ENDS: [&str; 4] = ["end", "until", "arriv", "finish"];

/// What is the same for all candidates of a claim.
pub(super) struct Setting<'a> {
    judge: &'a Judge<'a>,
    raw: &'a Raw,
    statement: &'a Statement,
    about: &'a About,
    wanted: Vec<u64>,
    near_words: Vec<u64>,
    before: &'a [Word],
    after: &'a [Word],
    claim_before: Option<usize>,
    claim_after: Option<usize>,
    last_act: usize,
    siblings: Vec<usize>,
    /// Claims of other items that stand where this one does.
    alike: Vec<usize>,
    own_at: usize,
    cue: Option<usize>,
    /// For each candidate, how much of the statement stands close by.
    nears: Vec<f32>,
    /// The best of all candidates: by record, by line, by the words around.
    best: [f32; 3],
}

impl<'a> Setting<'a> {
    pub(super) fn of(
        judge: &'a Judge<'a>,
        raw: &'a Raw,
        statement: &'a Statement,
        about: &'a About,
        like: &[usize],
    ) -> Self {
        let all = &judge.answer.words;
        let claims = &judge.answer.claims;
        let first = all.partition_point(|w| w.range().start < raw.range.start);
        let end = all.partition_point(|w| w.range().start < raw.range.end);
        let from =
            all.partition_point(|w| w.range().start < statement.range.start).max(first.saturating_sub(NEAR));
        let to = all.partition_point(|w| w.range().start < statement.range.end).min(end + 3).max(end);
        let near = all[from.min(first)..first].iter().chain(&all[end..to]);
        let own_at = claims.iter().position(|c| c.range == raw.range).unwrap_or(0);
        let homed = |at: &usize| *at != own_at && !judge.homes[*at].is_empty();
        let beside = |at: &usize| homed(at) && statement.block.contains(&claims[*at].range.start);
        let mut setting = Self {
            judge,
            raw,
            statement,
            about,
            wanted: judge.wanted(raw, statement),
            near_words: near.filter(|w| !w.common).map(|w| w.stem).collect(),
            before: &all[first.saturating_sub(3)..first],
            after: &all[end..(end + 3).min(all.len())],
            claim_before: (0..own_at).rev().find(beside),
            claim_after: (own_at + 1..claims.len()).find(beside),
            last_act: judge.last_read(),
            siblings: (0..claims.len()).filter(|at| homed(at) && claims[*at].kind == raw.kind).collect(),
            alike: (0..claims.len())
                .filter(|at| homed(at) && judge.stands_alike(raw, &claims[*at]))
                .collect(),
            own_at,
            cue: cue_before(judge.text, raw),
            nears: Vec::with_capacity(like.len()),
            best: [0.0; 3],
        };
        for spot in like.iter().map(|at| &judge.evidence.seen[*at]) {
            let near = setting.near(spot);
            setting.nears.push(near);
            let shares = [about.of(spot.record), about.line(spot.segment), near];
            setting.best.iter_mut().zip(shares).for_each(|(best, share)| *best = best.max(share));
        }
        setting
    }

    /// The features of one of the candidates, by its place among them.
    pub(super) fn fit(&self, at: usize, spot: &Seen) -> Fit {
        let judge = self.judge;
        let piece = &judge.evidence.pieces[spot.piece];
        let slot = spot.slot.map(|s| &judge.evidence.slots[s]);
        let (record, line) = (self.about.of(spot.record), self.about.line(spot.segment));
        let near = self.nears.get(at).copied().unwrap_or(0.0);
        let named = slot.is_some_and(|s| key_fits(&s.stems, &self.wanted));
        let key_said = slot.is_some_and(|s| s.stems.iter().any(|stem| self.near_words.contains(stem)));
        let (left, right) = self.same_words(spot);
        let homes = |claim: Option<usize>, same: &dyn Fn(&(usize, usize)) -> bool| {
            let homes = claim.map(|at| judge.homes[at].as_slice()).unwrap_or_default();
            if homes.iter().any(same) { 1.0 / (homes.len() as f32).sqrt() } else { 0.0 }
        };
        let in_record = |home: &(usize, usize)| home.0 == spot.record;
        let in_line = |home: &(usize, usize)| home.1 == spot.segment;
        let (here, elsewhere) = self.said_again(spot);
        let id = slot.is_some_and(|s| s.key == "id" || s.key.ends_with(" id"));
        let (cue, other_cue) = self.cued(spot);
        let own_key = slot.is_some_and(|s| {
            judge.keys[self.own_at].iter().any(|own| judge.evidence.slots[*own].name == s.name)
        });
        let asked = &judge.asked;
        [
            record / self.about.total.max(0.1),
            record / self.best[0].max(0.1),
            line / self.about.near_total.max(0.1),
            line / self.best[1].max(0.1),
            is(named),
            is(!self.wanted.is_empty() && !named),
            is(key_said),
            left,
            right,
            homes(self.claim_before, &in_record),
            homes(self.claim_after, &in_record),
            homes(self.claim_before, &in_line),
            homes(self.claim_after, &in_line),
            is(piece.source == Source::Read),
            is(piece.done),
            is(piece.source == Source::Did && !piece.done),
            is(piece.source == Source::User || judge.evidence.users.contains(&spot.same)),
            is(piece.act == self.last_act),
            is(here),
            is(elsewhere),
            self.usual_key(&self.siblings, spot),
            self.in_order(spot),
            is(id && self.raw.kind != ClaimKind::Id && !key_said && !named),
            is(same_form(self.raw.value.as_ref(), &spot.found.value)),
            near / self.about.near_total.max(0.1),
            near / self.best[2].max(0.1),
            asked.of(spot.record) / asked.total.max(0.1),
            asked.line(spot.segment) / asked.near_total.max(0.1),
            self.usual_key(&self.alike, spot),
            cue,
            other_cue,
            is(own_key),
            is(slot.is_some_and(|s| s.value.len() <= SHORT)),
            is(self.lone_time() && slot.is_some_and(|s| begins_with(&s.key, &STARTS))),
            is(self.lone_time() && slot.is_some_and(|s| begins_with(&s.key, &ENDS))),
        ]
    }

    /// A time of which nothing says that it is an end: "the class is at 18:00" is when it starts.
    fn lone_time(&self) -> bool {
        self.raw.side.is_none() && matches!(self.raw.value, Some(Value::Time(_) | Value::Date(_)))
    }

    /// How much of what is told stands close by: every stem once, less the farther it is.
    fn near(&self, spot: &Seen) -> f32 {
        let stems = &self.about.stems;
        let words = &self.judge.evidence.pieces[spot.piece].words;
        let first = words.partition_point(|w| w.range().start < spot.found.range.start);
        let end =
            first + words[first..].iter().take_while(|w| w.range().start < spot.found.range.end).count();
        let mut counted = [0_u64; 2 * AROUND];
        let (mut many, mut sum) = (0, 0.0);
        for apart in 0..AROUND {
            let left = first.checked_sub(apart + 1).map(|at| &words[at]);
            for word in left.into_iter().chain(words.get(end + apart)).filter(|w| !w.common) {
                let Ok(at) = stems.binary_search_by_key(&word.stem, |(stem, _)| *stem) else { continue };
                if !counted[..many].contains(&word.stem) {
                    counted[many] = word.stem;
                    many += 1;
                    sum += stems[at].1 * (1.0 - apart as f32 / (AROUND + 4) as f32);
                }
            }
        }
        sum
    }

    /// How many of the three words on each side are the same as beside the claim.
    fn same_words(&self, spot: &Seen) -> (f32, f32) {
        let words = &self.judge.evidence.pieces[spot.piece].words;
        let first = words.partition_point(|w| w.range().start < spot.found.range.start);
        let end = words.partition_point(|w| w.range().start < spot.found.range.end);
        let left = self.before.iter().rev().zip(words[..first].iter().rev());
        let right = self.after.iter().zip(&words[end..]);
        let same = |pairs: &mut dyn Iterator<Item = (&Word, &Word)>| {
            pairs.take_while(|(a, b)| a.stem == b.stem).count() as f32 / 3.0
        };
        (same(&mut left.into_iter()), same(&mut right.into_iter()))
    }

    /// Whether another claim says this: in the same block, in another.
    fn said_again(&self, spot: &Seen) -> (bool, bool) {
        let (mut here, mut elsewhere) = (false, false);
        for other in self.judge.answer.claims.iter().filter(|c| c.range != self.raw.range) {
            if other.value.as_ref().is_some_and(|said| said.said_by(&spot.found.value)) {
                let beside = self.statement.block.contains(&other.range.start);
                here |= beside;
                elsewhere |= !beside;
            }
        }
        (here, elsewhere)
    }

    /// The share of these claims that were read under this key.
    fn usual_key(&self, claims: &[usize], spot: &Seen) -> f32 {
        let Some(slot) = spot.slot else { return 0.0 };
        let slots = &self.judge.evidence.slots;
        let under = |at: &&usize| self.judge.keys[**at].iter().any(|s| slots[*s].name == slots[slot].name);
        if claims.is_empty() {
            return 0.0;
        }
        claims.iter().filter(under).count() as f32 / claims.len() as f32
    }

    /// Whether it comes after what the claim of this kind before was read in, and before the next one's.
    fn in_order(&self, spot: &Seen) -> f32 {
        let sole = |at: &usize| match self.judge.homes[*at].as_slice() {
            [one] => Some(one.0),
            _ => None,
        };
        let before = self.siblings.iter().rev().find(|at| **at < self.own_at).and_then(sole);
        let after = self.siblings.iter().find(|at| **at > self.own_at).and_then(sole);
        match (before, after) {
            (None, None) => 0.0,
            (before, after) => {
                is(before.is_none_or(|b| b <= spot.record) && after.is_none_or(|a| spot.record <= a))
            }
        }
    }

    /// Whether the little word before the claim announces this key, or another one.
    fn cued(&self, spot: &Seen) -> (f32, f32) {
        let (Some(cue), Some(slot)) = (self.cue, spot.slot) else { return (0.0, 0.0) };
        let key = self.judge.evidence.slots[slot].key.as_str();
        let of = |at: usize| CUES[at].1.iter().any(|word| key.split(' ').any(|part| part == *word));
        (is(of(cue)), is(!of(cue) && (0..CUES.len()).any(of)))
    }
}

pub(super) fn begins_with(key: &str, words: &[&str]) -> bool {
    words.iter().any(|word| key.starts_with(word))
}

fn is(yes: bool) -> f32 {
    if yes { 1.0 } else { 0.0 }
}

/// The cue that the word before a claim is, past marks and articles.
fn cue_before(text: &str, raw: &Raw) -> Option<usize> {
    let mut words = text[..raw.range.start]
        .rsplit(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
        .map(str::to_ascii_lowercase)
        .filter(|w| !["the", "a", "an", "user", "email", "address", "file", "event"].contains(&w.as_str()));
    let word = words.next()?;
    CUES.iter().position(|(cues, _)| cues.contains(&word.as_str()))
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

impl Judge<'_> {
    /// The last act whose result was read.
    fn last_read(&self) -> usize {
        let pieces = self.evidence.pieces.iter();
        let read = pieces.filter(|p| p.act < self.act && p.source == Source::Read);
        read.map(|p| p.act).max().unwrap_or(0)
    }

    /// Whether two claims of a kind stand in the same place of two items: under one label, or as the nth without any.
    fn stands_alike(&self, one: &Raw, other: &Raw) -> bool {
        let (a, b) = (&self.answer.statements[one.statement], &self.answer.statements[other.statement]);
        if one.value.is_some() != other.value.is_some() || a.block == b.block {
            return false;
        }
        let label = |s: &Statement| s.label.as_ref().map(|l| self.text[l.clone()].to_ascii_lowercase());
        match (label(a), label(b)) {
            (Some(a), Some(b)) => a == b,
            (None, None) => one.kind == other.kind && self.nth(one) == self.nth(other),
            _ => false,
        }
    }

    /// How many claims of its kind stand before it in its block.
    fn nth(&self, raw: &Raw) -> usize {
        let block = &self.answer.statements[raw.statement].block;
        let before = self.answer.claims.iter().filter(|c| c.range.start < raw.range.start);
        before.filter(|c| c.kind == raw.kind && block.contains(&c.range.start)).count()
    }
}
