//! What can be said of one file.

use super::accounts::Names;
use super::{Failed, joined};
use alloc::ffi::CString;
use alloc::vec;
use alloc::vec::Vec;
use cofferdam_guest::wire::{Entry, FileKind, NOTES_MAX};
use core::ffi::CStr;
use rustix::fd::AsFd;
use rustix::fs::{FileType, Mode, OFlags, Stat};

/// What is noted with a file lies in extended attributes of this name.
pub(super) const NOTES: &[u8] = b"user.e2b.";

const fn kind(mode: u32) -> FileKind {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    }
}

pub(super) fn of(path: &CStr, name: Vec<u8>) -> Result<Entry, Failed> {
    with(path, name, &Names::load())
}

/// A link is told as what it leads to, with where that is.
pub(super) fn with(path: &CStr, name: Vec<u8>, names: &Names) -> Result<Entry, Failed> {
    let own = rustix::fs::lstat(path)?;
    if kind(own.st_mode) != FileKind::Link {
        return Ok(told(&own, name, None, notes(path), names));
    }
    let target = target(path);
    let stat = rustix::fs::stat(path).unwrap_or(own);
    Ok(told(&stat, name, Some(target), Vec::new(), names))
}

fn told(
    stat: &Stat,
    name: Vec<u8>,
    target: Option<Vec<u8>>,
    notes: Vec<(Vec<u8>, Vec<u8>)>,
    names: &Names,
) -> Entry {
    Entry {
        name,
        kind: kind(stat.st_mode),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        owner: names.user(stat.st_uid),
        group: names.group(stat.st_gid),
        modified_s: stat.st_mtime,
        modified_ns: stat.st_mtime_nsec as u32,
        target,
        notes,
    }
}

/// Where it leads in the end; of one that leads nowhere, what it says.
fn target(path: &CStr) -> Vec<u8> {
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let found =
        opened.and_then(|file| rustix::fs::readlink(descriptor(&file), Vec::new()).map(CString::into_bytes));
    found.or_else(|_| rustix::fs::readlink(path, Vec::new()).map(CString::into_bytes)).unwrap_or_default()
}

/// The name that a descriptor of this process has.
pub(super) fn descriptor(fd: impl AsFd) -> CString {
    use rustix::fd::AsRawFd;
    let number = fd.as_fd().as_raw_fd();
    CString::new(joined(b"/proc/self/fd", &super::decimal(number as u32))).unwrap_or_default()
}

/// As many as fit. A file system that keeps none has none.
pub(super) fn notes(path: &CStr) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut list = vec![0_u8; 64 * 1024];
    let Ok(size) = rustix::fs::listxattr(path, &mut list[..]) else { return Vec::new() };
    list.truncate(size);
    let mut found = Vec::new();
    let mut room = NOTES_MAX;
    for attribute in list.split(|byte| *byte == 0) {
        let Some(name) = attribute.strip_prefix(NOTES) else { continue };
        let mut value = vec![0_u8; room];
        let Ok(size) = rustix::fs::getxattr(path, attribute, &mut value[..]) else { continue };
        value.truncate(size);
        let Some(left) = room.checked_sub(name.len() + size) else { break };
        room = left;
        found.push((name.to_vec(), value));
    }
    found.sort();
    found
}

/// These and no others.
pub(super) fn set_notes(path: &CStr, notes: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Failed> {
    for (name, _) in self::notes(path) {
        rustix::fs::removexattr(path, joined_note(&name).as_slice())?;
    }
    for (name, value) in notes {
        rustix::fs::setxattr(path, joined_note(name).as_slice(), value, rustix::fs::XattrFlags::empty())?;
    }
    Ok(())
}

fn joined_note(name: &[u8]) -> Vec<u8> {
    [NOTES, name].concat()
}

/// What lies in a directory, by name and in its order.
pub(super) fn names_in(directory: &CStr) -> Result<Vec<Vec<u8>>, Failed> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    names_of(&rustix::fs::open(directory, flags, Mode::empty())?)
}

pub(super) fn names_of(directory: impl AsFd) -> Result<Vec<Vec<u8>>, Failed> {
    let mut buffer: Vec<core::mem::MaybeUninit<u8>> = Vec::new();
    buffer.resize(32 * 1024, core::mem::MaybeUninit::uninit());
    let mut names = Vec::new();
    let mut entries = rustix::fs::RawDir::new(directory.as_fd(), &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    names.sort();
    Ok(names)
}

/// A path below another, as a C string.
pub(super) fn below(dir: &[u8], name: &[u8]) -> Result<CString, Failed> {
    super::path(&joined(dir, name))
}
