//! What alignment left unpaired: calls that stand elsewhere now, calls that were made once more, and the rest.

use crate::align::Step;
use cofferdam_model::{Act, ActKind, Run};
use serde_json::Value;
use std::collections::{HashMap, HashSet, VecDeque};

#[derive(Default)]
pub(super) struct Found {
    /// Pairs in place and moved, in the order of the new run.
    pub(super) pairs: Vec<(usize, usize)>,
    pub(super) moved: Vec<(usize, usize)>,
    pub(super) removed: Vec<usize>,
    /// With the act of the base that it repeats.
    pub(super) added: Vec<(usize, Option<usize>)>,
}

impl Found {
    /// Where each act of the base stands in the new run.
    pub(super) fn places(&self, acts: usize) -> Vec<Option<usize>> {
        let mut places = vec![None; acts];
        for (i, j) in &self.pairs {
            places[*i] = Some(*j);
        }
        places
    }
}

type Key<'a> = (ActKind, &'a str, String);

fn key(act: &Act) -> Key<'_> {
    // Words have no arguments: they are the same where they say the same.
    (act.kind, &act.name, if super::is_words(act.kind) { act.text.clone() } else { act.args.to_string() })
}

pub(super) fn find(base: &Run, new: &Run, steps: &[Step]) -> Found {
    let mut found = Found::default();
    let (mut left, mut fresh) = (Vec::new(), Vec::new());
    for step in steps {
        match (step.base, step.new) {
            (Some(i), Some(j)) => found.pairs.push((i, j)),
            (Some(i), None) => left.push(i),
            (None, Some(j)) => fresh.push(j),
            (None, None) => {}
        }
    }
    if !left.is_empty() && !fresh.is_empty() {
        exact(base, new, &mut left, &mut fresh, &mut found.moved);
        similar(base, new, &mut left, &mut fresh, &mut found.moved);
    }
    exchange(base, new, &mut found);
    found.pairs.extend(&found.moved);
    found.pairs.sort_by_key(|(_, j)| *j);
    found.removed = left;
    found.added = repeated(base, new, fresh);
    found
}

fn exact(
    base: &Run,
    new: &Run,
    left: &mut Vec<usize>,
    fresh: &mut Vec<usize>,
    moved: &mut Vec<(usize, usize)>,
) {
    let mut waiting: HashMap<Key<'_>, VecDeque<usize>> = HashMap::new();
    left.iter().for_each(|i| waiting.entry(key(&base.acts[*i])).or_default().push_back(*i));
    let mut taken = HashSet::new();
    fresh.retain(|j| match waiting.get_mut(&key(&new.acts[*j])).and_then(VecDeque::pop_front) {
        Some(i) => {
            moved.push((i, *j));
            taken.insert(i);
            false
        }
        None => true,
    });
    left.retain(|i| !taken.contains(i));
}

/// Calls of one tool that only changed places look like calls that all changed: where the arguments of some pairs are a
/// permutation of each other, they were moved.
fn exchange(base: &Run, new: &Run, found: &mut Found) {
    let changed: Vec<(usize, usize)> = found
        .pairs
        .iter()
        .copied()
        .filter(|(i, j)| !super::is_words(base.acts[*i].kind) && base.acts[*i].args != new.acts[*j].args)
        .collect();
    let mut owner: HashMap<Key<'_>, Option<usize>> = HashMap::new();
    for (at, (i, _)) in changed.iter().enumerate() {
        // A key that two of them have leads nowhere for certain.
        owner.entry(key(&base.acts[*i])).and_modify(|owner| *owner = None).or_insert(Some(at));
    }
    let next: Vec<Option<usize>> =
        changed.iter().map(|(_, j)| owner.get(&key(&new.acts[*j])).copied().flatten()).collect();
    let mut seen = vec![false; changed.len()];
    for start in 0..changed.len() {
        let mut round = Vec::new();
        let mut at = Some(start);
        while let Some(here) = at.filter(|here| !seen[*here]) {
            seen[here] = true;
            round.push(here);
            at = next[here];
        }
        if at == Some(start) && round.len() > 1 {
            // What stands in one pair's place now stood in the next one's before.
            let moves = round.iter().filter_map(|here| Some((changed[next[*here]?].0, changed[*here].1)));
            found.moved.extend(moves);
            found.pairs.retain(|pair| !round.iter().any(|here| changed[*here] == *pair));
        }
    }
}

/// Of one tool's leftovers no more than this many are looked at: the time goes with the square.
const CANDIDATES: usize = 64;

/// Moved and changed: the same tool with at least half of its arguments.
fn similar(
    base: &Run,
    new: &Run,
    left: &mut Vec<usize>,
    fresh: &mut Vec<usize>,
    moved: &mut Vec<(usize, usize)>,
) {
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
    for i in left.iter().filter(|i| base.acts[**i].args.is_object()) {
        by_name.entry(&base.acts[*i].name).or_default().push(*i);
    }
    let mut taken = HashSet::new();
    fresh.retain(|j| {
        let act = &new.acts[*j];
        let Some(candidates) = by_name.get_mut(act.name.as_str()) else { return true };
        let open = candidates.iter().take(CANDIDATES).enumerate();
        let of_kind = open.filter(|(_, i)| base.acts[**i].kind == act.kind);
        let rated = of_kind.map(|(at, i)| (shared(&base.acts[*i].args, &act.args), at));
        match rated.filter(|(share, _)| *share >= 0.5).max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))
        {
            Some((_, at)) => {
                let i = candidates.remove(at);
                moved.push((i, *j));
                taken.insert(i);
                false
            }
            None => true,
        }
    });
    left.retain(|i| !taken.contains(i));
}

/// The share of fields that have the same value in both.
fn shared(a: &Value, b: &Value) -> f64 {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return 0.0 };
    let same = a.iter().filter(|(key, value)| b.get(*key) == Some(*value)).count();
    same as f64 / a.len().max(b.len()).max(1) as f64
}

fn repeated(base: &Run, new: &Run, fresh: Vec<usize>) -> Vec<(usize, Option<usize>)> {
    if fresh.is_empty() {
        return Vec::new();
    }
    let mut first: HashMap<Key<'_>, usize> = HashMap::new();
    for (i, act) in base.acts.iter().enumerate() {
        first.entry(key(act)).or_insert(i);
    }
    fresh.into_iter().map(|j| (j, first.get(&key(&new.acts[j])).copied())).collect()
}
