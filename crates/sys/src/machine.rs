//! What a virtual machine needs of the machine beneath it, and of its own kernel after it was copied.

use crate::syscall::syscall;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
use std::path::PathBuf;
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

/// How many bytes of a socket the other end has not read.
pub fn unread(socket: BorrowedFd<'_>) -> Result<usize, Errno> {
    const SIOCOUTQ: usize = 0x5411;
    let mut count: i32 = 0;
    // SAFETY: the kernel writes one integer to a place that is alive for the call.
    unsafe {
        syscall(libc::SYS_ioctl as usize, [socket.as_raw_fd() as usize, SIOCOUTQ, (&raw mut count) as usize])
    }?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// `struct sockaddr_vm`.
#[repr(C)]
#[derive(Default)]
struct Address {
    family: u16,
    reserved: u16,
    port: u32,
    machine: u32,
    flags: u8,
    zero: [u8; 3],
}

/// A socket in a machine on which its host can call.
pub fn listen_to_host(port: u32) -> Result<OwnedFd, Errno> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let socket =
        rustix::net::socket_with(AddressFamily::VSOCK, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let family = AddressFamily::VSOCK.as_raw();
    let address = Address { family, port, machine: u32::MAX, ..Address::default() };
    // SAFETY: the pointer is to a live structure of the given size.
    unsafe {
        syscall(
            libc::SYS_bind as usize,
            [socket.as_raw_fd() as usize, (&raw const address) as usize, size_of::<Address>()],
        )
    }?;
    rustix::net::listen(&socket, 4)?;
    Ok(socket)
}

/// The host's next call. Whoever else calls, from the machine itself, is not let in.
pub fn called_by_host(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    const HOST: u32 = 2;
    loop {
        let mut from = Address::default();
        let mut length = size_of::<Address>() as u32;
        let args = [
            socket.as_raw_fd() as usize,
            (&raw mut from) as usize,
            (&raw mut length) as usize,
            libc::SOCK_CLOEXEC as usize,
        ];
        // SAFETY: the kernel writes an address of at most the length that is given, to a place that is alive.
        let called = unsafe { syscall(libc::SYS_accept4 as usize, args) };
        match called.map(crate::raw::owned) {
            Ok(stream) if from.machine == HOST => return Ok(stream),
            Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// The namespaces that a thread is at home in, open, so that it comes back from others.
#[derive(Debug)]
pub struct Home {
    mounts: OwnedFd,
    names: OwnedFd,
}

impl Home {
    pub fn of_this_thread() -> Result<Self, Errno> {
        let open = |name: &str| {
            let path = format!("/proc/thread-self/ns/{name}");
            rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        };
        Ok(Self { mounts: open("mnt")?, names: open("uts")? })
    }

    /// What a thread that cannot come back does next it would do elsewhere: the program ends.
    fn come_back(&self, from_mounts: bool) {
        let names = ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME;
        let back = move_into_thread_name_spaces(self.names.as_fd(), names).and_then(|()| match from_mounts {
            true => move_into_thread_name_spaces(self.mounts.as_fd(), ThreadNameSpaceType::MOUNT),
            false => Ok(()),
        });
        if back.is_err() {
            std::process::abort();
        }
    }

    /// Puts files over others, in the mount namespace that this is the descriptor of, or of the process that it is; what is
    /// not there is left out. Another process is told what its host is called. By the thread whose home this is, which goes
    /// there and comes back.
    pub fn cover(
        &self,
        mounts: BorrowedFd<'_>,
        files: &[(PathBuf, PathBuf)],
        (process, host): (BorrowedFd<'_>, &str),
    ) -> Result<(), Errno> {
        let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let trees = files.iter().map(|(from, at)| Ok((open_tree(CWD, from, clone)?, at)));
        let trees = trees.collect::<Result<Vec<_>, Errno>>()?;
        let mut left = false;
        let mut there = || -> Result<(), Errno> {
            move_into_thread_name_spaces(process, ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME)?;
            rustix::system::sethostname(host.as_bytes())?;
            if trees.is_empty() {
                return Ok(());
            }
            // SAFETY: only this thread's own root and directory become its own; no other thread sees a difference.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }?;
            move_into_thread_name_spaces(mounts, ThreadNameSpaceType::MOUNT)?;
            left = true;
            for (tree, at) in &trees {
                if let Ok(real) = std::fs::canonicalize(at) {
                    move_mount(tree, c"", CWD, &real, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
                }
            }
            Ok(())
        };
        let done = there();
        self.come_back(left);
        done
    }
}

/// The kernel's pool of random numbers, open.
#[derive(Debug)]
pub struct Pool(OwnedFd);

impl Pool {
    pub fn open() -> Result<Self, Errno> {
        rustix::fs::open("/dev/urandom", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map(Self)
    }

    /// Mixes what the host has given into it, counts it, and has the kernel draw from it at once: two copies of a machine
    /// have the same pool, and would give out the same numbers.
    pub fn renew(&self, seed: &[u8]) -> Result<(), Errno> {
        const RNDADDENTROPY: usize = 0x4008_5203;
        const RNDRESEEDCRNG: usize = 0x5207;
        // `struct rand_pool_info`: bits, bytes, and the bytes themselves.
        let mut told = Vec::with_capacity(8 + seed.len());
        told.extend_from_slice(&((seed.len() * 8) as i32).to_ne_bytes());
        told.extend_from_slice(&(seed.len() as i32).to_ne_bytes());
        told.extend_from_slice(seed);
        let pool = self.0.as_raw_fd() as usize;
        // SAFETY: the pointer is to the whole structure, which says how long it is and is alive for the call.
        unsafe { syscall(libc::SYS_ioctl as usize, [pool, RNDADDENTROPY, told.as_ptr() as usize]) }?;
        // SAFETY: takes no pointer.
        unsafe { syscall(libc::SYS_ioctl as usize, [pool, RNDRESEEDCRNG]) }.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_nobody_has_read_is_counted() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        assert_eq!(super::unread(ours.as_fd()), Ok(0));
        ours.write_all(b"hello").unwrap();
        assert!(super::unread(ours.as_fd()).unwrap() > 0);
        theirs.read_exact(&mut [0; 5]).unwrap();
        assert_eq!(super::unread(ours.as_fd()), Ok(0));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_processor_counts_at_a_plausible_rate() {
        let rate = super::ticks_per_ms();
        assert!((100_000..20_000_000).contains(&rate), "{rate}");
    }
}
