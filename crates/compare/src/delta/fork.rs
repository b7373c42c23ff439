//! Where a run took another path: the first act from which on little of the old path is left.

use super::{Change, What};
use crate::align::Step;
use cofferdam_model::Run;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// The first act of the base that was not followed.
    pub base: usize,
    /// The first act of the new run that was done instead.
    pub new: usize,
    /// How many acts of the base were given up from there on, and how many were done in their place.
    pub left: usize,
    pub taken: usize,
}

#[derive(Clone, Copy, Default)]
struct Rest {
    same: usize,
    removed: usize,
    added: usize,
}

/// Only what was done makes a path; what was said along the way does not.
pub(super) fn find(base: &Run, new: &Run, steps: &[Step], changes: &[Change]) -> Option<Fork> {
    let acts = |run: &Run, at: Option<usize>| at.is_some_and(|at| !super::is_words(run.acts[at].kind));
    let done: Vec<&Step> = steps.iter().filter(|s| acts(base, s.base) || acts(new, s.new)).collect();
    let differs: BTreeSet<usize> = changes.iter().filter(|c| is_other(c)).filter_map(|c| c.new).collect();
    let gone: BTreeSet<usize> =
        changes.iter().filter(|c| matches!(c.what, What::Removed)).filter_map(|c| c.base).collect();
    let came: BTreeSet<usize> =
        changes.iter().filter(|c| matches!(c.what, What::Added { .. })).filter_map(|c| c.new).collect();
    // What is left of the old path from each step on.
    let mut rests = vec![Rest::default(); done.len() + 1];
    for (at, step) in done.iter().enumerate().rev() {
        let mut rest = rests[at + 1];
        rest.removed += usize::from(step.base.is_some_and(|i| gone.contains(&i)));
        rest.added += usize::from(step.new.is_some_and(|j| came.contains(&j)));
        let paired = step.base.is_some() && step.new.is_some_and(|j| !differs.contains(&j));
        rest.same += usize::from(paired);
        rests[at] = rest;
    }
    let at = (0..done.len()).find(|at| {
        let (step, rest) = (done[*at], rests[*at]);
        let here =
            step.base.is_none_or(|i| gone.contains(&i)) || step.new.is_none_or(|j| differs.contains(&j));
        here && rest.removed > 0 && rest.added > 0 && rest.same * 3 <= rest.removed.min(rest.added)
    })?;
    let base_at = done[at..].iter().filter_map(|s| s.base).min().unwrap_or(base.acts.len());
    let new_at = done[at..].iter().filter_map(|s| s.new).min().unwrap_or(new.acts.len());
    Some(Fork { base: base_at, new: new_at, left: rests[at].removed, taken: rests[at].added })
}

/// Whether the act is another one now: not merely answered otherwise.
fn is_other(change: &Change) -> bool {
    matches!(change.what, What::Added { .. } | What::Duplicated { .. } | What::Argument(_) | What::Moved)
}
