//! What a run had read, been told and done, made ready to be asked where a value stands. Texts are cut into records
//! (an item of a list, an object of an array, a paragraph) and slots (a key with what follows it), as `layout.rs` sees
//! them.

use super::layout::{key_stems, records, slots};
use super::reading::plain;
use super::scan::{Found, scan};
use super::words::{Word, hash_of, words};
use crate::effects::Effects;
use cofferdam_model::{Act, ActKind, Run, Status};
use serde_json::Value as Json;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;

/// Whose words a piece of evidence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Read,
    /// The run's own call: its name and arguments.
    Did,
    Instructed,
    User,
}

pub(crate) struct Piece {
    pub(crate) act: usize,
    pub(crate) source: Source,
    pub(crate) text: String,
    /// For arguments: which part of `text` is which JSON pointer. Empty for an act's text, which `text` then is, as it is
    /// read: byte for byte in the same place.
    pub(crate) leaves: Vec<(Range<usize>, String)>,
    pub(crate) words: Vec<Word>,
    pub(crate) records: Range<usize>,
    /// The arguments of a call that changed something, and went well: what was done, and not only wished for.
    pub(crate) done: bool,
}

pub(crate) struct Record {
    pub(crate) piece: usize,
    pub(crate) range: Range<usize>,
}

/// A key and what follows it, up to the next key.
pub(crate) struct Slot {
    pub(crate) record: usize,
    pub(crate) key: String,
    /// The same number for equal keys.
    pub(crate) name: u32,
    /// The key's telling words.
    pub(crate) stems: Rc<[u64]>,
    /// What kind of field it is, as `cue.rs` has it.
    pub(crate) cues: u32,
    pub(crate) value: Range<usize>,
}

/// A value with where it stands.
pub(crate) struct Seen {
    pub(crate) piece: usize,
    pub(crate) record: usize,
    /// The sentence or line.
    pub(crate) segment: usize,
    pub(crate) slot: Option<usize>,
    /// The same for equal values.
    pub(crate) same: u64,
    pub(crate) found: Found,
}

#[derive(Default)]
pub(crate) struct Evidence {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) records: Vec<Record>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) seen: Vec<Seen>,
    /// Every key with what a slot knows of it.
    keys: HashMap<String, (u32, Rc<[u64]>, u32)>,
    /// What users said, by `Seen::same`.
    pub(crate) users: HashSet<u64>,
    /// (word, piece, index in the piece's words), sorted.
    words: Vec<(u64, u32, u32)>,
    /// (stem, record) and (stem, segment), sorted.
    stems: Vec<(u64, u32)>,
    near: Vec<(u64, u32)>,
    /// (piece, start) of each sentence or line, sorted.
    pub(crate) segments: Vec<(usize, usize)>,
}

impl Evidence {
    pub(crate) fn of(run: &Run) -> Self {
        let mut evidence = Self::default();
        let (mut known, effects) = (HashSet::new(), Effects::default());
        for (act, what) in run.acts.iter().enumerate() {
            for (source, text, leaves) in pieces_of(what) {
                // the same result ten thousand times is one piece of evidence, read at its first place
                if text.trim().is_empty() || !known.insert((source as u8, hash_of(&text))) {
                    continue;
                }
                let done = source == Source::Did && what.status == Status::Ok && effects.changes(what);
                evidence.add((act, source, done), text, leaves);
            }
        }
        evidence.words.sort_unstable();
        evidence.stems.sort_unstable();
        evidence.stems.dedup();
        evidence.near.sort_unstable();
        evidence.near.dedup();
        evidence
    }

    fn add(&mut self, (act, source, done): (usize, Source, bool), text: String, leaves: Leaves) {
        let (piece, first, first_slot) = (self.pieces.len(), self.records.len(), self.slots.len());
        let words = words(&text);
        self.records.extend(records(&text).into_iter().map(|range| Record { piece, range }));
        for (key, value) in slots(&text) {
            let record = self.record_at(first, value.start);
            let end = value.end.min(self.records[record].range.end).max(value.start);
            // a list has the same few keys in every record
            let next = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
            let known = self.keys.get(&key).cloned();
            let (name, stems, cues) = known.unwrap_or_else(|| {
                let new = (next, Rc::from(key_stems(&key)), super::cue::of_key(&key));
                self.keys.insert(key.clone(), new.clone());
                new
            });
            self.slots.push(Slot { record, key, name, stems, cues, value: value.start..end });
        }
        let first_segment = self.segments.len();
        self.segments.push((piece, 0));
        self.segments.extend(crate::ground::sentences(&text).into_iter().skip(1).map(|s| (piece, s.start)));
        for (i, word) in (0u32..).zip(&words) {
            self.words.push((word.exact, u32::try_from(piece).unwrap_or(u32::MAX), i));
            if !word.common {
                let record = self.record_at(first, word.range().start);
                self.stems.push((word.stem, u32::try_from(record).unwrap_or(u32::MAX)));
                let segment = self.segment_at(first_segment, word.range().start);
                self.near.push((word.stem, u32::try_from(segment).unwrap_or(u32::MAX)));
            }
        }
        for found in scan(&text) {
            let record = self.record_at(first, found.range.start);
            let slot = self.slot_at(first_slot, found.range.start);
            let segment = self.segment_at(first_segment, found.range.start);
            let same = found.value.mark();
            if source == Source::User {
                self.users.insert(same);
            }
            self.seen.push(Seen { piece, record, segment, slot, same, found });
        }
        self.pieces.push(Piece {
            act,
            source,
            text,
            leaves,
            words,
            records: first..self.records.len(),
            done,
        });
    }

