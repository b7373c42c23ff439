//! The bare system call, for the few calls that rustix has no safe form of and that the guest makes too.
//!
//! It never enters libc: errors are values, not a thread-local, so the same code runs in a program without a
//! C runtime and in a child that shares its parent's memory.

use rustix::io::Errno;

#[cfg(target_arch = "x86_64")]
pub(crate) mod number {
    #[cfg(any(test, all(not(feature = "std"), target_feature = "crt-static")))]
    pub(crate) const MMAP: usize = 9;
    #[cfg(any(test, all(not(feature = "std"), target_feature = "crt-static")))]
    pub(crate) const MUNMAP: usize = 11;
    pub(crate) const RT_SIGACTION: usize = 13;
    pub(crate) const RT_SIGPROCMASK: usize = 14;
    pub(crate) const CLONE: usize = 56;
    pub(crate) const EXECVE: usize = 59;
    pub(crate) const EXIT: usize = 60;
    pub(crate) const WAIT4: usize = 61;
    pub(crate) const TGKILL: usize = 234;
    pub(crate) const SCHED_SETSCHEDULER: usize = 144;
    pub(crate) const EXIT_GROUP: usize = 231;
    pub(crate) const SIGNALFD4: usize = 289;
    pub(crate) const DUP3: usize = 292;
    pub(crate) const CLOSE_RANGE: usize = 436;
    pub(crate) const LANDLOCK_CREATE_RULESET: usize = 444;
    pub(crate) const LANDLOCK_ADD_RULE: usize = 445;
    pub(crate) const LANDLOCK_RESTRICT_SELF: usize = 446;
}

#[cfg(target_arch = "aarch64")]
pub(crate) mod number {
    pub(crate) const DUP3: usize = 24;
    pub(crate) const SIGNALFD4: usize = 74;
    pub(crate) const EXIT: usize = 93;
    pub(crate) const EXIT_GROUP: usize = 94;
    pub(crate) const SCHED_SETSCHEDULER: usize = 119;
    pub(crate) const RT_SIGACTION: usize = 134;
    pub(crate) const RT_SIGPROCMASK: usize = 135;
    pub(crate) const CLONE: usize = 220;
    pub(crate) const EXECVE: usize = 221;
    pub(crate) const WAIT4: usize = 260;
    pub(crate) const TGKILL: usize = 131;
    pub(crate) const CLOSE_RANGE: usize = 436;
    pub(crate) const LANDLOCK_CREATE_RULESET: usize = 444;
    pub(crate) const LANDLOCK_ADD_RULE: usize = 445;
    pub(crate) const LANDLOCK_RESTRICT_SELF: usize = 446;
}

/// Makes a system call with up to six arguments (absent ones are zero).
///
/// # Safety
/// The arguments must be what this call's contract asks for: pointers valid for the kernel's reads and writes.
pub(crate) unsafe fn syscall<const N: usize>(number: usize, args: [usize; N]) -> Result<usize, Errno> {
    let arg = |at: usize| args.get(at).copied().unwrap_or(0);
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel's calling convention: rcx and r11 are clobbered, the stack is not touched. What the
    // call does to memory is the caller's promise.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") arg(0), in("rsi") arg(1), in("rdx") arg(2),
            in("r10") arg(3), in("r8") arg(4), in("r9") arg(5),
            lateout("rcx") _, lateout("r11") _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; on this architecture the kernel preserves every register but x0.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") arg(0) => result,
            in("x1") arg(1), in("x2") arg(2), in("x3") arg(3), in("x4") arg(4), in("x5") arg(5),
            options(nostack, preserves_flags),
        );
    }
    if result < 0 { Err(Errno::from_raw_os_error(-(result as i32))) } else { Ok(result as usize) }
}
