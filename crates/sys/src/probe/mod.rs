//! Attempts on the kernel, for finding out what a sandbox refuses. Every one is made so that it does no harm
//! where it succeeds: it asks with arguments that the kernel turns down *after* it has looked at who asks, or for
//! something that ends with the process that made it. A caller is a process made for the one attempt.

mod apart;
mod entry;
mod memory;
mod segment;

pub use apart::{apart, become_root, world};
pub use entry::Entry;
pub use memory::PrivatePage;
pub use segment::{Segment, finds_segment};

use crate::Errno;
use crate::syscall::syscall;
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::process::{Pid, WaitOptions};

/// A namespace of its own for a child that ends at once, asked for by the old call and by the new one, whose
/// flags a filter cannot see.
pub fn clone_into_user_namespace(new_call: bool) -> Result<(), Errno> {
    const EXIT: usize = libc::SYS_exit as usize;
    let flags = libc::CLONE_NEWUSER as u64;
    let signal = libc::SIGCHLD as u64;
    // struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls
    let args: [u64; 8] = [flags, 0, 0, 0, signal, 0, 0, 0];
    let born = match new_call {
        // SAFETY: without CLONE_VM the child has its own copy of all memory, and it makes no call but exit.
        true => unsafe { syscall(libc::SYS_clone3 as usize, [args.as_ptr() as usize, size_of_val(&args)]) },
        // SAFETY: as above; a stack of zero means a copy of ours.
        false => unsafe { syscall(libc::SYS_clone as usize, [(flags | signal) as usize, 0, 0, 0, 0]) },
    }?;
    if born == 0 {
        // SAFETY: ends the child, and takes a number only.
        let _ = unsafe { syscall(EXIT, [0]) };
    }
    let child = i32::try_from(born).ok().and_then(Pid::from_raw);
    rustix::process::waitpid(child, WaitOptions::empty()).map(drop)
}

/// Takes control of another process, as a debugger does, without stopping it.
pub fn seize(pid: u32) -> Result<(), Errno> {
    // SAFETY: PTRACE_SEIZE takes numbers only.
    unsafe { syscall(libc::SYS_ptrace as usize, [libc::PTRACE_SEIZE as usize, pid as usize, 0, 0]) }.map(drop)
}

/// Reads another process's memory past its file in `/proc`.
pub fn read_memory(pid: u32, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let there = libc::iovec { iov_base: address as *mut _, iov_len: into.len() };
    let (here, there) = (&raw const here as usize, &raw const there as usize);
    // SAFETY: the kernel writes at most `into.len()` bytes to `into`; the other process's address is only read.
    unsafe { syscall(libc::SYS_process_vm_readv as usize, [pid as usize, here, 1, there, 1, 0]) }
}

/// Takes a descriptor of a process: here our own standard input, by a handle on ourselves.
pub fn take_descriptor() -> Result<(), Errno> {
    let own = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())?;
    // SAFETY: takes numbers only.
    let fd = unsafe { syscall(libc::SYS_pidfd_getfd as usize, [own.as_raw_fd() as usize, 0, 0]) }?;
    close(fd);
    Ok(())
}

/// Types a character into a terminal, as if a person had.
pub fn type_into(terminal: BorrowedFd<'_>) -> Result<(), Errno> {
    let letter = b'x';
    let args = [terminal.as_raw_fd() as usize, libc::TIOCSTI as usize, &raw const letter as usize];
    // SAFETY: the kernel reads one byte.
    unsafe { syscall(libc::SYS_ioctl as usize, args) }.map(drop)
}

/// Makes a handle on a directory and opens the file system's root by it, past every path.
pub fn open_by_handle(dir: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    const MOST: usize = 128;
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        data: [u8; MOST],
    }
    let mut handle = Handle { bytes: MOST as u32, kind: 0, data: [0; MOST] };
    let mut mount = 0_i32;
    let (fd, empty) = (dir.as_raw_fd() as usize, c"".as_ptr() as usize);
    let (at, mount) = (&raw mut handle as usize, &raw mut mount as usize);
    let named = [fd, empty, at, mount, libc::AT_EMPTY_PATH as usize];
    // SAFETY: the handle says how many bytes there is room for, and the path is an empty string.
    unsafe { syscall(libc::SYS_name_to_handle_at as usize, named) }?;
    // SAFETY: the handle is the one that the kernel has just written.
    let opened = unsafe { syscall(libc::SYS_open_by_handle_at as usize, [fd, at, libc::O_RDONLY as usize]) }?;
    // SAFETY: a descriptor that was just made for us and that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(opened as i32) })
}

/// Asks for our own process id by the calls of a 32-bit program, whose numbers mean something else. A filter that
/// knows only the usual ones is passed by, or kills us.
#[cfg(target_arch = "x86_64")]
pub fn other_numbers() -> Result<u32, Errno> {
    const GETPID: u64 = 20;
    let result: i64;
    // SAFETY: this call takes no argument and touches no memory; the old gate keeps all registers but those
    // that are declared lost.
    unsafe {
        core::arch::asm!(
            "int 0x80",
            inlateout("rax") GETPID => result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            options(nostack),
        );
    }
    u32::try_from(result).map_err(|_| Errno::from_raw_os_error(-(result as i32)))
}

/// Here there is no second set of numbers.
#[cfg(not(target_arch = "x86_64"))]
pub fn other_numbers() -> Result<u32, Errno> {
    Err(Errno::NOSYS)
}

fn close(fd: usize) {
    // SAFETY: a descriptor that the kernel has just made for us and that nobody else knows.
    drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
}