    fn record_at(&self, first: usize, at: usize) -> usize {
        let after = self.records[first..].partition_point(|r| r.range.start <= at);
        first + after.saturating_sub(1)
    }

    fn segment_at(&self, first: usize, at: usize) -> usize {
        first + self.segments[first..].partition_point(|(_, start)| *start <= at).saturating_sub(1)
    }

    fn slot_at(&self, first: usize, at: usize) -> Option<usize> {
        let after = self.slots[first..].partition_point(|s| s.value.start <= at);
        let slot = first + after.checked_sub(1)?;
        (at < self.slots[slot].value.end).then_some(slot)
    }

    /// The slot a place of a piece stands in.
    pub(crate) fn slot_of(&self, piece: usize, at: usize) -> Option<usize> {
        let records = &self.pieces[piece].records;
        let first = self.slots.partition_point(|s| s.record < records.start);
        self.slot_at(first, at).filter(|s| records.contains(&self.slots[*s].record))
    }

    pub(crate) fn segment_of(&self, piece: usize, at: usize) -> usize {
        self.segments.partition_point(|(p, start)| (*p, *start) <= (piece, at)).saturating_sub(1)
    }

    pub(crate) fn record_of(&self, piece: usize, at: usize) -> usize {
        self.record_at(self.pieces[piece].records.start, at)
            .min(self.pieces[piece].records.end.saturating_sub(1))
    }

    /// Slots of a record, in order.
    pub(crate) fn slots_in(&self, record: usize) -> &[Slot] {
        let from = self.slots.partition_point(|s| s.record < record);
        let len = self.slots[from..].partition_point(|s| s.record == record);
        &self.slots[from..from + len]
    }

    /// Records that hold a stem.
    pub(crate) fn records_with(&self, stem: u64) -> &[(u64, u32)] {
        let from = self.stems.partition_point(|(s, _)| *s < stem);
        let len = self.stems[from..].partition_point(|(s, _)| *s == stem);
        &self.stems[from..from + len]
    }

    /// Sentences or lines that hold a stem.
    pub(crate) fn segments_with(&self, stem: u64) -> &[(u64, u32)] {
        let from = self.near.partition_point(|(s, _)| *s < stem);
        let len = self.near[from..].partition_point(|(s, _)| *s == stem);
        &self.near[from..from + len]
    }

    /// Places (piece, byte range) where these words stand side by side, before act `before`. At most `most`.
    pub(crate) fn phrase(&self, phrase: &[u64], before: usize, most: usize) -> Vec<(usize, Range<usize>)> {
        let Some((rarest, at)) =
            phrase.iter().enumerate().map(|(i, w)| (self.holding(*w), i)).min_by_key(|(held, _)| held.len())
        else {
            return Vec::new();
        };
        let mut places = Vec::new();
        for (_, piece, word) in rarest.iter().take(2000) {
            let piece = *piece as usize;
            let all = &self.pieces[piece].words;
            let Some(first) = (*word as usize).checked_sub(at) else { continue };
            let Some(run) = all.get(first..first + phrase.len()) else { continue };
            if self.pieces[piece].act < before && run.iter().zip(phrase).all(|(w, p)| w.exact == *p) {
                places.push((piece, run[0].range().start..run[phrase.len() - 1].range().end));
                if places.len() == most {
                    break;
                }
            }
        }
        places
    }

    /// Places (piece, index of the first word) where these words stand in this order, in whatever form but one of them as
    /// it is, and whatever stands in the gaps.
    pub(crate) fn around(
        &self,
        pattern: &[Option<&Word>],
        before: usize,
        most: usize,
    ) -> Vec<(usize, usize)> {
        let fixed = pattern.iter().enumerate().filter_map(|(i, w)| Some((self.holding((*w)?.exact), i)));
        let anchors = fixed.filter(|(held, _)| !held.is_empty());
        let Some((rarest, at)) = anchors.min_by_key(|(held, _)| held.len()) else { return Vec::new() };
        let fits = |(_, piece, word): &(u64, u32, u32)| {
            let first = (*word as usize).checked_sub(at)?;
            let piece = *piece as usize;
            let run = self.pieces[piece].words.get(first..first + pattern.len())?;
            let same = run.iter().zip(pattern).all(|(w, p)| p.is_none_or(|p| w.stem == p.stem));
            (self.pieces[piece].act < before && same).then_some((piece, first))
        };
        rarest.iter().take(2000).filter_map(fits).take(most).collect()
    }

