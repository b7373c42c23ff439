//! One session of a suite, from its baselines to its verdict: run, and run again if it does not pass and may be.

use super::attempt::{self, Ran};
use super::plan::Plan;
use super::side::{self, Side, Whose, reason};
use super::written::TRACES;
use super::{EXTENSION, Note, SessionVerdict, Watch, baseline, judge};
use crate::suite::Case;
use crate::{Engine, EngineError, Stop};
use cofferdam_compare::{Outcome, Reason};
use cofferdam_gate::{Attempt, Material, Measures, Scored};
use cofferdam_trace::Held;
use std::path::Path;
use std::time::Instant;

/// What came of one attempt.
struct Tried {
    attempt: Attempt,
    score: f64,
    reasons: Vec<Reason>,
    measures: Option<Measures>,
    scores: Vec<Scored>,
    asked: Option<Material>,
}

/// Nothing where it was stopped on the way.
pub(super) fn run(
    engine: &Engine,
    plan: &Plan<'_>,
    case: &Case,
    stop: &Stop,
    watch: Watch<'_>,
) -> Result<Option<SessionVerdict>, EngineError> {
    let baseline::Found { sides: bases, held, unread } = baselines(plan, case);
    let mut tried: Vec<Tried> = Vec::new();
    let job = Job { engine, plan, case, bases: &bases, held: &held, unread: &unread, stop };
    for again in 0..=plan.options.retries {
        if again > 0 {
            watch(Note::Again { id: case.id.clone(), attempt: again as usize + 1 });
        }
        let Some(one) = job.attempt(again as usize)? else { break };
        if stop.is_raised() {
            return Ok(None);
        }
        let passed = one.attempt.outcome == Outcome::Pass;
        tried.push(one);
        // Without a baseline there is nothing that another attempt could show.
        if passed || bases.is_empty() {
            break;
        }
    }
    Ok(Some(verdict(plan, case, &bases, &unread, tried)))
}

fn baselines(plan: &Plan<'_>, case: &Case) -> baseline::Found {
    let mut found = baseline::Found::default();
    for path in baseline::files(plan.baseline.dir(), &case.id) {
        let name = plan.baseline.name(plan.suite, &path);
        match side::read_held(&path, &name, &plan.believed, Whose::Baseline) {
            Ok((side, held)) => {
                found.sides.push(side);
                found.held.extend(plan.suite.replay.is_some().then_some(held));
            }
            Err(reason) => found.unread.push(reason),
        }
    }
    if found.sides.is_empty() && found.unread.is_empty() {
        let (id, suite) = (&case.id, &plan.suite.name);
        let text =
            format!("there is no baseline of `{id}`: record one with `cofferdam record {suite} --only {id}`");
        found.unread.push(reason("baseline-missing", Outcome::Review, text));
    }
    found
}

/// All that an attempt is made of.
struct Job<'a> {
    engine: &'a Engine,
    plan: &'a Plan<'a>,
    case: &'a Case,
    bases: &'a [Side],
    /// As they are replayed.
    held: &'a [Held],
    unread: &'a [Reason],
    stop: &'a Stop,
}

