//! Superlatives: the largest, the latest. What a statement calls so must be so among the records that it is one of: if
//! another record that fits the statement as well has more (or less) in every column that could be meant, that is the one.

use super::about::About;
use super::answer::Statement;
use super::evidence::Seen;
use super::extract::Raw;
use super::link::{Hit, Judge};
use super::report::Quoted;
use super::scan::Value;
use super::words::hash_of;
use std::sync::LazyLock;

/// Fewer items than this make no superlative.
const LEAST_ITEMS: usize = 3;

type Words = LazyLock<Vec<u64>>;

static MOST: Words = LazyLock::new(|| {
    hashes(&["largest", "biggest", "highest", "longest", "greatest", "newest", "latest", "maximum"])
});
static LEAST: Words = LazyLock::new(|| {
    hashes(&["smallest", "lowest", "shortest", "cheapest", "fewest", "oldest", "earliest", "minimum"])
});
/// Those that are about time.
static TIMES: Words = LazyLock::new(|| hashes(&["newest", "latest", "oldest", "earliest"]));

impl Judge<'_> {
    /// For a claim of a statement with a superlative: what it should be instead.
    pub(super) fn not_the_most(
        &self,
        raw: &Raw,
        statement: &Statement,
        hits: &[Hit],
        about: &About,
    ) -> Option<(Option<String>, Quoted)> {
        let said = |list: &Words| self.says_one_of(statement, list);
        let (most, least) = (said(&MOST), said(&LEAST));
        // two of a kind in one statement are a comparison, and either may be meant
        let rivals = self.answer.claims.iter().filter(|c| c.statement == raw.statement && c.kind == raw.kind);
        if most == least || rivals.count() > 1 {
            return None;
        }
        let mut found = None;
        for hit in hits.iter().filter(|h| self.is_fact(h.piece)) {
            let slot = hit.slot?;
            let verdict = self.extreme_of(hit, (most, said(&TIMES)), about)?;
            let other = verdict?;
            let key = &self.evidence.slots[slot].key;
            let there = self.evidence.slots_in(other).iter().find(|s| s.key == *key)?;
            let text = &self.evidence.pieces[hit.piece].text[there.value.clone()];
            let held = text.trim();
            let from = there.value.start + (text.len() - text.trim_start().len());
            if held.is_empty() || held.len() > 80 {
                return None;
            }
            found.get_or_insert_with(|| (Some(key.clone()), self.quote(hit.piece, from..from + held.len())));
        }
        found
    }

    /// Whether a statement calls something the most of its list, and it is: then nothing else was meant.
    pub(super) fn is_the_most(&self, statement: &Statement, hits: &[Hit], about: &About) -> bool {
        let (most, least) = (self.says_one_of(statement, &MOST), self.says_one_of(statement, &LEAST));
        let timed = self.says_one_of(statement, &TIMES);
        let facts = || hits.iter().filter(|h| self.is_fact(h.piece) && h.slot.is_some());
        most != least && facts().any(|hit| self.extreme_of(hit, (most, timed), about) == Some(None))
    }

    fn says_one_of(&self, statement: &Statement, list: &Words) -> bool {
        self.words_in(&statement.range).iter().any(|w| list.contains(&w.exact))
    }

    /// Nothing, if its list has no column to be the most of; else the record that has more than this one, if any has.
    fn extreme_of(&self, hit: &Hit, (most, timed): (bool, bool), about: &About) -> Option<Option<usize>> {
        let records = self.evidence.pieces[hit.piece].records.clone();
        if records.len() < LEAST_ITEMS {
            return None;
        }
        let mut columns: Vec<(&str, Vec<(usize, f64)>)> = Vec::new();
        for seen in self.evidence.seen.iter().filter(|s| s.piece == hit.piece) {
            let Some(at) = seen.slot else { continue };
            let key = self.evidence.slots[at].key.as_str();
            let Some(value) = measure(seen, timed).filter(|_| key != "id" && !key.ends_with(" id")) else {
                continue;
            };
            match columns.iter_mut().find(|(k, _)| *k == key) {
                Some((_, rows)) if rows.last().is_some_and(|(r, _)| *r == seen.record) => {}
                Some((_, rows)) => rows.push((seen.record, value)),
                None => columns.push((key, vec![(seen.record, value)])),
            }
        }
        columns.retain(|(_, rows)| {
            rows.len() * 3 >= records.len() * 2 && rows.iter().any(|(record, _)| *record == hit.record)
        });
        let mut ahead = None;
        for (_, rows) in &columns {
            let mine = rows.iter().find(|(record, _)| *record == hit.record)?.1;
            let fits = about.of(hit.record) * 0.8;
            let beats = |(record, value): &&(usize, f64)| {
                about.of(*record) >= fits && if most { *value > mine } else { *value < mine }
            };
            match rows.iter().filter(beats).max_by(|a, b| {
                let order = a.1.total_cmp(&b.1);
                if most { order } else { order.reverse() }
            }) {
                None => return Some(None),
                Some((record, _)) => ahead = ahead.or(Some(*record)),
            }
        }
        ahead.map(Some)
    }
}

fn hashes(words: &[&str]) -> Vec<u64> {
    words.iter().map(|word| hash_of(word)).collect()
}

fn measure(seen: &Seen, timed: bool) -> Option<f64> {
    match &seen.found.value {
        Value::Amount(amount) if !timed => Some(amount.value),
        Value::Date(date) if timed => {
            let (year, month, day) = (date.year?, date.month?, date.day?);
            Some(f64::from(year) * 372.0 + f64::from(month) * 31.0 + f64::from(day))
        }
        _ => None,
    }
}
