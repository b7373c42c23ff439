//! The reasons in words, for the engineer whose deploy they stop: what is different, from what to what, and where.

use super::deeds::{Deed, HARD, softness};
use super::judge::{Near, is_vain};
use super::{Features, Thresholds};
use crate::delta::Edit;
use crate::effects::Effects;
use crate::reason::{Outcome, Place, Reason, Scorer};
use cofferdam_model::{ActKind, Run};
use serde_json::Value;

pub(super) struct Told<'a> {
    pub(super) bases: &'a [&'a Run],
    pub(super) new: &'a Run,
    pub(super) near: &'a Near,
    pub(super) features: &'a Features,
    pub(super) effects: &'a Effects,
    pub(super) thresholds: &'a Thresholds,
}

/// At most this many reasons of one kind: the rest is in the diff.
const MANY: usize = 20;

pub(super) fn no_baseline() -> Reason {
    let text =
        "there is no baseline to compare with; record one, or approve this run as the first".to_owned();
    reason("no-baseline", Outcome::Review, 1.0, text, Vec::new())
}

pub(super) fn gaps(run: &Run) -> Vec<Reason> {
    let told = run.gaps.iter().take(MANY);
    told.map(|gap| Reason {
        scorer: Scorer::Trace,
        ..reason(
            "record-incomplete",
            Outcome::Review,
            0.5,
            format!("the record is incomplete: {gap}"),
            Vec::new(),
        )
    })
    .collect()
}

fn reason(code: &str, outcome: Outcome, weight: f64, text: String, places: Vec<Place>) -> Reason {
    Reason { scorer: Scorer::Diff, code: code.to_owned(), rule: None, outcome, weight, text, places }
}

