//! Starting a program: a child that shares our memory until it execs, so that nothing is copied and the cost does not grow
//! with the parent. Nobody waits for it meanwhile: whoever may send it signals can stop it before it is its program, and a
//! file that it has to open can be held back by who owns it.
//!
//! The child starts with descriptors 0, 1 and 2 and no other, default signal dispositions, an empty mask and, but for one
//! in the foreground of its parent's terminal, a session of its own. Its program is looked up as a shell would: in the child's own PATH and directory. This
//! module refuses to guess: whatever step fails, the program does not run.

mod begin;
mod child;
mod lookup;
mod task;

pub use begin::{Beginning, begin};
pub use child::ignore_nothing;
pub use task::{fork, split, standard};

use crate::reap;
use alloc::ffi::CString;
use alloc::vec::Vec;
use child::Job;
use core::cell::Cell;
use core::ffi::{CStr, c_char};
use core::ptr;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::process::Pid;

pub struct Command<'a> {
    pub argv: Vec<CString>,
    /// The whole environment, as `NAME=value`.
    pub env: Vec<CString>,
    pub cwd: CString,
    pub stdio: [BorrowedFd<'a>; 3],
    pub place: Place,
    pub user: Option<User>,
}

/// Where the child stands among sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In one of its own.
    Apart,
    /// As before, and the descriptors are a terminal that becomes that session's.
    Terminal,
    /// In the foreground of the terminal that they are and that is ours already. It ends with us.
    Foreground,
}

/// Who the child becomes.
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Fork,
    Session,
    Terminal,
    Stdio,
    User,
    Directory,
    Program,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub step: Step,
    pub errno: Errno,
}

/// Starts the program and waits for it; when this returns `Ok` it is running. The caller reaps it. For a process that nobody
/// can hold up by holding up its child.
pub fn spawn(command: Command<'_>) -> Result<Pid, Failure> {
    let (pid, beginning) = begin(command)?;
    beginning.wait().map(|()| pid).inspect_err(|_| {
        // It has ended without becoming a program: nobody else may see it as one that has exited.
        let _ = reap::reap_one(pid);
    })
}

/// Turns this process, which `fork` has made, into the program. Returns only where that fails, with nothing but descriptors
/// 0, 1 and 2 changed; the others are marked to be closed.
pub fn turn_into(command: Command<'_>) -> Failure {
    match prepared(command) {
        Ok((job, _open)) => child::turn_into(&job),
        Err(failure) => failure,
    }
}

/// What the child needs, and the descriptors that it is given.
fn prepared(command: Command<'_>) -> Result<(Job, Stdio), Failure> {
    let Command { argv, env, cwd, stdio, place, user } = command;
    let Some(program) = argv.first() else {
        return Err(Failure { step: Step::Program, errno: Errno::NOENT });
    };
    let stdio = Stdio::above_standard(stdio).map_err(|errno| Failure { step: Step::Stdio, errno })?;
    let script = pointers([c"/bin/sh", program].into_iter().chain(rest(&argv)));
    let job = Job {
        candidates: lookup::candidates(program, &env),
        searched: !lookup::is_path(program),
        argv: pointers(argv.iter().map(CString::as_c_str)),
        script: script.into_iter().map(Cell::new).collect(),
        env: pointers(env.iter().map(CString::as_c_str)),
        _words: [argv, env],
        cwd,
        stdio: stdio.numbers,
        place,
        parent: rustix::process::getpid(),
        user,
    };
    Ok((job, stdio))
}

fn rest(argv: &[CString]) -> impl Iterator<Item = &CStr> {
    argv.iter().skip(1).map(CString::as_c_str)
}

fn pointers<'a>(strings: impl Iterator<Item = &'a CStr>) -> Vec<*const c_char> {
    strings.map(CStr::as_ptr).chain([ptr::null()]).collect()
}

/// The child's descriptors under numbers that placing them at 0, 1 and 2 cannot overwrite.
struct Stdio {
    numbers: [RawFd; 3],
    _moved: [Option<OwnedFd>; 3],
}

impl Stdio {
    fn above_standard(given: [BorrowedFd<'_>; 3]) -> Result<Self, Errno> {
        let mut numbers = given.map(|fd| fd.as_raw_fd());
        let mut moved = [None, None, None];
        for ((number, slot), fd) in numbers.iter_mut().zip(&mut moved).zip(given) {
            if *number < FIRST_OTHER {
                let copy = rustix::io::fcntl_dupfd_cloexec(fd, FIRST_OTHER)?;
                *number = copy.as_raw_fd();
                *slot = Some(copy);
            }
        }
        Ok(Self { numbers, _moved: moved })
    }
}

/// The first number beyond input, output and errors.
const FIRST_OTHER: RawFd = 3;

#[cfg(test)]
mod tests;
