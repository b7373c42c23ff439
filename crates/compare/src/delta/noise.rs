//! Differences that mean nothing. A value counts as dealt out anew only if each run shows where it came from (its own
//! results, or chance), neither run knows the other's value, and it is renamed the same way throughout: one value of the
//! base for one of the new run. A value that an agent chose, mixed up or made up is never noise.

use super::edits::{self, Edit};
use super::tokens::{Shape, may_have_shape, shape, tokens};
use cofferdam_model::{ActKind, Run};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseKind {
    /// An id that the world dealt out.
    Id,
    /// A random name, a digest, a UUID.
    Random,
    Time,
    Port,
    /// The same value, written otherwise.
    Notation,
    /// The team declared it to be none.
    Tolerated,
    /// How acts are grouped, not what they are.
    Structure,
}

impl From<Shape> for NoiseKind {
    fn from(shape: Shape) -> Self {
        match shape {
            Shape::Random => Self::Random,
            Shape::Time => Self::Time,
            Shape::Port => Self::Port,
            Shape::Id => Self::Id,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renaming {
    pub kind: NoiseKind,
    pub from: String,
    pub to: String,
}

/// What a run knows of the values in question, and since when.
struct Known<'a> {
    /// Sorted: nothing else is looked for.
    values: Vec<&'a str>,
    facts: Vec<Fact>,
}

#[derive(Clone, Copy, Default)]
struct Fact {
    /// The act whose result first had it.
    result: Option<usize>,
    /// From the operator or the user.
    given: bool,
    anywhere: bool,
}

impl<'a> Known<'a> {
    fn of(run: &Run, values: Vec<&'a str>) -> Self {
        let mut known = Self { facts: vec![Fact::default(); values.len()], values };
        for (at, act) in run.acts.iter().enumerate() {
            known.see(&act.name, |fact| fact.anywhere = true);
            strings(&act.args, &mut |text| known.see(text, |fact| fact.anywhere = true), 0);
            let given = matches!(act.kind, ActKind::Instructed | ActKind::Told);
            let result = !given && act.kind != ActKind::Said;
            known.see(&act.text, |fact| {
                fact.anywhere = true;
                fact.given |= given;
                fact.result = fact.result.or(result.then_some(at));
            });
        }
        known
    }

    fn see(&mut self, text: &str, mut tell: impl FnMut(&mut Fact)) {
        for token in tokens(text).filter(|token| may_have_shape(token)) {
            if let Ok(at) = self.values.binary_search(&token) {
                tell(&mut self.facts[at]);
            }
        }
    }

    fn fact(&self, value: &str) -> Fact {
        self.values.binary_search(&value).map_or_else(|_| Fact::default(), |at| self.facts[at])
    }
}

fn strings<'a>(value: &'a Value, see: &mut impl FnMut(&'a str), depth: usize) {
    match value {
        Value::String(text) => see(text),
        Value::Array(items) if depth < 100 => items.iter().for_each(|item| strings(item, see, depth + 1)),
        Value::Object(map) if depth < 100 => map.values().for_each(|item| strings(item, see, depth + 1)),
        _ => {}
    }
}

/// Two values of one shape in the same place of both runs.
#[derive(PartialEq, Eq, Hash)]
struct Candidate {
    from: String,
    to: String,
    shape: Shape,
    /// In an argument or a name: an agent chose it.
    chosen: bool,
    /// The acts.
    at: (usize, usize),
}

impl Candidate {
    /// Both runs show where it came from: from results before, or from chance.
    fn is_dealt(&self, old: &Known<'_>, fresh: &Known<'_>) -> bool {
        let (from, to) = (old.fact(&self.from), fresh.fact(&self.to));
        let before = |fact: Fact, at: usize| fact.result.is_some_and(|since| since < at);
        let world = before(from, self.at.0) && before(to, self.at.1);
        let chance = matches!(self.shape, Shape::Random | Shape::Port);
        world || (chance && !from.given && !to.given)
    }
}

fn candidates(base: &Run, new: &Run, pairs: &[(usize, usize)]) -> HashSet<Candidate> {
    let mut found = HashSet::new();
    for (i, j) in pairs.iter().copied() {
        let (a, b) = (&base.acts[i], &new.acts[j]);
        let mut see = |a: &str, b: &str, chosen: bool| {
            for (from, to) in zipped(a, b).into_iter().flatten() {
                if let Some(shape) = shape(from).filter(|s| shape(to) == Some(*s)) {
                    found.insert(Candidate { from: from.into(), to: to.into(), shape, chosen, at: (i, j) });
                }
            }
        };
        if a.text != b.text {
            see(&a.text, &b.text, false);
        }
        if a.name != b.name {
            see(&a.name, &b.name, true);
        }
        for edit in edits::between(&a.args, &b.args) {
            if let Edit::Set { from, to, .. } = &edit {
                see(&plain(from), &plain(to), true);
            }
        }
    }
    found
}

/// Which values stand for which, in both directions.
#[derive(Default)]
pub(super) struct Renamings {
    accepted: BTreeMap<String, (String, NoiseKind)>,
}

impl Renamings {
    pub(super) fn between(base: &Run, new: &Run, pairs: &[(usize, usize)]) -> Self {
        let candidates = candidates(base, new, pairs);
        // What the runs know is worth finding out only where something might have been dealt out anew.
        if candidates.is_empty() {
            return Self::default();
        }
        let mut values: Vec<&str> =
            candidates.iter().flat_map(|one| [one.from.as_str(), one.to.as_str()]).collect();
        values.sort_unstable();
        values.dedup();
        let (old, fresh) = (Known::of(base, values.clone()), Known::of(new, values));
        let mut forward: BTreeMap<&str, BTreeSet<(&str, NoiseKind)>> = BTreeMap::new();
        let mut backward: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for one in &candidates {
            let (from, to) = (one.from.as_str(), one.to.as_str());
            let foreign = !fresh.fact(from).anywhere && !old.fact(to).anywhere;
            if foreign && (!one.chosen || one.is_dealt(&old, &fresh)) {
                forward.entry(from).or_default().insert((to, one.shape.into()));
                backward.entry(to).or_default().insert(from);
            }
        }
        let one = |(from, to): (&str, BTreeSet<(&str, NoiseKind)>)| {
            let mut names: Vec<_> = to.into_iter().collect();
            let (to, kind) = names.pop().filter(|_| names.is_empty())?;
            let alone = backward.get(to).map(BTreeSet::len) == Some(1);
            alone.then(|| (from.to_owned(), (to.to_owned(), kind)))
        };
        Self { accepted: forward.into_iter().filter_map(one).collect() }
    }

    /// What kind of noise makes the one text the other; none if anything else differs.
    pub(super) fn text(&self, a: &str, b: &str) -> Option<NoiseKind> {
        let mut kind = NoiseKind::Notation;
        for (from, to) in zipped(a, b)? {
            let (known, noise) = self.accepted.get(from)?;
            if known != to {
                return None;
            }
            kind = *noise;
        }
        // Nothing but separators differs: only white space may.
        let bare = || a.split_whitespace().flat_map(str::chars).eq(b.split_whitespace().flat_map(str::chars));
        (kind != NoiseKind::Notation || bare()).then_some(kind)
    }

    pub(super) fn edit(&self, edit: &Edit) -> Option<NoiseKind> {
        match edit {
            // An optional argument that is not given is null.
            Edit::Put { value: Value::Null, .. } | Edit::Take { value: Value::Null, .. } => {
                Some(NoiseKind::Notation)
            }
            Edit::Put { .. } | Edit::Take { .. } => None,
            Edit::Set { from, to, .. } => match (edits::number(from), edits::number(to)) {
                (Some(a), Some(b)) if a == b => Some(NoiseKind::Notation),
                _ if is_leaf(from) && is_leaf(to) => self.text(&plain(from), &plain(to)),
                _ => None,
            },
        }
    }

    pub(super) fn into_list(self) -> Vec<Renaming> {
        let each = self.accepted.into_iter();
        each.map(|(from, (to, kind))| Renaming { kind, from, to }).collect()
    }
}

fn is_leaf(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_))
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// The tokens of both that differ, side by side; none if there are more in one.
fn zipped<'a>(a: &'a str, b: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    let (mut left, mut right) = (tokens(a), tokens(b));
    let mut pairs = Vec::new();
    loop {
        match (left.next(), right.next()) {
            (Some(x), Some(y)) if x == y => {}
            (Some(x), Some(y)) => pairs.push((x, y)),
            (None, None) => return Some(pairs),
            _ => return None,
        }
    }
}
