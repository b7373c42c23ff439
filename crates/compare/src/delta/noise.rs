//! Differences that mean nothing. A value counts as dealt out anew only if each run shows where it came from (its own
//! results, or chance), neither run knows the other's value, and it is renamed the same way throughout: one value of the
//! base for one of the new run. A value that an agent chose, mixed up or made up is never noise.

use super::edits::{self, Edit};
use super::tokens::{Shape, shape, tokens};
use cofferdam_model::{ActKind, Run};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

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

/// What a run knows, and since when.
#[derive(Default)]
struct Known<'a> {
    /// The act whose result first had it.
    results: HashMap<&'a str, usize>,
    /// From the operator or the user.
    given: HashSet<&'a str>,
    all: HashSet<&'a str>,
}

impl<'a> Known<'a> {
    fn of(run: &'a Run) -> Self {
        let mut known = Self::default();
        for (at, act) in run.acts.iter().enumerate() {
            known.all.extend(tokens(&act.name));
            strings(&act.args, &mut |text| known.all.extend(tokens(text)), 0);
            known.all.extend(tokens(&act.text));
            match act.kind {
                ActKind::Instructed | ActKind::Told => known.given.extend(tokens(&act.text)),
                ActKind::Said => {}
                _ => tokens(&act.text).for_each(|token| {
                    known.results.entry(token).or_insert(at);
                }),
            }
        }
        known
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
        let before = |known: &Known<'_>, value: &str, at| known.results.get(value).is_some_and(|s| *s < at);
        let world = before(old, &self.from, self.at.0) && before(fresh, &self.to, self.at.1);
        let chance = matches!(self.shape, Shape::Random | Shape::Port);
        world
            || (chance && !old.given.contains(self.from.as_str()) && !fresh.given.contains(self.to.as_str()))
    }
}

fn candidates(base: &Run, new: &Run, pairs: &[(usize, usize)]) -> HashSet<Candidate> {
    let mut found = HashSet::new();
    for (i, j) in pairs.iter().copied() {
        let (a, b) = (&base.acts[i], &new.acts[j]);
        let mut see = |a: &str, b: &str, chosen: bool| {
            for (from, to) in zipped(a, b).into_iter().flatten().filter(|(from, to)| from != to) {
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
        let (old, fresh) = (Known::of(base), Known::of(new));
        let mut forward: BTreeMap<&str, BTreeSet<(&str, NoiseKind)>> = BTreeMap::new();
        let mut backward: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for one in &candidates {
            let (from, to) = (one.from.as_str(), one.to.as_str());
            let foreign = !fresh.all.contains(from) && !old.all.contains(to);
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
        for (from, to) in zipped(a, b)?.into_iter().filter(|(from, to)| from != to) {
            let (known, noise) = self.accepted.get(from)?;
            if known != to {
                return None;
            }
            kind = *noise;
        }
        // Nothing but separators differs: only white space may.
        let bare = |text: &str| text.split_whitespace().collect::<Vec<_>>().concat();
        (kind != NoiseKind::Notation || bare(a) == bare(b)).then_some(kind)
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

/// The tokens of both, side by side; none if there are more in one.
fn zipped<'a>(a: &'a str, b: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    let (mut left, mut right) = (tokens(a), tokens(b));
    let mut pairs = Vec::new();
    loop {
        match (left.next(), right.next()) {
            (Some(x), Some(y)) => pairs.push((x, y)),
            (None, None) => return Some(pairs),
            _ => return None,
        }
    }
}
