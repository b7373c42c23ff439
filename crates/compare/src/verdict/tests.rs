//! Sessions and suites, judged.

use super::*;
use crate::delta::sketch::run;
use crate::effects::Effects;
use cofferdam_model::Run;
use proptest::prelude::*;

fn judged(bases: &[&str], new: &str) -> Comparison {
    let bases: Vec<Run> = bases.iter().map(|line| run(line)).collect();
    let refs: Vec<&Run> = bases.iter().collect();
    judge(&refs, &run(new), &Effects::default(), &Thresholds::default(), Evidence::default())
}

fn check(bases: &[&str], new: &str, outcome: Outcome, first: &str) {
    let found = judged(bases, new).verdict;
    let code = found.reasons.first().map_or("", |reason| reason.code.as_str());
    assert_eq!((found.outcome, code), (outcome, first), "{bases:?} / {new}: {:#?}", found.reasons);
}

#[test]
fn effects_decide() {
    check(&["get_a send_b(1)"], "get_a send_b(1)", Outcome::Pass, "");
    check(&["get_a send_b(1)"], "get_c get_a send_b(1)", Outcome::Pass, "");
    check(&["get_a send_b(1)"], "get_a", Outcome::Fail, "effect-missing");
    check(&["get_a send_b(1)"], "get_a send_b(1)!", Outcome::Fail, "effect-failed");
    check(&["get_a"], "get_a delete_b(1)", Outcome::Fail, "effect-strange");
    check(&["get_a send_b(1)"], "get_a send_b(1) send_b(2)", Outcome::Fail, "effect-added");
    check(&["get_a send_b(1)"], "get_a send_b(2)", Outcome::Fail, "argument-changed");
}

#[test]
fn detours_retries_and_order_do_not() {
    check(&["send_a(1) send_b(2)"], "send_b(2) send_a(1)", Outcome::Pass, "");
    check(&["send_a(1)"], "send_a(2)! send_a(1)", Outcome::Pass, "effect-in-vain");
    check(&["book>r17x cancel(r17x)"], "book>r93y cancel(r93y)", Outcome::Pass, "");
    check(&["get_a"], "get_a transfer_to_human(1)", Outcome::Pass, "hand-over");
}

#[test]
fn the_set_of_baselines_tells_what_is_normal() {
    check(&["send_a(1)", "send_a(1) send_b"], "send_a(1) send_b", Outcome::Pass, "");
    check(&["send_a(1,x)", "send_a(1,y)"], "send_a(1,z)", Outcome::Pass, "");
    check(&["send_a(1,x)", "send_a(1,y)"], "send_a(2,z)", Outcome::Fail, "argument-changed");
    // The baselines are one effect apart, and so is this one: nobody can tell.
    check(&["send_a(1)", "send_a(1) send_b"], "send_a(1) send_c", Outcome::Review, "effect-strange");
    check(&[], "send_a(1)", Outcome::Review, "no-baseline");
    check(&["\"4x\" get_a", "\"4x\" get_b"], "\"6x\" get_a", Outcome::Review, "answer-missing");
}

#[test]
fn a_reason_says_what_to_look_at() {
    let found = judged(&["get_a pay(12,bob)"], "get_a pay(21,bob)").verdict;
    assert_eq!(found.reasons[0].text, "act 1 calls pay with another value: /p0 was 12 and is 21");
    assert_eq!(found.reasons[0].places[0].path.as_deref(), Some("/p0"));
    let found = judged(&["get_a"], "get_a delete_b(1)").verdict;
    let text = "act 1 changes something that no baseline did: delete_b({\"p0\":1}); no baseline (1) ever calls this tool";
    assert_eq!(found.reasons[0].text, text);
    let first = |bases: &[&str], new: &str| judged(bases, new).verdict.reasons[0].clone();
    let vain = first(&["send_a(1)"], "send_a(2)! send_a(1)");
    let text =
        "1 more attempt to change something failed than in any baseline; those of this run: send_a (act 0)";
    assert_eq!((vain.text.as_str(), vain.places[0].act), (text, 0));
    let over = first(&["get_a"], "get_a transfer_to_human(1)");
    let text = "the run hands the matter to a person (transfer_to_human, act 1), which no baseline does";
    assert_eq!((over.text.as_str(), over.places[0].act), (text, 1));
    let over = first(&["get_a transfer_to_human(1)"], "get_a");
    assert_eq!(over.text, "every baseline hands the matter to a person, and this run ends without");
}

