//! Which record each statement of an answer tells of: the one in which two or more of its claims were read, and no other
//! has as many.

use super::extract::Answer;
use std::collections::BTreeMap;

/// A claim that was read in more records than this tells of none.
const SPREAD: usize = 24;
/// Claims of a statement that are asked.
const MOST: usize = 24;

#[derive(Default)]
pub(super) struct Binding {
    /// By statement.
    pub(super) told: Vec<Option<usize>>,
}

impl Binding {
    pub(super) fn of(answer: &Answer, homes: &[Vec<(usize, usize)>]) -> Self {
        let mut claims: Vec<Vec<usize>> = vec![Vec::new(); answer.statements.len()];
        for (at, claim) in answer.claims.iter().enumerate() {
            claims[claim.statement].push(at);
        }
        Self { told: claims.iter().map(|claims| most(claims, homes)).collect() }
    }
}

/// The record that most of these claims were read in; what was read in few places says more.
fn most(claims: &[usize], homes: &[Vec<(usize, usize)>]) -> Option<usize> {
    let mut shares: BTreeMap<usize, (f32, usize)> = BTreeMap::new();
    for at in claims.iter().take(MOST) {
        let mut records: Vec<usize> = homes[*at].iter().map(|home| home.0).collect();
        records.sort_unstable();
        records.dedup();
        if records.len() > SPREAD {
            continue;
        }
        for record in &records {
            let share = shares.entry(*record).or_default();
            share.0 += 1.0 / (records.len() as f32).sqrt();
            share.1 += 1;
        }
    }
    let (best, (most, by)) = shares.iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    let alone = shares.iter().all(|(record, (share, _))| record == best || share + 0.01 < *most);
    (alone && *by > 1).then_some(*best)
}
