//! What recorded results show of tools whose names say nothing. A reading that differs after a call, with no other
//! unknown call between, shows that the call changes something. Nothing can show that a call never does, but the same
//! call with the same long answer, again and again over several runs, comes close enough to call it a reading.

use super::{Effects, How};
use cofferdam_model::{Act, ActKind, EffectOf, Run, Status};
use std::collections::{BTreeMap, BTreeSet};

/// Answers shorter than this may be a bare "done", which a changing call gives as often as one likes.
const TELLING: usize = 40;
/// Repeats, and runs with repeats, that make a reading.
const REPEATS: (usize, usize) = (3, 2);

#[derive(Default)]
struct Seen {
    changed: bool,
    repeats: usize,
    runs: usize,
}

pub(super) fn from<'a>(
    effects: &Effects,
    runs: impl IntoIterator<Item = &'a Run>,
) -> BTreeMap<String, EffectOf> {
    let mut seen: BTreeMap<&'a str, Seen> = BTreeMap::new();
    for run in runs {
        observe(effects, run, &mut seen);
    }
    let verdict = |(name, seen): (&str, Seen)| {
        let reads = seen.repeats >= REPEATS.0 && seen.runs >= REPEATS.1;
        let effect = if seen.changed { Some(EffectOf::Changes) } else { reads.then_some(EffectOf::Reads) };
        effect.map(|effect| (name.to_owned(), effect))
    };
    seen.into_iter().filter_map(verdict).collect()
}

fn observe<'a>(effects: &Effects, run: &'a Run, seen: &mut BTreeMap<&'a str, Seen>) {
    // The last answer to each call, and how many unknown calls had been made by then.
    let mut last: BTreeMap<(&str, String), (&str, usize)> = BTreeMap::new();
    let mut unknown: Vec<&str> = Vec::new();
    let mut repeated: BTreeSet<&str> = BTreeSet::new();
    for act in run.acts.iter().filter(|act| act.kind == ActKind::Tool && act.status == Status::Ok) {
        let nobody = effects.of(act).how == How::Nobody;
        let key = (act.name.as_str(), act.args.to_string());
        if let Some((text, since)) = last.get(&key).copied() {
            let between: BTreeSet<&str> = unknown.iter().skip(since).copied().collect();
            let only = between.first().copied().filter(|_| between.len() == 1);
            match only.filter(|_| text != act.text && reads(effects, act)) {
                Some(name) => seen.entry(name).or_default().changed = true,
                None if nobody && text == act.text && text.len() >= TELLING => {
                    let entry = seen.entry(act.name.as_str()).or_default();
                    entry.repeats += 1;
                    entry.runs += usize::from(repeated.insert(act.name.as_str()));
                }
                None => {}
            }
        }
        if effects.changes(act) {
            unknown.push(act.name.as_str());
        }
        last.insert(key, (act.text.as_str(), unknown.len()));
    }
}

fn reads(effects: &Effects, act: &Act) -> bool {
    effects.of(act).effect == EffectOf::Reads
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(calls: &[(&str, &str)]) -> Run {
        let act = |(at, (name, text)): (usize, &(&str, &str))| Act {
            at: at as u64,
            within: None,
            kind: ActKind::Tool,
            name: (*name).into(),
            args: json!({}),
            text: (*text).into(),
            status: Status::Ok,
            effect: EffectOf::Unknown,
            decided: None,
        };
        Run { acts: calls.iter().enumerate().map(act).collect(), ..Run::default() }
    }

    fn check(calls: &[(&str, &str)], runs: usize, name: &str, expected: Option<EffectOf>) {
        let all = vec![run(calls); runs];
        assert_eq!(from(&Effects::default(), &all).get(name).copied(), expected, "{calls:?}");
    }

    #[test]
    fn a_reading_that_differs_after_a_call_shows_its_effect() {
        check(&[("get_x", "1"), ("frob", "ok"), ("get_x", "2")], 1, "frob", Some(EffectOf::Changes));
        check(&[("get_x", "1"), ("frob", "ok"), ("get_x", "1")], 9, "frob", None);
        check(&[("get_x", "1"), ("frob", "ok"), ("nark", "ok"), ("get_x", "2")], 1, "frob", None);
        check(&[("get_x", "1"), ("frob", "ok"), ("send_x", "ok"), ("get_x", "2")], 1, "frob", None);
    }

    #[test]
    fn many_equal_long_answers_make_a_reading() {
        let long = "a long answer that says much more than that something was done";
        check(&[("frob", long), ("frob", long), ("frob", long)], 2, "frob", Some(EffectOf::Reads));
        check(&[("frob", long), ("frob", long), ("frob", long)], 1, "frob", None);
        check(&[("frob", "done"), ("frob", "done"), ("frob", "done")], 9, "frob", None);
    }
}
