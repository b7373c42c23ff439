//! Starts the boot child, and is the loop that performs the operations in it.

use super::kernel::{CARRIED_MAX, Kernel, Linux};
use super::op::Op;
use super::talk::{Child, Given, Message, Received, Supervisor};
use crate::clone::{Request, Sharer, share};
use crate::raw;
use crate::signal::Mask;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Pid;
use rustix::thread::UnshareFlags;
use std::sync::OnceLock;

/// In how many parts the rest can be handed over.
const PARTS: usize = 3;

/// What the child is given. It shares our memory, so this lives until the child executes the guest.
struct Job {
    first: Vec<Op>,
    /// Each set before the child is told to go on, and never again.
    later: [OnceLock<Vec<Op>>; PARTS],
    socket: RawFd,
    /// Sorted.
    keep: Vec<RawFd>,
}

/// A boot child at work. Dropped before the guest runs, it ends the child.
pub struct Launched {
    child: Sharer<Job>,
    supervisor: Supervisor,
}

/// Where a child is born.
#[derive(Debug, Clone, Copy)]
pub struct Birth<'a> {
    /// New ones.
    pub namespaces: UnshareFlags,
    /// On cgroup v2, a group.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// A user namespace of ours, to which the new ones will belong.
    pub within: Option<BorrowedFd<'a>>,
    /// Descriptors that its operations name. It has no others: it may wait for long, and whoever waits for the end
    /// of something of ours must not wait for a copy in it.
    pub keep: &'a [RawFd],
}

/// Starts a child in new namespaces (and, on cgroup v2, in a group). It performs `first` at once, then waits for
/// the rest of its operations, part by part, and never returns: what takes long and depends on little is done while
/// its supervisor still decides the rest.
///
/// Call from a thread that lives as long as the sandbox: the child dies with the thread that made it.
pub fn launch(birth: &Birth<'_>, first: Vec<Op>) -> Result<Launched, Errno> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let request = Request {
        namespaces: birth.namespaces.bits().into(),
        cgroup: birth.cgroup.map(|group| group.as_raw_fd()),
        within: birth.within.map(|namespace| namespace.as_raw_fd()),
    };
    let socket = theirs.as_raw_fd();
    let mut keep = [birth.keep, &[0, 1, 2, socket]].concat();
    keep.sort_unstable();
    let job = Job { first, later: Default::default(), socket, keep };
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

    /// Gives the child more to do. The supervisor's own part (the id maps) is done by then.
    pub fn perform(&self, part: Vec<Op>, given: Given<'_>) -> Result<(), Errno> {
        let next =
            self.child.data().later.iter().find(|later| later.get().is_none()).ok_or(Errno::ALREADY)?;
        next.set(part).map_err(|_| Errno::ALREADY)?;
        self.supervisor.go(given)
    }

    /// Tells a child that waits for its supervisor's part that it is done.
    pub fn go(&self) -> Result<(), Errno> {
        self.supervisor.go(Given::default())
    }

    /// Our end of its socket, for who is to tell a guest that waits what it is bound to.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.supervisor.socket.as_fd()
    }

    /// The operation that a failure names, counted over all parts.
    pub fn op(&self, at: usize) -> Option<&Op> {
        let job = self.child.data();
        job.first.iter().chain(job.later.iter().filter_map(OnceLock::get).flatten()).nth(at)
    }

    /// Waits for what the child has to say.
    pub fn hear(&mut self) -> Result<Message, Errno> {
        let heard = self.supervisor.hear()?;
        if matches!(heard, Message::Started | Message::Waiting) {
            // All is done. Files are in the operations whole, and a session may live for long.
            let job = self.child.let_go();
            (job.first, job.later) = (Vec::new(), Default::default());
        }
        Ok(heard)
    }
}

extern "C" fn run_child(job: &Job) -> ! {
    let mut next = 0;
    for &kept in &job.keep {
        raw::close_range(next, kept - 1);
        next = kept + 1;
    }
    raw::close_range(next, RawFd::MAX);
    // SAFETY: the child has its own table of descriptors, in which this one is nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(job.socket) };
    // Modes in operations are meant as they are written.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    let carried = [const { None }; CARRIED_MAX];
    let mut kernel = Linux { child: Child { socket }, umask, given: Received::default(), carried };
    reset_signals();
    if let Err((at, errno)) = work(&mut kernel, job) {
        kernel.child.tell_failure(at, errno);
    }
    raw::exit_now(125)
}

/// Returns only if something failed: the last operation executes the guest.
fn work(kernel: &mut Linux, job: &Job) -> Result<(), (usize, Errno)> {
    perform(kernel, &job.first, 0)?;
    let mut done = job.first.len();
    for part in &job.later {
        kernel.given = kernel.child.await_go().map_err(|errno| (done, errno))?;
        let part = part.get().map_or(&[][..], Vec::as_slice);
        perform(kernel, part, done)?;
        done += part.len();
    }
    Ok(())
}

fn perform(kernel: &mut Linux, ops: &[Op], from: usize) -> Result<(), (usize, Errno)> {
    ops.iter().enumerate().try_for_each(|(at, op)| kernel.perform(op).map_err(|errno| (from + at, errno)))
}

/// The supervisor blocks signals and ignores one; what runs inside must not inherit that.
fn reset_signals() {
    let _ = raw::default_action(libc::SIGPIPE);
    let _ = Mask::NONE.set();
}
