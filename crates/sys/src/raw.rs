//! System calls that rustix does not offer, as safe functions over borrowed descriptors and C strings.
//!
//! They are made by the boot child too, which shares its parent's memory: errors are values, never `errno`.

use crate::syscall::syscall;
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use std::ffi::CStr;

/// `struct mount_attr` of mount_setattr(2).
#[repr(C)]
pub(crate) struct MountAttr {
    pub(crate) set: u64,
    pub(crate) clear: u64,
    pub(crate) propagation: u64,
    pub(crate) userns: u64,
}

/// The number of a call, as `syscall` takes it.
const fn call(number: libc::c_long) -> usize {
    number as usize
}

fn fd(fd: RawFd) -> usize {
    fd as usize
}

pub(crate) fn mount_setattr(
    dir: BorrowedFd<'_>,
    path: &CStr,
    flags: libc::c_int,
    attr: &MountAttr,
) -> Result<(), Errno> {
    let (path, attr) = (path.as_ptr() as usize, std::ptr::from_ref(attr) as usize);
    let args = [fd(dir.as_raw_fd()), path, flags as usize, attr, size_of::<MountAttr>()];
    // SAFETY: both pointers are to live, initialised memory for the length of the call.
    unsafe { syscall(call(libc::SYS_mount_setattr), args) }.map(drop)
}

/// Marks every descriptor from `first` up close-on-exec.
pub(crate) fn close_on_exec_from(first: RawFd) -> Result<(), Errno> {
    const CLOSE_RANGE_CLOEXEC: usize = 4;
    // SAFETY: takes no pointers; only flags of descriptors change.
    unsafe { syscall(call(libc::SYS_close_range), [fd(first), u32::MAX as usize, CLOSE_RANGE_CLOEXEC]) }
        .map(drop)
}

/// Makes `from` also descriptor `number`, which survives exec.
pub(crate) fn duplicate_as(from: RawFd, number: RawFd) -> Result<(), Errno> {
    let args = if from == number {
        (call(libc::SYS_fcntl), [fd(from), libc::F_SETFD as usize, 0])
    } else {
        (call(libc::SYS_dup3), [fd(from), fd(number), 0])
    };
    // SAFETY: takes no pointers; used in the boot child, where nobody else owns low descriptors.
    unsafe { syscall(args.0, args.1) }.map(drop)
}

/// Closes every descriptor of these numbers.
pub(crate) fn close_range(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: takes no pointers; called by the boot child on its copies of its parent's descriptors only.
        let _ = unsafe { syscall(call(libc::SYS_close_range), [fd(first), fd(last), 0]) };
    }
}

/// Takes charge of the fresh descriptor that a system call just returned.
pub(crate) fn owned(number: usize) -> OwnedFd {
    // SAFETY: called only with such a descriptor, which nobody else owns.
    unsafe { OwnedFd::from_raw_fd(number as RawFd) }
}

/// A descriptor that a child was born with, for as long as its number is kept.
pub(crate) fn borrowed(number: &RawFd) -> BorrowedFd<'_> {
    // SAFETY: called only in the boot child and its helper, for numbers that their parent keeps open, of which
    // theirs are copies that nobody closes.
    unsafe { BorrowedFd::borrow_raw(*number) }
}

/// Ends the calling process without running destructors or handlers.
pub(crate) fn exit_now(code: usize) -> ! {
    loop {
        // SAFETY: takes no pointers, and does not return.
        let _ = unsafe { syscall(call(libc::SYS_exit_group), [code]) };
    }
}

pub(crate) fn ioctl<T>(on: BorrowedFd<'_>, request: libc::c_ulong, argument: &T) -> Result<(), Errno> {
    let args = [fd(on.as_raw_fd()), request as usize, std::ptr::from_ref(argument) as usize];
    // SAFETY: each caller passes the struct that this request reads, alive for the call.
    unsafe { syscall(call(libc::SYS_ioctl), args) }.map(drop)
}

/// A request that takes nothing and is answered by a number.
pub(crate) fn ioctl_number(on: BorrowedFd<'_>, request: libc::c_ulong) -> Result<u32, Errno> {
    // SAFETY: takes no pointers.
    unsafe { syscall(call(libc::SYS_ioctl), [fd(on.as_raw_fd()), request as usize]) }
        .map(|number| number as u32)
}

/// Sets a socket option that is a number.
pub(crate) fn set_option(on: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> Result<(), Errno> {
    let value_at = std::ptr::from_ref(&value) as usize;
    let args = [fd(on.as_raw_fd()), level as usize, option as usize, value_at, size_of::<i32>()];
    // SAFETY: the pointer is to a live number of the size that is given.
    unsafe { syscall(call(libc::SYS_setsockopt), args) }.map(drop)
}

pub(crate) fn drop_from_bounding_set(capability: u32) -> Result<(), Errno> {
    let args = [libc::PR_CAPBSET_DROP as usize, capability as usize, 0, 0, 0];
    // SAFETY: takes no pointers; only narrows the calling process.
    unsafe { syscall(call(libc::SYS_prctl), args) }.map(drop)
}

/// Lets a signal do what it does by default.
pub(crate) fn default_action(signal: libc::c_int) -> Result<(), Errno> {
    /// `struct sigaction` as the kernel has it: SIG_DFL, no flags; never smaller than the kernel's.
    const DEFAULT: [usize; 4] = [0; 4];
    let args = [signal as usize, DEFAULT.as_ptr() as usize, 0, size_of::<u64>()];
    // SAFETY: the pointer is to a whole, valid structure; no old one is asked for.
    unsafe { syscall(call(libc::SYS_rt_sigaction), args) }.map(drop)
}

/// Executes an open file, with one argument and no environment. Returns only if that failed.
pub(crate) fn execute(image: RawFd, name: &CStr) -> Errno {
    let argv = [name.as_ptr(), std::ptr::null()];
    let envp = [std::ptr::null::<libc::c_char>()];
    let args = [
        fd(image),
        c"".as_ptr() as usize,
        argv.as_ptr() as usize,
        envp.as_ptr() as usize,
        libc::AT_EMPTY_PATH as usize,
    ];
    // SAFETY: argv and envp are null-terminated arrays of C strings that outlive the call.
    unsafe { syscall(call(libc::SYS_execveat), args) }.err().unwrap_or(Errno::IO)
}
