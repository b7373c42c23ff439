//! Sessions at once: a few threads take the next case until there is none, or until a person stops it. A thread stays
//! for all of a session, since the sandbox ends with the thread that made it.

use super::plan::Plan;
use super::{GateError, Note, SessionVerdict, Sessions, Watch, resume, session};
use crate::{Engine, EngineError, Stop};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

pub(super) enum Ran {
    All(Sessions),
    Stopped { finished: usize },
}

pub(super) fn run(
    engine: &Engine,
    plan: &Plan<'_>,
    stop: &Stop,
    watch: Watch<'_>,
) -> Result<Ran, EngineError> {
    let out = &plan.options.out;
    let slots: Vec<Mutex<Option<SessionVerdict>>> =
        plan.cases.iter().map(|case| Mutex::new(resume::find(out, &case.id, key(plan, &case.id)))).collect();
    let finished = slots.iter().filter(|slot| lock(slot).is_some()).count();
    watch(Note::Planned { sessions: slots.len(), finished, at_once: plan.at_once });
    let next = AtomicUsize::new(0);
    // A failure of ours ends all: nothing can be said of a suite that was not run.
    let failed: Mutex<Option<EngineError>> = Mutex::new(None);
    let work = || {
        while let Some(slot) =
            slots.get(next.load(Ordering::SeqCst)).map(|_| next.fetch_add(1, Ordering::SeqCst))
        {
            let Some((slot, case)) = slots.get(slot).zip(plan.cases.get(slot)) else { return };
            if stop.is_raised() || lock(slot).is_some() {
                continue;
            }
            watch(Note::Started { id: case.id.clone() });
            let began = Instant::now();
            let ran = session::run(engine, plan, case, stop, watch);
            let kept = ran.and_then(|verdict| match verdict {
                Some(verdict) => {
                    resume::keep(out, key(plan, &case.id), &verdict)?;
                    Ok(Some(verdict))
                }
                None => Ok(None),
            });
            match kept {
                Ok(None) => {}
                Ok(Some(verdict)) => {
                    let why = verdict.reasons.first().map(|reason| reason.text.clone());
                    watch(Note::Ended {
                        id: verdict.id.clone(),
                        outcome: verdict.outcome,
                        why,
                        took: began.elapsed(),
                    });
                    *lock(slot) = Some(verdict);
                }
                Err(error) => {
                    lock(&failed).get_or_insert(error);
                    stop.raise();
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..plan.at_once {
            scope.spawn(work);
        }
    });
    if let Some(error) = lock(&failed).take() {
        return Err(error);
    }
    let total = slots.len();
    let done: Sessions = slots
        .into_iter()
        .filter_map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect();
    match done.len() == total {
        true => Ok(Ran::All(done)),
        false => Ok(Ran::Stopped { finished: done.len() }),
    }
}

/// Of everything that a session's verdict rests on, its baselines among it.
fn key(plan: &Plan<'_>, id: &str) -> Option<cofferdam_model::Digest> {
    let mut told = plan.inputs?.to_string();
    for path in super::baseline::files(plan.baseline.dir(), id) {
        told.push_str(&cofferdam_seal::digest(&std::fs::read(path).ok()?).to_string());
    }
    Some(cofferdam_seal::digest(told.as_bytes()))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A slot is one assignment: whoever panicked left it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<GateError> for EngineError {
    fn from(error: GateError) -> Self {
        Self::Gate(Box::new(error))
    }
}
