//! The one descriptor a program is started with.

use core::sync::atomic::{AtomicBool, Ordering};
use rustix::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::{Errno, FdFlags};

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes over a descriptor that this process was started with and keeps it from the programs it runs. Once
/// only: a second owner would close what the first still uses. `number` is fixed by whoever starts us, before
/// we open anything.
pub fn inherited(number: RawFd) -> Result<OwnedFd, Errno> {
    if number < 0 || TAKEN.swap(true, Ordering::Relaxed) {
        return Err(Errno::BADF);
    }
    // SAFETY: not -1; a closed number makes the next call fail and is borrowed no longer than that.
    rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and the flag above makes this its first and only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
