//! A child that is started at a program's first instruction. What a C runtime does before `main` takes half a millisecond
//! where asking a processor for its features leaves a virtual machine, and so does making namespaces: this way the two
//! are done at once.
//!
//! Nothing of the C runtime is there yet, not even `memcpy` where it is chosen at the start: until it is given its job the
//! child, like what starts it, only makes system calls. It is started for the command `run` alone, belongs to nobody,
//! and ends with us. Where anything fails there is no such child, and whoever wants one makes it later and finds out why.

use crate::boot::unshare;
use crate::clone;
use crate::{image, late, raw};
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use rustix::process::{Pid, Signal};
use rustix::thread::UnshareFlags;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};

/// What the child has done by the time that it is given its job.
pub(crate) const NAMESPACES: UnshareFlags =
    UnshareFlags::NEWNS.union(UnshareFlags::NEWNET).union(UnshareFlags::NEWIPC).union(UnshareFlags::NEWUTS);

/// How many of the first operations of a boot that is: dying with its supervisor, and [`NAMESPACES`].
const DONE: usize = 2;

const STACK: usize = 64 << 10;

/// Whether there is one that nobody has taken.
static WAITS: AtomicBool = AtomicBool::new(false);
static BORN_IN: AtomicUsize = AtomicUsize::new(0);
static PID: AtomicI32 = AtomicI32::new(0);
/// In the order in which [`HeadStart::take`] takes them.
static DESCRIPTORS: [AtomicI32; 6] = [const { AtomicI32::new(-1) }; 6];
/// Of these, the supervisor's end of what it and the child talk over, and the child's.
const OURS: usize = 1;
const THEIRS: usize = 2;
static JOB: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
static ENTRY: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

#[repr(align(16))]
struct Stack(#[allow(dead_code, reason = "only the child is on it")] [u8; STACK]);
static mut CHILDS_STACK: Stack = Stack([0; STACK]);

/// The child, which waits for its job.
#[derive(Debug)]
pub struct Waiter {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    /// The supervisor's end and the child's.
    pub(crate) talk: (OwnedFd, OwnedFd),
}

/// The child, and what it was born with besides.
#[derive(Debug)]
pub struct HeadStart {
    pub child: Waiter,
    /// Our end of the guest's channel, and the guest's.
    pub channel: (OwnedFd, OwnedFd),
    /// The guest's image, still empty.
    pub image: OwnedFd,
}

// The program's entry, if its linker is told so. Registers are as `_start` wants them when it is its turn.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.cofferdam_start,\"ax\",@progbits",
    ".globl cofferdam_start",
    ".type cofferdam_start,@function",
    "cofferdam_start:",
    "mov rbx, rdx",
    "mov rdi, rsp",
    "call {at_entry}",
    "mov rdx, rbx",
    "jmp _start",
    ".size cofferdam_start, . - cofferdam_start",
    ".popsection",
    at_entry = sym at_entry,
);

/// `stack` is what a program begins with: how many words its command line has, then where they are.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no entry leads here"))]
extern "C" fn at_entry(stack: *const usize) {
    const RUN: &[u8; 4] = b"run\0";
    // SAFETY: the kernel has put that many pointers there, each to a string that ends with a zero.
    let is_run = unsafe {
        *stack >= 2 && {
            let word = *stack.add(2) as *const u8;
            let mut at = 0;
            while at < RUN.len() && *word.add(at) == RUN[at] {
                at += 1;
            }
            at == RUN.len()
        }
    };
    // Into a group of version 2 it would have to be born, and nothing is known of one yet.
    if is_run && !is_unified() {
        let _ = begin();
    }
}

fn is_unified() -> bool {
    const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;
    rustix::fs::statfs(c"/sys/fs/cgroup").is_ok_and(|found| found.f_type as u64 == CGROUP2_SUPER_MAGIC)
}

/// Starts the child.
fn begin() -> Result<(), Errno> {
    let stream =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let image = out_of_the_way(image::blank()?)?;
    let channel = (stream.0, out_of_the_way(stream.1)?);
    let talk =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut namespaces = UnshareFlags::NEWPID;
    namespaces.set(UnshareFlags::NEWUSER, !rustix::process::geteuid().is_root());
    BORN_IN.store(namespaces.bits() as usize, Ordering::Relaxed);
    for (at, end) in [(OURS, &talk.0), (THEIRS, &talk.1)] {
        DESCRIPTORS[at].store(end.as_raw_fd(), Ordering::Relaxed);
    }
    let stack = (&raw mut CHILDS_STACK).cast::<u8>();
    let (pid, pidfd) = clone::start_on((stack, STACK), namespaces.bits().into(), wait_for_job)?;
    PID.store(pid.as_raw_nonzero().get(), Ordering::Relaxed);
    let all = [pidfd, talk.0, talk.1, channel.0, channel.1, image];
    for (place, descriptor) in DESCRIPTORS.iter().zip(all) {
        place.store(descriptor.into_raw_fd(), Ordering::Relaxed);
    }
    WAITS.store(true, Ordering::Release);
    Ok(())
}

