//! A child that goes on in this same program: a copy of it, for work that may block or that somebody else is to do.
//!
//! Only a program of one thread may do so: a lock that another thread held would never be given back. The guest
//! is one, with or without std.

use super::child::{Rest, become_user, stand_alone};
use super::{Failure, Stdio, Step, User};
use crate::signal::Mask;
use crate::syscall::{number, syscall};
use rustix::fd::BorrowedFd;
use rustix::process::{DumpableBehavior, Pid};

/// Starts `work` in a copy of this process that has the given descriptors as 0, 1 and 2 and no other; what it
/// returns is the child's exit code. `work` is told if the child could not become what it should: it is to say so
/// and to do nothing else. The caller reaps it.
pub fn fork(
    stdio: [BorrowedFd<'_>; 3],
    user: Option<&User>,
    work: impl FnOnce(Result<(), Failure>) -> u8,
) -> Result<Pid, Failure> {
    const SIGCHLD: usize = 17;
    let failed = |errno| Failure { step: Step::Fork, errno };
    let stdio = Stdio::above_standard(stdio).map_err(|errno| Failure { step: Step::Stdio, errno })?;
    // SAFETY: takes no pointers: the child has a copy of the stack and goes on with it. There is one thread, so
    // nothing in that copy is half changed.
    let pid = unsafe { syscall(number::CLONE, [SIGCHLD, 0, 0, 0, 0]) }.map_err(failed)?;
    if pid != 0 {
        return Pid::from_raw(pid as i32).ok_or(failed(rustix::io::Errno::CHILD));
    }
    let code = work(prepare(&stdio, user));
    loop {
        // SAFETY: takes no pointers; ends this child only.
        let _ = unsafe { syscall(number::EXIT_GROUP, [usize::from(code)]) };
    }
}

/// Goes on twice: here, and with `work` in a copy of this process that is not its child but its parent's, who reaps it. What
/// `work` returns is the copy's exit code. For a process that `fork` has made.
pub fn split(work: impl FnOnce() -> u8) -> Result<(), rustix::io::Errno> {
    const CLONE_PARENT: usize = 0x8000;
    const SIGCHLD: usize = 17;
    // SAFETY: as in `fork`, whose child is of one thread too.
    let pid = unsafe { syscall(number::CLONE, [CLONE_PARENT | SIGCHLD, 0, 0, 0, 0]) }?;
    if pid != 0 {
        return Ok(());
    }
    let code = work();
    loop {
        // SAFETY: takes no pointers; ends this child only.
        let _ = unsafe { syscall(number::EXIT_GROUP, [usize::from(code)]) };
    }
}

fn prepare(stdio: &Stdio, user: Option<&User>) -> Result<(), Failure> {
    let at = |step| move |errno| Failure { step, errno };
    stand_alone(&stdio.numbers, Rest::Closed)?;
    if let Some(user) = user {
        become_user(user).map_err(at(Step::User))?;
    }
    // A change of user may have undone it, and what is in this memory is not that user's.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(at(Step::User))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    Mask::NONE.set().map(drop).map_err(at(Step::Session))
}

/// Input and output of a child that `fork` has made, for the whole of its life.
pub fn standard() -> [BorrowedFd<'static>; 2] {
    // SAFETY: `place` has opened both, and nothing in the child owns them, so nothing closes them before it ends.
    unsafe { [BorrowedFd::borrow_raw(0), BorrowedFd::borrow_raw(1)] }
}
