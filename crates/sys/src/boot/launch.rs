//! clone3, and the loop that performs the operations in the child.

use super::kernel::{Kernel, Linux};
use super::op::Op;
use super::talk::{Child, Supervisor};
use crate::raw::{self, CloneArgs};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Pid;
use rustix::thread::UnshareFlags;

/// A boot child at work.
pub struct Launched {
    pub pid: Pid,
    pub pidfd: OwnedFd,
    pub supervisor: Supervisor,
}

/// Starts a child in new namespaces (and, on cgroup v2, in a group) that performs `ops` and never returns.
///
/// Call from a thread that lives as long as the sandbox: the child dies with the thread that made it.
pub fn launch(
    namespaces: UnshareFlags,
    cgroup: Option<BorrowedFd<'_>>,
    ops: &[Op],
) -> Result<Launched, Errno> {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut pidfd: libc::c_int = -1;
    let mut args = CloneArgs {
        flags: u64::from(namespaces.bits()) | libc::CLONE_PIDFD as u64,
        pidfd: std::ptr::from_mut(&mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        ..CloneArgs::default()
    };
    if let Some(group) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = group.as_raw_fd() as u64;
    }
    // SAFETY: the arguments are a live, correctly sized `clone_args`; without CLONE_VM the child has its own
    // copy of this memory, and below it only makes system calls on prepared data until it execs or exits.
    let pid = raw::check(unsafe {
        libc::syscall(libc::SYS_clone3, std::ptr::from_ref(&args), size_of::<CloneArgs>())
    })?;
    if pid == 0 {
        run_child(theirs, ours.as_raw_fd(), ops);
    }
    drop(theirs);
    let pid = Pid::from_raw(pid as i32).ok_or(Errno::SRCH)?;
    Ok(Launched {
        pid,
        pidfd: raw::owned(libc::c_long::from(pidfd)),
        supervisor: Supervisor { socket: ours },
    })
}

fn run_child(socket: OwnedFd, other_end: libc::c_int, ops: &[Op]) -> ! {
    // SAFETY: closes the copy of the supervisor's end that came with the fork, so that its closing is seen.
    unsafe { libc::close(other_end) };
    // Modes in operations are meant as they are written.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    let mut kernel = Linux { child: Child { socket }, umask };
    reset_signals();
    for (at, op) in ops.iter().enumerate() {
        if let Err(errno) = kernel.perform(op) {
            kernel.child.tell_failure(at, errno);
            break;
        }
    }
    raw::exit_now(125)
}

/// The supervisor blocks signals for its signalfd; what runs inside must not inherit that.
fn reset_signals() {
    // SAFETY: an empty set is initialised by sigemptyset before it is used; both calls take valid pointers.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}
