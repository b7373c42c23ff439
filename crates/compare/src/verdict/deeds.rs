//! What a run did to the world, as a bag: the calls that change state and were carried out. Two bags are matched call
//! by call, so that retries, detours and another order of the same effects do not count.

use crate::delta::{Edit, Renaming};
use crate::effects::Effects;
use cofferdam_model::{ActKind, Run, Status};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// One effect that was carried out.
#[derive(Debug, Clone)]
pub(super) struct Deed {
    /// The act's index in its run.
    pub(super) act: usize,
    pub(super) kind: ActKind,
    pub(super) name: String,
    pub(super) args: Value,
}

/// Arguments of a tool that differ between baselines: `(tool, pointer)`.
pub(super) type Free = BTreeSet<(String, String)>;

#[derive(Debug, Clone, Default)]
pub(super) struct Match {
    /// Indices into both bags, with the distance and what differs.
    pub(super) changed: Vec<(usize, usize, f64, Vec<Edit>)>,
    pub(super) removed: Vec<usize>,
    pub(super) added: Vec<usize>,
    pub(super) distance: f64,
}

pub(super) fn deeds(run: &Run, effects: &Effects) -> Vec<Deed> {
    let done = |status: Status| matches!(status, Status::Ok | Status::Unanswered);
    let acts = run.acts.iter().enumerate();
    let chosen = acts.filter(|(_, a)| done(a.status) && effects.changes(a) && !effects.hands_over(a));
    chosen.map(|(act, a)| Deed { act, kind: a.kind, name: a.name.clone(), args: a.args.clone() }).collect()
}

/// The new run's values under the names that the base has for them.
pub(super) fn renamed(mut deeds: Vec<Deed>, renaming: &[Renaming]) -> Vec<Deed> {
    if renaming.is_empty() {
        return deeds;
    }
    let table: BTreeMap<&str, &str> = renaming.iter().map(|r| (r.to.as_str(), r.from.as_str())).collect();
    for deed in &mut deeds {
        rename(&mut deed.args, &table, 0);
        if deed.kind == ActKind::Egress {
            deed.name = swapped(&deed.name, &table);
        }
    }
    deeds
}

fn rename(value: &mut Value, table: &BTreeMap<&str, &str>, depth: usize) {
    match value {
        Value::String(text) => *text = swapped(text, table),
        Value::Array(items) if depth < 100 => items.iter_mut().for_each(|v| rename(v, table, depth + 1)),
        Value::Object(map) if depth < 100 => map.values_mut().for_each(|v| rename(v, table, depth + 1)),
        _ => {}
    }
}

fn swapped(text: &str, table: &BTreeMap<&str, &str>) -> String {
    if let Some(whole) = table.get(text) {
        return (*whole).to_owned();
    }
    let holds = |name: &&&str| text.contains(**name);
    table.keys().filter(holds).fold(text.to_owned(), |text, name| text.replace(*name, table[name]))
}

/// Of one tool's deeds that have no equal, no more than this many are compared with each other.
const CANDIDATES: usize = 48;

pub(super) fn matched(base: &[Deed], new: &[Deed], free: &Free, options: &crate::delta::Options) -> Match {
    let mut found = Match::default();
    let mut open: BTreeMap<(&str, String), Vec<usize>> = BTreeMap::new();
    for (at, deed) in base.iter().enumerate().rev() {
        open.entry((&deed.name, deed.args.to_string())).or_default().push(at);
    }
    let mut left: BTreeSet<usize> = (0..base.len()).collect();
    let mut fresh: Vec<usize> = Vec::new();
    for (at, deed) in new.iter().enumerate() {
        match open.get_mut(&(deed.name.as_str(), deed.args.to_string())).and_then(Vec::pop) {
            Some(same) => drop(left.remove(&same)),
            None => fresh.push(at),
        }
    }
    let mut rated = Vec::new();
    for j in fresh.iter().copied() {
        let of_tool =
            left.iter().copied().filter(|i| base[*i].name == new[j].name && base[*i].kind == new[j].kind);
        for i in of_tool.take(CANDIDATES) {
            let edits = differing(&base[i], &new[j], free, options);
            let distance = weigh(&edits);
            rated.push((distance, j, i, edits));
        }
    }
    rated.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut taken = BTreeSet::new();
    for (distance, j, i, edits) in rated {
        if left.contains(&i) && taken.insert(j) {
            left.remove(&i);
            found.distance += distance;
            found.changed.push((i, j, distance, edits));
        }
    }
    found.removed = left.into_iter().collect();
    found.added = fresh.into_iter().filter(|j| !taken.contains(j)).collect();
    found.distance += (found.removed.len() + found.added.len()) as f64;
    found.changed.retain(|(_, _, distance, _)| *distance > 0.0);
    found.changed.sort_by_key(|(_, j, ..)| *j);
    found
}

fn differing(base: &Deed, new: &Deed, free: &Free, options: &crate::delta::Options) -> Vec<Edit> {
    let edits = crate::delta::edits(&base.args, &new.args).into_iter();
    let tolerated = |edit: &Edit| {
        let known = free.contains(&(base.name.clone(), edit.path().to_owned()));
        known || options.tolerances.iter().any(|t| t.allows(&base.name, edit))
    };
    edits.filter(|edit| !tolerated(edit)).collect()
}

/// What baselines themselves do not agree on.
pub(super) fn free(bags: &[Vec<Deed>], options: &crate::delta::Options) -> Free {
    let mut free = Free::new();
    for (at, one) in bags.iter().enumerate() {
        for other in &bags[at + 1..] {
            for (i, _, _, edits) in matched(one, other, &Free::new(), options).changed {
                free.extend(edits.iter().map(|edit| (one[i].name.clone(), edit.path().to_owned())));
            }
        }
    }
    free
}

/// Below this a difference is one of wording.
pub(super) const HARD: f64 = 0.5;

/// How much of an effect these differences are: a value that is another one makes it at least half another effect,
/// other words for the same thing a fifth at most.
fn weigh(edits: &[Edit]) -> f64 {
    let (mut hard, mut soft) = (0_u32, 0.0_f64);
    for edit in edits {
        match softness(edit) {
            Some(weight) => soft += weight,
            None => hard += 1,
        }
    }
    let soft = soft.min(0.3);
    if hard == 0 { soft } else { (HARD + 0.1 * f64::from(hard) + soft).min(1.0) }
}

/// None for a value that is another one.
pub(super) fn softness(edit: &Edit) -> Option<f64> {
    match edit {
        Edit::Put { value, .. } | Edit::Take { value, .. } => is_default(value).then_some(0.02),
        Edit::Set { from, to, .. } => match (from, to) {
            _ if is_default(from) && is_default(to) => Some(0.02),
            (Value::String(a), Value::String(b)) => {
                let (a, b) = (words(a), words(b));
                // One word for another is a value for another; of sentences some words may differ.
                if a == b {
                    return Some(0.01);
                }
                let short = a.len().min(b.len()) < 4;
                let shared = a.intersection(&b).count() as f64 / a.union(&b).count().max(1) as f64;
                (!short && numbers(&a) == numbers(&b)).then_some(0.2 * (1.0 - shared))
            }
            (a, b) => (a.as_f64().is_some() && a.as_f64() == b.as_f64()).then_some(0.0),
        },
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(_) => false,
    }
}

fn words(text: &str) -> BTreeSet<String> {
    let split = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    split.map(str::to_lowercase).collect()
}

fn numbers(words: &BTreeSet<String>) -> BTreeSet<&String> {
    words.iter().filter(|word| word.bytes().any(|b| b.is_ascii_digit())).collect()
}
