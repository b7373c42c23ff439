//! The gate: runs every session of a suite, each in its own sandbox, compares it with what was recorded, decides,
//! and writes what proves the decision.
//!
//! ```text
//! plan      which sessions, how many at once, where to
//! baseline  what was recorded: where it lies, whether it is believed
//! side      one trace                      → a run that can be compared, and what is doubtful about it
//! attempt   one session in one sandbox     → a trace
//! judge     baselines and a run            → an outcome and its reasons
//! pool      all of it at once, to be stopped and taken up again
//! written   the files
//! evidence  all of it in one, for whoever asks in a year
//! ```

mod approve;
mod attempt;
mod baseline;
mod detail;
mod difference;
mod each;
mod error;
mod evidence;
mod history;
mod judge;
mod keys;
mod moved;
mod pairs;
mod panel;
mod plan;
mod pool;
mod record;
mod recorded;
mod reports;
mod resume;
mod session;
mod side;
mod version;
mod written;

pub use approve::{Approved, Checked};
pub use baseline::EXTENSION;
pub use difference::Difference;
pub use error::GateError;
pub use evidence::{EvidenceChecked, is_evidence};
pub use history::{History, Version};
pub use keys::{Keys, VARIABLE as KEY_VARIABLE};
pub use pairs::Comparing;
use plan::Rules;
pub use plan::{Options, Plan};
pub use record::{Recorded, Recording};

use crate::suite::{Case, Suite};
use crate::{Engine, EngineError, Stop};
pub use cofferdam_compare::Outcome as Verdict;
pub use cofferdam_compare::delta::{Change, Edit, Hunk, What};
pub use cofferdam_gate::{
    Approval, Counts, GateResult, RunInfo, SessionVerdict, Sessions, Shard, Thresholds,
};
use cofferdam_gate::{Decision, VERSION, decide};
use detail::Lookup;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// What is told while it goes on. Callers may be told from several threads.
#[derive(Debug, Clone)]
pub enum Note {
    Planned { sessions: usize, finished: usize, at_once: usize },
    Started { id: String },
    Again { id: String, attempt: usize },
    Ended { id: String, outcome: Verdict, why: Option<String>, took: Duration },
}

pub type Watch<'a> = &'a (dyn Fn(Note) + Sync);

/// How it ended.
#[derive(Debug)]
pub enum Gated {
    Decided(Box<GateResult>),
    /// By a person; the same command goes on from there.
    Stopped {
        finished: usize,
        sessions: usize,
    },
}

impl Engine {
    /// Runs a suite. An error is ours or of the files it was given; whatever an agent does is a verdict.
    pub fn gate(
        &self,
        suite: &Suite,
        options: &Options,
        stop: &Stop,
        watch: Watch<'_>,
    ) -> Result<Gated, EngineError> {
        let started_us = crate::record::now_us();
        // Before anything is run: a gate that cannot sign has nothing to say.
        let keys = Keys::find(self, options.key.as_deref())?;
        let plan = Plan::new(self, suite, options)?;
        let mut sessions = match pool::run(self, &plan, stop, watch)? {
            pool::Ran::All(sessions) => sessions,
            pool::Ran::Stopped { finished } => {
                return Ok(Gated::Stopped { finished, sessions: plan.cases.len() });
            }
        };
        let Decision { outcome, why, counts, rates } = decide(&mut sessions, &suite.thresholds);
        let result = GateResult {
            version: VERSION,
            outcome,
            why,
            counts,
            rates,
            thresholds: suite.thresholds.clone(),
            suite: suite.material(),
            policy: plan.policy.as_ref().map(|policy| policy.material.clone()),
            agent: plan.agent.clone(),
            sessions,
            run: RunInfo {
                by: options.by.clone(),
                started_us,
                ended_us: crate::record::now_us(),
                shard: options.shard,
                only: options.only.clone(),
            },
        };
        // Reports first: what proves the result is the last to be there.
        let mut believed = plan.believed.clone();
        believed.add(self.public_key()?);
        let cases: HashMap<&str, &Case> = plan.cases.iter().map(|case| (case.id.as_str(), *case)).collect();
        reports::write(
            &options.out,
            &result,
            &Lookup {
                base: &|name| plan.baseline.file(suite, name),
                new: &|name| plan.out.join(name),
                keys: &believed,
                rules: plan.policy.as_ref(),
                thresholds: &suite.thresholds,
                case: &|id| cases.get(id).copied(),
            },
        )?;
        written::write(&options.out, &result, &keys)?;
        evidence::write(&options.out, &result, &inputs(&plan, &result), &keys)?;
        resume::forget(&options.out);
        Ok(Gated::Decided(Box::new(result)))
    }

