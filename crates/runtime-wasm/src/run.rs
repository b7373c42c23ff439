//! One run of a module: from an instance of its own to how it ended. It is given its work in slices, and between two of
//! them it is looked whether its time is over; the whole of its work has an end too, which is the same on every machine.

use crate::Program;
use crate::wasi::{Full, State};
use std::time::{Duration, Instant};
use wasmi::{Error, Store, TrapCode, TypedResumableCall};

/// Instructions for each second of its time. A machine that is not slow does more, so that a module which computes
/// without an end comes to the same end on all of them.
const WORK: u64 = 100_000_000;
/// After so many it is looked at the clock: some hundredths of a second.
const SLICE: u64 = 2_000_000;

/// What a module is given.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Its arguments, the name first.
    pub args: &'a [&'a str],
    pub input: &'a [u8],
    pub limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub timeout: Duration,
    /// Of its linear memory, in bytes.
    pub memory: u64,
    /// Bytes of output, and of errors as well.
    pub output: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub how: How,
    pub output: Vec<u8>,
    pub errors: Vec<u8>,
    /// It wanted more memory than it may have, whatever it made of that.
    pub short_of_memory: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    Exited(i32),
    /// What the instruction did that may not be.
    Trapped(String),
    StackOverflow,
    Late,
    /// More instructions than its time is worth.
    OutOfWork(u64),
    /// More output than it may write.
    TooLong,
    /// Somebody wanted it to stop.
    Stopped,
}

impl Program {
    /// Runs it to its end. `stop` is asked now and then whether it should end early.
    pub fn run(&self, call: Call<'_>, stop: &dyn Fn() -> bool) -> Ended {
        let mut store = Store::new(&self.engine, State::new(&call));
        store.limiter(|state| &mut state.bounds);
        let how = self.to_its_end(&mut store, call.limits.timeout, stop).unwrap_or_else(|error| how(&error));
        let State { output, errors, bounds, .. } = store.into_data();
        Ended { how, output, errors, short_of_memory: bounds.refused }
    }

    fn to_its_end(
        &self,
        store: &mut Store<State>,
        timeout: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<How, Error> {
        let began = Instant::now();
        let most = WORK.saturating_mul(timeout.as_secs().max(1));
        let mut given = SLICE;
        store.set_fuel(SLICE)?;
        let instance = self.linker.instantiate_and_start(&mut *store, &self.module)?;
        let start = instance.get_typed_func::<(), ()>(&*store, "_start")?;
        let mut state = start.call_resumable(&mut *store, ())?;
        loop {
            let waits = match state {
                TypedResumableCall::Finished(()) => return Ok(How::Exited(0)),
                TypedResumableCall::HostTrap(trap) => return Ok(how(trap.host_error())),
                TypedResumableCall::OutOfFuel(waits) => waits,
            };
            // one instruction may need more than a slice, as filling memory does
            let slice = waits.required_fuel().max(SLICE);
            given = given.saturating_add(slice);
            match () {
                () if stop() => return Ok(How::Stopped),
                () if began.elapsed() >= timeout => return Ok(How::Late),
                () if given > most => return Ok(How::OutOfWork(most)),
                () => store.set_fuel(slice)?,
            }
            state = waits.resume(&mut *store)?;
        }
    }
}

fn how(error: &Error) -> How {
    if let Some(code) = error.i32_exit_status() {
        return How::Exited(code);
    }
    if error.downcast_ref::<Full>().is_some() {
        return How::TooLong;
    }
    match error.as_trap_code() {
        Some(TrapCode::StackOverflow) => How::StackOverflow,
        _ => How::Trapped(error.to_string()),
    }
}
