//! What the child does between clone and exec. It shares the parent's memory, which goes on meanwhile, so it allocates
//! nothing, takes no lock and never returns; rustix's calls here are bare system calls.

use super::{Failure, Place, Step, User};
use crate::signal::{Mask, SET_SIZE};
use crate::syscall::{number, syscall};
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::fd::{BorrowedFd, RawFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use rustix::thread::{Gid, Uid};

/// Everything the child needs, made ready by the parent.
pub(super) struct Job {
    pub(super) candidates: Vec<CString>,
    /// The candidates come from PATH: one that is missing or no program is passed over.
    pub(super) searched: bool,
    /// What the pointers lead to.
    pub(super) _words: [Vec<CString>; 2],
    pub(super) argv: Vec<*const c_char>,
    /// A script without an interpreter line: `/bin/sh PATH ARGS`, where the path is filled in.
    pub(super) script: Vec<Cell<*const c_char>>,
    pub(super) env: Vec<*const c_char>,
    pub(super) cwd: CString,
    pub(super) stdio: [RawFd; 3],
    pub(super) place: Place,
    pub(super) parent: Pid,
    pub(super) user: Option<User>,
}

/// A job and where to tell that it failed. That nobody has that any more says that it did not, or that it has ended.
pub(super) struct Begun {
    pub(super) job: Job,
    pub(super) status: RawFd,
}

pub(super) extern "C" fn run(begun: &Begun) -> ! {
    let Begun { job, status } = begun;
    let failure = match prepare(job) {
        Ok(()) => Failure { step: Step::Program, errno: execute(job) },
        Err(failure) => failure,
    };
    // SAFETY: open in this child until it execs or ends, which `place` has seen to.
    failure.tell(unsafe { BorrowedFd::borrow_raw(*status) });
    loop {
        // SAFETY: takes no pointers; ends this child only.
        let _ = unsafe { syscall(number::EXIT, [127]) };
    }
}

fn prepare(job: &Job) -> Result<(), Failure> {
    match job.place {
        Place::Apart | Place::Terminal => stand_alone(&job.stdio, Rest::ClosedThen)?,
        Place::Foreground => step_forward(&job.stdio)?,
    }
    dress(job)
}

/// A group of its own, in the foreground of the terminal that these are. With all signals blocked nothing stops it for that.
fn step_forward(stdio: &[RawFd; 3]) -> Result<(), Failure> {
    let at = |step| move |errno| Failure { step, errno };
    rustix::process::setpgid(None, None).map_err(at(Step::Session))?;
    begin_anew();
    place(stdio, Rest::ClosedThen).map_err(at(Step::Stdio))?;
    // SAFETY: `place` has just opened it.
    let stdin = unsafe { BorrowedFd::borrow_raw(0) };
    rustix::termios::tcsetpgrp(stdin, rustix::process::getpid()).map_err(at(Step::Terminal))
}

/// What is left to be done in a session of its own, with its descriptors in place.
fn dress(job: &Job) -> Result<(), Failure> {
    let at = |step| move |errno| Failure { step, errno };
    if job.place == Place::Terminal {
        // SAFETY: `place` has just opened it.
        let stdin = unsafe { BorrowedFd::borrow_raw(0) };
        rustix::process::ioctl_tiocsctty(stdin).map_err(at(Step::Terminal))?;
    }
    if let Some(user) = &job.user {
        become_user(user).map_err(at(Step::User))?;
    }
    if job.place == Place::Foreground {
        // After the change of user, which would undo it.
        end_with(job.parent).map_err(at(Step::Session))?;
    }
    rustix::process::chdir(job.cwd.as_c_str()).map_err(at(Step::Directory))?;
    Mask::NONE.set().map_err(at(Step::Session))?;
    Ok(())
}

fn end_with(parent: Pid) -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // One that ended before that has told nobody.
    if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH) }
}

/// As `run`, in a process that has a session of its own and memory that is nobody else's. Returns only where it fails; other
/// descriptors are still open then.
pub(super) fn turn_into(job: &Job) -> Failure {
    let at = |step| move |errno| Failure { step, errno };
    let placed = place(&job.stdio, Rest::ClosedThen).map_err(at(Step::Stdio));
    match placed.and_then(|()| dress(job)) {
        Ok(()) => Failure { step: Step::Program, errno: execute(job) },
        Err(failure) => failure,
    }
}

/// A session of its own, with these three descriptors and no others.
pub(super) fn stand_alone(stdio: &[RawFd; 3], rest: Rest) -> Result<(), Failure> {
    let at = |step| move |errno| Failure { step, errno };
    rustix::process::setsid().map_err(at(Step::Session))?;
    begin_anew();
    place(stdio, rest).map_err(at(Step::Stdio))
}

