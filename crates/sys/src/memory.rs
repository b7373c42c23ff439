//! Looks into the memory of another process, for the record. What is seen there is what its owner wants to be seen.

use crate::syscall::syscall;
use rustix::io::Errno;

/// Reads what lies at this address of a process, as far as it goes.
pub fn read(pid: u32, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    let (local, remote) = (std::ptr::from_ref(&local) as usize, std::ptr::from_ref(&remote) as usize);
    // SAFETY: the kernel writes to `into` alone, no more than it holds; the other side is only read, and an address
    // that is none there is an error.
    unsafe { syscall(libc::SYS_process_vm_readv as usize, [pid as usize, local, 1, remote, 1, 0]) }
}

/// The text at this address up to its NUL, of at most `most` bytes. Read to the end of a page first, since a
/// string may end with the last one that there is.
pub fn text(pid: u32, address: u64, most: usize) -> Option<Vec<u8>> {
    const PAGE: u64 = 4096;
    let mut found: Vec<u8> = Vec::new();
    while found.len() < most {
        let at = address.checked_add(found.len() as u64)?;
        let room = ((PAGE - at % PAGE) as usize).min(most - found.len());
        let mut piece = vec![0; room];
        let count = match read(pid, at, &mut piece) {
            Ok(count) if count > 0 => count,
            _ if found.is_empty() => return None,
            _ => return Some(found),
        };
        let seen = piece.get(..count)?;
        match seen.iter().position(|byte| *byte == 0) {
            Some(end) => {
                found.extend(seen.get(..end)?);
                return Some(found);
            }
            None => found.extend(seen),
        }
    }
    Some(found)
}

/// The pointers of a list that ends with a null one; at most `most` of them.
pub fn pointers(pid: u32, address: u64, most: usize) -> Vec<u64> {
    let mut all = Vec::new();
    for at in 0..most as u64 {
        let mut word = [0u8; 8];
        let read = address.checked_add(8 * at).map(|at| read(pid, at, &mut word));
        match (read, u64::from_ne_bytes(word)) {
            (Some(Ok(8)), pointer) if pointer != 0 => all.push(pointer),
            _ => break,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_lists_are_read_as_far_as_they_go() {
        let own = std::process::id();
        let long = [b"x".repeat(9000), vec![0]].concat();
        let at = |bytes: &[u8]| bytes.as_ptr() as u64;
        assert_eq!(text(own, at(b"a word\0and more"), 100).unwrap(), b"a word");
        assert_eq!(text(own, at(&long), 10_000).unwrap().len(), 9000);
        assert_eq!(text(own, at(&long), 100).unwrap().len(), 100);
        assert_eq!((text(own, 8, 100), text(own, u64::MAX - 3, 100)), (None, None));
        assert_eq!(pointers(own, [5u64, 6, 0, 7].as_ptr() as u64, 10), [5, 6]);
        assert!(pointers(own, 8, 10).is_empty());
    }
}
