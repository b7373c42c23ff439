//! A page of a file that is mapped privately: what is written to it must never reach the file.

use crate::Errno;
use rustix::fd::AsFd;
use rustix::fd::AsRawFd;
use std::ffi::c_void;
use std::ptr;

const SIZE: usize = 4096;

/// The mapping; nobody ever has a reference into it.
pub struct PrivatePage(*mut c_void);

// SAFETY: the address is only given to the kernel, which may be asked from any thread.
unsafe impl Send for PrivatePage {}
// SAFETY: as above; no method changes the value itself.
unsafe impl Sync for PrivatePage {}

impl PrivatePage {
    pub fn map(file: impl AsFd) -> Result<Self, Errno> {
        let fd = file.as_fd().as_raw_fd();
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe { libc::mmap(ptr::null_mut(), SIZE, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0) };
        if at == libc::MAP_FAILED { Err(last_error()) } else { Ok(Self(at)) }
    }

    pub fn address(&self) -> u64 {
        self.0 as u64
    }

    /// Lets the kernel forget our copy, so that the next look is at the file's own page.
    pub fn forget(&self) -> Result<(), Errno> {
        // SAFETY: the mapping is ours and nobody refers to its content.
        match unsafe { libc::madvise(self.0, SIZE, libc::MADV_DONTNEED) } {
            0 => Ok(()),
            _ => Err(last_error()),
        }
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

impl Drop for PrivatePage {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this size, and is not used after.
        let _ = unsafe { libc::munmap(self.0, SIZE) };
    }
}
