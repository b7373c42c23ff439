//! What the baselines of one input did, as far as it makes values and tools familiar. Learned from runs that a
//! person or a check has passed, and never from the run that is judged.

use super::origin::values;
use super::value::{key, leaves, words};
use crate::effects::Effects;
use cofferdam_model::{Act, ActKind, Run, Status};
use cofferdam_policy::{Known, ValueKind};
use std::collections::{BTreeMap, HashMap, HashSet};

/// One set: the more runs, the more is known to be normal.
#[derive(Debug, Clone, Default)]
pub struct Baselines {
    runs: usize,
    changes: BTreeMap<String, Tool>,
    /// By tool and argument.
    roles: HashMap<(String, String), Role>,
    called: HashSet<String>,
    read: HashSet<String>,
}

/// How a tool was used to change something.
#[derive(Debug, Clone, Default)]
struct Tool {
    /// Runs in which it did so at least once.
    runs: usize,
    most: usize,
}

/// What an argument was filled with.
#[derive(Debug, Clone, Default)]
struct Role {
    /// Each value, and in how many runs it stood there.
    values: BTreeMap<String, usize>,
    runs: usize,
    /// Runs that share a value with another.
    agreeing: usize,
}

/// Whether a call was carried out, as far as its record tells.
pub(super) fn took_effect(act: &Act) -> bool {
    matches!(act.status, Status::Ok | Status::Unanswered)
}

impl Baselines {
    pub fn learn<'a>(runs: impl IntoIterator<Item = &'a Run>, effects: &Effects) -> Self {
        let mut all = Self::default();
        let mut each: Vec<HashMap<(String, String), HashSet<String>>> = Vec::new();
        for run in runs {
            all.runs += 1;
            each.push(all.observe(run, effects));
        }
        for roles in &each {
            for (role, values) in roles {
                let role = all.roles.entry(role.clone()).or_default();
                role.runs += 1;
                values.iter().for_each(|value| *role.values.entry(value.clone()).or_default() += 1);
            }
        }
        for (role, values) in each.iter().flatten() {
            if let Some(role) = all.roles.get_mut(role) {
                let shared = |value: &String| role.values.get(value).is_some_and(|runs| *runs > 1);
                role.agreeing += usize::from(values.iter().any(shared));
            }
        }
        all
    }

    fn observe(&mut self, run: &Run, effects: &Effects) -> HashMap<(String, String), HashSet<String>> {
        let mut roles: HashMap<(String, String), HashSet<String>> = HashMap::new();
        let mut changed: BTreeMap<&str, usize> = BTreeMap::new();
        for act in run.acts.iter().filter(|act| is_done(act)) {
            self.read.extend(words(&act.text).filter(|word| is_telling(word)).map(key));
            if changes(effects, act) && took_effect(act) {
                *changed.entry(&act.name).or_default() += 1;
            }
            let whole = leaves(&act.args).into_iter().map(|leaf| (leaf.place.arg, key(&leaf.text)));
            let within = values(0, act).into_iter().map(|used| (used.place.arg.clone(), used.traced.key));
            for (arg, value) in whole.chain(within) {
                self.called.insert(value.clone());
                roles.entry((act.name.clone(), arg)).or_default().insert(value);
            }
        }
        for (name, times) in changed {
            let tool = self.changes.entry(name.to_owned()).or_default();
            tool.runs += 1;
            tool.most = tool.most.max(times);
        }
        roles
    }

    pub fn is_empty(&self) -> bool {
        self.runs == 0
    }

    pub fn len(&self) -> usize {
        self.runs
    }

    pub(super) fn changed_with(&self, tool: &str) -> bool {
        self.changes.contains_key(tool)
    }

    /// The most often that any of them did.
    pub(super) fn most(&self, tool: &str) -> usize {
        self.changes.get(tool).map_or(0, |tool| tool.most)
    }

    /// The tools with which every one of them changed something. One run alone shows no habit.
    pub(super) fn always(&self) -> impl Iterator<Item = &str> {
        let all = |(_, tool): &(&String, &Tool)| self.runs >= 2 && tool.runs == self.runs;
        self.changes.iter().filter(all).map(|(name, _)| name.as_str())
    }

    pub(super) fn knows(&self, tool: &str, arg: &str, value: &str) -> Known {
        let role = self.role(tool, arg);
        if role.is_some_and(|role| role.values.contains_key(value)) {
            Known::Used
        } else if self.called.contains(value) {
            Known::Called
        } else if self.read.contains(value) {
            Known::Read
        } else {
            Known::Never
        }
    }

    /// Whether they fill the argument; for names, whether they mostly agree on what with: words that every run
    /// chooses anew say nothing about the next.
    pub(super) fn fills(&self, tool: &str, arg: &str, kind: ValueKind) -> bool {
        self.role(tool, arg)
            .is_some_and(|role| kind != ValueKind::Name || role.runs == 1 || role.agreeing * 2 > role.runs)
    }

    /// What they put there, a few of them.
    pub(super) fn usual(&self, tool: &str, arg: &str) -> Vec<String> {
        let Some(role) = self.role(tool, arg) else { return Vec::new() };
        let mut values: Vec<_> = role.values.iter().collect();
        values.sort_by_key(|(value, runs)| (std::cmp::Reverse(**runs), *value));
        values.into_iter().take(3).map(|(value, _)| value.clone()).collect()
    }

    fn role(&self, tool: &str, arg: &str) -> Option<&Role> {
        self.roles.get(&(tool.to_owned(), arg.to_owned()))
    }
}

/// Whether it changes the world. Giving the matter to a person leaves the world as it is.
pub(super) fn changes(effects: &Effects, act: &Act) -> bool {
    is_done(act) && effects.changes(act) && !effects.hands_over(act)
}

/// Whether it is something that is done, not said.
pub(super) fn is_done(act: &Act) -> bool {
    !matches!(act.kind, ActKind::Instructed | ActKind::Told | ActKind::Said | ActKind::Model)
}

/// A word that could be an address, a link, an account or a code.
fn is_telling(word: &str) -> bool {
    word.len() >= 5 && word.contains(|c: char| c.is_ascii_digit() || "@./".contains(c))
}
