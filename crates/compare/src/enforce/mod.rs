//! Policy over a finished run: the same engine as live asks about every act, and on top of it where the values
//! that steer a change came from, and which changes no baseline has made.
//!
//! Everything a tool returned is a stranger's word unless the policy's `[sources]` say otherwise. Nothing read
//! from a run can widen what a policy says: content is only ever searched for values, never followed. What the
//! record lacks is for review.

mod act;
mod baselines;
mod finding;
mod origin;
mod value;

pub use baselines::Baselines;
pub use finding::{Finding, From, Traced, What};

use crate::effects::Effects;
use crate::reason::{Place, Reason, in_order};
use baselines::{changes, is_done, took_effect};
use cofferdam_model::{Act, ActKind, Run, Verdict};
use cofferdam_policy::{Action, Baseline, Decision, Deviation, Effect, Flow, Policy, Sink, ValueKind};
use origin::{Origin, Origins, Used, source_name, values};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

#[cfg(test)]
mod tests;

/// The flows and deviations that a team can live with, for suites that bring no policy of their own.
pub const FLOWS: &str = include_str!("../../../../examples/policies/flows.toml");

/// What a policy says about a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Enforced {
    /// Every act that a policy is asked about, in order.
    pub acts: Vec<Judged>,
    /// What is not simply allowed, in the order of the run; what was not done comes last.
    pub findings: Vec<Finding>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    pub act: usize,
    pub effect: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

impl Enforced {
    /// The strongest effect: deny beats review beats allow.
    pub fn effect(&self) -> Verdict {
        let strength = |effect: &Verdict| match effect {
            Verdict::Deny => 0,
            Verdict::Review => 1,
            Verdict::Allow => 2,
        };
        self.findings.iter().map(|finding| finding.effect).min_by_key(strength).unwrap_or(Verdict::Allow)
    }

    pub fn reasons(&self) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = self.findings.iter().map(Finding::reason).collect();
        in_order(&mut reasons);
        reasons
    }
}

/// Asks the policy about a run. Baselines make values and tools familiar; without any, every value that only a
/// tool brought up is strange.
pub fn enforce(policy: &Policy, run: &Run, baselines: &Baselines, effects: &Effects) -> Enforced {
    let judge = Judge { policy, run, baselines, effects };
    let mut found = Findings::default();
    let acts = judge.acts(&mut found);
    let all_traced = judge.flows(&mut found);
    judge.deviations(&mut found);
    judge.gaps(all_traced, &mut found);
    let mut findings = found.all;
    // Stable: what is about the same act stays as it was found.
    findings.sort_by_key(|finding| finding.act.unwrap_or(usize::MAX));
    Enforced { acts, findings }
}

/// Findings, each once.
#[derive(Default)]
struct Findings {
    all: Vec<Finding>,
    /// By rule, tool, argument and value.
    seen: HashMap<(Option<String>, String, String, String), usize>,
}

impl Findings {
    fn add(&mut self, key: (&str, &str, &str), finding: Finding) {
        let key = (finding.rule.clone(), key.0.to_owned(), key.1.to_owned(), key.2.to_owned());
        match self.seen.get(&key).and_then(|at| self.all.get_mut(*at)) {
            Some(first) => first.times += 1,
            None => {
                self.seen.insert(key, self.all.len());
                self.all.push(finding);
            }
        }
    }
}

struct Judge<'a> {
    policy: &'a Policy,
    run: &'a Run,
    baselines: &'a Baselines,
    effects: &'a Effects,
}

