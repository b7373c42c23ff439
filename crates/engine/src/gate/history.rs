//! What several results of one suite tell together: whether the last version lost sessions that the one before it
//! passed, and whether the share of passes goes down over all of them. Only signed results are read; nothing is run.

use super::{GateError, GateResult, Verdict, written};
use crate::Engine;
use crate::error::EngineError;
use cofferdam_compare::verdict::{Drift, Paired, Share, drift, paired};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One result, as one of several.
#[derive(Debug, Serialize)]
pub struct Version {
    pub dir: PathBuf,
    pub commit: Option<String>,
    pub outcome: Verdict,
    pub passed: Share,
}

#[derive(Debug, Serialize)]
pub struct History {
    /// The graver of the two below.
    pub outcome: Verdict,
    /// In the order in which they were named: the oldest first.
    pub versions: Vec<Version>,
    /// The last beside the one before it.
    pub paired: Paired,
    /// Sessions that passed before and no longer do.
    pub lost: Vec<String>,
    /// Nothing for fewer than three, or where nothing varies.
    pub drift: Option<Drift>,
}

impl Engine {
    /// Reads the results of these directories, the oldest first.
    pub fn gate_history(&self, dirs: &[PathBuf]) -> Result<History, EngineError> {
        let read = |dir: &PathBuf| Ok((dir.clone(), written::read(self, dir)?));
        let results = dirs.iter().map(read).collect::<Result<Vec<_>, EngineError>>()?;
        let ([.., (_, before), (_, last)], [(_, first), ..]) = (results.as_slice(), results.as_slice())
        else {
            return Err(GateError::Short(results.len()).into());
        };
        if let Some((dir, other)) = results.iter().find(|(_, one)| one.suite.name != first.suite.name) {
            let (dir, suites) = (dir.clone(), [first, other].map(|one| one.suite.name.clone()));
            return Err(GateError::OtherSuite { dir, suites }.into());
        }
        let (old, new) = (passes(before), passes(last));
        let paired = paired(&old, &new);
        let lost = old.iter().filter(|(id, passed)| **passed && new.get(*id) == Some(&false));
        let lost = lost.map(|(id, _)| id.clone()).collect();
        let shares: Vec<Share> = results.iter().map(|(_, one)| one.rates.passed).collect();
        let drift = drift(&shares);
        let outcome = drift.map_or(paired.outcome, |drift| drift.outcome.max(paired.outcome));
        let version = |(dir, one): (PathBuf, GateResult)| Version {
            dir,
            commit: one.agent.commit,
            outcome: one.outcome,
            passed: one.rates.passed,
        };
        Ok(History { outcome, versions: results.into_iter().map(version).collect(), paired, lost, drift })
    }
}

fn passes(result: &GateResult) -> BTreeMap<String, bool> {
    result.sessions.outcomes().map(|(id, outcome)| (id.to_owned(), outcome == Verdict::Pass)).collect()
}
