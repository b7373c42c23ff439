//! Shared memory of the old kind: found by a number, by whoever shares the namespace.

use crate::Errno;
use crate::syscall::syscall;

/// A page that everybody may read, until this is dropped.
pub struct Segment(usize);

impl Segment {
    pub fn create(key: i32) -> Result<Self, Errno> {
        let flags = (libc::IPC_CREAT | libc::IPC_EXCL | 0o644) as usize;
        // SAFETY: takes numbers only.
        unsafe { syscall(libc::SYS_shmget as usize, [key as usize, 4096, flags]) }.map(Self)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: removing takes numbers only.
        let _ = unsafe { syscall(libc::SYS_shmctl as usize, [self.0, libc::IPC_RMID as usize, 0]) };
    }
}

/// Whether there is one of this number.
pub fn finds_segment(key: i32) -> Result<(), Errno> {
    // SAFETY: takes numbers only; nothing is made.
    unsafe { syscall(libc::SYS_shmget as usize, [key as usize, 0, 0]) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_there_until_it_is_dropped() {
        let key = 0x0c0f_0000 | (std::process::id() & 0xffff) as i32;
        let segment = Segment::create(key).unwrap();
        assert_eq!(finds_segment(key), Ok(()));
        drop(segment);
        assert_eq!(finds_segment(key), Err(Errno::NOENT));
    }
}
