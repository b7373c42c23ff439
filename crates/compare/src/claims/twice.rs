//! The same named twice in one breath: `Dora and Dora`, `Alice, Bob and Alice`; or two sums of one thing, `Gifts: $90 total` and
//! `$70 on gifts`. Whatever was meant, one of the two is wrong.

use super::extract::Raw;
use super::link::Judge;
use super::report::{ClaimKind, Why};
use super::scan::Value;
use super::words::Word;

impl Judge<'_> {
    /// Where the same is said once more among the items that a claim is enumerated with.
    pub(super) fn said_twice(&self, raw: &Raw) -> Option<std::ops::Range<usize>> {
        let listed = |c: &Raw| {
            c.kind == ClaimKind::Name
                || matches!(
                    c.value,
                    Some(Value::Email(_) | Value::Url(_) | Value::Id(_) | Value::Time(_) | Value::Date(_))
                )
        };
        if !listed(raw) {
            return None;
        }
        let mut items: Vec<&Raw> =
            self.answer.claims.iter().filter(|c| c.statement == raw.statement && listed(c)).collect();
        items.sort_by_key(|c| c.range.start);
        let own = items.iter().position(|c| c.range == raw.range)?;
        let joins = |a: &Raw, b: &Raw| self.text.get(a.range.end..b.range.start).is_some_and(joins);
        let from =
            (1..=own).rev().take_while(|at| joins(items[at - 1], items[*at])).last().map_or(own, |at| at - 1);
        let to =
            (own + 1..items.len()).take_while(|at| joins(items[at - 1], items[*at])).last().unwrap_or(own);
        let same = |c: &&&Raw| c.range != raw.range && self.says_the_same(c, raw);
        items[from..=to].iter().find(same).map(|c| c.range.clone())
    }

    /// Another sum that the answer tells of the same thing, where both are called totals.
    pub(super) fn summed_otherwise(&self, raw: &Raw) -> Option<Why> {
        let of = self.summed(raw)?;
        let mut others = self
            .answer
            .claims
            .iter()
            .filter(|c| c.range != raw.range && self.summed(c).is_some_and(|w| w.stem == of.stem));
        let other = others.next().filter(|_| others.next().is_none())?;
        let wants = format!(
            "the sum that it tells of `{}` elsewhere, `{}`,",
            of.of(self.text),
            &self.text[other.range.clone()]
        );
        let beside = vec![self.own_words(&other.range)];
        (raw.value != other.value).then_some(Why::Misfit { wants, found: None, beside })
    }

    /// What a sum of money is the total of: `Gifts: $90 total`, or "in total you spent:" and `$90 on gifts`.
    fn summed(&self, raw: &Raw) -> Option<&Word> {
        let statement = &self.answer.statements[raw.statement];
        let said = self.words_in(&statement.range);
        let lead = statement.under.last().map(|range| self.words_in(range)).unwrap_or_default();
        let is = |w: &Word, word: &str| w.of(self.text).eq_ignore_ascii_case(word);
        if raw.kind != ClaimKind::Money || !said.iter().chain(lead).any(|w| is(w, "total")) {
            return None;
        }
        let after = &said[said.partition_point(|w| w.range().start < raw.range.end)..];
        let label = statement.label.as_ref().map(|range| self.words_in(range));
        match (label, after) {
            (_, [on, of]) if (is(on, "on") || is(on, "for")) && !of.common => Some(of),
            (Some([of]), _) if !of.common && !is(of, "total") => Some(of),
            _ => None,
        }
    }

    fn says_the_same(&self, a: &Raw, b: &Raw) -> bool {
        match (&a.value, &b.value) {
            (Some(a), Some(b)) => a == b,
            (None, None) => self.text[a.range.clone()].eq_ignore_ascii_case(&self.text[b.range.clone()]),
            _ => false,
        }
    }
}

/// Nothing but what stands between the items of an enumeration.
fn joins(between: &str) -> bool {
    let words = between.split(|c: char| c.is_whitespace() || ",*'\"`".contains(c)).filter(|w| !w.is_empty());
    between.len() <= 12
        && !between.contains('\n')
        && words.clone().all(|w| ["and", "or", "&"].contains(&w))
        && (between.contains(',') || words.count() == 1)
}
