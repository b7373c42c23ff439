//! The value that should stand where a claim's stands. Every value of the claim's kind that was read is ranked by how
//! much its record, its line and its key share with the statement; if another one is clearly ahead, that is a
//! contradiction. It takes a margin, because a statement may well be about two records at once.

use super::about::About;
use super::answer::Statement;
use super::evidence::{Seen, Slot, Source};
use super::extract::{Raw, within};
use super::layout::{key_stems, normal_key};
use super::link::{Hit, Judge};
use super::report::Quoted;
use super::scan::{Value, scan};
use super::words::Word;
use std::ops::Range;

// Scores are shares of what a statement says, counted once for the record and once for the line. The margins are round
// numbers set by hand on AgentDojo answers, for few true values flagged before many swapped ones found.

/// How far ahead another value must be, as a factor and a distance.
const AHEAD: f32 = 1.25;
const MARGIN: f32 = 0.12;
/// A name shares its slot with more that is no name.
const AHEAD_NAME: f32 = 1.6;
/// What a value under another key than the claim's loses.
const OTHER_KEY: f32 = 0.12;
const OTHER_KEY_AHEAD: f32 = 1.15;
/// What standing under the key that the statement names adds.
const NAMED: f32 = 0.4;
/// A statement that says less than this is about nothing in particular.
pub(super) const LEAST: f32 = 2.0;
/// Below this no record is what the statement is about.
const ENOUGH: f32 = 0.35;

/// Words that tell how things were before they were changed.
const BEFORE: [&str; 13] = [
    "had",
    "was",
    "were",
    "current",
    "currently",
    "previous",
    "previously",
    "existing",
    "original",
    "found",
    "saw",
    "from",
    "old",
];

type Score<'s> = dyn Fn(usize, usize, Option<usize>) -> f32 + 's;
/// A score, the slot and what stands there.
type Rival = (f32, Option<usize>, Quoted);