/// As any program expects to be started.
fn begin_anew() {
    crate::schedule::as_usual();
    if !CLEAR.load(Ordering::Relaxed) {
        default_dispositions();
    }
}

/// This process ignores nothing, and so do those that it starts.
static CLEAR: AtomicBool = AtomicBool::new(false);

/// Has this process ignore no signal from now on, once for all children: a call for each signal is the longest part of
/// starting one. For who ignores and handles none itself.
pub fn ignore_nothing() {
    default_dispositions();
    CLEAR.store(true, Ordering::Relaxed);
}

/// Handlers end with exec, but what was ignored would stay ignored.
fn default_dispositions() {
    const SIGNALS: usize = 64;
    /// `struct sigaction` as the kernel has it, SIG_DFL and no flags; never smaller than the kernel's.
    const DEFAULT: [usize; 4] = [0; 4];
    for signal in 1..=SIGNALS {
        // Refused for SIGKILL and SIGSTOP, which are never anything else.
        // SAFETY: the pointer is to a whole, valid structure; no old one is asked for.
        let _ = unsafe { syscall(number::RT_SIGACTION, [signal, DEFAULT.as_ptr() as usize, 0, SET_SIZE]) };
    }
}

/// What becomes of all other descriptors.
#[derive(Clone, Copy)]
pub(super) enum Rest {
    Closed = 0,
    /// By the exec, if there is one.
    ClosedThen = 4,
}

fn place(stdio: &[RawFd; 3], rest: Rest) -> Result<(), Errno> {
    for (to, from) in stdio.iter().enumerate() {
        // SAFETY: takes no pointers; changes this child's own descriptors, which nobody here owns.
        unsafe { syscall(number::DUP3, [*from as usize, to, 0]) }?;
    }
    let rest = [3, u32::MAX as usize, rest as usize];
    // SAFETY: as above. The parent's table is another one: it was not shared.
    unsafe { syscall(number::CLOSE_RANGE, rest) }.map(drop)
}

pub(super) fn become_user(user: &User) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    // SAFETY: `Gid` is a transparent `u32`.
    let groups =
        unsafe { core::slice::from_raw_parts(user.groups.as_ptr().cast::<Gid>(), user.groups.len()) };
    rustix::thread::set_thread_groups(groups)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// Returns only if no candidate became the program. As in a shell, a file found in PATH that is not executable
/// is remembered while the search goes on, and a directory of that name is nothing found.
fn execute(job: &Job) -> Errno {
    let mut result = Errno::NOENT;
    for candidate in &job.candidates {
        // Looking is cheaper than trying where every exec is watched.
        if job.searched && !is_file(candidate) {
            continue;
        }
        match exec(candidate, job.argv.as_ptr(), job.env.as_ptr()) {
            Errno::NOEXEC => return interpret(job, candidate),
            Errno::NOENT | Errno::NOTDIR if job.searched => (),
            Errno::ACCESS if job.searched => result = Errno::ACCESS,
            errno => return errno,
        }
    }
    result
}

/// A script without `#!` is the shell's; a program for some other machine is nobody's.
fn interpret(job: &Job, candidate: &CStr) -> Errno {
    if is_binary(candidate) {
        return Errno::NOEXEC;
    }
    if let Some(slot) = job.script.get(1) {
        slot.set(candidate.as_ptr());
    }
    // A `Cell` is laid out as what it holds.
    let errno = exec(c"/bin/sh", job.script.as_ptr().cast(), job.env.as_ptr());
    if errno == Errno::NOENT { Errno::NOEXEC } else { errno }
}

fn exec(path: &CStr, argv: *const *const c_char, env: *const *const c_char) -> Errno {
    // SAFETY: a C string and two null-terminated arrays of them, which the parent keeps until this child has left its memory.
    match unsafe { syscall(number::EXECVE, [path.as_ptr() as usize, argv as usize, env as usize]) } {
        Ok(_) => Errno::IO,
        Err(errno) => errno,
    }
}

fn is_file(path: &CStr) -> bool {
    rustix::fs::stat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Directory)
}

/// Text has no NUL in its first line.
fn is_binary(path: &CStr) -> bool {
    let mut head = [0_u8; 128];
    let Ok(file) = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    let length = rustix::io::read(&file, &mut head).unwrap_or(0);
    head.iter().take(length).take_while(|byte| **byte != b'\n').any(|byte| *byte == 0)
}
