//! What the user was told: numbers, ids and dates in the model's words. A value that every baseline tells and that the
//! user did not bring is part of the answer.

use cofferdam_model::{ActKind, Run};
use std::collections::BTreeSet;

/// What every one of these runs tells.
pub(super) fn common(bases: &[&Run]) -> BTreeSet<String> {
    let mut sets = bases.iter().map(|run| told(run));
    let first = sets.next().unwrap_or_default();
    sets.fold(first, |common, set| common.intersection(&set).cloned().collect())
}

/// What a run tells the user beyond what it was given.
pub(super) fn told(run: &Run) -> BTreeSet<String> {
    let of = |wanted: fn(ActKind) -> bool| {
        let acts = run.acts.iter().filter(move |act| wanted(act.kind));
        acts.flat_map(|act| values(&act.text)).collect::<BTreeSet<String>>()
    };
    let given = of(|kind| matches!(kind, ActKind::Told | ActKind::Instructed));
    let mut told = of(|kind| kind == ActKind::Said);
    told.retain(|value| !given.contains(value));
    told
}

/// Words with a digit in them, and numbers in one notation.
fn values(text: &str) -> impl Iterator<Item = String> {
    let kept = |c: char| c.is_alphanumeric() || matches!(c, '.' | ',' | '_' | '-' | ':' | '@');
    let words = text.split(move |c: char| !kept(c)).map(|word| word.trim_matches(['.', ',', '-', ':', '_']));
    words.filter(|word| word.bytes().any(|b| b.is_ascii_digit())).map(|word| {
        let bare = word.replace(',', "");
        bare.parse::<f64>().ok().filter(|n| n.is_finite()).map_or(bare, |number| number.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_in_many_notations() {
        let found: Vec<_> = values("It is $23,553.00 on 2024-05-20 (flight HAT136), no. 4.").collect();
        assert_eq!(found, ["23553", "2024-05-20", "HAT136", "4"]);
    }
}
