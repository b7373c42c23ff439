//! Landlock by its three system calls, at the best version the running kernel has.
//!
//! Paths are opened when the ruleset is applied, that is after pivot_root: a rule on a layer of an overlay
//! does not cover the merged mount. The `landlock` crate does this too, but allocates, which a boot child of a
//! threaded process must not.

use crate::syscall::{number, syscall};
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::CStr;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

const EXECUTE: u64 = 1 << 0;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const WRITE_FILE: u64 = 1 << 1;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
const SCOPE_ABSTRACT_UNIX: u64 = 1 << 0;
const SCOPE_SIGNAL: u64 = 1 << 1;

/// What a rule grants below its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// Read and execute.
    Read,
    /// Read, execute and change the content of what exists.
    ReadAndWrite,
    /// Everything, device files' own controls included.
    All,
}

/// A ruleset for one version of the interface. What no rule grants is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruleset {
    abi: u32,
    files: bool,
    rules: Vec<(CString, Grant)>,
}

#[repr(C)]
struct RulesetAttr {
    handled_fs: u64,
    handled_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// The version of the running kernel, or nothing where Landlock is missing or switched off.
pub fn version() -> Option<u32> {
    const VERSION: usize = 1;
    // SAFETY: with a null attribute and this flag the kernel only returns a number.
    let version = unsafe { syscall(number::LANDLOCK_CREATE_RULESET, [0, 0, VERSION]) };
    version.ok().and_then(|v| u32::try_from(v).ok()).filter(|&v| v > 0)
}

impl Ruleset {
    pub fn new(abi: u32, rules: Vec<(CString, Grant)>) -> Self {
        Self { abi, files: true, rules }
    }

    /// No rules on files, because they would forbid nested mounts; only what a process can reach of others.
    pub fn scopes_only(abi: u32) -> Self {
        Self { abi, files: false, rules: Vec::new() }
    }

    /// As bytes, for a process that restricts itself.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::from(self.abi.to_le_bytes());
        out.push(u8::from(self.files));
        for (path, grant) in &self.rules {
            out.push(*grant as u8);
            // With its NUL, which ends it.
            out.extend_from_slice(path.as_bytes_with_nul());
        }
        out
    }

    /// All of the bytes, or nothing.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (abi, bytes) = bytes.split_first_chunk()?;
        let (files, mut bytes) = bytes.split_first()?;
        let mut rules = Vec::new();
        while let Some((grant, rest)) = bytes.split_first() {
            let path = CStr::from_bytes_until_nul(rest).ok()?;
            rules.push((path.into(), Grant::from_byte(*grant)?));
            bytes = rest.get(path.count_bytes() + 1..)?;
        }
        Some(Self { abi: u32::from_le_bytes(*abi), files: *files != 0, rules })
    }

    fn handled(&self) -> u64 {
        if !self.files {
            return 0;
        }
        let base = (1u64 << 13) - 1;
        base | if self.abi >= 2 { REFER } else { 0 }
            | if self.abi >= 3 { TRUNCATE } else { 0 }
            | if self.abi >= 5 { IOCTL_DEV } else { 0 }
    }

    /// No TCP rules: what leaves is the egress layer's business, and there is only loopback.
    fn scoped(&self) -> u64 {
        if self.abi >= 6 { SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL } else { 0 }
    }

    /// What the version in use cannot restrict, for the report.
    pub fn describe(abi: u32) -> &'static str {
        match abi {
            0..=1 => "files (no renames between directories, no truncate, no scopes)",
            2 => "files, renames (no truncate, no scopes)",
            3..=4 => "files, renames, truncate (no device ioctl, no scopes)",
            5 => "files, renames, truncate, device ioctl (no scopes)",
            _ => "files, renames, truncate, device ioctl, abstract sockets, signals",
        }
    }
}

impl Grant {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Read, Self::ReadAndWrite, Self::All].into_iter().find(|grant| *grant as u8 == byte)
    }

    fn bits(self, is_dir: bool) -> u64 {
        let read = EXECUTE | READ_FILE | READ_DIR;
        let bits = match self {
            Self::Read => read,
            Self::ReadAndWrite => read | WRITE_FILE | TRUNCATE,
            Self::All => u64::MAX,
        };
        // The kernel refuses rights on a file that only a directory can have.
        if is_dir { bits } else { bits & (EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV) }
    }
}

pub(crate) fn restrict(ruleset: &Ruleset) -> Result<(), Errno> {
    if ruleset.handled() == 0 && ruleset.scoped() == 0 {
        return Ok(());
    }
    let attr = RulesetAttr { handled_fs: ruleset.handled(), handled_net: 0, scoped: ruleset.scoped() };
    // Older kernels check that what they do not know is zero, so the full size is always right: but before
    // version 4 they refuse a longer struct with any bit set, and none is.
    let args = [core::ptr::from_ref(&attr) as usize, size_of::<RulesetAttr>(), 0];
    // SAFETY: the pointer is to a live struct of the given size.
    let set = unsafe { syscall(number::LANDLOCK_CREATE_RULESET, args) }?;
    // SAFETY: the kernel has just made this descriptor, and nobody else owns it.
    let set = unsafe { OwnedFd::from_raw_fd(set as RawFd) };
    for (path, grant) in &ruleset.rules {
        add_rule(&set, path, *grant, ruleset.handled())?;
    }
    // SAFETY: takes a descriptor and a flag, no pointers.
    unsafe { syscall(number::LANDLOCK_RESTRICT_SELF, [set.as_raw_fd() as usize, 0]) }.map(drop)
}

fn add_rule(set: &OwnedFd, path: &CStr, grant: Grant, handled: u64) -> Result<(), Errno> {
    const PATH_BENEATH: usize = 1;
    let parent = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let is_dir = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&parent)?.st_mode).is_dir();
    let rule = PathBeneath { allowed: grant.bits(is_dir) & handled, parent: parent.as_raw_fd() };
    let args = [set.as_raw_fd() as usize, PATH_BENEATH, core::ptr::from_ref(&rule) as usize, 0];
    // SAFETY: the pointer is to a live, packed struct as the kernel defines it.
    unsafe { syscall(number::LANDLOCK_ADD_RULE, args) }.map(drop)
}

/// Opens a file for writing that every other control would allow. Returns the errno, or 0 where it opened.
pub(crate) fn probe(at: &CStr) -> i32 {
    match rustix::fs::openat(CWD, at, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => 0,
        Err(errno) => errno.raw_os_error(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ruleset_survives_being_sent() {
        let rules = Vec::from([(c"/".into(), Grant::Read), (c"/work dir".into(), Grant::All)]);
        for set in [Ruleset::new(7, rules), Ruleset::scopes_only(6)] {
            assert_eq!(Ruleset::decode(&set.encode()), Some(set));
        }
        for bad in [&b""[..], b"\x07\0\0\0", b"\x07\0\0\0\x01\x00/no-end", b"\x07\0\0\0\x01\x09/\0"] {
            assert_eq!(Ruleset::decode(bad), None, "{bad:?}");
        }
    }
}
