//! What is said in one breath belongs together. If all but one of the values of an item were read in one record, that record
//! has the one that was meant; and what grew "by" is the difference of "from" and "to".

use super::answer::Statement;
use super::context::Instead;
use super::evidence::Seen;
use super::extract::{Raw, within};
use super::link::Judge;
use super::report::{ClaimKind, Why};
use super::scan::Value;

/// Claims of an item besides the one in question that have to be read in the record, and claims that are asked.
const LEAST: usize = 2;
const MOST: usize = 24;
/// A claim that was read in more records than this binds nothing.
const SPREAD: usize = 12;

impl Judge<'_> {
    /// The value of the record that everything else of the item was read in.
    pub(super) fn odd_one_out(&self, raw: &Raw, statement: &Statement) -> Option<Instead> {
        let value = raw.value.as_ref().filter(|v| !matches!(v, Value::Weekday(_)))?;
        let here = |c: &Raw| c.statement == raw.statement;
        let block = |c: &Raw| here(c) || statement.block.contains(&c.range.start);
        self.odd_one(raw, value, &block).or_else(|| self.odd_one(raw, value, &here))
    }

    /// The same of the claims of one unit of an answer.
    fn odd_one(&self, raw: &Raw, value: &Value, unit: &dyn Fn(&Raw) -> bool) -> Option<Instead> {
        let claims = &self.answer.claims;
        let own = claims.iter().position(|c| c.range == raw.range)?;
        let beside: Vec<usize> = (0..claims.len())
            .filter(|at| *at != own && unit(&claims[*at]) && claims[*at].kind != ClaimKind::Status)
            .filter(|at| claims[*at].value.as_ref().is_none_or(|v| v != value))
            .take(MOST)
            .collect();
        let homes = |at: usize| {
            let mut homes: Vec<usize> =
                self.homes[at].iter().map(|h| h.0).filter(|r| self.counts(*r)).collect();
            homes.sort_unstable();
            homes.dedup();
            homes
        };
        let placed: Vec<Vec<usize>> = beside.iter().map(|at| homes(*at)).filter(|h| !h.is_empty()).collect();
        let mut all: Vec<usize> = placed.iter().filter(|h| h.len() <= SPREAD).flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        let votes = |record: usize| placed.iter().filter(|h| h.contains(&record)).count();
        let best =
            all.iter().map(|r| votes(*r)).max().filter(|best| *best >= LEAST && *best == placed.len())?;
        // where two records have it all, neither is the one
        let mut records = all.into_iter().filter(|r| votes(*r) == best);
        let record = records.next().filter(|_| records.next().is_none())?;
        if self.homes[own].iter().any(|h| h.0 == record) {
            return None;
        }
        let said = |seen: &Seen| {
            beside.iter().filter_map(|at| claims[*at].value.as_ref()).any(|v| v.said_by(&seen.found.value))
        };
        let mut held = self.values_of(record).iter().filter(|s| self.could_be(value, s) && !said(s));
        let seen = held.next()?;
        let key = seen.slot.map(|s| self.evidence.slots[s].key.clone());
        Some((key, self.quote(seen.piece, seen.found.range.clone())))
    }

    /// "increased by 100, from 1100 to 1200": of three numbers that do not add up one is wrong.
    pub(super) fn does_not_add_up(&self, raw: &Raw) -> Option<Why> {
        let amount = |c: &Raw| match &c.value {
            Some(Value::Amount(a)) => Some(a.value),
            _ => None,
        };
        let after = |c: &Raw, word: &str| {
            let before = within(&self.answer.words, &(0..c.range.start), |w| w.range().start);
            before.last().is_some_and(|w| w.of(self.text).eq_ignore_ascii_case(word))
        };
        let grows =
            ["increase", "increased", "increasing", "raised", "decreased", "decrease", "reduced", "lowered"];
        let statement = &self.answer.statements[raw.statement];
        let says = self
            .words_in(&statement.range)
            .iter()
            .any(|w| grows.iter().any(|g| w.of(self.text).eq_ignore_ascii_case(g)));
        let sole = |word: &str| {
            let mut all = self
                .answer
                .claims
                .iter()
                .filter(|c| c.statement == raw.statement && amount(c).is_some() && after(c, word));
            all.next().filter(|_| all.next().is_none())
        };
        let (by, from, to) = (sole("by")?, sole("from")?, sole("to")?);
        if !says || ![by, from, to].iter().any(|c| c.range == raw.range) {
            return None;
        }
        let (step, start, end) = (amount(by)?, amount(from)?, amount(to)?);
        let percent = by.kind == ClaimKind::Percent;
        let adds = ((end - start).abs() - step).abs() < 0.01;
        let wants = format!(
            "a number that adds up (by `{}`, from `{}` to `{}`)",
            &self.text[by.range.clone()],
            &self.text[from.range.clone()],
            &self.text[to.range.clone()]
        );
        let others = [by, from, to].into_iter().filter(|c| c.range != raw.range);
        let beside = others.map(|c| self.own_words(&c.range)).collect();
        (!adds && !percent).then_some(Why::Misfit { wants, found: None, beside })
    }
}
