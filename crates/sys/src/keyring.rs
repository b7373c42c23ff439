//! Keys of type `user` in the caller's user keyring: memory of the kernel's that is shared by all processes of a
//! user, is never swapped or dumped, and ends with the machine.

use crate::Errno;
use std::ffi::{CStr, CString};

const TYPE: &CStr = c"user";
const USER_KEYRING: i32 = libc::KEY_SPEC_USER_KEYRING;
/// All for who possesses it; to be found and read, and removed, by the same user from any login session.
const PERMISSIONS: u32 = 0x3f1b_0000;

/// The bytes of a key; nothing if there is none of this name, or it was revoked or has expired.
pub fn read(name: &str) -> Result<Option<Vec<u8>>, Errno> {
    let Some(key) = find(name)? else { return Ok(None) };
    let mut bytes = vec![0u8; 64];
    loop {
        let room = bytes.len();
        // SAFETY: the kernel writes at most `room` bytes to a buffer of that size, and says how many there are.
        let length =
            unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_READ, key, bytes.as_mut_ptr(), room) };
        let length = checked(length)? as usize;
        if length <= room {
            bytes.truncate(length);
            return Ok(Some(bytes));
        }
        // It was cut to what there is room for: once more, with room for all.
        bytes = vec![0u8; length];
    }
}

/// Makes a key, or gives an existing one of this name other bytes.
pub fn write(name: &str, bytes: &[u8]) -> Result<(), Errno> {
    let name = c_string(name)?;
    // SAFETY: both strings end in NUL, and the kernel reads `bytes.len()` bytes of a slice of that length.
    let key = unsafe {
        libc::syscall(
            libc::SYS_add_key,
            TYPE.as_ptr(),
            name.as_ptr(),
            bytes.as_ptr(),
            bytes.len(),
            USER_KEYRING,
        )
    };
    let key = checked(key)?;
    // SAFETY: takes numbers only.
    checked(unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_SETPERM, key, PERMISSIONS) })?;
    Ok(())
}

/// Removes a key; one that is not there is no failure.
pub fn remove(name: &str) -> Result<(), Errno> {
    let Some(key) = find(name)? else { return Ok(()) };
    // SAFETY: takes numbers only.
    checked(unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_UNLINK, key, USER_KEYRING) })?;
    Ok(())
}

fn find(name: &str) -> Result<Option<i64>, Errno> {
    let name = c_string(name)?;
    // SAFETY: both strings end in NUL; the rest are numbers.
    let found = unsafe {
        libc::syscall(libc::SYS_keyctl, libc::KEYCTL_SEARCH, USER_KEYRING, TYPE.as_ptr(), name.as_ptr(), 0)
    };
    match checked(found) {
        Ok(key) => Ok(Some(key)),
        Err(Errno::NOKEY | Errno::KEYREVOKED | Errno::KEYEXPIRED) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn c_string(name: &str) -> Result<CString, Errno> {
    CString::new(name).map_err(|_| Errno::INVAL)
}

fn checked(returned: i64) -> Result<i64, Errno> {
    if returned >= 0 {
        return Ok(returned);
    }
    let code = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&code).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_there_until_it_is_removed() {
        let name = format!("cofferdam-test:{}", std::process::id());
        match write(&name, b"first") {
            // Container runtimes refuse the keyring calls: then it must be said, and nothing pretended.
            Err(Errno::PERM | Errno::NOSYS) => {
                assert!(read(&name).is_err());
                eprintln!("not tried: this machine refuses the kernel's keyring");
                return;
            }
            written => written.unwrap(),
        }
        assert_eq!(read(&name).unwrap().as_deref(), Some(&b"first"[..]));
        let long = vec![7; 500];
        write(&name, &long).unwrap();
        assert_eq!(read(&name).unwrap(), Some(long));
        remove(&name).unwrap();
        assert_eq!(read(&name), Ok(None));
        assert_eq!(remove(&name), Ok(()));
        assert_eq!(write("a\0b", b"x"), Err(Errno::INVAL));
    }
}
