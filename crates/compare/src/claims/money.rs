//! Money without a sign. `paid 3` is no id and no part of a name, whatever else was read as 3: it has to be a field that is all
//! number, or stand in a text that speaks of money.

use super::amount::Unit;
use super::cue;
use super::evidence::Source;
use super::extract::{Raw, within};
use super::link::{Hit, Judge};
use super::scan::Value;

impl Judge<'_> {
    /// Whether a bare number is said to be money: `paid 3`, `the amount was 10.0`.
    pub(super) fn is_paid(&self, raw: &Raw) -> bool {
        let bare = matches!(&raw.value, Some(Value::Amount(amount)) if amount.unit.is_none());
        let before = within(&self.answer.words, &(0..raw.range.start), |w| w.range().start);
        let mut near =
            before.iter().rev().take(3).skip_while(|w| w.common && cue::of_word(w) & cue::PAID == 0);
        let label = self.answer.statements[raw.statement].label.as_ref().filter(|l| l.end <= raw.range.start);
        let labelled = label.is_some_and(|l| cue::of_key(&self.text[l.clone()]) & cue::PAID != 0);
        bare && !self.counts_a_noun(raw)
            && (labelled || near.next().is_some_and(|word| cue::of_word(word) & cue::PAID != 0))
    }

    /// Whether what was read there may be money: a field that is all number, or a text that speaks of money.
    pub(super) fn is_money(&self, hit: &Hit) -> bool {
        let piece = &self.evidence.pieces[hit.piece];
        let from = self
            .evidence
            .seen
            .partition_point(|s| (s.piece, s.found.range.start) < (hit.piece, hit.range.start));
        let Some(seen) = self.evidence.seen.get(from) else { return true };
        let unit = matches!(&seen.found.value, Value::Amount(a) if matches!(a.unit, Some(Unit::Money(_))));
        let whole = hit.slot.is_some_and(|s| {
            let text = piece.text[self.evidence.slots[s].value.clone()].trim();
            text.trim_matches(|c: char| "'\",{}[]".contains(c)).len() <= hit.range.len()
        });
        let line = piece.text[..hit.range.start].rfind('\n').map_or(0, |n| n + 1)
            ..piece.text[hit.range.end..].find('\n').map_or(piece.text.len(), |n| hit.range.end + n);
        let words = within(&piece.words, &line, |w| w.range().start);
        unit || whole
            || piece.source != Source::Read
            || words.iter().any(|w| cue::of_word(w) & cue::PAID != 0)
    }
}
