//! Starts the boot child, and is the loop that performs the operations in it.

use super::kernel::{Kernel, Linux};
use super::op::Op;
use super::talk::{Child, Message, Supervisor};
use crate::clone::{Request, Sharer, share};
use crate::raw;
use crate::signal::Mask;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Pid;
use rustix::thread::UnshareFlags;
use std::sync::Arc;

/// What the child is given. It shares our memory, so this lives until the child executes the guest.
struct Job {
    ops: Arc<[Op]>,
    socket: RawFd,
    other_end: RawFd,
}

/// A boot child at work. Dropped before the guest runs, it ends the child.
pub struct Launched {
    child: Sharer<Job>,
    supervisor: Supervisor,
}

/// Starts a child in new namespaces (and, on cgroup v2, in a group) that performs `ops` and never returns.
///
/// Call from a thread that lives as long as the sandbox: the child dies with the thread that made it.
pub fn launch(
    namespaces: UnshareFlags,
    cgroup: Option<BorrowedFd<'_>>,
    ops: Arc<[Op]>,
) -> Result<Launched, Errno> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let request =
        Request { namespaces: namespaces.bits().into(), cgroup: cgroup.map(|group| group.as_raw_fd()) };
    let job = Job { ops, socket: theirs.as_raw_fd(), other_end: ours.as_raw_fd() };
    let child = share(&request, job, run_child)?;
    Ok(Launched { child, supervisor: Supervisor { socket: ours } })
}

impl Launched {
    pub fn pid(&self) -> Pid {
        self.child.pid
    }

    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.child.pidfd.as_fd()
    }

    /// Tells the child that one of the supervisor's parts of the work is done.
    pub fn go(&self) -> Result<(), Errno> {
        self.supervisor.go()
    }

    /// Waits for what the child has to say.
    pub fn hear(&mut self) -> Result<Message, Errno> {
        let heard = self.supervisor.hear()?;
        if matches!(heard, Message::Started) {
            self.child.let_go();
        }
        Ok(heard)
    }
}

extern "C" fn run_child(job: &Job) -> ! {
    // The copy of the supervisor's end that came along: were it open, its closing would not be seen.
    raw::close(job.other_end);
    // SAFETY: the child has its own table of descriptors, in which this one is nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(job.socket) };
    // Modes in operations are meant as they are written.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    let mut kernel = Linux { child: Child { socket }, umask };
    reset_signals();
    for (at, op) in job.ops.iter().enumerate() {
        if let Err(errno) = kernel.perform(op) {
            kernel.child.tell_failure(at, errno);
            break;
        }
    }
    raw::exit_now(125)
}

/// The supervisor blocks signals and ignores one; what runs inside must not inherit that.
fn reset_signals() {
    let _ = raw::default_action(libc::SIGPIPE);
    let _ = Mask::NONE.set();
}
