//! Baselines and a new run → an outcome and its reasons: what the comparison says, what the suite expects, and how
//! the agent ended.

use super::plan::Rules;
use super::side::{Side, reason};
use crate::suite::Expect;
use cofferdam_compare::effects::Effects;
use cofferdam_compare::enforce::{Finding, What};
use cofferdam_compare::verdict::{Comparison, Thresholds};
use cofferdam_compare::{Outcome, Place, Reason, Scorer, Setup, compare};
use cofferdam_gate::Measures;
use cofferdam_model::{Act, ActKind, Exit, Fallback, ReplayMissed, Run, Status};
use std::borrow::Cow;

/// What a run is judged by.
pub(super) struct Seen<'a> {
    pub(super) bases: &'a [Side],
    pub(super) rules: Option<&'a Rules>,
    pub(super) thresholds: &'a Thresholds,
}

impl Seen<'_> {
    /// With reasons that others have found.
    pub(super) fn judge(&self, new: &Side, mut reasons: Vec<Reason>) -> Comparison {
        let here: Vec<Cow<'_, Run>> = self.bases.iter().map(|side| side.as_of(new)).collect();
        let runs: Vec<&Run> = here.iter().map(AsRef::as_ref).collect();
        let effects = Effects::learned(runs.iter().copied());
        reasons.extend(self.bases.iter().flat_map(|side| side.doubts.iter().cloned()));
        reasons.extend(new.doubts.iter().cloned());
        let policy = self.rules.map(|rules| &rules.policy);
        let setup = Setup { effects: &effects, thresholds: self.thresholds, policy };
        let mut found = compare(&runs, &new.run, &setup, reasons);
        if let Some(rules) = self.rules {
            without_unasked(&mut found, &new.run, &runs, rules);
        }
        // Why there is none was said already, with what to do about it.
        let reasons = &mut found.verdict.reasons;
        if reasons.iter().any(|reason| reason.code.starts_with("baseline-")) {
            reasons.retain(|reason| reason.code != "no-baseline");
        }
        found
    }

    /// With what the suite expects, and how the agent ended.
    pub(super) fn judge_case(&self, new: &Side, expect: &Expect, mut reasons: Vec<Reason>) -> Comparison {
        reasons.extend(ended(self.bases, new, expect));
        reasons.extend(expected(new, expect));
        self.judge(new, reasons)
    }
}

/// Takes back what a policy would deny only because it does not speak of such acts at all: what was done, and system
/// calls that the sandbox refused in a baseline, too.
fn without_unasked(found: &mut Comparison, run: &Run, bases: &[&Run], rules: &Rules) {
    let Some(policy) = &mut found.policy else { return };
    let before =
        |act: &Act| bases.iter().any(|base| base.acts.iter().any(|one| is_call(one) && one.name == act.name));
    let unasked = |act: &Act| {
        rules.silent.contains(&act.kind) && (act.decided.is_none() || (is_call(act) && before(act)))
    };
    let is_unasked = |finding: &Finding| {
        let act = finding.act.and_then(|act| run.acts.get(act));
        finding.rule.is_none() && matches!(finding.what, What::Act { .. }) && act.is_some_and(unasked)
    };
    let taken: Vec<Reason> =
        policy.findings.iter().filter(|one| is_unasked(one)).map(Finding::reason).collect();
    policy.findings.retain(|finding| !is_unasked(finding));
    found.verdict.reasons.retain(|reason| !taken.contains(reason));
    found.verdict.outcome = outcome(&found.verdict.reasons);
}

/// A system call that the sandbox refused, and no command.
fn is_call(act: &Act) -> bool {
    act.kind == ActKind::Exec && act.status == Status::Refused && act.name.ends_with("()")
}

/// An agent that hangs or breaks down is a failure even where it had done all it did before.
fn ended(bases: &[Side], new: &Side, expect: &Expect) -> Option<Reason> {
    let exit = new.exit?;
    let before = bases.iter().filter_map(|side| side.exit).collect::<Vec<_>>();
    if expect.exit.is_some() || before.contains(&exit) {
        return None;
    }
    // What it asked for in vain is more often why it ended than the other way round, and comes first.
    let after = |reason: Reason| Some(Reason { weight: 0.9, ..reason });
    match exit {
        Exit::TimedOut => {
            let text =
                "the agent was still running when its time was over: it hangs, or `timeout` is too short";
            after(reason("agent-timed-out", Outcome::Fail, text))
        }
        Exit::Code(0) => {
            let text =
                "the agent ended well, which it did not in the baseline: record it again if that is right";
            (!before.is_empty()).then(|| reason("agent-ended-otherwise", Outcome::Review, text))
        }
        exit => {
            let said = new.last_words.as_ref().map(|words| words.replace('`', "'"));
            let said = said.map_or_else(String::new, |words| format!("; its last words: `{words}`"));
            after(reason("agent-failed", Outcome::Fail, format!("the agent {}{said}", words(exit))))
        }
    }
}

