//! Seeded mutations of real runs: each must be found, at its place, and nothing else.

use crate::data::Data;
use crate::table::Table;
use cofferdam_compare::delta::{self, Diff, Options, What, is_words};
use cofferdam_compare::effects::Effects;
use cofferdam_model::{Act, Run, Status};
use fastrand::Rng;
use serde_json::{Value, json};

/// Mutated runs per kind.
const EACH: usize = 1500;

/// What a diff says, without the texts: the code and where. Positions are in the new run but for what is gone.
#[derive(Debug, Clone, PartialEq)]
enum Item {
    Added(usize),
    Duplicated(usize),
    Removed(usize),
    Moved(usize),
    Argument(usize, String),
    Status(usize),
    Text(usize),
    Branch(usize, usize),
}

/// A mutated run with what a right answer is: all of `all`, and of `any` at least one and nothing else.
struct Mutant {
    run: Run,
    all: Vec<Item>,
    any: Vec<Item>,
}

type Mutate = fn(&Run, &[usize], &Run, &mut Rng) -> Option<Mutant>;

const KINDS: &[(&str, Mutate)] = &[
    ("add", add),
    ("drop", drop_one),
    ("swap", swap),
    ("duplicate", duplicate),
    ("argument", argument),
    ("status", status),
    ("branch", branch),
];

pub fn run(data: &Data) -> Table {
    let mut table = Table::default();
    let runs: Vec<&Run> = data.dojo.iter().map(|d| &d.run).filter(|r| calls(r).len() >= 2).collect();
    for (name, mutate) in KINDS {
        let mut rng = Rng::with_seed(7);
        let (mut made, mut said, mut right, mut hit) = (0, 0, 0, 0);
        while made < EACH {
            let (base, other) = (runs[rng.usize(..runs.len())], runs[rng.usize(..runs.len())]);
            let Some(mutant) = mutate(base, &calls(base), other, &mut rng) else { continue };
            made += 1;
            let diff = delta::diff(base, &mutant.run, &Effects::default(), &Options::default());
            let items = items(&diff);
            let good =
                |item: &&Item| mutant.all.iter().chain(&mutant.any).any(|w| same(w, item, base, &mutant.run));
            let right_here = items.iter().filter(good).count();
            said += items.len();
            right += right_here;
            let has = |wanted: &Item| items.iter().any(|item| same(wanted, item, base, &mutant.run));
            let found = mutant.all.iter().all(has) && (mutant.any.is_empty() || mutant.any.iter().any(has));
            hit += usize::from(found);
            if std::env::var_os("EVAL_VERBOSE").is_some() && (!found || right_here < items.len()) {
                eprintln!(
                    "{name}: wanted {:?} any {:?}, found {items:?} in {}",
                    mutant.all, mutant.any, base.id
                );
            }
        }
        table.share(format!("{name}: recall"), hit, made, "≥ 0.99");
        table.share(format!("{name}: precision"), right, said, "≥ 0.99");
    }
    table.note(format!(
        "{EACH} mutants per kind of {} AgentDojo runs with two calls or more. An answer is right if it names the kind, \
         the act and, for arguments, the JSON pointer; everything else that is said counts against precision.",
        runs.len()
    ));
    table
}

fn calls(run: &Run) -> Vec<usize> {
    (0..run.acts.len()).filter(|at| !is_words(run.acts[*at].kind)).collect()
}

fn items(diff: &Diff) -> Vec<Item> {
    let mut items: Vec<Item> = diff.fork.iter().map(|f| Item::Branch(f.base, f.new)).collect();
    let in_fork = |base: Option<usize>, new: Option<usize>| {
        diff.fork.is_some_and(|f| base.is_none_or(|i| i >= f.base) && new.is_none_or(|j| j >= f.new))
    };
    let failed =
        |at: Option<usize>| diff.changes.iter().any(|c| c.new == at && matches!(c.what, What::Status { .. }));
    for change in diff.changes.iter().filter(|c| !in_fork(c.base, c.new)) {
        let (i, j) = (change.base.unwrap_or(0), change.new.unwrap_or(0));
        items.extend(match &change.what {
            What::Added { .. } => Some(Item::Added(j)),
            What::Duplicated { .. } => Some(Item::Duplicated(j)),
            What::Removed => Some(Item::Removed(i)),
            What::Moved => Some(Item::Moved(i)),
            What::Argument(edit) => Some(Item::Argument(j, edit.path().to_owned())),
            What::Status { .. } => Some(Item::Status(j)),
            What::Text { .. } => (!failed(change.new)).then_some(Item::Text(j)),
            _ => None,
        });
    }
    items
}

/// Equal acts that stand side by side cannot be told apart, by anybody.
fn same(wanted: &Item, found: &Item, base: &Run, new: &Run) -> bool {
    let alike = |run: &Run, a: usize, b: usize| {
        let key = |act: &Act| (act.kind, act.name.clone(), act.args.clone());
        (a.min(b)..=a.max(b)).all(|at| key(&run.acts[at]) == key(&run.acts[a]))
    };
    match (wanted, found) {
        (Item::Added(a), Item::Added(b)) | (Item::Duplicated(a), Item::Duplicated(b)) => alike(new, *a, *b),
        (Item::Removed(a), Item::Removed(b)) | (Item::Moved(a), Item::Moved(b)) => alike(base, *a, *b),
        _ => wanted == found,
    }
}

