//! What a label or a deed names. `Pizza party: $10` is held against the record whose subject is "Pizza party", the id that
//! something "was added with" against what the call gave back, and what the user asked in one sentence against what is said
//! of another.

use super::answer::Statement;
use super::context::Instead;
use super::evidence::{Seen, Source};
use super::extract::{Raw, within};
use super::link::Judge;
use super::report::ClaimKind;
use super::rival::key_fits;
use super::scan::Value;
use super::status;
use super::words::Word;
use std::ops::Range;

/// Words of a title, records that may have it, and places where it is looked up.
const LONGEST: usize = 8;
const RECORDS: usize = 3;
const PLACES: usize = 24;
/// Words that tell of several records at once.
const SUMS: [&str; 8] = ["total", "totals", "sum", "average", "combined", "overall", "spent", "altogether"];
/// Words that close a sentence of a question are looked for in so many sentences.
const SENTENCES: usize = 24;

impl Judge<'_> {
    /// Another value than the records have whose title the label is.
    pub(super) fn not_of_its_title(&self, raw: &Raw, statement: &Statement) -> Option<Instead> {
        let value =
            raw.value.as_ref().filter(|v| matches!(v, Value::Amount(_) | Value::Date(_) | Value::Time(_)))?;
        let sums = |w: &Word| SUMS.iter().any(|s| w.of(self.text).eq_ignore_ascii_case(s));
        if self.words_in(&statement.range).iter().any(sums) {
            return None;
        }
        let title = self.title_of(raw, statement)?;
        let phrase: Vec<u64> = self.words_in(&title).iter().map(|w| w.exact).collect();
        if phrase.is_empty() || phrase.len() > LONGEST {
            return None;
        }
        let places = self.evidence.phrase(&phrase, self.act, PLACES);
        let mut records: Vec<usize> = Vec::new();
        for (piece, range) in &places {
            let record = self.evidence.record_of(*piece, range.start);
            if self.values_of(record).iter().any(|s| value.said_by(&s.found.value)) {
                return None;
            }
            if self.fills_its_slot(*piece, range) && self.counts(record) && !records.contains(&record) {
                records.push(record);
            }
        }
        if records.is_empty() || records.len() > RECORDS {
            return None;
        }
        let wanted = self.wanted(raw, statement);
        let all = records.iter().flat_map(|record| self.values_of(*record));
        let held: Vec<&Seen> = all.filter(|s| self.could_be(value, s)).collect();
        let named = held
            .iter()
            .find(|s| s.slot.is_some_and(|slot| key_fits(&self.evidence.slots[slot].stems, &wanted)));
        let seen = named.or(held.first())?;
        let key = seen.slot.map(|slot| self.evidence.slots[slot].key.clone());
        Some((key, self.quote(seen.piece, seen.found.range.clone())))
    }

    /// The label before a claim, or the one name of its statement that has several words.
    fn title_of(&self, raw: &Raw, statement: &Statement) -> Option<Range<usize>> {
        let label = statement.label.clone().filter(|label| label.end <= raw.range.start);
        label.filter(|l| self.words_in(l).iter().any(|w| !w.common && w.range().len() > 2))
    }

    /// Whether a phrase is all that its field holds.
    fn fills_its_slot(&self, piece: usize, range: &Range<usize>) -> bool {
        let slot = self.evidence.slot_of(piece, range.start).map(|s| &self.evidence.slots[s]);
        slot.is_some_and(|slot| {
            let text = self.evidence.pieces[piece].text[slot.value.clone()].trim();
            text.trim_matches(|c: char| "'\",{}[]".contains(c)).len() <= range.len() + 1
        })
    }

    /// Whether a value of a record could stand where a claim does: of its kind, all of its field, and no id.
    pub(super) fn could_be(&self, value: &Value, seen: &Seen) -> bool {
        let Some(slot) = seen.slot.map(|s| &self.evidence.slots[s]) else { return false };
        let id = slot.key == "id" || slot.key.ends_with(" id");
        let units = match (value, &seen.found.value) {
            (Value::Amount(a), Value::Amount(b)) => a.unit.is_none() || b.unit.is_none() || a.unit == b.unit,
            (a, b) => a.like(b),
        };
        let text = self.evidence.pieces[seen.piece].text[slot.value.clone()].trim();
        let whole = !matches!(value, Value::Amount(_))
            || text.trim_matches(|c: char| "'\",{}[]".contains(c)).len() <= seen.found.range.len();
        !id && units && whole
    }

    pub(super) fn values_of(&self, record: usize) -> &[Seen] {
        let from = self.evidence.seen.partition_point(|s| s.record < record);
        let len = self.evidence.seen[from..].partition_point(|s| s.record == record);
        &self.evidence.seen[from..from + len]
    }

    /// The id of what a call made is the one that the call gave back.
    pub(super) fn not_its_new_id(&self, raw: &Raw) -> Option<Instead> {
        let value = raw.value.as_ref().filter(|v| matches!(v, Value::Amount(_) | Value::Id(_)))?;
        let before = within(&self.answer.words, &(0..raw.range.start), |w| w.range().start);
        let id = before.last().is_some_and(|w| w.of(self.text).eq_ignore_ascii_case("id"));
        let deed =
            self.answer.claims.iter().filter(|c| c.kind == ClaimKind::Status && c.statement == raw.statement);
        let deed =
            deed.filter(|c| c.range.end <= raw.range.start).max_by_key(|c| c.range.end).filter(|_| id)?;
        let acts = status::doing(self.run, self.act, &self.text[deed.range.clone()]);
        let mut found = None;
        for seen in self.evidence.seen.iter().filter(|s| acts.contains(&self.evidence.pieces[s.piece].act)) {
            if value.said_by(&seen.found.value) {
                return None;
            }
            let key = seen.slot.map(|s| self.evidence.slots[s].key.as_str());
            let is_id = key.is_some_and(|key| key == "id" || key.ends_with(" id"));
            if is_id && self.evidence.pieces[seen.piece].source == Source::Read {
                found = found.or(Some(seen));
            }
        }
        let seen = found?;
        Some((Some("id".into()), self.quote(seen.piece, seen.found.range.clone())))
    }

    /// Of two values that the user named in two sentences, the one whose sentence this statement answers less.
    pub(super) fn not_asked_here(&self, raw: &Raw, statement: &Statement) -> Option<Instead> {
        let value = raw.value.as_ref().filter(|v| !matches!(v, Value::Amount(_) | Value::Weekday(_)))?;
        let user = self.evidence.pieces.iter().rposition(|p| p.source == Source::User && p.act < self.act)?;
        let own: Vec<u64> = self
            .words_in(&statement.range)
            .iter()
            .filter(|w| !w.common && !w.digits)
            .map(|w| w.stem)
            .collect();
        let others =
            self.answer.claims.iter().filter(|c| c.statement == raw.statement && c.range != raw.range);
        if own.is_empty() || others.filter_map(|c| c.value.as_ref()).any(|v| v.like(value)) {
            return None;
        }
        let piece = &self.evidence.pieces[user];
        let told: Vec<&Seen> =
            self.evidence.seen.iter().filter(|s| s.piece == user && value.like(&s.found.value)).collect();
        let share = |segment: usize| {
            let from = self.evidence.segments[segment].1;
            let to = self
                .evidence
                .segments
                .get(segment + 1)
                .filter(|s| s.0 == user)
                .map_or(piece.text.len(), |s| s.1);
            let mut stems: Vec<u64> = within(&piece.words, &(from..to), |w| w.range().start)
                .iter()
                .filter(|w| !w.common && !w.digits)
                .map(|w| w.stem)
                .collect();
            stems.sort_unstable();
            stems.dedup();
            stems.iter().filter(|stem| own.contains(stem)).count()
        };
        let (mut mine, mut best) = (None, (0, None));
        for seen in told.iter().take(SENTENCES) {
            let shared = share(seen.segment);
            if value.said_by(&seen.found.value) {
                mine = mine.max(Some(shared));
            } else if shared > best.0 {
                best = (shared, Some(seen));
            }
        }
        let seen = best.1.filter(|_| mine.is_some_and(|mine| best.0 > mine))?;
        Some((None, self.quote(seen.piece, seen.found.range.clone())))
    }
}
