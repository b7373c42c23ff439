//! What a virtual machine needs of the machine beneath it, and of its own kernel after it was copied.

use crate::syscall::syscall;
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// How fast this processor counts, in thousands a second, measured over a moment. An emulated processor counts as
/// the real one does, and a kernel that measures it by itself on a busy host may never come to an end.
#[cfg(target_arch = "x86_64")]
pub fn ticks_per_ms() -> u64 {
    const MOMENT: Duration = Duration::from_millis(20);
    // SAFETY: reads a counter that every processor of this architecture has.
    let count = || unsafe { std::arch::x86_64::_rdtsc() };
    let (began, first) = (Instant::now(), count());
    std::thread::sleep(MOMENT);
    let (ticks, passed) = (count().wrapping_sub(first), began.elapsed());
    (u128::from(ticks) * 1_000_000 / passed.as_nanos().max(1)) as u64
}

/// Mixes what the host has given into the kernel's pool, counts it, and has the kernel draw from it at once: two
/// copies of a machine have the same pool, and would give out the same numbers.
pub fn renew_entropy(seed: &[u8]) -> Result<(), Errno> {
    const RNDADDENTROPY: usize = 0x4008_5203;
    const RNDRESEEDCRNG: usize = 0x5207;
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    let pool = rustix::fs::open("/dev/urandom", flags, rustix::fs::Mode::empty())?;
    // `struct rand_pool_info`: bits, bytes, and the bytes themselves.
    let mut told = Vec::with_capacity(8 + seed.len());
    told.extend_from_slice(&((seed.len() * 8) as i32).to_ne_bytes());
    told.extend_from_slice(&(seed.len() as i32).to_ne_bytes());
    told.extend_from_slice(seed);
    // SAFETY: the pointer is to the whole structure, which says how long it is and is alive for the call.
    unsafe {
        syscall(
            libc::SYS_ioctl as usize,
            [pool.as_fd().as_raw_fd() as usize, RNDADDENTROPY, told.as_ptr() as usize],
        )
    }?;
    // SAFETY: takes no pointer.
    unsafe { syscall(libc::SYS_ioctl as usize, [pool.as_fd().as_raw_fd() as usize, RNDRESEEDCRNG]) }.map(drop)
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_processor_counts_at_a_plausible_rate() {
        let rate = super::ticks_per_ms();
        assert!((100_000..20_000_000).contains(&rate), "{rate}");
    }
}
