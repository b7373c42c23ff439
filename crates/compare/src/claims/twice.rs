//! The same named twice in one breath: `Dora and Dora`, `Alice, Bob and Alice`. Whatever was meant, one of the two is wrong.

use super::extract::Raw;
use super::link::Judge;
use super::report::ClaimKind;
use super::scan::Value;

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
