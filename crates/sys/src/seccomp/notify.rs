//! The supervisor's end of a filter: hears of calls, refuses them or lets them through.
//!
//! Which of both was decided by the filter, on the number and the values in registers. What lies in the caller's
//! memory can be looked at for the record, and decides nothing: the caller could change it after.

use crate::syscall::syscall;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// A call. `pid` is in the supervisor's pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    id: u64,
    pub pid: u32,
    pub number: u32,
    pub args: [u64; 6],
}

pub struct Listener {
    fd: OwnedFd,
}

#[repr(C)]
#[derive(Default)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    arch: u32,
    instruction: u64,
    args: [u64; 6],
}

#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// A descriptor of ours that becomes one of the caller's.
#[repr(C)]
struct Given {
    id: u64,
    flags: u32,
    ours: u32,
    theirs: u32,
    theirs_flags: u32,
}

const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const GIVE: libc::c_ulong = 0x4018_2103;
const STILL_VALID: libc::c_ulong = 0x4008_2102;
const SET_FLAGS: libc::c_ulong = 0x4008_2104;
/// Whoever waits for a call is woken on the processor of who made it.
const SYNC_WAKE_UP: u64 = 1;
/// The kernel goes on with the call as if nobody had been asked.
const CONTINUE: u32 = 1;

impl Listener {
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Has the caller's processor answer, while the caller waits: several times faster where waking another one is
    /// slow. For who does nothing but listen. Linux 6.6; without it all works as before.
    pub fn answer_at_once(&self) {
        let args = [self.fd.as_raw_fd() as usize, SET_FLAGS as usize, SYNC_WAKE_UP as usize];
        // SAFETY: this request takes a number in the place of a pointer.
        let _ = unsafe { syscall(libc::SYS_ioctl as usize, args) };
    }

    /// The next attempt; nothing if its caller died meanwhile. Call when the descriptor is readable.
    pub fn next(&self) -> Result<Option<Attempt>, Errno> {
        let mut heard = Notification::default();
        match self.control(RECEIVE, std::ptr::from_mut(&mut heard).cast()) {
            Ok(_) => Ok(Some(Attempt {
                id: heard.id,
                pid: heard.pid,
                number: heard.number as u32,
                args: heard.args,
            })),
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Whether the attempt's caller is still the one that waits: ask after reading anything about its pid.
    pub fn still_waits(&self, attempt: &Attempt) -> bool {
        let mut id = attempt.id;
        self.control(STILL_VALID, std::ptr::from_mut(&mut id).cast()).is_ok()
    }

    pub fn refuse(&self, attempt: &Attempt, errno: Errno) -> Result<(), Errno> {
        self.answer(Response { id: attempt.id, value: 0, error: -errno.raw_os_error(), flags: 0 })
    }

    /// Only for a call that the filter lets through whatever its memory says.
    pub fn let_through(&self, attempt: &Attempt) -> Result<(), Errno> {
        self.answer(Response { id: attempt.id, value: 0, error: 0, flags: CONTINUE })
    }

    /// Gives the caller this descriptor in place of the one that it asked for.
    pub fn give(&self, attempt: &Attempt, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
        let ours = descriptor.as_raw_fd() as u32;
        let theirs_flags = libc::O_CLOEXEC as u32;
        let mut given = Given { id: attempt.id, flags: 0, ours, theirs: 0, theirs_flags };
        let value = self.control(GIVE, std::ptr::from_mut(&mut given).cast())?;
        self.answer(Response { id: attempt.id, value: value as i64, error: 0, flags: 0 })
    }

    fn answer(&self, mut answer: Response) -> Result<(), Errno> {
        match self.control(SEND, std::ptr::from_mut(&mut answer).cast()) {
            Err(Errno::NOENT) => Ok(()),
            other => other.map(drop),
        }
    }

    fn control(&self, request: libc::c_ulong, argument: *mut libc::c_void) -> Result<usize, Errno> {
        let args = [self.fd.as_raw_fd() as usize, request as usize, argument as usize];
        // SAFETY: each caller passes a pointer to the live struct that this request reads or fills.
        unsafe { syscall(libc::SYS_ioctl as usize, args) }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
