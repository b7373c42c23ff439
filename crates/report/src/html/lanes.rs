//! The two runs side by side, aligned: what is the same is folded away, what differs says how.

use super::act::{Highlights, card};
use super::json;
use super::text::Mark;
use cofferdam_compare::align::Step;
use cofferdam_compare::delta::{Change, Diff, Edit, Hunk, What};
use cofferdam_compare::{Place, Reason, Side};
use cofferdam_model::{Act, Run};
use maud::{Markup, html};
use std::collections::HashMap;

/// So many equal acts before and after a difference stay open.
const AROUND: usize = 1;

/// Both runs, what differs between them, and what reasons point at.
pub(super) struct Lanes<'a> {
    number: usize,
    base: &'a Run,
    new: &'a Run,
    diff: &'a Diff,
    /// By the act that they are told at.
    changes: HashMap<(Side, usize), Vec<&'a Change>>,
    places: HashMap<(Side, usize), Vec<&'a Place>>,
}

/// The name of an act on the page.
pub(super) fn anchor(number: usize, side: Side, act: usize) -> String {
    match side {
        Side::Base => format!("s{number}-base-{act}"),
        Side::New => format!("s{number}-new-{act}"),
    }
}

impl<'a> Lanes<'a> {
    pub(super) fn new(
        number: usize,
        base: &'a Run,
        new: &'a Run,
        diff: &'a Diff,
        reasons: &'a [Reason],
    ) -> Self {
        let (mut changes, mut places) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for change in &diff.changes {
            let base = change.base.map(|at| (Side::Base, at));
            if let Some(at) = change.new.map(|at| (Side::New, at)).or(base) {
                changes.entry(at).or_default().push(change);
            }
        }
        for place in reasons.iter().flat_map(|reason| &reason.places) {
            places.entry((place.side, place.act)).or_default().push(place);
        }
        Self { number, base, new, diff, changes, places }
    }

    pub(super) fn markup(&self) -> Markup {
        let steps = &self.diff.steps;
        let differs: Vec<bool> = steps.iter().map(|step| self.is_told(step)).collect();
        let near = |at: usize| {
            let from = at.saturating_sub(AROUND);
            differs[from..differs.len().min(at + AROUND + 1)].iter().any(|differs| *differs)
        };
        let mut groups: Vec<(bool, std::ops::Range<usize>)> = Vec::new();
        for at in 0..steps.len() {
            match groups.last_mut() {
                Some((open, range)) if *open == near(at) => range.end = at + 1,
                _ => groups.push((near(at), at..at + 1)),
            }
        }
        html! {
            div .lanes {
                div .heads { h4 { "baseline" } h4 { "now" } }
                @for (open, range) in groups {
                    @if open {
                        @for at in range { (self.row(&steps[at])) }
                    } @else {
                        details .same {
                            summary { (count(range.len())) }
                            @for at in range { (self.row(&steps[at])) }
                        }
                    }
                }
            }
        }
    }