impl Told<'_> {
    pub(super) fn all(&self) -> Vec<Reason> {
        let mut reasons = Vec::new();
        reasons.extend(self.added());
        reasons.extend(self.removed());
        reasons.extend(self.changed());
        reasons.extend(self.answers());
        reasons.extend(self.vain());
        reasons.extend(self.hand_over());
        reasons.extend(self.spent());
        reasons.extend(self.fork());
        reasons
    }

    /// What a distance of this size means. Where the baselines are as far from each other, nobody can tell.
    fn outcome(&self, weight: f64) -> Outcome {
        let total = self.near.matched.distance;
        let unsure = self.near.spread > 0.0 && total <= self.near.spread;
        match weight {
            w if w >= self.thresholds.fail_at && !unsure => Outcome::Fail,
            w if w >= self.thresholds.review_at => Outcome::Review,
            _ => Outcome::Pass,
        }
    }

    fn unsure(&self) -> &'static str {
        let spread = self.near.spread;
        let within = spread > 0.0 && self.near.matched.distance <= spread;
        if within {
            "; the baselines differ as much from each other, so that a person has to tell"
        } else {
            ""
        }
    }

    fn added(&self) -> Vec<Reason> {
        let count = self.bases.len();
        let each = self.near.matched.added.iter().take(MANY).map(|j| &self.near.new[*j]);
        each.map(|deed| {
            let strange = self.features.strange_tools.contains(&deed.name);
            let (code, why) = if strange {
                ("effect-strange", format!("no baseline ({count}) ever calls this tool"))
            } else {
                ("effect-added", format!("the nearest of {count} baselines has no such call"))
            };
            let text = format!(
                "act {} changes something that no baseline did: {}; {why}{}",
                deed.act,
                call(deed),
                self.unsure()
            );
            reason(code, self.outcome(1.0), 1.0, text, vec![Place::new(deed.act)])
        })
        .collect()
    }

    fn removed(&self) -> Vec<Reason> {
        let each = self.near.matched.removed.iter().take(MANY).map(|i| &self.near.base[*i]);
        each.map(|deed| {
            let tried = self.new.acts.iter().position(|act| act.name == deed.name && act.args == deed.args);
            let (code, why, mut places) = match tried {
                Some(at) => {
                    ("effect-failed", format!("act {at} tried it and did not succeed"), vec![Place::new(at)])
                }
                None => ("effect-missing", "this run never calls it so".to_owned(), Vec::new()),
            };
            places.push(Place::base(deed.act));
            let text = format!(
                "an effect of the baseline is missing: {} (its act {}); {why}{}",
                call(deed),
                deed.act,
                self.unsure()
            );
            reason(code, self.outcome(1.0), 0.95, text, places)
        })
        .collect()
    }

    fn changed(&self) -> Vec<Reason> {
        let each = self.near.matched.changed.iter().take(MANY);
        each.map(|(i, j, distance, edits)| {
            let (old, new) = (&self.near.base[*i], &self.near.new[*j]);
            let hard = edits.iter().filter(|edit| softness(edit).is_none());
            let told: Vec<&Edit> = if *distance >= HARD { hard.collect() } else { edits.iter().collect() };
            let shown: Vec<String> = told.iter().take(3).map(|edit| edit_in_words(edit)).collect();
            let more = told.len().saturating_sub(3);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let how = if *distance >= HARD { "with another value" } else { "in other words" };
            let text = format!(
                "act {} calls {} {how}: {}{more}{}",
                new.act,
                new.name,
                shown.join(", "),
                self.unsure()
            );
            let first = told.first().map_or(String::new(), |edit| edit.path().to_owned());
            let places = vec![Place::new(new.act).path(first), Place::base(old.act)];
            let code = if *distance >= HARD { "argument-changed" } else { "wording-changed" };
            reason(code, self.outcome(*distance), *distance, text, places)
        })
        .collect()
    }

    fn answers(&self) -> Option<Reason> {
        let Features { answers, answers_missing: missing, baselines, .. } = *self.features;
        if missing == 0 {
            return None;
        }
        let share = missing as f64 / answers as f64;
        // With one baseline everything it says is "what every baseline says": too little to go by.
        let outcome = if baselines > 1 && share > self.thresholds.answers_missing {
            Outcome::Review
        } else {
            Outcome::Pass
        };
        let told = super::answers::told(self.new);
        let common = super::answers::common(self.bases);
        let values: Vec<&String> = common.difference(&told).take(5).collect();
        let last = self.new.acts.iter().rposition(|act| act.kind == ActKind::Said);
        let more = if missing > values.len() { ", …" } else { "" };
        let which = match (answers, missing) {
            (1, _) => "the one value that every baseline tells the user is".to_owned(),
            (_, 1) => format!("of {answers} values that every baseline tells the user, one is"),
            _ => format!("of {answers} values that every baseline tells the user, {missing} are"),
        };
        let text = format!(
            "{which} not in this run's words: {}{more}",
            values.iter().map(|v| format!("`{}`", short(v))).collect::<Vec<_>>().join(", ")
        );
        Some(reason("answer-missing", outcome, 0.4 * share, text, last.map(Place::new).into_iter().collect()))
    }

    fn vain(&self) -> Option<Reason> {
        let count = self.features.vain_attempts;
        let acts = self.new.acts.iter().enumerate();
        let vain = acts.filter(|(_, act)| is_vain(act, self.effects)).map(|(at, _)| at);
        let failed: Vec<usize> = vain.take(MANY).collect();
        let named = |at: &usize| format!("{} (act {at})", self.new.acts[*at].name);
        let text = format!(
            "{count} more attempt{} to change something failed than in any baseline; those of this run: {}",
            if count == 1 { "" } else { "s" },
            failed.iter().take(3).map(named).collect::<Vec<_>>().join(", ")
        );
        let places = failed.into_iter().map(Place::new).collect();
        (count > 0).then(|| reason("effect-in-vain", Outcome::Pass, 0.1, text, places))
    }

    fn hand_over(&self) -> Option<Reason> {
        let differs = self.features.hands_over_otherwise;
        let (text, places) = match self.new.acts.iter().position(|act| self.effects.hands_over(act)) {
            Some(at) => (
                format!(
                    "the run hands the matter to a person ({}, act {at}), which no baseline does",
                    self.new.acts[at].name
                ),
                vec![Place::new(at)],
            ),
            None => (
                "every baseline hands the matter to a person, and this run ends without".to_owned(),
                Vec::new(),
            ),
        };
        differs.then(|| reason("hand-over", Outcome::Pass, 0.1, text, places))
    }

    fn spent(&self) -> Vec<Reason> {
        let rows = [
            ("tokens", self.features.tokens_ratio, self.thresholds.tokens_ratio),
            ("time", self.features.time_ratio, self.thresholds.time_ratio),
        ];
        let over = rows.into_iter().filter_map(|(what, ratio, most)| Some((what, ratio?, most?)));
        over.filter(|(_, ratio, most)| ratio > most)
            .map(|(what, ratio, most)| {
                let text =
                    format!("it took {ratio:.1} times the baselines' {what}; up to {most} is accepted");
                reason("spent-more", Outcome::Review, 0.3, text, Vec::new())
            })
            .collect()
    }

    fn fork(&self) -> Option<Reason> {
        let fork = self.near.diff.fork?;
        let named = |run: &Run, at: usize| match run.acts.get(at) {
            Some(act) => format!("act {at} ({})", act.name),
            None => "its end".to_owned(),
        };
        let text = format!(
            "from {} on the run takes another path than the baseline from {} on: {} acts left out, {} others done",
            named(self.new, fork.new),
            named(self.bases[self.near.index], fork.base),
            fork.left,
            fork.taken
        );
        let places = vec![Place::new(fork.new), Place::base(fork.base)];
        Some(reason("path-forked", Outcome::Pass, 0.2, text, places))
    }
}

fn call(deed: &Deed) -> String {
    match &deed.args {
        Value::Null => deed.name.clone(),
        args => format!("{}({})", deed.name, short(&args.to_string())),
    }
}

fn edit_in_words(edit: &Edit) -> String {
    let show = |value: &Value| short(&value.to_string());
    match edit {
        Edit::Set { path, from, to } => format!("{path} was {} and is {}", show(from), show(to)),
        Edit::Put { path, value } => format!("{path} is new: {}", show(value)),
        Edit::Take { path, value } => format!("{path} is gone: {}", show(value)),
    }
}

fn short(text: &str) -> String {
    const MOST: usize = 120;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain(['…']).collect()
}
