//! Calls that are taken back: at whatever moment that is, the command ends.

use cofferdam_engine::Leaver;
use std::sync::{Mutex, PoisonError};

#[derive(Default)]
pub(super) struct Stop(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Quiet,
    Runs(Leaver),
    Stopped,
}

impl Stop {
    pub(super) fn now(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Runs(leaver) = std::mem::replace(&mut *state, State::Stopped) {
            leaver.leave();
        }
    }

    /// From here on there is something to end; at once, where it was taken back before.
    pub(super) fn runs(&self, leaver: Leaver) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *state {
            State::Stopped => leaver.leave(),
            _ => *state = State::Runs(leaver),
        }
    }
}
