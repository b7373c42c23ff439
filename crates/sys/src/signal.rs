//! Signals as something to poll: a set is blocked and read from a descriptor instead.
//!
//! No handler is ever installed, so no code of ours runs at a moment it did not choose.

use crate::syscall::{number, syscall};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Signal;

/// A set of signals in the kernel's form: bit n is signal n + 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mask(u64);

/// The kernel's size of a signal set.
pub(crate) const SET_SIZE: usize = size_of::<u64>();

impl Mask {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self(u64::MAX);

    pub fn of(signals: &[Signal]) -> Self {
        Self(signals.iter().fold(0, |set, signal| set | 1 << (signal.as_raw() - 1)))
    }

    pub const fn contains(self, signal: Signal) -> bool {
        self.0 & (1 << (signal.as_raw() - 1)) != 0
    }

    /// Makes this the calling thread's mask and returns the one before.
    pub fn set(self) -> Result<Self, Errno> {
        const SIG_SETMASK: usize = 2;
        self.change(SIG_SETMASK)
    }

    /// Adds these to the calling thread's mask and returns the one before.
    pub fn block(self) -> Result<Self, Errno> {
        const SIG_BLOCK: usize = 0;
        self.change(SIG_BLOCK)
    }

    fn unblock(self) -> Result<Self, Errno> {
        const SIG_UNBLOCK: usize = 1;
        self.change(SIG_UNBLOCK)
    }

    fn change(self, how: usize) -> Result<Self, Errno> {
        let mut before = 0_u64;
        let (new, old) = (&raw const self.0, &raw mut before);
        // SAFETY: both pointers are to live sets of the size given.
        unsafe { syscall(number::RT_SIGPROCMASK, [how, new as usize, old as usize, SET_SIZE]) }?;
        Ok(Self(before))
    }
}

/// Whether this process was started to let it pass, as `nohup` starts one.
pub fn is_ignored(signal: Signal) -> bool {
    const SIG_IGN: usize = 1;
    // What is done comes first in `struct sigaction`, which is never larger than this.
    let mut now = [0_usize; 4];
    let (number, into) = (signal.as_raw() as usize, (&raw mut now) as usize);
    // SAFETY: the kernel writes one whole structure, for which there is room; none is set.
    unsafe { syscall(number::RT_SIGACTION, [number, 0, into, SET_SIZE]) }.is_ok() && now[0] == SIG_IGN
}

/// Stops this process until somebody wakes it.
pub fn stop_here() {
    // Fails for nobody who sends it to itself.
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}

/// Stops this process as Ctrl-Z does, until somebody wakes it: not where nobody could, who the kernel knows, and not where
/// it was started to let that pass. This thread may have the signal blocked.
pub fn suspend_here() {
    let stop = Signal::TSTP;
    let Ok(before) = Mask::of(&[stop]).unblock() else { return };
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as usize;
    let process = rustix::process::getpid().as_raw_nonzero().get() as usize;
    // To this thread, so that it has happened when this returns.
    // SAFETY: takes no pointers.
    let _ = unsafe { syscall(number::TGKILL, [process, thread, stop.as_raw() as usize]) };
    let _ = before.set();
}

/// A signal that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// As a number: real-time signals have no name.
    pub signal: i32,
    /// Who sent it, where the kernel says so.
    pub from: u32,
}

impl Arrived {
    pub fn is(self, signal: Signal) -> bool {
        self.signal == signal.as_raw()
    }
}

/// A readable descriptor on which the chosen signals arrive. The calling thread has them blocked as long as
/// this lives, and so has every thread and process it starts meanwhile: `spawn` gives its child an empty mask.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    before: Mask,
}

/// `struct signalfd_siginfo`: 128 bytes of which two fields matter here.
#[repr(C)]
#[derive(Clone, Copy)]
struct Record {
    signo: u32,
    errno: i32,
    code: i32,
    pid: u32,
    rest: [u64; 14],
}

const EMPTY: Record = Record { signo: 0, errno: 0, code: 0, pid: 0, rest: [0; 14] };

/// How many are taken with one read.
pub const BATCH: usize = 8;

impl Signals {
    pub fn listen(signals: &[Signal]) -> Result<Self, Errno> {
        const SFD_NONBLOCK_CLOEXEC: usize = 0o4000 | 0o2_000_000;
        let mask = Mask::of(signals);
        let before = mask.block()?;
        let set = &raw const mask.0;
        // SAFETY: the set is live and of the size given; -1 asks for a new descriptor.
        let fd =
            unsafe { syscall(number::SIGNALFD4, [usize::MAX, set as usize, SET_SIZE, SFD_NONBLOCK_CLOEXEC]) };
        match fd {
            // SAFETY: the kernel has just made this descriptor for us.
            Ok(fd) => Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd as i32) }, before }),
            Err(errno) => {
                before.set()?;
                Err(errno)
            }
        }
    }

    /// What has arrived, up to `BATCH` of them; never waits. A full batch may have more behind it.
    pub fn take(&self) -> Result<impl Iterator<Item = Arrived> + use<>, Errno> {
        let mut records = [EMPTY; BATCH];
        let (fd, to) = (self.fd.as_fd(), (&raw mut records).cast::<u8>());
        // SAFETY: `Record` is plain integers without padding, so any bytes are a valid value and all of its
        // bytes are initialised; the slice covers exactly the array and is gone before the array is used.
        let bytes = unsafe { core::slice::from_raw_parts_mut(to, size_of_val(&records)) };
        let taken = match rustix::io::read(fd, bytes) {
            Ok(bytes) => bytes / size_of::<Record>(),
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(errno),
        };
        Ok(records.into_iter().take(taken).map(|r| Arrived { signal: r.signo as i32, from: r.pid }))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // A descriptor that is never read again must not leave its signals blocked. Fails for no valid mask.
        let _ = self.before.set();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_instead_of_delivered_and_the_mask_comes_back() {
        let before = Mask::NONE.block().unwrap();
        let signals = Signals::listen(&[Signal::USR1, Signal::WINCH]).unwrap();
        assert!(Mask::NONE.block().unwrap().contains(Signal::USR1));
        assert_eq!(signals.take().unwrap().count(), 0);
        // SAFETY: signals this thread alone, which has the signal blocked.
        assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
        let arrived: Vec<_> = signals.take().unwrap().collect();
        assert_eq!(arrived.len(), 1);
        assert!(arrived.iter().all(|a| a.is(Signal::USR1) && a.from != 0));
        drop(signals);
        assert_eq!(Mask::NONE.block().unwrap(), before);
    }
}
