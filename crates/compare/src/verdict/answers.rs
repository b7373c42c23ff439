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

/// Words with a digit in them, and numbers in one notation. What numbers a list is no value.
fn values(text: &str) -> impl Iterator<Item = String> {
    text.lines().flat_map(|line| values_of(unlisted(line)))
}

/// A line without the `3.` or `3)` that it begins with.
fn unlisted(line: &str) -> &str {
    let body = line.trim_start_matches([' ', '\t', '*', '#', '>', '-']);
    let digits = body.bytes().take_while(u8::is_ascii_digit).count();
    let rest = &body[digits..];
    let marks = (1..=3).contains(&digits) && rest.starts_with(['.', ')']);
    if marks && rest[1..].starts_with([' ', '*']) { &rest[1..] } else { line }
}

fn values_of(text: &str) -> impl Iterator<Item = String> {
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
        let listed: Vec<_> = values("1. 2 bags\n  **2.** 3 seats\n3) row 7\n4.5 hours\n12").collect();
        assert_eq!(listed, ["2", "3", "7", "4.5", "12"]);
    }
}