    /// One result from the directories of shards.
    pub fn merge_gates(
        &self,
        dirs: &[PathBuf],
        out: &std::path::Path,
        key: Option<&std::path::Path>,
    ) -> Result<GateResult, EngineError> {
        let keys = Keys::find(self, key)?;
        let read = |dir: &PathBuf| written::read(self, dir);
        let shards = dirs.iter().map(read).collect::<Result<Vec<_>, EngineError>>()?;
        let mut order: Vec<(usize, String)> = Vec::new();
        for shard in &shards {
            let index = shard.run.shard.map_or(0, |shard| shard.index as usize);
            order.extend(
                shard
                    .sessions
                    .outcomes()
                    .enumerate()
                    .map(|(at, (id, _))| (at * shards.len() + index, id.to_owned())),
            );
        }
        // Sessions were dealt out in turn, so that their places tell the suite's order.
        order.sort();
        let order: Vec<String> = order.into_iter().map(|(_, id)| id).collect();
        let result = cofferdam_gate::merge(shards, &order).map_err(GateError::from)?;
        written::gather(dirs, out)?;
        // Nobody names the suite here: what it was is in the evidence of the shards.
        let (_room, inputs) = evidence::carried(self, dirs, &keys)?;
        let base = |name: &str| {
            let held = evidence::input("baseline", name.rsplit('/').next().unwrap_or(name));
            let found = inputs.iter().find(|(known, _)| *known == held);
            found.map_or_else(|| PathBuf::from(name), |(_, path)| path.clone())
        };
        let rules = result.policy.as_ref().and_then(|policy| {
            let held = evidence::input("inputs/policy", &policy.name);
            let (_, path) = inputs.iter().find(|(known, _)| *known == held)?;
            // It may name files that no shard has brought: then its findings are told without it.
            Rules::read(path, policy.name.clone()).ok().filter(|read| read.material.digest == policy.digest)
        });
        reports::write(
            out,
            &result,
            &Lookup {
                base: &base,
                new: &|name| out.join(name),
                keys: &self.home.trusted_keys()?,
                rules: rules.as_ref(),
                thresholds: &result.thresholds,
                case: &|_| None,
            },
        )?;
        written::write(out, &result, &keys)?;
        evidence::write(out, &result, &inputs, &keys)?;
        Ok(result)
    }
}

/// What a result was made of, under the names that the evidence has for them.
fn inputs(plan: &Plan<'_>, result: &GateResult) -> Vec<(String, PathBuf)> {
    let suite = plan.suite;
    let mut found = vec![(evidence::input("inputs/suite", &result.suite.name), suite.path.clone())];
    if let (Some(material), Some(path)) = (&result.policy, &suite.policy) {
        found.push((evidence::input("inputs/policy", &material.name), path.clone()));
    }
    let baselines = result.sessions.iter().flat_map(|session| session.baselines);
    found.extend(baselines.map(|base| {
        let name = base.name.rsplit('/').next().unwrap_or(&base.name);
        (evidence::input("baseline", name), plan.baseline.file(suite, &base.name))
    }));
    let scorers = suite.scorers.iter().flat_map(|scorer| scorer.files(suite.dir()));
    found.extend(scorers.map(|path| {
        let name = path.strip_prefix(suite.dir()).unwrap_or(&path).to_string_lossy().into_owned();
        (evidence::input("inputs/scorers", &name), path)
    }));
    found.retain(|(_, path)| path.is_file());
    found
}
