//! System calls that rustix does not offer, as safe functions over borrowed descriptors and C strings.

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use std::ffi::CStr;

pub(crate) fn check(result: libc::c_long) -> Result<libc::c_long, Errno> {
    if result >= 0 {
        return Ok(result);
    }
    // SAFETY: errno is thread-local and was just set by the failing call.
    Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }))
}

/// `struct mount_attr` of mount_setattr(2).
#[repr(C)]
pub(crate) struct MountAttr {
    pub(crate) set: u64,
    pub(crate) clear: u64,
    pub(crate) propagation: u64,
    pub(crate) userns: u64,
}

pub(crate) fn mount_setattr(
    dir: BorrowedFd<'_>,
    path: &CStr,
    flags: libc::c_int,
    attr: &MountAttr,
) -> Result<(), Errno> {
    // SAFETY: both pointers are to live, initialised memory for the length of the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    };
    check(result).map(drop)
}

/// Marks every descriptor from `first` up close-on-exec.
pub(crate) fn close_on_exec_from(first: RawFd) -> Result<(), Errno> {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    // SAFETY: takes no pointers; only flags of descriptors change.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC) };
    check(result).map(drop)
}

/// Makes `fd` also descriptor `number`, which survives exec.
pub(crate) fn duplicate_as(fd: RawFd, number: RawFd) -> Result<(), Errno> {
    if fd == number {
        // SAFETY: takes no pointers; clears close-on-exec of a descriptor of ours.
        return check(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_SETFD, 0) }).map(drop);
    }
    // SAFETY: takes no pointers; used in the boot child, where nobody else owns low descriptors.
    check(unsafe { libc::syscall(libc::SYS_dup3, fd, number, 0) }).map(drop)
}

pub(crate) fn owned(fd: libc::c_long) -> OwnedFd {
    // SAFETY: called only with the fresh descriptor that a system call just returned to us.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: ends the calling process without running destructors or handlers; nothing returns.
    unsafe { libc::_exit(code) }
}

/// `struct clone_args` of clone3(2), version 2.
#[repr(C, align(8))]
#[derive(Default)]
pub(crate) struct CloneArgs {
    pub(crate) flags: u64,
    pub(crate) pidfd: u64,
    pub(crate) child_tid: u64,
    pub(crate) parent_tid: u64,
    pub(crate) exit_signal: u64,
    pub(crate) stack: u64,
    pub(crate) stack_size: u64,
    pub(crate) tls: u64,
    pub(crate) set_tid: u64,
    pub(crate) set_tid_size: u64,
    pub(crate) cgroup: u64,
}