#[test]
fn what_others_found_is_weighed_too() {
    let denied = Reason {
        scorer: crate::Scorer::Policy,
        code: "policy-denied".into(),
        rule: None,
        outcome: Outcome::Fail,
        weight: 1.0,
        text: "denied".into(),
        places: Vec::new(),
    };
    let base = run("get_a");
    let evidence = Evidence { reasons: vec![denied], ..Evidence::default() };
    let found = judge(&[&base], &base, &Effects::default(), &Thresholds::default(), evidence);
    assert_eq!((found.verdict.outcome, found.verdict.reasons.len()), (Outcome::Fail, 1));
    let mut cut = run("get_a");
    cut.gaps.push("the head is missing".into());
    let found = judge(&[&base], &cut, &Effects::default(), &Thresholds::default(), Evidence::default());
    assert_eq!(found.verdict.outcome, Outcome::Review);
}

fn trials(line: &str) -> Vec<Trial> {
    let outcome = |c| match c {
        'p' => Outcome::Pass,
        'f' => Outcome::Fail,
        _ => Outcome::Review,
    };
    let words = line.split_whitespace().filter_map(|word| word.split_once('='));
    words
        .flat_map(|(name, tries)| {
            tries.chars().map(move |c| Trial { session: name.to_owned(), outcome: outcome(c) })
        })
        .collect()
}

fn suite(line: &str, share: f64, expected: Outcome, flaky: usize) {
    let thresholds = Thresholds { trials: share, ..Thresholds::default() };
    let found = aggregate(&trials(line), &thresholds);
    assert_eq!((found.outcome, found.flaky), (expected, flaky), "{line}: {found:#?}");
}

#[test]
fn a_suite_is_as_good_as_its_sessions() {
    suite("a=p b=p", 1.0, Outcome::Pass, 0);
    suite("a=p b=r", 1.0, Outcome::Review, 0);
    suite("a=p b=f", 1.0, Outcome::Fail, 0);
    suite("a=ppf", 1.0, Outcome::Fail, 1);
    suite("a=ppf", 0.6, Outcome::Pass, 1);
    suite("a=prf", 0.6, Outcome::Review, 1);
    suite("", 1.0, Outcome::Review, 0);
}

fn outcome_of(at: u8) -> Outcome {
    [Outcome::Pass, Outcome::Review, Outcome::Fail][usize::from(at)]
}

/// The same twice, the second time in another order.
fn in_two_orders<T: Clone + std::fmt::Debug>(
    one: impl Strategy<Value = T>,
    most: usize,
) -> impl Strategy<Value = (Vec<T>, Vec<T>)> {
    prop::collection::vec(one, 0..most).prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle()))
}

fn calls(most: usize) -> impl Strategy<Value = String> {
    let call = (0..3usize, 0..3u8, any::<bool>()).prop_map(|(tool, arg, failed)| {
        format!("{}({arg}){}", ["get_a", "send_b", "pay_c"][tool], if failed { "!" } else { "" })
    });
    prop::collection::vec(call, 0..most).prop_map(|calls| calls.join(" "))
}

proptest! {
    #[test]
    fn the_order_of_sessions_does_not_matter((tries, shuffled) in in_two_orders((0..4usize, 0..3u8), 20)) {
        let of = |(name, outcome): &(usize, u8)| Trial { session: name.to_string(), outcome: outcome_of(*outcome) };
        let all: Vec<Trial> = tries.iter().map(of).collect();
        let turned: Vec<Trial> = shuffled.iter().map(of).collect();
        let thresholds = Thresholds::default();
        prop_assert_eq!(aggregate(&all, &thresholds), aggregate(&turned, &thresholds));
    }

    #[test]
    fn the_order_of_baselines_does_not_matter((bases, shuffled) in in_two_orders(calls(5), 4), new in calls(6)) {
        let of = |bases: &[String]| {
            let found = judged(&bases.iter().map(String::as_str).collect::<Vec<_>>(), &new).verdict;
            (found.outcome, found.score)
        };
        prop_assert_eq!(of(&bases), of(&shuffled));
    }

    #[test]
    fn when_it_happened_does_not_matter(
        line in calls(8),
        clock in prop::collection::vec(any::<u64>(), 8),
        wall in any::<u64>(),
    ) {
        let base = run("get_a(1) send_b(1)");
        let new = run(&line);
        let mut later = new.clone();
        // in any order: a clock may go backwards
        later.acts.iter_mut().zip(clock).for_each(|(act, at)| act.at = at);
        later.spent.wall_us = wall;
        let of = |new: &Run| {
            judge(&[&base], new, &Effects::default(), &Thresholds::default(), Evidence::default()).verdict
        };
        prop_assert_eq!(of(&new), of(&later));
    }
}
