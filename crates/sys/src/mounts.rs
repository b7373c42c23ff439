//! Mount operations for the boot child: the new mount API, no allocation, nothing decided here.

use crate::boot::Attr;
use crate::raw::{self, MountAttr};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};
use std::ffi::{CStr, CString};
use std::io::Write;

const ATTR_RDONLY: u64 = 0x1;
const ATTR_NOSUID: u64 = 0x2;
const ATTR_NODEV: u64 = 0x4;
const ATTR_NOEXEC: u64 = 0x8;
const ATTR_IDMAP: u64 = 0x10_0000;

fn bits(attr: Attr) -> u64 {
    let mut bits = ATTR_NOSUID;
    bits |= if attr.read_only { ATTR_RDONLY } else { 0 };
    bits |= if attr.no_dev { ATTR_NODEV } else { 0 };
    bits | if attr.no_exec { ATTR_NOEXEC } else { 0 }
}

pub(crate) fn make_private() -> Result<(), Errno> {
    rustix::mount::mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
}

pub(crate) fn attach(mount: BorrowedFd<'_>, at: &CStr) -> Result<(), Errno> {
    rustix::mount::move_mount(mount, c"", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

fn new_mount(kind: &CStr, options: &[(&CStr, Option<&CStr>)], attr: u64) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        match value {
            Some(value) => rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?,
            None => rustix::mount::fsconfig_set_flag(context.as_fd(), *key)?,
        }
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attr = MountAttrFlags::from_bits_retain(attr as u32);
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attr)
}

/// The classic call: its option string is the one format all file systems share, and it is one call.
pub(crate) fn tmpfs(at: &CStr, options: &CStr, attr: Attr) -> Result<(), Errno> {
    let mut flags = rustix::mount::MountFlags::NOSUID;
    flags.set(rustix::mount::MountFlags::NODEV, attr.no_dev);
    flags.set(rustix::mount::MountFlags::NOEXEC, attr.no_exec);
    rustix::mount::mount(c"tmpfs", at, c"tmpfs", flags, Some(options))
}

/// Another size for one that is mounted. Its flags are those that every one has.
pub(crate) fn resize(at: &CStr, options: &CStr) -> Result<(), Errno> {
    let flags = rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV;
    rustix::mount::mount_remount(at, flags, options)
}

/// So many files more than there are. Allocates nothing: a child that shares our memory comes here.
pub(crate) fn allow_files(at: &CStr, more: u64) -> Result<(), Errno> {
    let now = rustix::fs::statvfs(at)?;
    let most = (now.f_files - now.f_ffree).checked_add(more).ok_or(Errno::OVERFLOW)?;
    let mut text = [0u8; 48];
    // The rest of it is the zero that ends it.
    write!(&mut text[..47], "nr_inodes={most}").map_err(|_| Errno::OVERFLOW)?;
    resize(at, CStr::from_bytes_until_nul(&text).map_err(|_| Errno::INVAL)?)
}

/// A recursive bind whose attributes hold from the moment it can be seen.
pub(crate) fn bind(from: &CStr, at: &CStr, attr: Attr, idmap: Option<&OwnedFd>) -> Result<(), Errno> {
    attach(cloned(from, attr, idmap)?.as_fd(), at)
}

/// The same, mounted nowhere yet.
pub(crate) fn cloned(from: &CStr, attr: Attr, idmap: Option<&OwnedFd>) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let recursive = if idmap.is_some() { OpenTreeFlags::empty() } else { OpenTreeFlags::AT_RECURSIVE };
    let tree = rustix::mount::open_tree(CWD, from, flags | recursive)?;
    let deep = if idmap.is_some() { 0 } else { libc::AT_RECURSIVE };
    let set = MountAttr {
        set: bits(attr) | if idmap.is_some() { ATTR_IDMAP } else { 0 },
        clear: 0,
        propagation: 0,
        userns: idmap.map_or(0, |map| map.as_raw_fd() as u64),
    };
    raw::mount_setattr(tree.as_fd(), c"", libc::AT_EMPTY_PATH | deep, &set)?;
    Ok(tree)
}

