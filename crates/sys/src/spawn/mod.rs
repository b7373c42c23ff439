//! Starting a program: a child that shares our memory until it execs, so that nothing is copied, no pipe is
//! needed to learn why it could not, and the cost does not grow with the parent.
//!
//! The child starts with descriptors 0, 1 and 2 and no other, default signal dispositions, an empty mask and a
//! session of its own. Its program is looked up as a shell would: in the child's own PATH and directory. This
//! module refuses to guess: whatever step fails, the program does not run.

mod child;
mod lookup;
mod task;

pub use task::{fork, split, standard};

use crate::reap;
use crate::signal::Mask;
use crate::syscall::number;
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
    pub argv: &'a [CString],
    /// The whole environment, as `NAME=value`.
    pub env: &'a [CString],
    pub cwd: &'a CStr,
    pub stdio: [BorrowedFd<'a>; 3],
    /// The descriptors are a terminal that becomes the session's own.
    pub terminal: bool,
    pub user: Option<User<'a>>,
}

/// Who the child becomes.
#[derive(Clone, Copy)]
pub struct User<'a> {
    pub uid: u32,
    pub gid: u32,
    pub groups: &'a [u32],
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

/// Starts the program; when this returns `Ok` it is running. The caller reaps it.
pub fn spawn(command: &Command<'_>) -> Result<Pid, Failure> {
    prepared(command, start)?
}

/// Turns this process, which `fork` has made, into the program. Returns only where that fails, with nothing but descriptors
/// 0, 1 and 2 changed; the others are marked to be closed.
pub fn turn_into(command: &Command<'_>) -> Failure {
    prepared(command, child::turn_into).unwrap_or_else(|failure| failure)
}

fn prepared<T>(command: &Command<'_>, then: impl FnOnce(&Job<'_>) -> T) -> Result<T, Failure> {
    let Some(program) = command.argv.first() else {
        return Err(Failure { step: Step::Program, errno: Errno::NOENT });
    };
    let candidates = lookup::candidates(program, command.env);
    let argv = pointers(command.argv.iter().map(CString::as_c_str));
    // A script without an interpreter line: `/bin/sh PATH ARGS`, where the child fills in the path.
    let script = pointers([c"/bin/sh", program].into_iter().chain(rest(command.argv)));
    let env = pointers(command.env.iter().map(CString::as_c_str));
    let stdio = Stdio::above_standard(command.stdio).map_err(|errno| Failure { step: Step::Stdio, errno })?;
    let job = Job {
        candidates: &candidates,
        searched: !lookup::is_path(program),
        argv: argv.as_ptr(),
        script: Cell::new(script),
        env: env.as_ptr(),
        cwd: command.cwd,
        stdio: stdio.numbers,
        terminal: command.terminal,
        user: command.user,
        failure: Cell::new(None),
    };
    Ok(then(&job))
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
            if *number < 3 {
                let copy = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
                *number = copy.as_raw_fd();
                *slot = Some(copy);
            }
        }
        Ok(Self { numbers, _moved: moved })
    }
}

fn start(job: &Job<'_>) -> Result<Pid, Failure> {
    let fork_failed = |errno| Failure { step: Step::Fork, errno };
    // No handler of ours may run in the child while it shares our memory.
    let before = Mask::ALL.set().map_err(fork_failed)?;
    let forked = clone_sharing_memory(job);
    before.set().map_err(fork_failed)?;
    let pid = forked.map_err(fork_failed)?;
    match job.failure.get() {
        None => Ok(pid),
        Some(failure) => {
            // It has ended without becoming a program: nobody else may see it as one that has exited.
            let _ = reap::reap_one(pid);
            Err(failure)
        }
    }
}

/// Returns in the parent only, and only once the child has become its program or ended.
fn clone_sharing_memory(job: &Job<'_>) -> Result<Pid, Errno> {
    const CLONE_VM: usize = 0x100;
    const CLONE_VFORK: usize = 0x4000;
    const SIGCHLD: usize = 17;
    let flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
    let job = ptr::from_ref(job);
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the parent is suspended until the child execs or ends, so the child may use the stack below this
    // frame; it never returns from `run`, so this frame is left once, by the parent, whose registers the
    // kernel keeps. What the child changes in memory is the job's cells, which `&Job` allows.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call {run}",
            "ud2",
            "2:",
            run = sym child::run,
            inlateout("rax") number::CLONE => result,
            in("rdi") flags, in("rsi") 0, in("rdx") 0, in("r10") 0, in("r8") 0,
            in("r12") job,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x0, x20",
            "bl {run}",
            "brk 1",
            "2:",
            run = sym child::run,
            in("x8") number::CLONE,
            inlateout("x0") flags => result,
            in("x1") 0, in("x2") 0, in("x3") 0, in("x4") 0,
            in("x20") job,
            lateout("x30") _,
        );
    }
    let errno = || Errno::from_raw_os_error(-(result as i32));
    Pid::from_raw(result as i32).filter(|_| result > 0).ok_or_else(errno)
}

#[cfg(test)]
mod tests;
