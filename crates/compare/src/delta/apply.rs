//! The new run out of the base and the difference: the proof that a difference leaves nothing out.

use super::{Change, Diff, Edit, What};
use cofferdam_model::{Act, Run};
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(
        "the difference is about an act {0} that the base does not have; apply it to the run it was made from"
    )]
    NoAct(usize),
    #[error("`{0}` is not in the arguments as the difference says; apply it to the run it was made from")]
    NoPlace(String),
    #[error("the difference says {said} acts and makes {made}; it is incomplete, make it again")]
    Count { said: usize, made: usize },
}

/// The run with its acts numbered as they stand. Where an act stood in its source is no part of what it was.
pub fn in_place(mut run: Run) -> Run {
    run.acts.iter_mut().enumerate().for_each(|(at, act)| act.at = at as u64);
    run
}

/// Gives [`in_place`] of the new run.
pub fn apply(diff: &Diff, base: &Run) -> Result<Run, ApplyError> {
    let all: Vec<&Change> = diff.changes.iter().chain(diff.noise.iter().map(|noise| &noise.change)).collect();
    let mut slots: Vec<Option<Act>> = vec![None; diff.new.acts];
    let mut stays = vec![true; base.acts.len()];
    let mut went: Vec<Option<usize>> = vec![None; base.acts.len()];
    for change in &all {
        match (&change.what, change.base, change.new) {
            (What::Added { added } | What::Duplicated { added, .. }, _, Some(j)) => {
                *slots.get_mut(j).ok_or(ApplyError::NoAct(j))? = Some((**added).clone());
            }
            (What::Removed, Some(i), _) => *stays.get_mut(i).ok_or(ApplyError::NoAct(i))? = false,
            (What::Moved, Some(i), Some(j)) => {
                *stays.get_mut(i).ok_or(ApplyError::NoAct(i))? = false;
                went[i] = Some(j);
                *slots.get_mut(j).ok_or(ApplyError::NoAct(j))? = Some(base.acts[i].clone());
            }
            _ => {}
        }
    }
    let mut kept = (0..base.acts.len()).filter(|i| stays[*i]);
    for (j, slot) in slots.iter_mut().enumerate().filter(|(_, slot)| slot.is_none()) {
        if let Some(i) = kept.next() {
            went[i] = Some(j);
            *slot = Some(base.acts[i].clone());
        }
    }
    let extra = kept.count();
    let mut acts: Vec<Act> = slots.into_iter().flatten().collect();
    if acts.len() != diff.new.acts || extra > 0 {
        return Err(ApplyError::Count { said: diff.new.acts, made: acts.len() + extra });
    }
    for (i, j) in went.iter().enumerate().filter_map(|(i, j)| Some((i, (*j)?))) {
        acts[j].within = base.acts[i].within.and_then(|w| went.get(w).copied().unwrap_or(Some(w)));
    }
    let mut ordered = all.clone();
    ordered.sort_by_key(|change| turn(change));
    ordered.iter().try_for_each(|change| contents(change, &mut acts))?;
    let head = diff.new.clone();
    Ok(in_place(Run { id: head.id, origin: head.origin, acts, spent: head.spent, gaps: head.gaps }))
}

/// Noise and change are kept apart, so that the elements of one list must be brought back into their order: what goes
/// goes from the end, what comes comes from the front.
fn turn(change: &Change) -> (u8, i64) {
    let place = |path: &str| path.rsplit('/').next().and_then(|last| last.parse().ok()).unwrap_or(0_i64);
    match &change.what {
        What::Argument(Edit::Take { path, .. }) => (1, -place(path)),
        What::Argument(Edit::Put { path, .. }) => (2, place(path)),
        _ => (0, 0),
    }
}

fn contents(change: &Change, acts: &mut [Act]) -> Result<(), ApplyError> {
    let Some(j) = change.new else { return Ok(()) };
    let act = acts.get_mut(j).ok_or(ApplyError::NoAct(j))?;
    match &change.what {
        What::Argument(edit) => carry_out(&mut act.args, edit)?,
        What::Status { to, .. } => act.status = *to,
        What::Name { to, .. } => act.name.clone_from(to),
        What::Effect { to, .. } => act.effect = *to,
        What::Decided { to, .. } => act.decided.clone_from(to),
        What::Within { to } => act.within = *to,
        What::Text { hunks } => {
            for hunk in hunks.iter().rev() {
                let range = hunk.at..hunk.at.saturating_add(hunk.old.len());
                if act.text.get(range.clone()) != Some(hunk.old.as_str()) {
                    return Err(ApplyError::NoPlace(format!("text of act {j}")));
                }
                act.text.replace_range(range, &hunk.new);
            }
        }
        What::Added { .. } | What::Duplicated { .. } | What::Removed | What::Moved => {}
    }
    Ok(())
}

fn carry_out(args: &mut Value, edit: &Edit) -> Result<(), ApplyError> {
    let lost = || ApplyError::NoPlace(edit.path().to_owned());
    if let Edit::Set { path, to, .. } = edit {
        *args.pointer_mut(path).ok_or_else(lost)? = to.clone();
        return Ok(());
    }
    let (parent, last) = edit.path().rsplit_once('/').ok_or_else(lost)?;
    let name = last.replace("~1", "/").replace("~0", "~");
    match (args.pointer_mut(parent).ok_or_else(lost)?, edit) {
        (Value::Object(map), Edit::Put { value, .. }) => {
            map.insert(name, value.clone());
        }
        (Value::Object(map), _) => {
            map.remove(&name).ok_or_else(lost)?;
        }
        (Value::Array(items), _) => {
            let at: usize = name.parse().map_err(|_| lost())?;
            match edit {
                Edit::Put { value, .. } if at <= items.len() => items.insert(at, value.clone()),
                Edit::Take { .. } if at < items.len() => {
                    items.remove(at);
                }
                _ => return Err(lost()),
            }
        }
        _ => return Err(lost()),
    }
    Ok(())
}
