//! One result from those of shards. Shards of different suites, policies or versions are not one result.

use crate::decide::Decision;
use crate::{GateResult, RunInfo, SessionVerdict, Sessions, VERSION, decide};
use std::collections::{BTreeSet, HashMap};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    #[error("there is nothing to merge: name the directories of the shards")]
    Nothing,
    #[error("{what} is not the same in all shards: run them from the same files, then merge")]
    Different { what: &'static str },
    #[error("one of the results is of the whole suite, not of a shard: there is nothing to merge it with")]
    Whole,
    #[error("a shard of {of} is missing: {missing}; run it with --shard {missing}/{of}")]
    Missing { missing: u32, of: u32 },
    #[error("shard {0} is there twice")]
    Twice(u32),
    #[error("the session `{0}` is in two shards")]
    SessionTwice(String),
    #[error("a shard holds only sessions that were picked with --only: run it whole")]
    Picked,
    #[error("a result has the version {found} and this program reads {VERSION}: run the gate again")]
    Version { found: u32 },
}

/// The sessions come in the order of `order`, which is the suite's.
pub fn merge(results: Vec<GateResult>, order: &[String]) -> Result<GateResult, MergeError> {
    let first = results.first().ok_or(MergeError::Nothing)?.clone();
    let of = first.run.shard.ok_or(MergeError::Whole)?.of;
    let mut seen = BTreeSet::new();
    for result in &results {
        let shard = result.run.shard.ok_or(MergeError::Whole)?;
        let same = [
            ("the suite", result.suite == first.suite && shard.of == of),
            ("the policy", result.policy == first.policy),
            ("the agent", result.agent == first.agent),
        ];
        if let Some((what, _)) = same.into_iter().find(|(_, same)| !same) {
            return Err(MergeError::Different { what });
        }
        if result.version != VERSION {
            return Err(MergeError::Version { found: result.version });
        }
        if !result.run.only.is_empty() {
            return Err(MergeError::Picked);
        }
        if !seen.insert(shard.index) {
            return Err(MergeError::Twice(shard.index));
        }
    }
    if let Some(missing) = (1..=of).find(|index| !seen.contains(index)) {
        return Err(MergeError::Missing { missing, of });
    }
    let run = RunInfo {
        started_us: results.iter().map(|one| one.run.started_us).min().unwrap_or_default(),
        ended_us: results.iter().map(|one| one.run.ended_us).max().unwrap_or_default(),
        shard: None,
        ..first.run.clone()
    };
    let mut sessions: Vec<SessionVerdict> = results.iter().flat_map(|one| one.sessions.iter()).collect();
    let places: HashMap<&str, usize> = order.iter().enumerate().map(|(at, id)| (id.as_str(), at)).collect();
    let place = |id: &str| places.get(id).copied().unwrap_or(usize::MAX);
    sessions.sort_by(|a, b| (place(&a.id), &a.id).cmp(&(place(&b.id), &b.id)));
    if let Some(pair) = sessions.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(MergeError::SessionTwice(pair[0].id.clone()));
    }
    let mut sessions: Sessions = sessions.into_iter().collect();
    let Decision { outcome, why, counts, rates } = decide(&mut sessions, &first.thresholds);
    Ok(GateResult { outcome, why, counts, rates, sessions, run, ..first })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shard;
    use crate::statement::tests::result;
    use cofferdam_compare::Outcome;

    fn shard(index: u32, of: u32, id: &str, outcome: Outcome) -> GateResult {
        let mut one = result(&[(id, outcome)]);
        one.run.shard = Some(Shard { index, of });
        one
    }

    #[test]
    fn shards_become_one_in_the_order_of_the_suite() {
        let (one, two) = (shard(1, 2, "b", Outcome::Pass), shard(2, 2, "a", Outcome::Fail));
        let merged = merge(vec![one, two], &["a".into(), "b".into()]).unwrap();
        let ids: Vec<_> = merged.sessions.outcomes().map(|(id, _)| id).collect();
        assert_eq!((ids, merged.outcome, merged.counts.sessions), (vec!["a", "b"], Outcome::Fail, 2));
        assert_eq!(merged.run.shard, None);
    }

    #[test]
    fn what_does_not_belong_together_is_named() {
        let pass = |index, of, id| shard(index, of, id, Outcome::Pass);
        let check = |results: Vec<GateResult>, expected: MergeError| {
            assert_eq!(merge(results, &[]).unwrap_err(), expected);
        };
        check(vec![], MergeError::Nothing);
        check(vec![pass(1, 2, "a")], MergeError::Missing { missing: 2, of: 2 });
        check(vec![pass(1, 2, "a"), pass(1, 2, "b")], MergeError::Twice(1));
        check(vec![pass(1, 2, "a"), pass(2, 2, "a")], MergeError::SessionTwice("a".into()));
        check(vec![result(&[("a", Outcome::Pass)])], MergeError::Whole);
        let mut other = pass(2, 2, "b");
        other.agent.commit = Some("0".repeat(40));
        check(vec![pass(1, 2, "a"), other], MergeError::Different { what: "the agent" });
    }
}