/// Mounted nowhere yet. `volatile`: the layer is thrown away or copied out by us, so nobody waits for a disk.
pub(crate) fn overlay(
    lower: &[CString],
    upper: Option<(&CStr, &CStr)>,
    userxattr: bool,
) -> Result<OwnedFd, Errno> {
    match stack(lower, false, upper, userxattr) {
        // Before Linux 6.8 they have to be named all at once.
        Err(Errno::INVAL) if lower.len() > 1 => stack(lower, true, upper, userxattr),
        done => done,
    }
}

/// What the kernel takes of one value.
const LOWERDIR: usize = 256;

/// All names in one, in memory that is there already: the child that mounts may not ask for any. Nothing where a name
/// has in it what would be taken for its end.
fn joined<'a>(names: &[CString], text: &'a mut [u8; LOWERDIR]) -> Option<&'a CStr> {
    let mut at = 0;
    for (number, name) in names.iter().enumerate() {
        let bytes = name.as_bytes();
        if bytes.iter().any(|byte| b":,\\".contains(byte)) {
            return None;
        }
        if number > 0 {
            *text.get_mut(at)? = b':';
            at += 1;
        }
        text.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
        at += bytes.len();
    }
    *text.get_mut(at)? = 0;
    CStr::from_bytes_until_nul(text).ok()
}

fn stack(
    lower: &[CString],
    together: bool,
    upper: Option<(&CStr, &CStr)>,
    userxattr: bool,
) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key: &CStr, value: &CStr| rustix::mount::fsconfig_set_string(context.as_fd(), key, value);
    let flag = |key: &CStr| rustix::mount::fsconfig_set_flag(context.as_fd(), key);
    match lower {
        [one] => set(c"lowerdir", one)?,
        several if together => {
            let mut text = [0; LOWERDIR];
            let joined = joined(several, &mut text).ok_or(Errno::INVAL)?;
            set(c"lowerdir", joined)?;
        }
        several => several.iter().try_for_each(|lower| set(c"lowerdir+", lower))?,
    }
    if let Some((upper, work)) = upper {
        set(c"upperdir", upper)?;
        set(c"workdir", work)?;
        flag(c"volatile")?;
    }
    if userxattr {
        flag(c"userxattr")?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attr = ATTR_NOSUID | ATTR_NODEV | if upper.is_none() { ATTR_RDONLY } else { 0 };
    let attr = MountAttrFlags::from_bits_retain(attr as u32);
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attr)
}

pub(crate) fn proc(at: &CStr) -> Result<(), Errno> {
    let mount = new_mount(c"proc", &[], ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC)?;
    attach(mount.as_fd(), at)
}

pub(crate) fn devpts(at: &CStr) -> Result<(), Errno> {
    let options: [(&CStr, Option<&CStr>); 3] =
        [(c"newinstance", None), (c"ptmxmode", Some(c"0666")), (c"mode", Some(c"0620"))];
    let mount = new_mount(c"devpts", &options, ATTR_NOSUID | ATTR_NOEXEC)?;
    attach(mount.as_fd(), at)
}

pub(crate) fn read_only(at: &CStr) -> Result<(), Errno> {
    let set = MountAttr { set: ATTR_RDONLY, clear: 0, propagation: 0, userns: 0 };
    raw::mount_setattr(CWD, at, 0, &set)
}

/// Takes that back, for who puts more into it.
pub(crate) fn writable(at: &CStr) -> Result<(), Errno> {
    let set = MountAttr { set: 0, clear: ATTR_RDONLY, propagation: 0, userns: 0 };
    raw::mount_setattr(CWD, at, 0, &set)
}

/// With both arguments the same directory the old root ends up on top of the new one, and is then detached;
/// no directory of the new root is needed to hold it.
pub(crate) fn pivot_here() -> Result<(), Errno> {
    rustix::process::pivot_root(c".", c".")?;
    rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_joined_where_that_can_be_understood() {
        let names =
            |names: &[&str]| names.iter().map(|name| CString::new(*name).unwrap()).collect::<Vec<_>>();
        let mut text = [0; LOWERDIR];
        assert_eq!(joined(&names(&["../a", "b/c"]), &mut text), Some(c"../a:b/c"));
        assert_eq!(joined(&names(&["a:b", "c"]), &mut text), None);
        let long = "x".repeat(200);
        assert_eq!(joined(&names(&[&long, &long]), &mut text), None);
    }
}