fn pick<T: Copy>(from: &[T], rng: &mut Rng) -> Option<T> {
    (!from.is_empty()).then(|| from[rng.usize(..from.len())])
}

fn key(act: &Act) -> (&str, &Value) {
    (&act.name, &act.args)
}

fn has(run: &Run, act: &Act) -> bool {
    run.acts.iter().any(|a| key(a) == key(act))
}

fn with(run: &Run, all: Vec<Item>, change: impl FnOnce(&mut Vec<Act>)) -> Option<Mutant> {
    let mut run = run.clone();
    // Which message asked for a call is not what is mutated.
    run.acts.iter_mut().for_each(|act| act.within = None);
    change(&mut run.acts);
    Some(Mutant { run, all, any: Vec::new() })
}

fn add(base: &Run, calls: &[usize], other: &Run, rng: &mut Rng) -> Option<Mutant> {
    let act = other.acts[pick(&self::calls(other), rng)?].clone();
    let at = pick(calls, rng)? + usize::from(rng.bool());
    if has(base, &act) {
        return None;
    }
    with(base, vec![Item::Added(at)], |acts| acts.insert(at, act))
}

fn drop_one(base: &Run, calls: &[usize], _: &Run, rng: &mut Rng) -> Option<Mutant> {
    let at = pick(calls, rng)?;
    with(base, vec![Item::Removed(at)], |acts| drop(acts.remove(at)))
}

fn swap(base: &Run, calls: &[usize], _: &Run, rng: &mut Rng) -> Option<Mutant> {
    let first = rng.usize(..calls.len() - 1);
    let second = if rng.bool() { first + 1 } else { rng.usize(first + 1..calls.len()) };
    let (a, b) = (calls[first], calls[second]);
    let between_like = calls[first + 1..second]
        .iter()
        .any(|c| key(&base.acts[*c]) == key(&base.acts[a]) || key(&base.acts[*c]) == key(&base.acts[b]));
    if key(&base.acts[a]) == key(&base.acts[b]) || between_like {
        return None;
    }
    let both = vec![Item::Moved(a), Item::Moved(b)];
    let near = second == first + 1;
    let mutant = with(base, Vec::new(), |acts| acts.swap(a, b))?;
    let (all, any) = if near { (Vec::new(), both) } else { (both, Vec::new()) };
    Some(Mutant { all, any, ..mutant })
}

fn duplicate(base: &Run, calls: &[usize], _: &Run, rng: &mut Rng) -> Option<Mutant> {
    let which = rng.usize(..calls.len());
    let act = base.acts[calls[which]].clone();
    let at = calls[rng.usize(which..calls.len())] + 1;
    with(base, vec![Item::Duplicated(at)], |acts| acts.insert(at, act))
}

fn leaves(value: &Value, path: String, into: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| {
            leaves(inner, format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), into);
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, inner)| leaves(inner, format!("{path}/{at}"), into));
        }
        _ => into.push(path),
    }
}

fn argument(base: &Run, calls: &[usize], _: &Run, rng: &mut Rng) -> Option<Mutant> {
    let at = pick(calls, rng)?;
    let mut paths = Vec::new();
    leaves(&base.acts[at].args, String::new(), &mut paths);
    let path = paths.get(rng.usize(..paths.len().max(1)))?.clone();
    let old = base.acts[at].args.pointer(&path)?.clone();
    let fresh = match &old {
        Value::Bool(value) => json!(!value),
        Value::Number(value) => json!(value.as_f64()? + f64::from(rng.i32(1..100))),
        Value::String(text) => match rng.u8(..4) {
            0 => json!(format!("{text}x")),
            1 => json!(text.chars().rev().chain("7".chars()).collect::<String>()),
            2 => json!(
                text.bytes()
                    .map(|b| if b.is_ascii_digit() {
                        (b'0' + (b - b'0' + 1) % 10) as char
                    } else {
                        b as char
                    })
                    .collect::<String>()
                    + "0"
            ),
            _ => json!("something else"),
        },
        _ => json!("something else"),
    };
    let item = Item::Argument(at, path.clone());
    with(base, vec![item], |acts| {
        if let Some(place) = acts[at].args.pointer_mut(&path) {
            *place = fresh;
        }
    })
}

fn status(base: &Run, calls: &[usize], _: &Run, rng: &mut Rng) -> Option<Mutant> {
    let at = pick(calls, rng)?;
    if base.acts[at].status != Status::Ok {
        return None;
    }
    with(base, vec![Item::Status(at)], |acts| {
        acts[at].status = Status::Failed;
        acts[at].text = "Error: not available".into();
    })
}

fn branch(base: &Run, calls: &[usize], other: &Run, rng: &mut Rng) -> Option<Mutant> {
    let at = pick(&calls[1..], rng)?;
    let theirs = self::calls(other);
    let from = pick(&theirs, rng)?;
    let tail = &other.acts[from..];
    let old_tail = &base.acts[at..];
    let shared =
        tail.iter().any(|act| !is_words(act.kind) && old_tail.iter().any(|old| old.name == act.name));
    if shared || has(base, &other.acts[from]) {
        return None;
    }
    with(base, vec![Item::Branch(at, at)], |acts| {
        acts.truncate(at);
        acts.extend(tail.iter().cloned().map(|act| Act { within: None, ..act }));
    })
}
