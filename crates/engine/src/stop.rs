//! Ends sessions from outside, all at once: once raised, it stays raised.

use crate::error::EngineError;
use cofferdam_sys::signal::{Signals, is_ignored};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::process::Signal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

pub struct Stop {
    raised: AtomicBool,
    fd: OwnedFd,
}

impl Stop {
    pub fn new() -> Result<Self, EngineError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| EngineError::Io { doing: "make an event descriptor", source: errno.into() })?;
        Ok(Self { raised: AtomicBool::new(false), fd })
    }

    pub fn raise(&self) {
        self.raised.store(true, Ordering::SeqCst);
        // Fails only when the counter is full, and then it is readable anyway.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }
}

/// Does `work`, during which a signal to end raises `stop` and does nothing else: whoever works ends in order.
pub fn until_signalled<T>(stop: &Stop, work: impl FnOnce() -> T) -> Result<T, EngineError> {
    let failed =
        |errno: rustix::io::Errno| EngineError::Io { doing: "listen for signals", source: errno.into() };
    // Blocked in this thread and in all that it starts, so that they arrive here and nowhere else.
    let mut ending = vec![Signal::INT, Signal::TERM, Signal::HUP];
    // As `nohup` wants it.
    ending.retain(|signal| !is_ignored(*signal));
    let signals = Signals::listen(&ending).map_err(failed)?;
    let done = Stop::new()?;
    let watch = || loop {
        let mut waited = [PollFd::new(&signals, PollFlags::IN), PollFd::new(&done, PollFlags::IN)];
        // Interrupted waits are waits again; any other failure would be one of the descriptors that we hold.
        let _ = poll(&mut waited, None);
        if done.is_raised() {
            return;
        }
        if signals.take().is_ok_and(|mut arrived| arrived.next().is_some()) {
            stop.raise();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(watch);
        let worked = work();
        done.raise();
        Ok(worked)
    })
}

/// Readable from the moment it is raised.
impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
