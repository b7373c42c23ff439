//! Of what a value is said: the label before it, the name or title beside it, the item it stands under, each looked up word
//! for word in what was read. Where the line or the record of that subject has one value of the kind, and it is another
//! one, that was meant; and so it is where the noun before the value is a key there ("a size of 15 bytes", "ID: 4").

use super::answer::Statement;
use super::context::Instead;
use super::evidence::{Seen, Source};
use super::extract::{Raw, within};
use super::fit::{ENDS, STARTS, begins_with};
use super::link::{Hit, Judge};
use super::report::ClaimKind;
use super::scan::Value;
use super::words::Word;
use std::ops::Range;

/// Words that a subject may have, and places where one is looked up.
const LONGEST: usize = 8;
const PLACES: usize = 24;
/// Words before a value among which its noun is.
const BEFORE: usize = 4;
/// A line that is longer than this tells of more than one thing.
const LINE: usize = 300;
/// Words of a heading at most.
const HEADING: usize = 14;
/// Words that say that a time is an end.
const ENDINGS: [&str; 12] = [
    "end", "ends", "ending", "until", "till", "finish", "finishes", "by", "deadline", "due", "over", "after",
];

impl Judge<'_> {
    /// Another value than the claim's, in the line or under the key that its subject has, and whether the subject is somebody
    /// with a full name, so that it is believed whatever else fits.
    pub(super) fn not_of_its_subject(&self, raw: &Raw, statement: &Statement) -> Option<(Instead, bool)> {
        let value = raw.value.as_ref().filter(|v| !matches!(v, Value::Weekday(_)))?;
        for phrase in self.subjects(raw, statement) {
            let words: Vec<u64> = self.words_in(&phrase).iter().map(|w| w.exact).collect();
            if words.is_empty() || words.len() > LONGEST {
                continue;
            }
            let mut places = self.evidence.phrase(&words, self.act, PLACES);
            places.retain(|(piece, _)| {
                self.evidence.pieces[*piece].source == Source::Read || self.evidence.pieces[*piece].done
            });
            if places.is_empty() {
                continue;
            }
            let sole = self.is_sole(raw, value) && (words.len() > 1 || self.is_whole(&places));
            let full = words.len() > 1 && self.words_in(&phrase).iter().all(|w| w.upper && !w.digits);
            let line = || self.in_the_line(value, &places).filter(|_| sole);
            return self
                .under_the_noun(raw, statement, value, &places)
                .map(|found| (found, false))
                .or_else(|| line().map(|found| (found, full)));
        }
        None
    }

    fn subjects(&self, raw: &Raw, statement: &Statement) -> Vec<Range<usize>> {
        let apart = |r: &Range<usize>| r.end <= raw.range.start || r.start >= raw.range.end;
        let telling = |r: &Range<usize>| self.words_in(r).iter().any(|w| !w.common && w.range().len() > 2);
        let worded = |c: &&Raw| {
            matches!(c.kind, ClaimKind::Name | ClaimKind::Quote | ClaimKind::Id | ClaimKind::Email)
                && c.statement == raw.statement
                && apart(&c.range)
        };
        let claims = || self.answer.claims.iter().filter(worded);
        let before = claims().filter(|c| c.range.end <= raw.range.start).max_by_key(|c| c.range.end);
        let after = claims().filter(|c| c.range.start >= raw.range.end).min_by_key(|c| c.range.start);
        let beside = before.or(after).map(|c| c.range.clone());
        let head = statement.under.last().filter(|r| apart(r)).cloned();
        let label = statement.label.clone().filter(|l| apart(l));
        label.into_iter().chain(beside).chain(head).filter(telling).collect()
    }

    /// Whether a statement has no other claim of the kind.
    fn is_sole(&self, raw: &Raw, value: &Value) -> bool {
        let here = self.answer.claims.iter().filter(|c| c.statement == raw.statement && c.range != raw.range);
        here.filter_map(|c| c.value.as_ref()).all(|v| !v.like(value))
    }

    /// Whether a single word is all that a slot holds, somewhere.
    fn is_whole(&self, places: &[(usize, Range<usize>)]) -> bool {
        places.iter().any(|(piece, range)| {
            let slot = self.evidence.slot_of(*piece, range.start).map(|s| &self.evidence.slots[s]);
            slot.is_some_and(|s| {
                self.evidence.pieces[*piece].text[s.value.clone()].trim().len() <= range.len() + 2
            })
        })
    }

    /// The key that the noun before the value names, in the records of the subject.
    fn under_the_noun(
        &self,
        raw: &Raw,
        statement: &Statement,
        value: &Value,
        places: &[(usize, Range<usize>)],
    ) -> Option<Instead> {
        let own = within(&self.answer.words, &(statement.range.start..raw.range.start), |w| w.range().start);
        let clause = |w: &&Word| !self.text[w.range().end..raw.range.start].contains([',', ';', ')', '(']);
        let near = own.iter().rev().take(BEFORE).take_while(|w| !w.digits).take_while(clause);
        let noun = near.into_iter().find(|w| !w.common)?.stem;
        let mut found = None;
        for (piece, range) in places {
            let record = self.evidence.record_of(*piece, range.start);
            for seen in self.seen_in(record) {
                if value.said_by(&seen.found.value) {
                    return None;
                }
                let key = seen.slot.map(|s| &self.evidence.slots[s]).filter(|s| s.stems.contains(&noun));
                if let Some(slot) = key.filter(|_| found.is_none() && comparable(value, &seen.found.value)) {
                    found = Some((Some(slot.key.clone()), self.quote(*piece, seen.found.range.clone())));
                }
            }
        }
        found
    }

    /// The one value of the kind in the lines that hold the subject.
    fn in_the_line(&self, value: &Value, places: &[(usize, Range<usize>)]) -> Option<Instead> {
        let mut found: Option<&Seen> = None;
        for (piece, range) in places {
            let line = self.evidence.segment_of(*piece, range.start);
            let record = self.evidence.record_of(*piece, range.start);
            let inside: Vec<&Seen> = self.seen_in(record).iter().filter(|s| s.segment == line).collect();
            let (from, to) = match (inside.first(), inside.last()) {
                (Some(a), Some(b)) => {
                    (a.found.range.start.min(range.start), b.found.range.end.max(range.end))
                }
                _ => continue,
            };
            if inside.iter().any(|s| value.said_by(&s.found.value)) || to - from > LINE {
                return None;
            }
            let apart = |s: &&&Seen| s.found.range.end <= range.start || s.found.range.start >= range.end;
            for seen in inside.iter().filter(apart).filter(|s| comparable(value, &s.found.value)) {
                if found.is_some_and(|f| f.same != seen.same) {
                    return None;
                }
                found = Some(seen);
            }
        }
        let seen = found?;
        Some((None, self.quote(seen.piece, seen.found.range.clone())))
    }

    /// The values of a record, in order.
    fn seen_in(&self, record: usize) -> &[Seen] {
        let from = self.evidence.seen.partition_point(|s| s.record < record);
        let len = self.evidence.seen[from..].partition_point(|s| s.record == record);
        &self.evidence.seen[from..from + len]
    }

    /// A date in a heading that none of the records told of below has, where they all have another.
    pub(super) fn not_of_its_items(&self, raw: &Raw) -> Option<Instead> {
        let value = raw.value.as_ref().filter(|v| matches!(v, Value::Date(_)))?;
        if self.words_in(&self.answer.statements[raw.statement].range).len() > HEADING {
            return None;
        }
        let below = self.answer.statements.iter().enumerate().filter(|(at, s)| {
            *at != raw.statement && s.under.iter().any(|head| head.contains(&raw.range.start))
        });
        let mut found: Option<&Seen> = None;
        for record in below.filter_map(|(at, _)| self.binding.told[at]) {
            let mut dates =
                self.seen_in(record).iter().filter(|s| comparable(value, &s.found.value)).peekable();
            let first = *dates.peek()?;
            if dates.any(|s| value.said_by(&s.found.value)) {
                return None;
            }
            found = found.or(Some(first).filter(|s| self.counts(s.record)));
        }
        let seen = found?;
        let key = seen.slot.map(|s| self.evidence.slots[s].key.clone());
        Some((key, self.quote(seen.piece, seen.found.range.clone())))
    }

    /// A time of which nothing says that it is an end, and which was only read as one.
    pub(super) fn not_its_start(&self, raw: &Raw, statement: &Statement, hits: &[Hit]) -> Option<Instead> {
        let value = raw.value.as_ref().filter(|v| matches!(v, Value::Time(_)) && raw.side.is_none())?;
        let words = self.words_in(&statement.range);
        if words.iter().any(|w| ENDINGS.iter().any(|e| w.of(self.text).eq_ignore_ascii_case(e))) {
            return None;
        }
        let ends = |h: &Hit| h.slot.is_some_and(|s| begins_with(&self.evidence.slots[s].key, &ENDS));
        let home = hits.first().filter(|_| hits.iter().all(ends))?;
        let starts = |s: &&Seen| s.slot.is_some_and(|at| begins_with(&self.evidence.slots[at].key, &STARTS));
        let mut all = self.seen_in(home.record).iter().filter(|s| comparable(value, &s.found.value));
        let start = all.find(|s| starts(s) && self.counts(s.record))?;
        let said = self.answer.claims.iter().filter(|c| statement.block.contains(&c.range.start));
        if said.filter_map(|c| c.value.as_ref()).any(|v| v.said_by(&start.found.value)) {
            return None;
        }
        let key = start.slot.map(|s| self.evidence.slots[s].key.clone());
        Some((key, self.quote(start.piece, start.found.range.clone())))
    }
}

/// Of one kind, and for amounts of one unit.
fn comparable(said: &Value, read: &Value) -> bool {
    match (said, read) {
        (Value::Amount(a), Value::Amount(b)) => a.unit.is_none() || b.unit.is_none() || a.unit == b.unit,
        (a, b) => a.like(b),
    }
}