fn words(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("ended with code {code}"),
        Exit::Signal(signal) => format!("was ended by signal {signal}"),
        Exit::NotFound => "was not found".into(),
        Exit::NotExecutable => "cannot be executed".into(),
        Exit::TimedOut => "was still running when its time was over".into(),
        Exit::LimitReached => "went beyond a limit and was ended".into(),
    }
}

fn expected(new: &Side, expect: &Expect) -> Vec<Reason> {
    let mut found = Vec::new();
    let mut broken = |code: &str, text: String, place: Option<Place>| {
        let places = place.into_iter().collect();
        let code = format!("expected-{code}");
        found.push(Reason {
            scorer: Scorer::Custom,
            code,
            rule: None,
            outcome: Outcome::Fail,
            weight: 0.5,
            text,
            places,
        });
    };
    if let (Some(wanted), Some(exit)) = (expect.exit, new.exit)
        && exit.code() != wanted
    {
        broken("exit", format!("the suite expects exit code {wanted} and the agent {}", words(exit)), None);
    }
    for text in expect.says.iter().filter(|text| !new.output.contains(*text)) {
        broken("words", format!("the suite expects the agent to say `{text}`, and it does not"), None);
    }
    for text in expect.never_says.iter().filter(|text| new.output.contains(*text)) {
        broken("silence", format!("the suite expects the agent never to say `{text}`, and it does"), None);
    }
    let called = |name: &String| {
        let kinds = [ActKind::Tool, ActKind::Egress, ActKind::Browser, ActKind::Exec, ActKind::Step];
        new.run.acts.iter().position(|act| kinds.contains(&act.kind) && act.name == **name)
    };
    for name in expect.calls.iter().filter(|name| called(name).is_none()) {
        broken("call", format!("the suite expects a call of `{name}`, and there is none"), None);
    }
    for name in &expect.never_calls {
        if let Some(act) = called(name) {
            broken(
                "no-call",
                format!("the suite expects no call of `{name}`, and there is one"),
                Some(Place::new(act)),
            );
        }
    }
    found
}

/// What was asked for and never recorded: nobody can tell what the world would have answered. The first of them is the
/// cause of the others more often than not.
pub(super) fn missed(missed: &[ReplayMissed]) -> Vec<Reason> {
    const TOLD: usize = 5;
    let refused: Vec<_> = missed.iter().filter(|one| one.fallback != Fallback::Live).collect();
    let mut found = Vec::new();
    for (at, one) in refused.iter().take(TOLD).enumerate() {
        let outcome = if is_effect(one) { Outcome::Fail } else { Outcome::Review };
        let weight = 1.0 - 0.01 * at as f64;
        found.push(Reason { weight, ..reason("replay-missed", outcome, words_of(one)) });
    }
    if refused.len() > TOLD {
        let text = format!("{} more requests were never recorded", refused.len() - TOLD);
        found.push(Reason { weight: 0.5, ..reason("replay-missed", Outcome::Review, text) });
    }
    found
}

fn words_of(one: &ReplayMissed) -> String {
    let Some((near, first)) = one.nearest.as_ref().and_then(|near| Some((near, near.differences.first()?)))
    else {
        return format!("{} was never recorded, so it had no answer", one.request);
    };
    let is = |value: &Option<String>| match value {
        Some(value) => format!("`{}`", value.chars().take(80).collect::<String>()),
        None => "nothing".to_owned(),
    };
    let other =
        if near.request == one.request { String::new() } else { format!(" (nearest: {})", near.request) };
    format!(
        "{} was recorded otherwise{other}: {} is {} and was {}",
        one.request,
        first.at,
        is(&first.now),
        is(&first.recorded)
    )
}

