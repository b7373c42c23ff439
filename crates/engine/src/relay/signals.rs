//! Signals for a command that runs.

use super::exec::Running;
use super::{ExecId, Relay};
use crate::error::EngineError;
use cofferdam_guest::wire::{Size, Target};
use cofferdam_sys::signal::stop_here;
use rustix::process::Signal;
use std::time::Instant;

impl Relay {
    /// For the command's process group, or whoever is in the foreground of its terminal.
    pub(crate) fn signal(&mut self, id: ExecId, number: u8) -> Result<(), EngineError> {
        let Some(exec) = self.execs.iter_mut().find(|exec| exec.id == id) else { return Ok(()) };
        exec.hear_of(number);
        if i32::from(number) == Signal::KILL.as_raw() && exec.dies_of_signals() {
            self.debts.killed(id, Instant::now());
        }
        exec.signal(&mut self.client, number)
    }

    /// For the command's first process alone.
    pub(crate) fn signal_leader(&mut self, id: ExecId, number: u8) -> Result<(), EngineError> {
        self.find(id).into_iter().for_each(|exec| exec.hear_of(number));
        Ok(self.client.signal(id, number, Target::Leader)?)
    }

    pub(super) fn hear_stop(&mut self, id: ExecId) -> Result<(), EngineError> {
        match self.find(id).and_then(Running::stops) {
            Some(true) => self.stopped.push(id),
            Some(false) => self.signal_leader(id, Signal::CONT.as_raw() as u8)?,
            None => {}
        }
        Ok(())
    }

    /// Wakes one that was stopped, at a terminal that may have another size by now.
    pub(crate) fn resume_at(&mut self, id: ExecId, size: Option<Size>) -> Result<(), EngineError> {
        size.map_or(Ok(()), |size| self.resize(id, size))?;
        self.signal_leader(id, Signal::CONT.as_raw() as u8)
    }

    /// Stops the command, and then us: whoever wakes us wakes it.
    pub(crate) fn rest(&mut self, id: ExecId) -> Result<(), EngineError> {
        self.signal(id, Signal::STOP.as_raw() as u8)?;
        self.client.flush()?;
        stop_here();
        self.signal(id, Signal::CONT.as_raw() as u8)
    }
}