impl Judge<'_> {
    /// Another value in the slot that the statement is about: in the record it fits better than the ones the claim
    /// was found in, or under the key its label names.
    pub(super) fn other_value(
        &self,
        raw: &Raw,
        statement: &Statement,
        hits: &[Hit],
        about: &About,
    ) -> Option<(Option<String>, Quoted)> {
        let best = hits.first()?;
        self.other_key(raw, statement, hits).or_else(|| self.other_record(raw, statement, best, about))
    }

    /// The value of this kind that the surroundings of the statement point to, if that is clearly not this one.
    fn other_record(
        &self,
        raw: &Raw,
        statement: &Statement,
        best: &Hit,
        about: &About,
    ) -> Option<(Option<String>, Quoted)> {
        if about.near_total < LEAST {
            return None;
        }
        let key_of = |slot: Option<usize>| slot.map(|s| self.evidence.slots[s].key.as_str());
        let wanted = self.wanted(raw, statement);
        let score = |record: usize, segment: usize, slot: Option<usize>| {
            let named = slot.is_some_and(|s| key_fits(&self.evidence.slots[s].stems, &wanted));
            about.of(record) / about.total.max(0.1)
                + about.line(segment) / about.near_total.max(0.1)
                + if named { NAMED } else { 0.0 }
        };
        let (mine, rival) = match &raw.value {
            Some(value) => self.rival_value(value, best, &score),
            None => self.rival_name(raw, best, &score),
        };
        let (theirs, slot, found) = rival?;
        let ahead = if raw.value.is_some() { mine * AHEAD + MARGIN } else { mine * AHEAD_NAME + MARGIN };
        if theirs < ahead || theirs < ENOUGH || self.is_said(raw, &found.text, &statement.block) {
            return None;
        }
        // what something was before a call changed it
        let done = slot.is_some_and(|s| {
            self.evidence.pieces[self.evidence.records[self.evidence.slots[s].record].piece].source
                == Source::Did
        });
        if done
            && self.is_fact(best.piece)
            && key_of(best.slot) == key_of(slot)
            && self.says_before(statement)
        {
            return None;
        }
        Some((key_of(slot).map(str::to_owned), found))
    }

    /// Whether a statement tells how things were.
    fn says_before(&self, statement: &Statement) -> bool {
        let words = self.words_in(&statement.range);
        words.iter().any(|w| BEFORE.iter().any(|b| w.of(self.text).eq_ignore_ascii_case(b)))
    }

    /// The score of a value's own places, and the best place of another value under the same key.
    fn rival_value(&self, value: &Value, best: &Hit, score: &Score<'_>) -> (f32, Option<Rival>) {
        let (mut mine, mut top) = (0.0_f32, (0.0_f32, None));
        let (mut homes, mut rivals) = (Vec::new(), Vec::new());
        let key = |slot: Option<usize>| slot.map(|s| self.evidence.slots[s].name);
        let before = self.evidence.seen.partition_point(|s| self.evidence.pieces[s.piece].act < self.act);
        for seen in self.evidence.seen[..before].iter().filter(|s| self.may_replace(value, s)) {
            let scored = score(seen.record, seen.segment, seen.slot);
            if value.said_by(&seen.found.value) {
                mine = mine.max(scored);
                homes.push((seen.record, key(seen.slot), seen.segment));
            } else if self.counts(seen.record) {
                // under another key it takes more to be the one that was meant
                let other = key(best.slot).zip(key(seen.slot)).is_some_and(|(a, b)| a != b);
                rivals.push((if other { (scored - OTHER_KEY) / OTHER_KEY_AHEAD } else { scored }, seen));
            }
        }
        // of several values in one slot none contradicts another, unless the slot is a text of many lines
        let beside = |s: &Seen, (record, key_of, segment): &(usize, Option<u32>, usize)| {
            (s.record, key(s.slot)) == (*record, *key_of) && (s.segment == *segment || self.alone(s))
        };
        rivals.retain(|(_, s)| !homes.iter().any(|home| beside(s, home)));
        for (scored, seen) in rivals {
            if scored > top.0 {
                top = (scored, Some(seen));
            }
        }
        (mine, top.1.map(|seen| (top.0, seen.slot, self.quote(seen.piece, seen.found.range.clone()))))
    }

    /// Whether another claim of the answer says this within a range.
    fn is_said(&self, raw: &Raw, text: &str, within: &Range<usize>) -> bool {
        let value = scan(text).into_iter().next().map(|f| f.value);
        self.answer.claims.iter().any(|other| {
            within.contains(&other.range.start)
                && other.range != raw.range
                && match (&value, &other.value) {
                    (Some(right), Some(said)) => said.said_by(right),
                    _ => self.text[other.range.clone()].eq_ignore_ascii_case(text),
                }
        })
    }

    /// Whether a value has a line of its own: an item of a list, as others are.
    fn alone(&self, seen: &Seen) -> bool {
        let text = &self.evidence.pieces[seen.piece].text;
        let edge = |c: char| " \t-*'\",[]()".contains(c);
        let before = text[..seen.found.range.start].trim_end_matches(edge);
        let after = text[seen.found.range.end..].trim_start_matches(edge);
        (before.is_empty() || before.ends_with(['\n', ':'])) && (after.is_empty() || after.starts_with('\n'))
    }

    /// For a name that stands in a short slot: the same slot of the record that the statement fits best.
    fn rival_name(&self, raw: &Raw, best: &Hit, score: &Score<'_>) -> (f32, Option<Rival>) {
        let Some(slot) = best.slot.map(|s| &self.evidence.slots[s]).filter(|s| s.value.len() < 60) else {
            return (0.0, None);
        };
        let (mut mine, mut top) = (0.0_f32, (0.0_f32, None));
        let phrase: Vec<u64> = self.words_in(&raw.range).iter().map(|w| w.exact).collect();
        for (at, other) in self
            .evidence
            .slots
            .iter()
            .enumerate()
            .filter(|(_, s)| s.name == slot.name && s.value.len() < 60 && self.counts(s.record))
        {
            let piece = &self.evidence.pieces[self.evidence.records[other.record].piece];
            let held = within(&piece.words, &other.value, |w| w.range().start);
            let Some(first) = held.first() else { continue };
            let segment =
                self.evidence.segment_of(self.evidence.records[other.record].piece, first.range().start);
            let scored = score(other.record, segment, Some(at));
            if phrase.iter().any(|p| held.iter().any(|w| w.exact == *p)) {
                mine = mine.max(scored);
            } else if scored > top.0 && held.len() <= 4 && held.iter().all(|w| w.upper || w.common) {
                top = (scored, Some((at, first.range().start..held[held.len() - 1].range().end)));
            }
        }
        let rival = top.1.map(|(at, range)| {
            (top.0, Some(at), self.quote(self.evidence.records[self.evidence.slots[at].record].piece, range))
        });
        (mine, rival)
    }

    /// The key that a label, or a side of a range, asks for, as stems.
    pub(super) fn wanted(&self, raw: &Raw, statement: &Statement) -> Vec<u64> {
        let label = statement.label.as_ref().filter(|l| l.end <= raw.range.start || l.start >= raw.range.end);
        if matches!(raw.value, Some(Value::Email(_)))
            && let Some(key) = self.part_of_mail(raw)
        {
            return key_stems(key);
        }
        match raw.side {
            Some(side) => key_stems(side),
            None => label.map(|l| key_stems(&normal_key(&self.text[l.clone()]))).unwrap_or_default(),
        }
    }

    /// An address after "from" is a sender's, and one after "to" is not.
    fn part_of_mail(&self, raw: &Raw) -> Option<&'static str> {
        let before = self.text[..raw.range.start].trim_end_matches(['*', ' ', '(', ':', '"', '\'', '`', '<']);
        let word = before.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        match word.to_ascii_lowercase().as_str() {
            "from" | "sender" | "by" => Some("sender"),
            "to" | "recipient" | "recipients" => Some("recipients"),
            _ => None,
        }
    }

    /// Whether what was read could stand in a value's place. `2 hours` is contradicted by no id, and by no number in the name
    /// of a room: without a unit only a field that is all number measures something.
    fn may_replace(&self, value: &Value, seen: &Seen) -> bool {
        let bare = match (value, &seen.found.value) {
            (Value::Amount(said), Value::Amount(read)) => said.unit.is_some() && read.unit.is_none(),
            _ => false,
        };
        let measures = || {
            let slot = seen.slot.map(|s| &self.evidence.slots[s]);
            slot.is_some_and(|slot| {
                let text = &self.evidence.pieces[seen.piece].text[slot.value.clone()];
                let held = text.trim_matches(|c: char| c.is_whitespace() || "'\",{}[]".contains(c));
                let id = slot.key == "id" || slot.key.ends_with(" id");
                !id && held.len() == seen.found.range.len()
            })
        };
        value.said_by(&seen.found.value) || value.like(&seen.found.value) && (!bare || measures())
    }

    /// Only what was read or done can contradict; the user's wish and what a call merely asked for cannot.
    pub(super) fn counts(&self, record: usize) -> bool {
        let piece = &self.evidence.pieces[self.evidence.records[record].piece];
        piece.act < self.act && (piece.source == Source::Read || piece.done)
    }

    /// The value of the claim's kind in a slot, where the claim is not there itself.
    fn rival_in(&self, raw: &Raw, piece: usize, range: Range<usize>) -> Option<Quoted> {
        let text = &self.evidence.pieces[piece].text;
        match &raw.value {
            Some(value) => {
                let from = self
                    .evidence
                    .seen
                    .partition_point(|s| (s.piece, s.found.range.start) < (piece, range.start));
                let inside = self.evidence.seen[from..]
                    .iter()
                    .take_while(|s| s.piece == piece && s.found.range.start < range.end);
                let mut rival = None;
                for seen in inside {
                    if value.said_by(&seen.found.value) {
                        return None;
                    }
                    if rival.is_none() && value.like(&seen.found.value) {
                        rival = Some(seen.found.range.clone());
                    }
                }
                rival.map(|r| self.quote(piece, r))
            }
            None => {
                let held = text[range.clone()].trim();
                let short = (1..80).contains(&held.len()) && held.contains(char::is_alphabetic);
                let lead = range.start + (text[range.clone()].len() - text[range].trim_start().len());
                short.then(|| self.quote(piece, lead..lead + held.len()))
            }
        }
    }

    /// The label names a key of a record the value was found in, and that key has another value there.
    fn other_key(&self, raw: &Raw, statement: &Statement, hits: &[Hit]) -> Option<(Option<String>, Quoted)> {
        raw.value.as_ref()?;
        let wanted = self.wanted(raw, statement);
        let fits = |slot: &Slot| key_fits(&slot.stems, &wanted);
        let facts = || hits.iter().filter(|h| self.is_fact(h.piece));
        if wanted.is_empty() || facts().any(|h| h.slot.is_none_or(|s| fits(&self.evidence.slots[s]))) {
            return None;
        }
        facts().find_map(|hit| {
            let slot = self.evidence.slots_in(hit.record).iter().find(|s| fits(s))?;
            let found = self.rival_in(raw, hit.piece, slot.value.clone())?;
            Some((Some(slot.key.clone()), found))
        })
    }

    /// What was read or done, as opposed to what was wished for.
    pub(super) fn is_fact(&self, piece: usize) -> bool {
        matches!(self.evidence.pieces[piece].source, Source::Read | Source::Did)
    }

    /// For a value that stands nowhere: the one that stands where it should.
    pub(super) fn instead(
        &self,
        raw: &Raw,
        statement: &Statement,
        about: &About,
    ) -> Option<(Option<String>, Quoted)> {
        let value = raw.value.as_ref()?;
        let wanted = self.wanted(raw, statement);
        let mut records: Vec<(usize, f32)> = about
            .shares
            .iter()
            .copied()
            .enumerate()
            .filter(|(r, s)| *s > about.total * ENOUGH && self.counts(*r))
            .collect();
        records.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        for (record, _) in records.into_iter().take(3) {
            let piece = self.evidence.records[record].piece;
            let from = self.evidence.seen.partition_point(|s| (s.piece, s.record) < (piece, record));
            let inside: Vec<_> = self.evidence.seen[from..]
                .iter()
                .take_while(|s| s.record == record)
                .filter(|s| self.may_replace(value, s))
                .take(200)
                .collect();
            let key = |s: &&Seen| s.slot.map(|at| self.evidence.slots[at].key.as_str());
            let fits =
                |s: &&&Seen| s.slot.is_some_and(|at| key_fits(&self.evidence.slots[at].stems, &wanted));
            let fitting = inside.iter().find(fits);
            if let Some(seen) = fitting.or(inside.first().filter(|_| inside.len() == 1)) {
                return Some((key(seen).map(str::to_owned), self.quote(piece, seen.found.range.clone())));
            }
        }
        None
    }

    /// Whether a word is the first of a statement, where a capital says nothing.
    fn opens_line(&self, word: &Word) -> bool {
        self.answer
            .statements
            .iter()
            .any(|s| self.words_in(&s.range).first().is_some_and(|w| w.start == word.start))
    }

    /// A phrase that was read with one telling word different.
    pub(super) fn one_word_off(&self, phrase: &[Word]) -> Option<Quoted> {
        // what is somebody's is no part of a name: `Nora's shop` is not `Nora came` with a word wrong
        let opens = |own: usize| own == 0 && phrase.len() == 2 && self.opens_line(&phrase[0]);
        let owned = phrase.first().is_some_and(|w| self.text[..w.range().end].ends_with("'s"));
        if !(2..=12).contains(&phrase.len()) || owned && phrase.len() == 2 {
            return None;
        }
        let hashes: Vec<u64> = phrase.iter().map(|w| w.exact).collect();
        // two other words that tell something say which name was meant, though the one in question was read elsewhere
        let tells_enough = |own: usize| {
            let others = phrase.iter().enumerate().filter(|(i, w)| *i != own && !w.common && w.upper);
            others.count() > 1
        };
        for swapped in (0..phrase.len()).rev().filter(|i| !opens(*i)).filter(|i| {
            !phrase[*i].common && (tells_enough(*i) || !self.evidence.holds(hashes[*i], self.act))
        }) {
            let (left, right) = (&hashes[..swapped], &hashes[swapped + 1..]);
            let leads = left.len() >= right.len();
            let longest = if leads { left } else { right };
            for (piece, range) in self.evidence.phrase(longest, self.act, 20) {
                let words = &self.evidence.pieces[piece].words;
                let first = words.partition_point(|w| w.range().start < range.start);
                let start = first.checked_sub(if leads { 0 } else { swapped + 1 });
                let Some(run) = start.and_then(|s| words.get(s..s + phrase.len())) else { continue };
                let others_same =
                    run.iter().zip(&hashes).enumerate().all(|(i, (w, h))| i == swapped || w.exact == *h);
                // read in another form it was read, and words without capitals were no name there
                if others_same && run[swapped].stem == phrase[swapped].stem {
                    return None;
                }
                let named = run
                    .iter()
                    .zip(phrase)
                    .all(|(read, said)| read.upper || said.common || !said.upper || read.exact != said.exact);
                if others_same && named && !run[swapped].common && self.reads_on(piece, run) {
                    return Some(self.quote(piece, run[0].range().start..run[run.len() - 1].range().end));
                }
            }
        }
        None
    }
}

/// Whether a key answers to a label: `start time` to `Start`, `size` to `File size`. Both as stems.
pub(super) fn key_fits(key: &[u64], label: &[u64]) -> bool {
    let within = |a: &[u64], b: &[u64]| a.iter().all(|stem| b.contains(stem));
    !key.is_empty() && !label.is_empty() && (within(key, label) || within(label, key))
}