/// Under a number that those which the guest inherits cannot take.
fn out_of_the_way(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    if fd.as_raw_fd() > late::DESCRIPTOR {
        Ok(fd)
    } else {
        rustix::io::fcntl_dupfd_cloexec(&fd, late::DESCRIPTOR + 1)
    }
}

/// The child.
extern "C" fn wait_for_job(_: &()) -> ! {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let [ours, theirs] = [OURS, THEIRS].map(|at| DESCRIPTORS[at].load(Ordering::Relaxed));
    // With our copy of its end gone, who dies before it has taken us along is heard of all the same.
    raw::close_range(ours, ours);
    // What fails here is tried again as an operation, and told.
    let done = if unshare(NAMESPACES).is_ok() { DONE } else { 1 };
    loop {
        match rustix::io::read(raw::borrowed(&theirs), &mut [0]) {
            Ok(1) => break,
            Err(Errno::INTR) => {}
            _ => raw::exit_now(0),
        }
    }
    let (job, entry) = (JOB.load(Ordering::Acquire), ENTRY.load(Ordering::Acquire));
    // SAFETY: both were stored by `give` before it said so, the entry as a function of this type for such a job.
    let entry = unsafe { std::mem::transmute::<*mut (), extern "C" fn(*const (), usize) -> !>(entry) };
    entry(job, done)
}

impl HeadStart {
    /// The child, if there is one and it was born in these namespaces. Whoever drops it has it end.
    pub fn take(namespaces: UnshareFlags) -> Option<Self> {
        let is_alike = BORN_IN.load(Ordering::Relaxed) == namespaces.bits() as usize;
        let free = is_alike && WAITS.swap(false, Ordering::AcqRel);
        let pid = Pid::from_raw(PID.load(Ordering::Relaxed)).filter(|_| free)?;
        let [pidfd, ours, theirs, channel, inner, image] = DESCRIPTORS.each_ref().map(descriptor);
        let child = Waiter { pid, pidfd, talk: (ours, theirs) };
        Some(Self { child, channel: (channel, inner), image })
    }
}

fn descriptor(place: &AtomicI32) -> OwnedFd {
    let number: RawFd = place.load(Ordering::Relaxed);
    // SAFETY: made by `begin` for whoever takes the child, which only one can.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Has the child go on with `entry`, on a job that lives until it has executed a program or ended. It is told how many of
/// its first operations are done.
///
/// # Safety
/// `ours` is the supervisor's end of what [`HeadStart::take`] gave, and the job is held for that long.
pub(crate) unsafe fn give<T>(
    ours: BorrowedFd<'_>,
    job: &T,
    entry: extern "C" fn(&T, usize) -> !,
) -> Result<(), Errno> {
    JOB.store(std::ptr::from_ref(job).cast_mut().cast(), Ordering::Release);
    ENTRY.store(entry as *mut (), Ordering::Release);
    rustix::net::send(ours, &[0], SendFlags::NOSIGNAL).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::{self, Message, Op};
    use rustix::fd::AsFd;
    use rustix::process::{WaitId, WaitIdOptions};

    /// One test, since a process has one such child.
    #[test]
    fn a_child_of_the_first_instruction_goes_on_where_it_is() {
        let mut born_in = UnshareFlags::NEWPID;
        born_in.set(UnshareFlags::NEWUSER, !rustix::process::geteuid().is_root());
        let words = [2, c"cofferdam".as_ptr() as usize, c"runs".as_ptr() as usize];
        at_entry(words.as_ptr());
        at_entry([1, words[1], 0].as_ptr());
        assert!(HeadStart::take(born_in).is_none(), "started for another command");

        begin().unwrap();
        assert!(HeadStart::take(UnshareFlags::NEWCGROUP).is_none(), "taken by who wants another");
        let head = HeadStart::take(born_in).unwrap();
        assert!(HeadStart::take(born_in).is_none(), "taken twice");
        let first = vec![Op::DieWithSupervisor, Op::Unshare { namespaces: NAMESPACES }, Op::TellSettled];
        let mut launched = boot::resume(head.child, &[], first).unwrap();
        assert!(matches!(launched.hear().unwrap(), Message::Settled));
        let namespace = |pid: &str, kind: &str| std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
        let pid = launched.pid().as_raw_nonzero().to_string();
        for kind in ["mnt", "net", "ipc", "uts"] {
            assert_ne!(namespace(&pid, kind), namespace("self", kind), "{kind}");
        }
        launched.perform(vec![Op::Leave], boot::Given::default()).unwrap();
        assert!(matches!(launched.hear().unwrap(), Message::Done));
        drop(launched);

        begin().unwrap();
        let head = HeadStart::take(born_in).unwrap();
        let pidfd = head.child.pidfd.try_clone().unwrap();
        drop(head);
        // Where it went on waiting, so would this.
        rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).unwrap();
    }
}
