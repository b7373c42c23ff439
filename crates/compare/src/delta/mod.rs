//! What differs between two runs, as data that can be read, judged and carried out again: [`apply`] makes the new run
//! out of the base and its [`Diff`]. What differs without meaning anything (ids that were dealt out anew, times, random
//! names, other notations of the same number) is kept apart as noise. It does not judge.

mod apply;
mod edits;
mod fork;
mod moves;
mod noise;
#[cfg(test)]
pub(crate) mod sketch;
mod tokens;
mod words;

pub use apply::{ApplyError, apply, in_place};
pub use edits::{Edit, Tolerance};
pub use fork::Fork;
pub use noise::{NoiseKind, Renaming};
pub use words::Hunk;

use crate::align::{Step, align};
use crate::effects::Effects;
use cofferdam_model::{Act, ActKind, Decided, EffectOf, Run, Spent, Status};
use serde::{Deserialize, Serialize};

/// What of a run is not its acts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Head {
    pub id: String,
    pub origin: String,
    pub acts: usize,
    pub spent: Spent,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Diff {
    pub base: Head,
    pub new: Head,
    /// Every act of both, side by side.
    pub steps: Vec<Step>,
    pub changes: Vec<Change>,
    pub noise: Vec<Noise>,
    /// Where the new run left the old path for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<Fork>,
    /// Ids that stand for each other throughout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<Renaming>,
}

/// One difference. An act that was moved and changed has one entry for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The act's index in the base, if it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<usize>,
    /// Its index in the new run, if it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<usize>,
    pub act: ActKind,
    pub name: String,
    /// Whether the act changes the world, or may.
    pub effect: bool,
    #[serde(flatten)]
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum What {
    Added {
        added: Box<Act>,
    },
    /// Added, and the same call as one that the base has.
    Duplicated {
        of: usize,
        added: Box<Act>,
    },
    Removed,
    /// The same call in another place.
    Moved,
    Argument(Edit),
    Status {
        from: Status,
        to: Status,
    },
    /// What was said, told or answered.
    Text {
        hunks: Vec<Hunk>,
    },
    /// A request whose path differs in an id only.
    Name {
        from: String,
        to: String,
    },
    Effect {
        from: EffectOf,
        to: EffectOf,
    },
    Decided {
        from: Option<Decided>,
        to: Option<Decided>,
    },
    /// It belongs to another act (an index in the new run).
    Within {
        to: Option<usize>,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    pub kind: NoiseKind,
    #[serde(flatten)]
    pub change: Change,
}

/// What a team tolerates.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    pub tolerances: Vec<Tolerance>,
}

impl Diff {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.noise.is_empty()
    }
}

/// What differs between two values, in the order in which it can be carried out.
pub(crate) fn edits(base: &serde_json::Value, new: &serde_json::Value) -> Vec<Edit> {
    edits::between(base, new)
}

/// What has to be done to the base to get the new run.
pub fn diff(base: &Run, new: &Run, effects: &Effects, options: &Options) -> Diff {
    let steps = align(base, new, effects);
    let found = moves::find(base, new, &steps);
    let renaming = noise::Renamings::between(base, new, &found.pairs);
    let mut diff = Diff { base: head(base), new: head(new), ..Diff::default() };
    let mut writer = Writer { base, new, effects, options, diff: &mut diff };
    found.removed.iter().for_each(|i| writer.change(Some(*i), None, What::Removed));
    for (j, of) in &found.added {
        let added = Box::new(new.acts[*j].clone());
        let what = of.map_or(What::Added { added: added.clone() }, |of| What::Duplicated { of, added });
        writer.change(None, Some(*j), what);
    }
    for (i, j) in &found.moved {
        // Words go along with what they were said to: it is the call that moved.
        let noise = is_words(base.acts[*i].kind).then_some(NoiseKind::Structure);
        writer.put(*i, *j, What::Moved, noise);
    }
    let place = found.places(base.acts.len());
    found.pairs.iter().for_each(|(i, j)| writer.contents(*i, *j, &renaming, &place));
    diff.fork = fork::find(base, new, &steps, &diff.changes);
    diff.renamed = renaming.into_list();
    diff.steps = steps;
    diff.changes.sort_by_key(|change| (change.new.or(change.base), change.base));
    diff
}

/// Told, said or instructed: not done.
pub fn is_words(kind: ActKind) -> bool {
    matches!(kind, ActKind::Instructed | ActKind::Told | ActKind::Said | ActKind::Model)
}

fn head(run: &Run) -> Head {
    let Run { id, origin, acts, spent, gaps } = run;
    Head { id: id.clone(), origin: origin.clone(), acts: acts.len(), spent: *spent, gaps: gaps.clone() }
}

struct Writer<'a> {
    base: &'a Run,
    new: &'a Run,
    effects: &'a Effects,
    options: &'a Options,
    diff: &'a mut Diff,
}

impl Writer<'_> {
    fn entry(&self, base: Option<usize>, new: Option<usize>, what: What) -> Option<Change> {
        let act = new.map(|j| &self.new.acts[j]).or(base.map(|i| &self.base.acts[i]))?;
        let effect = self.effects.changes(act);
        Some(Change { base, new, act: act.kind, name: act.name.clone(), effect, what })
    }

    fn change(&mut self, base: Option<usize>, new: Option<usize>, what: What) {
        self.diff.changes.extend(self.entry(base, new, what));
    }

    fn put(&mut self, i: usize, j: usize, what: What, noise: Option<NoiseKind>) {
        let Some(change) = self.entry(Some(i), Some(j), what) else { return };
        match noise {
            Some(kind) => self.diff.noise.push(Noise { kind, change }),
            None => self.diff.changes.push(change),
        }
    }

    /// What differs within a pair. `places` says where in the new run each act of the base went.
    fn contents(&mut self, i: usize, j: usize, renaming: &noise::Renamings, places: &[Option<usize>]) {
        let (a, b) = (&self.base.acts[i], &self.new.acts[j]);
        if a.name != b.name {
            let what = What::Name { from: a.name.clone(), to: b.name.clone() };
            self.put(i, j, what, renaming.text(&a.name, &b.name));
        }
        for edit in edits::between(&a.args, &b.args) {
            let tolerated = self.options.tolerances.iter().any(|t| t.allows(&a.name, &edit));
            let noise = if tolerated { Some(NoiseKind::Tolerated) } else { renaming.edit(&edit) };
            self.put(i, j, What::Argument(edit), noise);
        }
        if a.status != b.status {
            self.put(i, j, What::Status { from: a.status, to: b.status }, None);
        }
        if a.text != b.text {
            let noise = renaming.text(&a.text, &b.text);
            self.put(i, j, What::Text { hunks: words::between(&a.text, &b.text) }, noise);
        }
        if a.effect != b.effect {
            self.put(i, j, What::Effect { from: a.effect, to: b.effect }, Some(NoiseKind::Structure));
        }
        if a.decided != b.decided {
            let what = What::Decided { from: a.decided.clone(), to: b.decided.clone() };
            self.put(i, j, what, None);
        }
        let within = a.within.and_then(|w| places.get(w).copied().unwrap_or(Some(w)));
        if within != b.within {
            self.put(i, j, What::Within { to: b.within }, Some(NoiseKind::Structure));
        }
    }
}

#[cfg(test)]
mod tests;
