//! One session against its baselines.

use super::deeds::{self, Deed, Free, Match};
use super::{Comparison, Features, SessionVerdict, Thresholds, answers, sentences};
use crate::claims::ClaimReport;
use crate::delta::{self, Diff};
use crate::effects::Effects;
use crate::enforce::Enforced;
use crate::ground::GroundReport;
use crate::reason::{Outcome, Reason, Scorer, in_order};
use cofferdam_model::{Act, ActKind, Run, Status};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// What other scorers found, to be weighed with the rest.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    pub policy: Option<Enforced>,
    /// Carried along; their reasons are among `reasons`, after whoever compared them with the baselines'.
    pub claims: Option<ClaimReport>,
    pub ground: Option<GroundReport>,
    /// Of claims, groundedness, custom scorers and the trace itself.
    pub reasons: Vec<Reason>,
}

/// Judges a run against all baselines of its input. The order of the baselines does not matter.
pub fn judge(
    bases: &[&Run],
    new: &Run,
    effects: &Effects,
    thresholds: &Thresholds,
    evidence: Evidence,
) -> Comparison {
    let near = nearest(bases, new, effects, thresholds);
    let features = near.as_ref().map(|near| features(bases, new, effects, near)).unwrap_or_default();
    let mut reasons = evidence.reasons;
    reasons.extend(evidence.policy.iter().flat_map(Enforced::reasons));
    reasons.extend(sentences::gaps(new));
    match &near {
        Some(near) => {
            let told = sentences::Told { bases, new, near, features: &features, effects, thresholds };
            reasons.extend(told.all());
        }
        None => reasons.push(sentences::no_baseline()),
    }
    in_order(&mut reasons);
    let outcome = reasons.iter().map(|reason| reason.outcome).max().unwrap_or(Outcome::Pass);
    let verdict = SessionVerdict { outcome, score: score(&features, &reasons), reasons };
    Comparison {
        bases: bases.iter().map(|run| run.id.clone()).collect(),
        new: new.id.clone(),
        nearest: near.as_ref().map(|near| near.index),
        diff: near.map(|near| near.diff),
        policy: evidence.policy,
        claims: evidence.claims,
        ground: evidence.ground,
        features,
        verdict,
    }
}

/// The baseline that explains, and how.
pub(super) struct Near {
    pub(super) index: usize,
    pub(super) diff: Diff,
    pub(super) base: Vec<Deed>,
    pub(super) new: Vec<Deed>,
    pub(super) matched: Match,
    pub(super) spread: f64,
}

fn nearest(bases: &[&Run], new: &Run, effects: &Effects, thresholds: &Thresholds) -> Option<Near> {
    let options = &thresholds.options;
    let bags: Vec<Vec<Deed>> = bases.iter().map(|run| deeds::deeds(run, effects)).collect();
    let free = deeds::free(&bags, options);
    let mut best: Option<Near> = None;
    for (index, base) in bases.iter().enumerate() {
        let diff = delta::diff(base, new, effects, options);
        let fresh = deeds::renamed(deeds::deeds(new, effects), &diff.renamed);
        let matched = deeds::matched(&bags[index], &fresh, &free, options);
        let nearer = |best: &Near| {
            let order = matched.distance.total_cmp(&best.matched.distance);
            let order = order.then(diff.changes.len().cmp(&best.diff.changes.len()));
            order.then_with(|| first_of(base, bases[best.index], new, effects)).is_lt()
        };
        if best.as_ref().is_none_or(nearer) {
            best = Some(Near { index, diff, base: bags[index].clone(), new: fresh, matched, spread: 0.0 });
        }
    }
    let mut best = best?;
    best.spread = spread(&bags, &free, options);
    Some(best)
}

/// Of two that are equally near, the one that read the same things; then by what they did, and never by which came first.
fn first_of(one: &Run, other: &Run, new: &Run, effects: &Effects) -> Ordering {
    let reads = |base: &Run| readings(Some(base), new, effects);
    let acts = |run: &Run| -> Vec<String> {
        run.acts
            .iter()
            .map(|act| format!("{} {} {:?} {}", act.name, act.args, act.status, act.text))
            .collect()
    };
    reads(one).total_cmp(&reads(other)).then_with(|| acts(one).cmp(&acts(other)))
}