    pub(crate) fn holds(&self, word: u64, before: usize) -> bool {
        self.holding(word).iter().any(|(_, piece, _)| self.pieces[*piece as usize].act < before)
    }

    /// Some of the words of this hash, as they were read.
    pub(crate) fn places_of(&self, word: u64, before: usize) -> Vec<Word> {
        let held = self.holding(word).iter().take(64);
        let read = held.filter(|(_, piece, _)| self.pieces[*piece as usize].act < before);
        read.map(|(_, piece, at)| self.pieces[*piece as usize].words[*at as usize]).collect()
    }

    /// Where a word stands: pieces, and its index in their words.
    pub(crate) fn where_is(&self, word: u64, before: usize, most: usize) -> Vec<(usize, usize)> {
        let held = self.holding(word).iter().map(|(_, piece, at)| (*piece as usize, *at as usize));
        held.filter(|(piece, _)| self.pieces[*piece].act < before).take(most).collect()
    }

    fn holding(&self, word: u64) -> &[(u64, u32, u32)] {
        let from = self.words.partition_point(|(w, _, _)| *w < word);
        let len = self.words[from..].partition_point(|(w, _, _)| *w == word);
        &self.words[from..from + len]
    }
}

type Leaves = Vec<(Range<usize>, String)>;

fn pieces_of(act: &Act) -> Vec<(Source, String, Leaves)> {
    let source = match act.kind {
        ActKind::Told => Source::User,
        ActKind::Instructed => Source::Instructed,
        // the model's own words are what is checked, never what it is checked against
        ActKind::Said | ActKind::Model => return Vec::new(),
        _ => Source::Read,
    };
    let mut pieces = vec![(source, plain(&act.text), Vec::new())];
    if source == Source::Read {
        let (mut text, mut leaves) = (String::new(), Vec::new());
        write_leaves(&act.args, &mut String::new(), &mut text, &mut leaves, 0);
        text.push_str(&act.name);
        pieces.push((Source::Did, text, leaves));
    }
    pieces
}

/// Arguments as lines of `key: value`, remembering each value's pointer.
fn write_leaves(value: &Json, pointer: &mut String, text: &mut String, leaves: &mut Leaves, depth: usize) {
    if depth > 64 {
        return;
    }
    let mut within = |part: &str, value: &Json| {
        let long = pointer.len();
        pointer.push('/');
        pointer.push_str(&part.replace('~', "~0").replace('/', "~1"));
        write_leaves(value, pointer, text, leaves, depth + 1);
        pointer.truncate(long);
    };
    match value {
        Json::Object(map) => map.iter().for_each(|(key, value)| within(key, value)),
        Json::Array(list) => list.iter().enumerate().for_each(|(i, value)| within(&i.to_string(), value)),
        Json::Null => {}
        leaf => {
            let key = pointer
                .split('/')
                .rfind(|p| !p.is_empty() && !p.bytes().all(|b| b.is_ascii_digit()))
                .unwrap_or("value");
            text.push_str(key);
            text.push_str(": ");
            let start = text.len();
            match leaf {
                Json::String(s) => text.push_str(s),
                other => text.push_str(&other.to_string()),
            }
            leaves.push((start..text.len(), pointer.clone()));
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = "- id_: '6'\n  start_time: 2024-05-15 10:00:00\n  title: Team Sync\n- id_: '9'\n  start_time: 2024-05-15 12:30:00\n  title: Lunch\n";

    #[test]
    fn a_phrase_is_found_where_it_stands() {
        let act = |kind, text: &str| Act {
            at: 0,
            within: None,
            kind,
            name: "t".into(),
            args: Json::Null,
            text: text.into(),
            status: Default::default(),
            effect: Default::default(),
            decided: None,
        };
        let run =
            Run { acts: vec![act(ActKind::Told, "team"), act(ActKind::Tool, EVENTS)], ..Run::default() };
        let evidence = Evidence::of(&run);
        let places = evidence.phrase(&[hash_of("team"), hash_of("sync")], 9, 9);
        let (piece, range) = places[0].clone();
        assert_eq!(&evidence.pieces[piece].text[range.clone()], "Team Sync");
        let slot = evidence.slot_of(piece, range.start).unwrap();
        assert_eq!(
            (evidence.slots[slot].key.as_str(), evidence.slots[slot].record),
            ("title", evidence.record_of(piece, range.start))
        );
        assert!(evidence.phrase(&[hash_of("team"), hash_of("sync")], 1, 9).is_empty());
    }
}