    fn of_step<'s, T>(of: &'s HashMap<(Side, usize), Vec<T>>, step: &Step) -> impl Iterator<Item = &'s T> {
        let sides = [step.base.map(|at| (Side::Base, at)), step.new.map(|at| (Side::New, at))];
        sides.into_iter().flatten().filter_map(|at| of.get(&at)).flatten()
    }

    fn is_told(&self, step: &Step) -> bool {
        Self::of_step(&self.changes, step).next().is_some()
            || Self::of_step(&self.places, step).next().is_some()
    }

    fn row(&self, step: &Step) -> Markup {
        let changes: Vec<&Change> = Self::of_step(&self.changes, step).copied().collect();
        let class = match (step.base, step.new) {
            (Some(_), None) => "removed",
            (None, Some(_)) => "added",
            _ if changes.iter().any(|change| matches!(change.what, What::Moved)) => "moved",
            _ if changes.is_empty() => "equal",
            _ => "changed",
        };
        let is_fork = self.diff.fork.is_some_and(|fork| step.new == Some(fork.new));
        html! {
            @if is_fork { p .fork { "Here the new run leaves the old path for good." } }
            div .row .(class) .difference[class != "equal"] tabindex=[(class != "equal").then_some("-1")] {
                div .lane role="group" aria-label="baseline" { @if let Some(act) = step.base.and_then(|at| self.base.acts.get(at).map(|a| (at, a))) {
                    (self.side(Side::Base, act, &changes))
                } }
                div .lane role="group" aria-label="now" { @if let Some(act) = step.new.and_then(|at| self.new.acts.get(at).map(|a| (at, a))) {
                    (self.side(Side::New, act, &changes))
                } }
                @if !changes.is_empty() { ul .deltas { @for change in &changes { (delta(change)) } } }
            }
        }
    }

    fn side(&self, side: Side, (at, act): (usize, &Act), changes: &[&Change]) -> Markup {
        let mut seen = Highlights::default();
        for change in changes {
            match &change.what {
                What::Argument(edit) => match (edit, side) {
                    (Edit::Set { path, .. }, _) => seen.args.push((path, "set")),
                    (Edit::Put { path, .. }, Side::New) => seen.args.push((path, "put")),
                    (Edit::Take { path, .. }, Side::Base) => seen.args.push((path, "taken")),
                    _ => {}
                },
                What::Text { hunks } => seen.text.extend(ranges(hunks, side)),
                _ => {}
            }
        }
        for place in self.places.get(&(side, at)).into_iter().flatten() {
            seen.args.extend(place.path.as_deref().map(|path| (path, "set")));
            seen.text.extend(place.bytes.map(|(from, to)| (from, to, Mark::Pointed)));
        }
        card(act, at, &anchor(self.number, side, at), &seen)
    }
}

fn count(acts: usize) -> String {
    if acts == 1 { "1 act is the same".into() } else { format!("{acts} acts are the same") }
}

/// Where the hunks of a change lie in the text of one side.
fn ranges(hunks: &[Hunk], side: Side) -> Vec<(usize, usize, Mark)> {
    let mut shift: isize = 0;
    let mut found = Vec::with_capacity(hunks.len());
    for hunk in hunks {
        match side {
            Side::Base => found.push((hunk.at, hunk.at + hunk.old.len(), Mark::Removed)),
            Side::New => {
                let at = hunk.at.saturating_add_signed(shift);
                found.push((at, at + hunk.new.len(), Mark::Added));
            }
        }
        shift += hunk.new.len() as isize - hunk.old.len() as isize;
    }
    found
}

/// The difference in words.
pub(super) fn delta(change: &Change) -> Markup {
    html! {
        li {
            @match &change.what {
                What::Added { .. } => "done now, and not in the baseline",
                What::Duplicated { .. } => "done once more than in the baseline",
                What::Removed => "done in the baseline, and no longer",
                What::Moved => "done in another order",
                What::Argument(Edit::Set { path, from, to }) => {
                    code { (json::name(path)) } ": " del { (json::short(from)) } " → " ins { (json::short(to)) }
                }
                What::Argument(Edit::Put { path, value }) => {
                    code { (json::name(path)) } ": new, " ins { (json::short(value)) }
                }
                What::Argument(Edit::Take { path, value }) => {
                    code { (json::name(path)) } ": gone, was " del { (json::short(value)) }
                }
                What::Status { from, to } => { "was " (status(*from)) ", is " (status(*to)) }
                What::Text { hunks } => { "other words in " (hunks.len()) @if hunks.len() == 1 { " place" } @else { " places" } }
                What::Name { from, to } => { del { (from) } " → " ins { (to) } }
                What::Effect { .. } => "is now known to change the world, or no longer",
                What::Decided { .. } => "another decision by the policy",
                What::Within { .. } => "belongs to another step",
            }
        }
    }
}

fn status(status: cofferdam_model::Status) -> &'static str {
    use cofferdam_model::Status;
    match status {
        Status::Ok => "fine",
        Status::Failed => "a failure",
        Status::Refused => "refused",
        Status::Unanswered => "never carried out",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_lie_where_each_side_has_them() {
        let hunk = |at, old: &str, new: &str| Hunk { at, old: old.into(), new: new.into() };
        let hunks = [hunk(2, "a", "bcd"), hunk(10, "xy", "")];
        assert_eq!(ranges(&hunks, Side::Base), [(2, 3, Mark::Removed), (10, 12, Mark::Removed)]);
        assert_eq!(ranges(&hunks, Side::New), [(2, 5, Mark::Added), (12, 12, Mark::Added)]);
    }
}
