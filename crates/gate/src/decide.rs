//! The verdict of a suite, from the attempts at its sessions.

use crate::{Counts, Rates, SessionVerdict, Sessions};
use cofferdam_compare::Outcome;
use cofferdam_compare::verdict::{Aggregate, Share, Thresholds, Trial, aggregate};

/// A suite, decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub outcome: Outcome,
    pub why: Vec<String>,
    pub counts: Counts,
    pub rates: Rates,
}

/// Gives every session its outcome over all its attempts, and the suite its own. Nothing that was run is never a pass.
pub fn decide(sessions: &mut Sessions, thresholds: &Thresholds) -> Decision {
    let mut trials = Vec::with_capacity(sessions.len());
    for session in sessions.iter() {
        let outcomes: Vec<Outcome> = match session.attempts.is_empty() {
            true => vec![session.outcome],
            false => session.attempts.iter().map(|attempt| attempt.outcome).collect(),
        };
        trials.extend(outcomes.into_iter().map(|outcome| Trial { session: session.id.clone(), outcome }));
    }
    let Aggregate { outcome, passed, failed, reviewed, sessions: kept, reasons, .. } =
        aggregate(&trials, thresholds);
    drop(trials);
    let of =
        |id: &str| kept.binary_search_by(|one| one.session.as_str().cmp(id)).ok().map(|at| kept[at].outcome);
    if sessions.outcomes().any(|(id, outcome)| of(id).is_some_and(|decided| decided != outcome)) {
        *sessions = sessions
            .iter()
            .map(|session| SessionVerdict { outcome: of(&session.id).unwrap_or(session.outcome), ..session })
            .collect();
    }
    let flaky = sessions.count_flaky();
    let mut why = reasons;
    if flaky > 0 {
        why.push(format!("{flaky} of {} sessions pass on some attempts and not on others", sessions.len()));
    }
    if why.is_empty() {
        why.push(format!("all {} sessions pass", sessions.len()));
    }
    let counts = Counts {
        sessions: sessions.len() as u64,
        pass: passed.hits as u64,
        review: reviewed.hits as u64,
        fail: failed.hits as u64,
        flaky: flaky as u64,
    };
    let rates = Rates { passed: told(passed), failed: told(failed), reviewed: told(reviewed) };
    Decision { outcome, why, counts, rates }
}

/// To four places: more would pretend to more than an interval can tell, and would not read back the same.
fn told(share: Share) -> Share {
    let short = |number: f64| (number * 1e4).round() / 1e4;
    Share { low: short(share.low), high: short(share.high), ..share }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Attempt, Input};
    use proptest::prelude::*;

    pub(crate) fn session(id: &str, outcomes: &[Outcome]) -> SessionVerdict {
        let attempt = |outcome: &Outcome| Attempt {
            outcome: *outcome,
            trace: None,
            exit: None,
            tier: None,
            enforcement: None,
            wall_us: 0,
        };
        SessionVerdict {
            id: id.into(),
            outcome: outcomes.iter().copied().max().unwrap_or(Outcome::Review),
            score: 0.0,
            reasons: vec![],
            input: Input::default(),
            baselines: vec![],
            attempts: outcomes.iter().map(attempt).collect(),
            told: 0,
            base: None,
            new: None,
            scores: Vec::new(),
            asked: None,
            reproduce: vec![],
        }
    }

    fn check(attempts: &[&[Outcome]], thresholds: &Thresholds, expected: Outcome, why: &str) {
        let mut sessions: Sessions =
            attempts.iter().enumerate().map(|(at, outcomes)| session(&format!("s{at}"), outcomes)).collect();
        let decision = decide(&mut sessions, thresholds);
        assert_eq!(decision.outcome, expected, "{decision:?}");
        assert!(decision.why.iter().any(|line| line.contains(why)), "{decision:?}");
        assert_eq!(decision.counts.sessions as usize, attempts.len());
    }

    #[test]
    fn the_suite_is_as_good_as_its_sessions_may_be_bad() {
        use Outcome::{Fail, Pass, Review};
        let strict = Thresholds::default();
        check(&[], &strict, Review, "no session was run");
        check(&[&[Pass], &[Pass]], &strict, Pass, "all 2 sessions pass");
        check(&[&[Pass], &[Review]], &strict, Review, "1 of 2 sessions are for review: s1");
        check(&[&[Fail], &[Review], &[Fail]], &strict, Fail, "2 of 3 sessions failed");
        check(&[&[]], &strict, Review, "for review: s0");
        let lax = Thresholds { failed: 1, ..strict.clone() };
        check(&[&[Fail], &[Pass]], &lax, Pass, "all 2 sessions pass");
        check(&[&[Fail, Pass]], &strict, Fail, "pass on some attempts and not on others");
        let forgiving = Thresholds { trials: 0.5, ..strict };
        check(&[&[Fail, Pass]], &forgiving, Pass, "pass on some attempts");
    }

    proptest! {
        #[test]
        fn the_order_of_sessions_does_not_matter(
            (all, shuffled) in prop::collection::vec(prop::collection::vec(0..3usize, 0..3), 0..8)
                .prop_map(|all| all.into_iter().enumerate().collect::<Vec<_>>())
                .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        ) {
            let of = |all: &[(usize, Vec<usize>)]| {
                let outcomes = [Outcome::Pass, Outcome::Review, Outcome::Fail];
                let one = |(id, tries): &(usize, Vec<usize>)| {
                    session(&format!("s{id}"), &tries.iter().map(|at| outcomes[*at]).collect::<Vec<_>>())
                };
                let mut sessions: Sessions = all.iter().map(one).collect();
                let decision = decide(&mut sessions, &Thresholds::default());
                let mut sessions: Vec<_> = sessions.iter().collect();
                sessions.sort_by(|a, b| a.id.cmp(&b.id));
                (decision, sessions)
            };
            prop_assert_eq!(of(&all), of(&shuffled));
        }
    }
}
