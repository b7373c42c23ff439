//! The form that a place asks for. `10.0 transactions` counts nothing, `from early 50.0` names no year, an id has no fraction,
//! a size is no code, and what stands in brackets after a time is the same time.

use super::amount::{Unit, unit_of};
use super::context::Instead;
use super::evidence::Source;
use super::extract::{Raw, within};
use super::link::Judge;
use super::report::Why;
use super::scan::Value;
use super::words::Word;

/// What is counted in halves.
const MEASURES: [&str; 10] =
    ["stars", "points", "times", "dollars", "euros", "pounds", "units", "cups", "degrees", "bytes"];
const PLACES: usize = 60;
const YEARS: std::ops::RangeInclusive<f64> = 1900.0..=2100.0;

impl Judge<'_> {
    /// A number in a place that asks for another form of one.
    pub(super) fn not_its_form(&self, raw: &Raw) -> Option<Why> {
        let wants = match raw.value.as_ref()? {
            Value::Amount(amount) if amount.unit.is_none() => {
                let said = &self.text[raw.range.clone()];
                let zeros = said.rsplit_once('.').is_some_and(|(_, rest)| rest.bytes().all(|b| b == b'0'));
                if zeros && self.counts_a_noun(raw) {
                    "a whole number"
                } else if zeros
                    && self.word_before(raw).is_some_and(|w| w.of(self.text).eq_ignore_ascii_case("id"))
                {
                    "an id"
                } else if (said.contains('.') || !YEARS.contains(&amount.value)) && self.stands_for_year(raw)
                {
                    "a year"
                } else {
                    return None;
                }
            }
            Value::Id(code) if code.bytes().all(|b| b.is_ascii_digit()) && code.len() < 6 => {
                let unit = self.words_after(raw).first()?.of(self.text).to_ascii_lowercase();
                let measures = matches!(unit_of(&unit), Some((unit, _)) if unit != Unit::Percent);
                if !measures && !MEASURES.contains(&unit.as_str()) {
                    return None;
                }
                "a quantity"
            }
            _ => return None,
        };
        Some(Why::Misfit { wants: wants.into(), found: None, beside: Vec::new() })
    }

    pub(super) fn counts_a_noun(&self, raw: &Raw) -> bool {
        let after = self.text[raw.range.end..].trim_start_matches('*');
        let Some(noun) = self.words_after(raw).first().filter(|_| after.starts_with(' ')) else {
            return false;
        };
        let noun = noun.of(self.text);
        noun.len() > 3
            && noun.ends_with('s')
            && noun.starts_with(char::is_lowercase)
            && !MEASURES.contains(&noun)
    }

    /// Whether a number is written as a word.
    pub(super) fn is_spelled(&self, raw: &Raw) -> bool {
        matches!(raw.value, Some(Value::Amount(_)))
            && self.text[raw.range.clone()].starts_with(char::is_alphabetic)
    }

    /// "from early …", "since …," and "from … and not": a bare number after these is a year.
    fn stands_for_year(&self, raw: &Raw) -> bool {
        let words = within(&self.answer.words, &(0..raw.range.start), |w| w.range().start);
        let near: Vec<String> =
            words.iter().rev().take(3).map(|w| w.of(self.text).to_ascii_lowercase()).collect();
        let is = |at: usize, list: &[&str]| near.get(at).is_some_and(|w| list.contains(&w.as_str()));
        let touches = self.text[..raw.range.start].trim_end_matches('*').ends_with(' ');
        let after = self.text[raw.range.end..].trim_start_matches('*');
        let ends = after.is_empty()
            || after.starts_with(", ")
            || after.starts_with(['.', ';', '\n']) && !after[1..].starts_with(|c: char| c.is_ascii_digit())
            || after.starts_with(" and not");
        let early = is(0, &["early", "late", "mid"]) && is(1, &["from", "in", "since", "of"]);
        let edge = is(0, &["of"]) && is(1, &["beginning", "start", "end"]);
        let dated = is(0, &["from"])
            && is(1, &["are", "is", "actually", "still", "but", "transactions", "data", "only"]);
        touches && ends && (early || edge || dated)
    }

    /// A name where a weekday belongs: "on Mark, May 18th".
    pub(super) fn no_weekday(&self, raw: &Raw) -> Option<Why> {
        let [_] = self.words_in(&raw.range) else { return None };
        let next = self.answer.claims.iter().find(|c| c.range.start >= raw.range.end)?;
        let dated = matches!(next.value, Some(Value::Date(_)))
            && self.text.get(raw.range.end..next.range.start).is_some_and(|between| between == ", ");
        let words = within(&self.answer.words, &(0..raw.range.start), |w| w.range().start);
        let mut lead = words.iter().rev().map(|w| w.of(self.text).to_ascii_lowercase());
        let (last, before) = (lead.next()?, lead.next().unwrap_or_default());
        let set = ["scheduled", "planned", "set", "booked"].contains(&before.as_str());
        let day = last == "on" || last == "for" && set;
        (raw.kind == super::report::ClaimKind::Name && dated && day).then(|| Why::Misfit {
            wants: "a weekday".into(),
            found: None,
            beside: Vec::new(),
        })
    }

    fn word_before(&self, raw: &Raw) -> Option<&Word> {
        within(&self.answer.words, &(0..raw.range.start), |w| w.range().start).last()
    }

    /// The words right after a claim in its line.
    pub(super) fn words_after(&self, raw: &Raw) -> &[Word] {
        let rest = &self.text[raw.range.end..];
        let line = raw.range.end..raw.range.end + rest.find('\n').unwrap_or(rest.len());
        within(&self.answer.words, &line, |w| w.range().start)
    }

    /// Another number of the same things: `3 cups flour` was read, and `1 cup flour` never was.
    pub(super) fn counted_otherwise(&self, raw: &Raw) -> Option<Instead> {
        let number = match raw.value.as_ref()? {
            Value::Amount(amount) => amount.unit.is_none(),
            Value::Id(code) => code.bytes().all(|b| b.is_ascii_digit()),
            _ => false,
        };
        let [own] = self.words_in(&raw.range) else { return None };
        if !number || !own.digits || !self.text[raw.range.end..].starts_with([' ', '*']) {
            return None;
        }
        let after = self.words_after(raw);
        for long in (1..=3).rev() {
            let Some(nouns) = after
                .get(..long)
                .filter(|nouns| nouns.iter().any(|w| !w.common && !w.digits && w.range().len() > 2))
            else {
                continue;
            };
            let end = nouns.last()?.range().end;
            if self.text[raw.range.end..end].contains(['.', ';', ':', '(', ',']) {
                continue;
            }
            let pattern: Vec<Option<&Word>> = std::iter::once(None).chain(nouns.iter().map(Some)).collect();
            let mut found = None;
            for (piece, at) in self.evidence.around(&pattern, self.act, PLACES) {
                let held = &self.evidence.pieces[piece];
                let (number, noun) = (&held.words[at], &held.words[at + 1]);
                let close = &held.text[number.range().end..noun.range().start] == " ";
                if !number.digits || !close || number.of(&held.text).contains(char::is_alphabetic) {
                    continue;
                }
                if number.exact == own.exact {
                    return None;
                }
                let read = held.source == Source::Read;
                found = found.or_else(|| read.then(|| self.quote(piece, number.range())));
            }
            if let Some(found) = found {
                return Some((None, found));
            }
        }
        None
    }

    /// `17:00 (5:00 PM)`: a time in brackets after a time is the same one.
    pub(super) fn not_the_same_time(&self, raw: &Raw) -> Option<Why> {
        let time = |c: &&Raw| matches!(c.value, Some(Value::Time(_)));
        let here = self.answer.claims.iter().filter(|c| c.statement == raw.statement).filter(time);
        let all: Vec<&Raw> = here.collect();
        let at = all.iter().position(|c| c.range == raw.range)?;
        let bracketed = |a: &Raw, b: &Raw| {
            self.text.get(a.range.end..b.range.start).is_some_and(|between| between.trim_matches('*') == " (")
                && self.text[b.range.end..].starts_with(')')
        };
        let beside = match (at.checked_sub(1).map(|b| all[b]), all.get(at + 1)) {
            (Some(before), _) if bracketed(before, raw) => before,
            (_, Some(after)) if bracketed(raw, after) => after,
            _ => return None,
        };
        let (mine, theirs) = (raw.value.as_ref()?, beside.value.as_ref()?);
        let same = mine.said_by(theirs) || theirs.said_by(mine);
        (!same).then(|| Why::Misfit {
            wants: format!("the same time as `{}`", &self.text[beside.range.clone()]),
            found: None,
            beside: vec![self.own_words(&beside.range)],
        })
    }
}
