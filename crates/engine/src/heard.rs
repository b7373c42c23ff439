//! What a session listens to besides its command: signals, which are the command's, or a word from whoever runs several.

use crate::error::EngineError;
use crate::relay::{ExecId, Relay, current_size};
use crate::stop::Stop;
use cofferdam_sys::signal::{Signals, is_ignored};
use rustix::io::Errno;
use rustix::process::Signal;
use std::os::fd::{AsFd, BorrowedFd};

/// Those that are the command's, if they reach us.
const FORWARDED: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

pub(crate) enum Heard<'a> {
    Signals(Signals),
    Stop(&'a Stop),
}

impl AsFd for Heard<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Signals(signals) => signals.as_fd(),
            Self::Stop(stop) => stop.as_fd(),
        }
    }
}

pub(crate) fn forward(
    signals: &Signals,
    relay: &mut Relay,
    id: ExecId,
    tty: bool,
) -> Result<(), EngineError> {
    let failed = |errno: Errno| EngineError::Io { doing: "hear of signals", source: errno.into() };
    for arrived in signals.take().map_err(failed)? {
        if arrived.is(Signal::WINCH) {
            if let Some(size) = current_size(rustix::stdio::stdin()).filter(|_| tty) {
                relay.resize(id, size)?;
            }
        } else if arrived.is(Signal::TSTP) && tty {
            // As if it was typed at the command's own terminal: we follow when it has stopped.
            relay.signal(id, Signal::TSTP.as_raw() as u8)?;
        } else if arrived.is(Signal::TSTP) {
            // Nobody inside could stop it: its process group is an orphan there, and the kernel stops no such.
            relay.rest(id)?;
        } else if let Ok(number) = u8::try_from(arrived.signal) {
            // What somebody sends us is meant for the command alone; what a terminal sends, for all in its foreground.
            match arrived.from {
                0 => relay.signal(id, number)?,
                _ => relay.signal_leader(id, number)?,
            }
        }
    }
    Ok(())
}

pub(crate) fn listen(tty: bool) -> Result<Signals, EngineError> {
    let mut all = FORWARDED.to_vec();
    all.push(Signal::TSTP);
    if tty {
        all.push(Signal::WINCH);
    }
    // What we were started to let pass, as by `nohup`, the command would have let pass.
    all.retain(|signal| !is_ignored(*signal));
    Signals::listen(&all)
        .map_err(|errno| EngineError::Io { doing: "listen for signals", source: errno.into() })
}
