//! System-call filters: a table of rules compiled to one short BPF program, and the listener that hears of
//! calls that are refused, watched or answered. Which calls are allowed is not decided here.

mod ask;
mod compile;
mod notify;

pub use ask::asking;
pub use compile::{Check, Program, Rule, Test, Verdict, compile};
pub use notify::{Attempt, Listener};

use crate::raw;
use crate::syscall::syscall;
use rustix::fd::OwnedFd;
use rustix::io::Errno;

/// Applies the program to the calling thread; with `notify`, returns the listener.
pub(crate) fn install(program: &Program, notify: bool) -> Result<Option<OwnedFd>, Errno> {
    const SET_MODE_FILTER: usize = 1;
    const NEW_LISTENER: usize = 8;
    const WAIT_KILLABLE: usize = 32;
    let instructions = program.instructions();
    let wire = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(|_| Errno::TOOBIG)?,
        filter: instructions.as_ptr().cast_mut(),
    };
    let install = |flags: usize| {
        let args = [SET_MODE_FILTER, flags, std::ptr::from_ref(&wire) as usize];
        // SAFETY: the program outlives the call, which only reads it; the length is its own.
        unsafe { syscall(libc::SYS_seccomp as usize, args) }
    };
    if !notify {
        return install(0).map(|_| None);
    }
    // Without it (before Linux 5.19) a signal has a call told again: a program that is sent many never gets on.
    let value = match install(NEW_LISTENER | WAIT_KILLABLE) {
        Err(Errno::INVAL) => install(NEW_LISTENER),
        other => other,
    };
    Ok(Some(raw::owned(value?)))
}
