//! System calls on their way to the record: each is on it before its caller goes on. Like ones in a row are folded,
//! and there is an end to how many are kept, since who is inside decides how many there are.

use crate::error::EngineError;
use crate::record::Recorder;
use cofferdam_model::{BlockedAttempt, Body, LimitHit, SyscallSeen, Syscalls};
use cofferdam_runtime::{Heard, Witness};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Events of one session. What comes then is counted.
const MOST: u64 = 100_000;
/// Like ones in a row that are folded into one event.
const FOLDED: u64 = 10_000;
/// Different refusals that are kept for whoever started the session.
const TOLD: usize = 16;

/// A system call that was not let through, for whoever started the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    pub syscall: String,
    pub program: String,
    pub reason: String,
    pub times: u64,
}

pub(crate) struct Calls {
    recorder: Recorder,
    /// From the beginning, and not when the first is refused.
    pub(crate) at_once: bool,
    /// The event that they belong to: one more than its number, or nothing.
    parent: AtomicU64,
    heard: Mutex<Ledger>,
}

#[derive(Default)]
struct Ledger {
    events: u64,
    /// What came last is on record; so many like it came since.
    last: Option<(Option<u64>, Heard)>,
    again: u64,
    /// Past the end of what is kept.
    uncounted: u64,
    refused: Vec<Refused>,
    failed: Option<EngineError>,
}

impl Calls {
    pub(crate) fn new(recorder: Recorder, asked: Syscalls) -> Self {
        let at_once = asked == Syscalls::All;
        Self { recorder, at_once, parent: AtomicU64::new(0), heard: Mutex::default() }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose they are, where that is certain.
    pub(crate) fn belong_to(&self, parent: Option<u64>) {
        self.parent.store(parent.map_or(0, |seq| seq + 1), Ordering::Release);
    }

    /// What could not be recorded ends the session.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        self.ledger().failed.take().map_or(Ok(()), Err)
    }

    /// Puts on record what was folded so far. Nobody is left inside who could make another.
    pub(crate) fn close(&self) -> Result<Vec<Refused>, EngineError> {
        let mut ledger = self.ledger();
        self.unfold(&mut ledger)?;
        if ledger.uncounted > 0 {
            let seen = MOST + ledger.uncounted;
            let detail = format!("{} more system calls were made than are kept", ledger.uncounted);
            let hit = LimitHit { limit: "syscalls".into(), allowed: MOST, seen, detail };
            self.recorder.append(None, &Body::Limit(hit))?;
        }
        ledger.failed.take().map_or_else(|| Ok(std::mem::take(&mut ledger.refused)), Err)
    }

    fn unfold(&self, ledger: &mut Ledger) -> Result<(), EngineError> {
        let times = std::mem::take(&mut ledger.again);
        match &ledger.last {
            Some((parent, heard)) if times > 0 => {
                self.recorder.append(*parent, &body(heard.clone(), times)).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn note(&self, ledger: &mut Ledger, heard: Heard) -> Result<(), EngineError> {
        if let Heard::Refused(attempt) = &heard {
            ledger.refused(attempt);
        }
        let parent = self.parent.load(Ordering::Acquire).checked_sub(1);
        if ledger.last.as_ref().is_some_and(|last| last.0 == parent && last.1 == heard) {
            ledger.again += 1;
            return if ledger.again >= FOLDED { self.unfold(ledger) } else { Ok(()) };
        }
        self.unfold(ledger)?;
        if ledger.events >= MOST {
            ledger.uncounted += 1;
            return Ok(());
        }
        ledger.events += 1;
        self.recorder.append(parent, &body(heard.clone(), 1))?;
        ledger.last = Some((parent, heard));
        Ok(())
    }
}

impl Ledger {
    fn refused(&mut self, attempt: &BlockedAttempt) {
        let same = |one: &&mut Refused| one.syscall == attempt.syscall && one.program == attempt.program;
        if let Some(one) = self.refused.iter_mut().find(same) {
            one.times += 1;
        } else if self.refused.len() < TOLD {
            let BlockedAttempt { syscall, program, reason, .. } = attempt.clone();
            self.refused.push(Refused { syscall, program, reason, times: 1 });
        }
    }
}

fn body(heard: Heard, times: u64) -> Body {
    match heard {
        Heard::Refused(attempt) => Body::Blocked(BlockedAttempt { times, ..attempt }),
        Heard::Passed(call) => Body::Syscall(SyscallSeen { times, ..call }),
    }
}

impl Witness for Calls {
    fn hear(&self, heard: Heard) -> bool {
        let mut ledger = self.ledger();
        let noted = self.note(&mut ledger, heard);
        let on_record = noted.is_ok();
        if let Err(error) = noted {
            ledger.failed.get_or_insert(error);
        }
        on_record
    }
}
