//! Everything about one session at once: the policy, the claims, the groundedness, the difference and the verdict over
//! all of them. Judges and custom scorers answer elsewhere; what they said is handed in.

use crate::claims::{self, ClaimReport};
use crate::effects::Effects;
use crate::enforce::{Baselines, enforce};
use crate::ground;
use crate::reason::{Outcome, Reason};
use crate::verdict::{Comparison, Evidence, Thresholds, judge};
use cofferdam_model::Run;
use cofferdam_policy::Policy;

/// What a suite says of all its sessions.
pub struct Setup<'a> {
    pub effects: &'a Effects,
    pub thresholds: &'a Thresholds,
    pub policy: Option<&'a Policy>,
}

/// Compares a run with all baselines of its input. `more` is what others found: the trace's own soundness, judges,
/// custom scorers.
pub fn compare(bases: &[&Run], new: &Run, setup: &Setup<'_>, more: Vec<Reason>) -> Comparison {
    let policy = setup.policy.map(|policy| {
        let baselines = Baselines::learn(bases.iter().copied(), setup.effects);
        enforce(policy, new, &baselines, setup.effects)
    });
    let (claims, grounds) = (claims::check(new), ground::check(new));
    let mut reasons = more;
    let claimed: Vec<ClaimReport> = bases.iter().map(|base| claims::check(base)).collect();
    reasons.extend(beyond(
        claims.reasons_beside(&claimed),
        &claimed.iter().map(ClaimReport::reasons).collect::<Vec<_>>(),
        setup.thresholds,
    ));
    let rested: Vec<Vec<Reason>> = bases.iter().map(|base| ground::check(base).reasons()).collect();
    reasons.extend(beyond(grounds.reasons(), &rested, setup.thresholds));
    let evidence = Evidence { policy, claims: Some(claims), ground: Some(grounds), reasons };
    judge(bases, new, setup.effects, setup.thresholds, evidence)
}

/// What the words of accepted runs are charged with is normal: a kind of doubt counts if there is more of it than in any
/// baseline, no further than the thresholds let it, and is told in any case.
fn beyond(mut reasons: Vec<Reason>, before: &[Vec<Reason>], thresholds: &Thresholds) -> Vec<Reason> {
    if before.is_empty() {
        return reasons;
    }
    let count = |all: &[Reason], code: &str| all.iter().filter(|r| r.code == code).count();
    let codes: Vec<String> = reasons.iter().map(|reason| reason.code.clone()).collect();
    for (reason, code) in reasons.iter_mut().zip(&codes) {
        let here = codes.iter().filter(|other| *other == code).count();
        let usual = before.iter().map(|all| count(all, code)).max().unwrap_or(0);
        let contradicts = matches!(code.as_str(), "claim-contradicted" | "ground-conflict");
        let most = if contradicts { thresholds.contradicted } else { thresholds.unsupported };
        reason.outcome = reason.outcome.min(most);
        if here <= usual && reason.outcome != Outcome::Pass {
            reason.outcome = Outcome::Pass;
            reason.text.push_str("; the baselines have as many like it");
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::sketch::run;
    use crate::reason::Scorer;
    use proptest::prelude::*;

    fn reason(code: &str, outcome: Outcome) -> Reason {
        let text = code.to_owned();
        Reason {
            scorer: Scorer::Claims,
            code: code.into(),
            rule: None,
            outcome,
            weight: 0.5,
            text,
            places: Vec::new(),
        }
    }

    #[test]
    fn what_baselines_are_charged_with_too_is_normal() {
        let doubt = || reason("claim-unsupported", Outcome::Review);
        let lie = || reason("claim-contradicted", Outcome::Fail);
        let strict =
            Thresholds { contradicted: Outcome::Fail, unsupported: Outcome::Review, ..Thresholds::default() };
        let check = |new: Vec<Reason>, bases: &[Vec<Reason>], by_default: Outcome, if_strict: Outcome| {
            let worst = |thresholds: &Thresholds| {
                beyond(new.clone(), bases, thresholds).iter().map(|r| r.outcome).max().unwrap()
            };
            assert_eq!((worst(&Thresholds::default()), worst(&strict)), (by_default, if_strict));
        };
        check(vec![doubt()], &[], Outcome::Review, Outcome::Review);
        check(vec![doubt()], &[vec![]], Outcome::Pass, Outcome::Review);
        check(vec![doubt()], &[vec![], vec![doubt()]], Outcome::Pass, Outcome::Pass);
        check(vec![doubt(), doubt()], &[vec![doubt()]], Outcome::Pass, Outcome::Review);
        check(vec![lie()], &[vec![doubt()]], Outcome::Review, Outcome::Fail);
        check(vec![lie()], &[vec![lie()]], Outcome::Pass, Outcome::Pass);
    }

    #[test]
    fn a_session_is_judged_as_a_whole() {
        let (effects, thresholds) = (Effects::default(), Thresholds::default());
        let setup = Setup { effects: &effects, thresholds: &thresholds, policy: None };
        let base = run("get_a send_b(1)");
        let same = compare(&[&base], &base, &setup, Vec::new());
        assert_eq!(same.verdict.outcome, Outcome::Pass);
        assert!(same.claims.is_some() && same.ground.is_some() && same.policy.is_none());
        let text = serde_json::to_string(&same).unwrap();
        assert_eq!(serde_json::from_str::<Comparison>(&text).unwrap(), same);
        let worse = compare(&[&base], &run("get_a"), &setup, vec![reason("x", Outcome::Review)]);
        assert_eq!(worse.verdict.reasons[0].code, "effect-missing");
        assert_eq!(worse.verdict.reasons[1].code, "x");
    }

    proptest! {
        #[test]
        fn no_scorer_looks_at_the_clock(
            said in "(it is |on May [0-9], |at 1[0-9]:00, |for [0-9]{2} |by Bob ){0,5}",
            read in "(- day: 2024-05-0[0-9]\n  at: 1[0-9]:00\n  sum: [0-9]{2}\n){0,4}",
            clock in prop::collection::vec(any::<u64>(), 3),
        ) {
            let of = |clock: &[u64]| {
                let mut new = run("get_a send_b(1) \"x\"");
                new.acts[0].text.clone_from(&read);
                new.acts[2].text.clone_from(&said);
                new.acts.iter_mut().zip(clock).for_each(|(act, at)| act.at = *at);
                let (effects, thresholds) = (Effects::default(), Thresholds::default());
                let setup = Setup { effects: &effects, thresholds: &thresholds, policy: None };
                let found = compare(&[&run("get_a send_b(1) \"so\"")], &new, &setup, Vec::new());
                (found.verdict, found.claims, found.ground)
            };
            prop_assert_eq!(of(&[0, 1, 2]), of(&clock));
        }
    }
}