impl Judge<'_> {
    fn acts(&self, found: &mut Findings) -> Vec<Judged> {
        let mut judged = Vec::new();
        for (index, act) in self.run.acts.iter().enumerate() {
            let Some(decision) = act::decide(self.policy, act) else { continue };
            let effect = decision.effect.into();
            judged.push(Judged { act: index, effect, rule: decision.rule_id().map(str::to_owned) });
            if effect != Verdict::Allow {
                let name = format!("{} {}", word(act.kind), finding::shown(&act.name));
                let live = act.decided.clone().filter(|live| live.effect != effect);
                let problem = decision.problem.as_ref().map(ToString::to_string);
                let what = What::Act { name, problem, live };
                found.add(
                    (&act.name, word(act.kind), &act.args.to_string()),
                    about(Some(index), &decision, what),
                );
            }
        }
        judged
    }

    /// Whether all values could be traced.
    fn flows(&self, found: &mut Findings) -> bool {
        let used = self.used();
        let origins = Origins::of(self.run, &used);
        for used in &used {
            let Some(act) = self.run.acts.get(used.act) else { continue };
            let to = self.sink(act);
            let origin = origins.trace(self.run, self.effects, used);
            let (tool, arg) = (act.name.as_str(), used.place.arg.as_str());
            let (kind, value) = (used.traced.kind, used.traced.key.as_str());
            let flow = Flow {
                from: self.told(origin),
                to,
                kind,
                tool,
                arg,
                value,
                in_text: used.traced.in_text,
                known: self.baselines.knows(tool, arg, value),
                filled: self.baselines.fills(tool, arg, kind),
            };
            let decision = self.policy.decide(&Action::Flow(flow));
            if decision.effect != Effect::Allow {
                let what = What::Flow(Box::new(self.traced(&flow, used, origin)));
                found.add((tool, arg, value), about(Some(used.act), &decision, what));
            }
        }
        !origins.is_cut
    }

    /// The values that steer something: of changes all, of readings where they reach out to, of the last words the
    /// links and addresses.
    fn used(&self) -> Vec<Used> {
        let last = self.run.acts.iter().rposition(|act| act.kind == ActKind::Said);
        let mut used = Vec::new();
        for (index, act) in self.run.acts.iter().enumerate() {
            let all = match act.kind {
                ActKind::Said if Some(index) == last => values(index, &answer(act)),
                _ if is_done(act) => values(index, act),
                _ => continue,
            };
            let to_change = self.sink(act) == Sink::Changes;
            let steers = |kind| {
                to_change
                    || kind == ValueKind::Url
                    || (act.kind == ActKind::Said && kind == ValueKind::Address)
            };
            used.extend(all.into_iter().filter(|used| steers(used.traced.kind)));
        }
        used
    }

    fn sink(&self, act: &Act) -> Sink {
        match act.kind {
            ActKind::Said => Sink::Answer,
            _ if changes(self.effects, act) => Sink::Changes,
            _ => Sink::Destination,
        }
    }

    fn told(&self, origin: Origin) -> cofferdam_policy::Origin<'_> {
        match origin {
            Origin::Told(_) => cofferdam_policy::Origin::Told,
            Origin::Own(_) => cofferdam_policy::Origin::Own,
            Origin::Returned(found) => cofferdam_policy::Origin::Returned(source_name(self.run, found)),
            Origin::Made => cofferdam_policy::Origin::Made,
        }
    }

    fn traced(&self, flow: &Flow<'_>, used: &Used, origin: Origin) -> Traced {
        let (from, first) = match origin {
            Origin::Told(found) => (From::Told, Some(found)),
            Origin::Own(found) => (From::Own, Some(found)),
            Origin::Returned(found) => (From::Returned, Some(found)),
            Origin::Made => (From::Model, None),
        };
        let source =
            first.filter(|_| from != From::Told).map(|found| finding::shown(source_name(self.run, found)));
        let usual = if flow.in_text { Vec::new() } else { self.baselines.usual(flow.tool, flow.arg) };
        let place = match flow.to {
            Sink::Answer => Place::new(used.act),
            _ => Place::new(used.act).path(used.place.path.as_str()),
        };
        Traced {
            kind: flow.kind,
            value: finding::shown(flow.value),
            from,
            source,
            first: first.map(|found| Place::new(found.act).bytes(found.bytes.0, found.bytes.1)),
            to: flow.to,
            tool: finding::shown(flow.tool),
            arg: flow.arg.to_owned(),
            place,
            known: flow.known,
            usual: usual.iter().map(|value| finding::shown(value)).collect(),
        }
    }

    fn deviations(&self, found: &mut Findings) {
        if self.baselines.is_empty() {
            return;
        }
        // A call that failed has changed nothing; what it was given is judged as a flow all the same.
        let changed = |act: &Act| took_effect(act) && changes(self.effects, act);
        let mut times: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (index, act) in self.run.acts.iter().enumerate().filter(|(_, act)| changed(act)) {
            times.entry(&act.name).or_insert((index, 0)).1 += 1;
        }
        let mut judge = |act, finds, tool: &str, count| {
            let decision = self.policy.decide(&Action::Baseline(Baseline { finds, tool }));
            if decision.effect != Effect::Allow {
                let what = What::Baseline { finds, tool: tool.to_owned(), baselines: self.baselines.len() };
                let finding = Finding { times: count, ..about(act, &decision, what) };
                found.add((tool, finds.name(), ""), finding);
            }
        };
        for (tool, (first, count)) in &times {
            if !self.baselines.changed_with(tool) {
                judge(Some(*first), Deviation::Unseen, tool, *count);
            } else if *count > self.baselines.most(tool) {
                judge(Some(*first), Deviation::More, tool, *count);
            }
        }
        for tool in self.baselines.always().filter(|tool| !times.contains_key(tool)) {
            judge(None, Deviation::Missing, tool, 1);
        }
    }

    /// A run whose record is not whole, or that ends before the model has said or done anything, shows nothing.
    fn gaps(&self, all_traced: bool, found: &mut Findings) {
        let mut gaps = self.run.gaps.clone();
        let begun = self.run.acts.iter().any(|act| is_done(act) || act.kind == ActKind::Said);
        if !begun {
            gaps.push("nothing is recorded of what the model said or did".to_owned());
        }
        if !all_traced {
            gaps.push(
                "its values and texts repeat each other so often that not all could be traced".to_owned(),
            );
        }
        if gaps.is_empty() {
            return;
        }
        let reason = "a run can only be judged by a whole record".to_owned();
        let what = What::Incomplete { gaps };
        let finding = Finding { act: None, effect: Verdict::Review, rule: None, reason, times: 1, what };
        found.add(("", "gaps", ""), finding);
    }
}

/// The last words, so that what they mention is found like an argument.
fn answer(act: &Act) -> Act {
    Act { args: serde_json::json!({ "text": act.text }), text: String::new(), ..act.clone() }
}

fn about(act: Option<usize>, decision: &Decision, what: What) -> Finding {
    Finding {
        act,
        effect: decision.effect.into(),
        rule: decision.rule_id().map(str::to_owned),
        reason: decision.reason().to_owned(),
        times: 1,
        what,
    }
}

fn word(kind: ActKind) -> &'static str {
    match kind {
        ActKind::Instructed | ActKind::Told | ActKind::Said | ActKind::Model => "",
        ActKind::Tool => "tool",
        ActKind::Egress => "request",
        ActKind::Exec => "exec",
        ActKind::File => "file",
        ActKind::Browser => "browser action",
        ActKind::Step => "step",
    }
}