/// How far the loneliest baseline is from its nearest.
fn spread(bags: &[Vec<Deed>], free: &Free, options: &delta::Options) -> f64 {
    let to_nearest = |(at, bag): (usize, &Vec<Deed>)| {
        let others = bags.iter().enumerate().filter(|(other, _)| *other != at);
        let distances = others.map(|(_, other)| deeds::matched(other, bag, free, options).distance);
        distances.min_by(f64::total_cmp).unwrap_or(0.0)
    };
    bags.iter().enumerate().map(to_nearest).fold(0.0, f64::max)
}

fn features(bases: &[&Run], new: &Run, effects: &Effects, near: &Near) -> Features {
    let common = answers::common(bases);
    let told = answers::told(new);
    let hands_over = |run: &Run| run.acts.iter().any(|act| effects.hands_over(act));
    let same_way = bases.iter().any(|base| hands_over(base) == hands_over(new));
    let vain = |run: &Run| run.acts.iter().filter(|act| is_vain(act, effects)).count();
    let most = bases.iter().map(|base| vain(base)).max().unwrap_or(0);
    Features {
        baselines: bases.len(),
        effects: near.new.len(),
        effects_added: near.matched.added.len(),
        effects_removed: near.matched.removed.len(),
        effects_changed: near.matched.changed.len(),
        effect_distance: near.matched.distance,
        spread: near.spread,
        strange_tools: strange(bases, new, effects),
        vain_attempts: vain(new).saturating_sub(most),
        hands_over_otherwise: !same_way,
        answers: common.len(),
        answers_missing: common.difference(&told).count(),
        readings_differ: readings(bases.get(near.index).copied(), new, effects),
        tokens_ratio: ratio(bases, new, |run| run.spent.tokens_in.saturating_add(run.spent.tokens_out)),
        time_ratio: ratio(bases, new, |run| run.spent.wall_us),
    }
}

pub(super) fn is_vain(act: &Act, effects: &Effects) -> bool {
    matches!(act.status, Status::Failed | Status::Refused) && effects.changes(act)
}

fn strange(bases: &[&Run], new: &Run, effects: &Effects) -> Vec<String> {
    let of_tools = |act: &&Act| matches!(act.kind, ActKind::Tool | ActKind::Browser);
    let seen: BTreeSet<&str> = bases
        .iter()
        .flat_map(|base| base.acts.iter().filter(of_tools))
        .map(|act| act.name.as_str())
        .collect();
    let changing =
        new.acts.iter().filter(of_tools).filter(|act| effects.changes(act) && !effects.hands_over(act));
    let names: BTreeSet<&str> =
        changing.map(|act| act.name.as_str()).filter(|name| !seen.contains(name)).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// The share of readings that only one of the two runs made.
fn readings(base: Option<&Run>, new: &Run, effects: &Effects) -> f64 {
    let of = |run: &Run| -> BTreeSet<(String, String)> {
        let reads = run.acts.iter().filter(|act| !delta::is_words(act.kind) && !effects.changes(act));
        reads.map(|act| (act.name.clone(), act.args.to_string())).collect()
    };
    let (old, fresh) = (base.map(of).unwrap_or_default(), of(new));
    let all = old.union(&fresh).count();
    if all == 0 { 0.0 } else { old.symmetric_difference(&fresh).count() as f64 / all as f64 }
}

fn ratio(bases: &[&Run], new: &Run, of: fn(&Run) -> u64) -> Option<f64> {
    let mut known: Vec<u64> = bases.iter().map(|base| of(base)).filter(|n| *n > 0).collect();
    known.sort_unstable();
    let median = known.get(known.len() / 2).copied()?;
    (of(new) > 0).then(|| of(new) as f64 / median as f64)
}

/// Effects make the score; the rest only orders sessions whose effects are the same.
fn score(features: &Features, reasons: &[Reason]) -> f64 {
    let missing = features.answers_missing as f64 / features.answers.max(1) as f64;
    let vain = (features.vain_attempts.min(4)) as f64;
    let over = f64::from(u8::from(features.hands_over_otherwise));
    // Doubts about words order sessions whose effects are the same; what a policy denies counts as an effect does.
    let weight = |of: fn(Scorer) -> bool| {
        let graver = reasons.iter().filter(|reason| of(reason.scorer) && reason.outcome > Outcome::Pass);
        graver.map(|reason| reason.weight).sum::<f64>()
    };
    let words = weight(|scorer| matches!(scorer, Scorer::Claims | Scorer::Groundedness));
    let others = weight(|scorer| matches!(scorer, Scorer::Trace | Scorer::Policy | Scorer::Custom));
    let small = 0.2 * missing + 0.03 * vain + 0.02 * over + 0.01 * features.readings_differ;
    features.effect_distance + others + (small + 0.1 * words).min(0.3)
}
