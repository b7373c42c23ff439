//! What a report shows of a session beyond its verdict: made anew from the traces, so that nobody has to hold all of
//! them at once.

use super::judge::Seen;
use super::plan::Rules;
use super::side::{self, Whose};
use crate::suite::{Case, Expect};
use cofferdam_compare::verdict::{Comparison, Thresholds};
use cofferdam_gate::SessionVerdict;
use cofferdam_model::Run;
use cofferdam_seal::Keyring;
use std::path::{Path, PathBuf};

pub(super) struct Detail {
    pub(super) comparison: Comparison,
    /// The baseline that it is nearest to.
    pub(super) base: Option<Run>,
    pub(super) new: Run,
}

/// Where traces lie, and what they are judged by.
pub(super) struct Lookup<'a> {
    /// From a baseline's name to its file, and from a new trace's.
    pub(super) base: &'a (dyn Fn(&str) -> PathBuf + Sync),
    pub(super) new: &'a (dyn Fn(&str) -> PathBuf + Sync),
    pub(super) keys: &'a Keyring,
    pub(super) rules: Option<&'a Rules>,
    pub(super) thresholds: &'a Thresholds,
    /// What the suite has of a session, where there is a suite.
    pub(super) case: &'a (dyn Fn(&str) -> Option<&'a Case> + Sync),
}

impl Lookup<'_> {
    /// Nothing where there is nothing to show side by side.
    pub(super) fn find(&self, session: &SessionVerdict) -> Option<Detail> {
        let trace = session.attempts.get(session.told)?.trace.as_ref()?;
        let new = read(&(self.new)(&trace.name), &trace.name, self.keys, Whose::New)?;
        let read_base = |name: &str| read(&(self.base)(name), name, self.keys, Whose::Baseline);
        let mut bases: Vec<_> = session.baselines.iter().filter_map(|one| read_base(&one.name)).collect();
        let seen = Seen { bases: &bases, rules: self.rules, thresholds: self.thresholds };
        let expect = (self.case)(&session.id).map_or_else(Expect::default, |case| case.expect.clone());
        let comparison = seen.judge_case(&new, &expect, Vec::new());
        let nearest = comparison.nearest.filter(|at| *at < bases.len());
        let base = nearest.map(|at| bases.swap_remove(at).run);
        Some(Detail { comparison, base, new: new.run })
    }
}

/// Ours, or someone else's: whichever it is, it could be read before.
fn read(path: &Path, name: &str, keys: &Keyring, whose: Whose) -> Option<side::Side> {
    if let Ok(side) = side::read(path, name, keys, whose) {
        return Some(side);
    }
    let text = std::fs::read_to_string(path).ok()?;
    side::foreign(path, name, &text).ok()?.into_iter().next()
}
