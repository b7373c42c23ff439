//! Children that share our memory until they execute a program or end: nothing is copied, so starting one
//! costs the same whatever the parent's size, and no page of the parent's has to be faulted in again.
//!
//! Such a child runs on a stack of its own. It must only make system calls on data that was prepared before:
//! no allocation, no locks, no thread-locals (it has its parent's), no return.

use crate::signal::Mask;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::sync::atomic::{AtomicI32, Ordering};

const STACK: usize = 64 << 10;

/// Sixteen bytes at a time, so that its end is aligned as the calling convention wants.
type Stack = Box<[std::mem::MaybeUninit<u128>]>;

/// `struct clone_args` of clone3(2), version 2.
#[repr(C, align(8))]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// What is to be started.
pub(crate) struct Request {
    /// Namespaces, by their flags.
    pub(crate) namespaces: u64,
    /// On cgroup v2, a descriptor of the group to start in.
    pub(crate) cgroup: Option<i32>,
    /// A user namespace of ours in which all that comes about, by its descriptor.
    pub(crate) within: Option<i32>,
}

/// The child, with the memory that it uses. Dropping this before the child was let go ends it first.
pub(crate) struct Sharer<T> {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    let_go: bool,
    data: Box<T>,
    /// Held for as long as the child may be on it.
    _stack: Stack,
}

/// What it takes to start a child from within a user namespace: namespaces that belong to one are made only by
/// whoever is in it, and who goes in does not come back.
struct Midwife {
    args: CloneArgs,
    data: *const u8,
    entry: *const (),
    within: i32,
    /// The child's pid, or a negative errno.
    born: AtomicI32,
}

/// Starts a child that runs `entry` on `data` and never returns from it.
pub(crate) fn share<T>(
    request: &Request,
    data: T,
    entry: extern "C" fn(&T) -> !,
) -> Result<Sharer<T>, Errno> {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let data = Box::new(data);
    let mut stack: Stack = Box::new_uninit_slice(STACK / size_of::<u128>());
    let mut args = CloneArgs {
        flags: request.namespaces | libc::CLONE_VM as u64,
        stack: stack.as_mut_ptr() as u64,
        stack_size: STACK as u64,
        ..CloneArgs::default()
    };
    if let Some(group) = request.cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = group as u64;
    }
    let (about, entry) = (std::ptr::from_ref(&*data).cast(), entry as *const ());
    let (pid, pidfd) = match request.within {
        None => start(args, about, entry)?,
        Some(within) => deliver(args, about, entry, within)?,
    };
    Ok(Sharer { pid, pidfd, let_go: false, data, _stack: stack })
}

fn start(mut args: CloneArgs, data: *const u8, entry: *const ()) -> Result<(Pid, OwnedFd), Errno> {
    let mut pidfd: libc::c_int = -1;
    args.flags |= libc::CLONE_PIDFD as u64;
    args.pidfd = std::ptr::from_mut(&mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    // No handler of ours may run in the child while it shares our memory; it unblocks its own when it is ready.
    let before = Mask::ALL.set()?;
    let pid = clone3(&args, data, entry);
    before.set()?;
    let pid = Pid::from_raw(pid? as i32).ok_or(Errno::SRCH)?;
    Ok((pid, crate::raw::owned(pidfd as usize)))
}

/// By a helper that goes into the namespace, starts the child there as a child of ours, and ends.
fn deliver(
    mut args: CloneArgs,
    data: *const u8,
    entry: *const (),
    within: i32,
) -> Result<(Pid, OwnedFd), Errno> {
    // Its parent is the helper's, and so is the signal by which its end is told.
    args.flags |= libc::CLONE_PARENT as u64;
    let midwife = Midwife { args, data, entry, within, born: AtomicI32::new(-libc::ECHILD) };
    let mut stack: Stack = Box::new_uninit_slice(STACK / size_of::<u128>());
    let own = CloneArgs {
        flags: libc::CLONE_VM as u64,
        stack: stack.as_mut_ptr() as u64,
        stack_size: STACK as u64,
        ..CloneArgs::default()
    };
    let (_, helper) = start(own, std::ptr::from_ref(&midwife).cast(), attend as *const ())?;
    while let Err(errno) = rustix::process::waitid(WaitId::PidFd(helper.as_fd()), WaitIdOptions::EXITED) {
        if errno != Errno::INTR {
            return Err(errno);
        }
    }
    let born = midwife.born.load(Ordering::Acquire);
    let pid = Pid::from_raw(born).filter(|_| born > 0).ok_or_else(|| Errno::from_raw_os_error(born.abs()))?;
    // Nobody but us waits for it, so the number is still its own.
    match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        Ok(pidfd) => Ok((pid, pidfd)),
        Err(errno) => {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            Err(errno)
        }
    }
}

extern "C" fn attend(midwife: &Midwife) -> ! {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    let inside =
        move_into_link_name_space(crate::raw::borrowed(&midwife.within), Some(LinkNameSpaceType::User));
    let born = inside.and_then(|()| clone3(&midwife.args, midwife.data, midwife.entry));
    let born = born.map_or_else(|errno| -errno.raw_os_error(), |pid| pid as i32);
    midwife.born.store(born, Ordering::Release);
    crate::raw::exit_now(0)
}

/// Returns in the parent only: the child calls `entry(data)` on its own stack.
fn clone3(args: &CloneArgs, data: *const u8, entry: *const ()) -> Result<usize, Errno> {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the arguments are a live, correctly sized `clone_args` whose stack is ours and large enough; the
    // child leaves this function only by calling `entry`, which never returns, with nothing of our frame used.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 as usize => result,
            in("rdi") std::ptr::from_ref(args), in("rsi") size_of::<CloneArgs>(),
            in("r12") data, in("r13") entry,
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
            "blr x21",
            "brk 1",
            "2:",
            in("x8") libc::SYS_clone3 as usize,
            inlateout("x0") std::ptr::from_ref(args) => result,
            in("x1") size_of::<CloneArgs>(),
            in("x20") data, in("x21") entry,
            lateout("x30") _,
        );
    }
    if result < 0 { Err(Errno::from_raw_os_error(-(result as i32))) } else { Ok(result as usize) }
}

impl<T> Sharer<T> {
    /// The child has executed a program of its own, or is dead: it needs our memory no more, and what it was given is
    /// ours alone again.
    pub(crate) fn let_go(&mut self) -> &mut T {
        self.let_go = true;
        self._stack = Stack::default();
        &mut self.data
    }

    /// What the child was given, which both may read.
    pub(crate) fn data(&self) -> &T {
        &self.data
    }
}

impl<T> Drop for Sharer<T> {
    fn drop(&mut self) {
        if self.let_go {
            return;
        }
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        // Whoever waited for it before us has seen it end; then this fails and nothing is shared any more.
        let _ = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}
