//! Taking leave of children: any of them, without waiting, with what each has cost. And hearing that one was stopped.

use crate::syscall::{number, syscall};
use rustix::io::Errno;
use rustix::process::Pid;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Code(u8),
    Signal { signal: u8, core: bool },
}

/// Of a process and the children it has waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub user_us: u64,
    pub system_us: u64,
    /// Of the largest of them, in bytes.
    pub max_rss: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub pid: Pid,
    pub status: Status,
    pub usage: Usage,
}

/// `struct rusage`.
#[repr(C)]
#[derive(Default)]
struct Rusage {
    user: [i64; 2],
    system: [i64; 2],
    max_rss_kib: i64,
    rest: [i64; 13],
}

/// What has become of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Ended(Ended),
    /// Until somebody lets it go on.
    Stopped(Pid),
}

const WNOHANG: usize = 1;
const WUNTRACED: usize = 2;

/// A child that has ended or was stopped, if there is one.
pub fn reap() -> Result<Option<Change>, Errno> {
    const ANY: usize = usize::MAX;
    wait(ANY, WNOHANG | WUNTRACED)
}

/// As `reap`, of this child alone.
pub fn look_at(pid: Pid) -> Result<Option<Change>, Errno> {
    wait(pid.as_raw_nonzero().get() as usize, WNOHANG | WUNTRACED)
}

/// Waits for one child that is known to be ending.
pub(crate) fn reap_one(pid: Pid) -> Result<Option<Change>, Errno> {
    loop {
        match wait(pid.as_raw_nonzero().get() as usize, 0) {
            Err(Errno::INTR) => (),
            other => return other,
        }
    }
}

fn wait(who: usize, options: usize) -> Result<Option<Change>, Errno> {
    let (mut status, mut usage) = (0_i32, Rusage::default());
    let (to_status, to_usage) = (&raw mut status, &raw mut usage);
    // SAFETY: both pointers are to live memory of the kernel's layout for them.
    let pid = match unsafe { syscall(number::WAIT4, [who, to_status as usize, options, to_usage as usize]) } {
        Ok(pid) => pid,
        Err(Errno::CHILD) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let Some(pid) = Pid::from_raw(pid as i32) else { return Ok(None) };
    Ok(Some(match decode(status) {
        Some(status) => Change::Ended(Ended { pid, status, usage: usage.into() }),
        None => Change::Stopped(pid),
    }))
}

/// Nothing of one that was stopped.
const fn decode(status: i32) -> Option<Status> {
    match status & 0x7f {
        0x7f => None,
        0 => Some(Status::Code((status >> 8) as u8)),
        signal => Some(Status::Signal { signal: signal as u8, core: status & 0x80 != 0 }),
    }
}

impl From<Rusage> for Usage {
    fn from(usage: Rusage) -> Self {
        let micros = |[seconds, micros]: [i64; 2]| (seconds as u64).saturating_mul(1_000_000) + micros as u64;
        Self {
            user_us: micros(usage.user),
            system_us: micros(usage.system),
            max_rss: (usage.max_rss_kib as u64).saturating_mul(1024),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        assert_eq!(decode(0), Some(Status::Code(0)));
        assert_eq!(decode(0x2a00), Some(Status::Code(42)));
        assert_eq!(decode(9), Some(Status::Signal { signal: 9, core: false }));
        assert_eq!(decode(0x8b), Some(Status::Signal { signal: 11, core: true }));
        assert_eq!(decode(0x147f), None, "stopped by signal 20");
    }
}