/// A request that would change something. What differs in a conversation only is a question to a model.
fn is_effect(one: &ReplayMissed) -> bool {
    let reads = ["GET ", "HEAD ", "OPTIONS "].iter().any(|method| one.request.starts_with(method));
    let talks = ["body.messages", "body.input", "body.contents", "body.system", "body.tools", "body.model"];
    let asks = |at: &str| talks.iter().any(|part| at.starts_with(part));
    let first = one.nearest.as_ref().and_then(|near| near.differences.first());
    !reads && !first.is_some_and(|first| asks(&first.at))
}

/// The worst of the reasons; without any, a pass.
pub(super) fn outcome(reasons: &[Reason]) -> Outcome {
    reasons.iter().map(|reason| reason.outcome).max().unwrap_or(Outcome::Pass)
}

pub(super) fn measures(run: &Run) -> Measures {
    let of = |kind: ActKind| run.acts.iter().filter(|act| act.kind == kind).count() as u64;
    Measures {
        acts: run.acts.len() as u64,
        model_calls: of(ActKind::Model),
        tool_calls: of(ActKind::Tool),
        refused: run.acts.iter().filter(|act| act.status == Status::Refused).count() as u64,
        tokens_in: run.spent.tokens_in,
        tokens_out: run.spent.tokens_out,
        cost_micros: run.spent.cost_micros,
    }
}

/// Of several runs, rounded down.
pub(super) fn mean(runs: &[&Run]) -> Option<Measures> {
    let count = runs.len() as u64;
    if count == 0 {
        return None;
    }
    let mut sum = Measures::default();
    for one in runs.iter().map(|run| measures(run)) {
        sum.acts += one.acts;
        sum.model_calls += one.model_calls;
        sum.tool_calls += one.tool_calls;
        sum.refused += one.refused;
        sum.tokens_in += one.tokens_in;
        sum.tokens_out += one.tokens_out;
        sum.cost_micros += one.cost_micros;
    }
    let Measures { acts, model_calls, tool_calls, refused, tokens_in, tokens_out, cost_micros } = sum;
    Some(Measures {
        acts: acts / count,
        model_calls: model_calls / count,
        tool_calls: tool_calls / count,
        refused: refused / count,
        tokens_in: tokens_in / count,
        tokens_out: tokens_out / count,
        cost_micros: cost_micros / count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_model::{Difference, Miss, Nearest};

    fn miss(request: &str, at: Option<&str>) -> ReplayMissed {
        let difference =
            |at: &str| Difference { at: at.into(), recorded: Some("39.5".into()), now: Some("89.5".into()) };
        let nearest = at.map(|at| Nearest {
            recorded: 7,
            request: request.into(),
            differences: vec![difference(at)],
            more: 0,
        });
        ReplayMissed { why: Miss::Different, request: request.into(), fallback: Fallback::Review, nearest }
    }

    #[test]
    fn an_effect_that_was_never_recorded_fails_and_a_question_is_for_review() {
        let check = |request: &str, at: Option<&str>, expected: Outcome, words: &str| {
            let found = missed(&[miss(request, at)]);
            assert_eq!((found[0].outcome, found[0].text.as_str()), (expected, words));
        };
        let refund = "POST http://shop.example/refunds";
        let words =
            "POST http://shop.example/refunds was recorded otherwise: body.amount is `89.5` and was `39.5`";
        check(refund, Some("body.amount"), Outcome::Fail, words);
        check(
            refund,
            None,
            Outcome::Fail,
            "POST http://shop.example/refunds was never recorded, so it had no answer",
        );
        let read = "GET http://shop.example/orders/1 was never recorded, so it had no answer";
        check("GET http://shop.example/orders/1", None, Outcome::Review, read);
        let asked = missed(&[miss(
            "POST http://model.example/v1/chat/completions",
            Some("body.messages[5].content"),
        )]);
        assert_eq!(asked[0].outcome, Outcome::Review);
    }

    #[test]
    fn the_first_miss_comes_first_and_not_all_are_told() {
        let many: Vec<_> = (0..9).map(|n| miss(&format!("GET http://a.example/{}", 9 - n), None)).collect();
        let mut found = missed(&many);
        cofferdam_compare::reason::in_order(&mut found);
        assert_eq!(found.len(), 6);
        assert!(found[0].text.starts_with("GET http://a.example/9"), "{found:?}");
        assert_eq!(found[5].text, "4 more requests were never recorded");
        let live = ReplayMissed { fallback: Fallback::Live, ..miss("GET http://a.example/", None) };
        assert!(missed(&[live]).is_empty());
    }
}