impl Job<'_> {
    /// Nothing where there is nothing to answer the session with: it is not run against the world instead.
    fn attempt(&self, again: usize) -> Result<Option<Tried>, EngineError> {
        let Self { engine, plan, case, .. } = self;
        let hidden: &[&Path] = &[plan.baseline.dir(), &plan.out];
        let way = attempt::Way { suite: plan.suite, by: &plan.options.by, stop: self.stop, hidden };
        let began = Instant::now();
        let ran = match &plan.suite.replay {
            None => way.live(engine, case),
            Some(rules) => {
                let turn = again.checked_rem(self.held.len()).and_then(|turn| self.held.get(turn));
                let Some(baseline) = turn else { return Ok(None) };
                way.replayed(engine, case, rules, baseline)
            }
        };
        let wall_us = began.elapsed().as_micros() as u64;
        match ran {
            Ok(ran) => self.judged(ran, again, wall_us).map(Some),
            // A sandbox that cannot be made is this session's trouble; a trace that cannot be written is everyone's.
            Err(error) if is_everyones(&error) => Err(error),
            Err(error) => {
                let text = format!("the session could not be run: {error}");
                let attempt = Attempt {
                    outcome: Outcome::Review,
                    trace: None,
                    exit: None,
                    tier: None,
                    enforcement: None,
                    wall_us,
                };
                let reasons = vec![reason("sandbox-failed", Outcome::Review, text)];
                Ok(Some(Tried {
                    attempt,
                    score: 0.0,
                    reasons,
                    measures: None,
                    scores: Vec::new(),
                    asked: None,
                }))
            }
        }
    }

    fn judged(&self, ran: Ran, again: usize, wall_us: u64) -> Result<Tried, EngineError> {
        let Self { engine, plan, case, .. } = self;
        let name = format!("{TRACES}/{}.{}.{EXTENSION}", case.id, again + 1);
        attempt::pack(engine, &ran.outcome, &plan.options.out.join(&name))?;
        let mut tried = Tried {
            attempt: Attempt {
                outcome: Outcome::Review,
                trace: None,
                exit: Some(ran.outcome.exit),
                tier: None,
                enforcement: None,
                wall_us,
            },
            score: 0.0,
            reasons: self.unread.to_vec(),
            measures: None,
            scores: Vec::new(),
            asked: None,
        };
        tried.reasons.extend(judge::missed(&ran.missed));
        // Our own key signed it a moment ago, whatever else is believed.
        let mut keys = plan.believed.clone();
        keys.add(engine.public_key()?);
        match side::read(&ran.outcome.trace, &name, &keys, Whose::New) {
            Err(reason) => tried.reasons.push(reason),
            Ok(new) => {
                let (rules, thresholds) = (plan.policy.as_ref(), &plan.suite.thresholds);
                let seen = judge::Seen { bases: self.bases, rules, thresholds };
                let asked = plan.panel.ask(engine, plan, case, (self.bases, &new), (again, self.stop))?;
                (tried.scores, tried.asked) = (asked.scores, asked.file);
                tried.reasons.extend(asked.reasons);
                let reasons = std::mem::take(&mut tried.reasons);
                let verdict = seen.judge_case(&new, &case.expect, reasons).verdict;
                (tried.score, tried.reasons) = (verdict.score, verdict.reasons);
                tried.measures = Some(judge::measures(&new.run));
                tried.attempt.tier = new.report.as_ref().map(|(tier, _)| *tier);
                tried.attempt.enforcement = new.report.map(|(_, digest)| digest);
                tried.attempt.trace = Some(new.trace);
            }
        }
        cofferdam_compare::reason::in_order(&mut tried.reasons);
        tried.attempt.outcome = judge::outcome(&tried.reasons);
        Ok(tried)
    }
}

pub(super) fn is_everyones(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Record(_) | EngineError::NotRecorded(_) | EngineError::Keys(_) | EngineError::Home(_)
    )
}

fn verdict(
    plan: &Plan<'_>,
    case: &Case,
    bases: &[Side],
    unread: &[Reason],
    mut tried: Vec<Tried>,
) -> SessionVerdict {
    let none = judge::outcome(unread).max(Outcome::Review);
    let worst = tried.iter().map(|one| one.attempt.outcome).max().unwrap_or(none);
    let told = tried.iter().position(|one| one.attempt.outcome == worst).unwrap_or(0);
    let (score, mut reasons, new) = match tried.get_mut(told) {
        Some(one) => (one.score, std::mem::take(&mut one.reasons), one.measures),
        None => (0.0, unread.to_vec(), None),
    };
    let asked = tried.get_mut(told).map(|one| (std::mem::take(&mut one.scores), one.asked.take()));
    let (scores, asked) = asked.unwrap_or_default();
    let passed = tried.iter().filter(|one| one.attempt.outcome == Outcome::Pass).count();
    if (1..tried.len()).contains(&passed) {
        let text =
            format!("flaky: it passed {passed} of {} times; what follows is the worst of them", tried.len());
        reasons.insert(0, reason("flaky", worst, text));
    }
    let runs: Vec<_> = bases.iter().map(|side| &side.run).collect();
    let reproduce = ["cofferdam", "gate", &plan.suite.name, "--only", &case.id];
    SessionVerdict {
        id: case.id.clone(),
        // What all attempts together make of it is decided with the suite.
        outcome: worst,
        score,
        reasons,
        input: case.input(),
        baselines: bases.iter().map(|side| side.trace.clone()).collect(),
        attempts: tried.into_iter().map(|one| one.attempt).collect(),
        told,
        base: judge::mean(&runs),
        new,
        scores,
        asked,
        reproduce: reproduce.map(str::to_owned).to_vec(),
    }
}
