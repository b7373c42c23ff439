//! The descriptors a program is started with.

#[cfg(feature = "std")]
use crate::syscall::{number, syscall};
use core::sync::atomic::{AtomicU32, Ordering};
use rustix::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::{Errno, FdFlags};

/// Closes everything beyond input, output and errors that this process was started with. Only before it has opened
/// anything: what is open by then is someone else's.
#[cfg(feature = "std")]
pub fn close_inherited() -> Result<(), Errno> {
    const FIRST: usize = 3;
    // SAFETY: the caller says that nothing of ours is open yet, so no owner is left without its descriptor.
    unsafe { syscall(number::CLOSE_RANGE, [FIRST, u32::MAX as usize, 0]) }.map(drop)
}

/// Whether nothing is open under this number.
pub fn is_free(number: RawFd) -> bool {
    // SAFETY: not -1 by the first condition; it is borrowed for one call, which fails if it is not open.
    number >= 0 && rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) }) == Err(Errno::BADF)
}

/// Input, output and errors of a program that takes care that they are open before it opens anything else, and never
/// closes them.
pub const fn standard() -> [BorrowedFd<'static>; 3] {
    // SAFETY: not -1. Nobody owns them and nobody closes them, and a call on one that is not open fails.
    unsafe { [BorrowedFd::borrow_raw(0), BorrowedFd::borrow_raw(1), BorrowedFd::borrow_raw(2)] }
}

/// By their numbers.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// Takes over a descriptor that this process was started with and keeps it from the programs it runs. Once
/// only: a second owner would close what the first still uses. `number` is fixed by whoever starts us, before
/// we open anything.
pub fn inherited(number: RawFd) -> Result<OwnedFd, Errno> {
    let bit = u32::try_from(number).ok().and_then(|number| 1u32.checked_shl(number)).ok_or(Errno::BADF)?;
    if TAKEN.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: not -1; a closed number makes the next call fail and is borrowed no longer than that.
    rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and the flag above makes this its first and only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
