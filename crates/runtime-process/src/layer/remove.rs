//! Removes a tree whose owner may have made it hard to: directories without permissions, nesting without end,
//! overlayfs's own `work/work` of mode 0000. Never follows a link, never leaves the file system it began on.

use super::OPEN_DIR;
use super::cursor::c_name;
use rustix::fs::{AtFlags, CWD, Mode};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A directory is open for every level, so what lies deeper is first moved up.
const LEVELS: usize = 64;

pub(crate) fn remove_tree(path: &Path) -> Result<(), Errno> {
    remove_at(CWD, &c_name(path.as_os_str())?)
}

pub(super) fn remove_at(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    if gone(parent, name)? {
        return Ok(());
    }
    let root = open_with_permission(parent, name)?;
    let mut moved = 0u64;
    loop {
        empty(root.as_fd(), root.as_fd(), 0, &mut moved)?;
        // Something that was moved up may be left to do.
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(Errno::NOENT) => return Ok(()),
            other => return other,
        }
    }
}

/// Removes what is no directory, or an empty one.
fn gone(parent: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn empty(root: BorrowedFd<'_>, dir: BorrowedFd<'_>, level: usize, moved: &mut u64) -> Result<(), Errno> {
    for entry in super::names(dir)? {
        if gone(dir, &entry)? {
            continue;
        }
        let inner = open_with_permission(dir, &entry)?;
        if level < LEVELS {
            empty(root, inner.as_fd(), level + 1, moved)?;
            rustix::fs::unlinkat(dir, entry.as_c_str(), AtFlags::REMOVEDIR)?;
        } else {
            move_up(root, dir, &entry, moved)?;
        }
    }
    Ok(())
}

fn move_up(root: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &CStr, moved: &mut u64) -> Result<(), Errno> {
    loop {
        *moved += 1;
        let up = CString::new(format!("deep-{moved}")).map_err(|_| Errno::INVAL)?;
        match rustix::fs::renameat_with(dir, name, root, &up, rustix::fs::RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            other => return other,
        }
    }
}

/// Opens a directory of ours, giving us permission first where it has none.
pub(super) fn open_with_permission(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let opened = match rustix::fs::openat(parent, name, OPEN_DIR, Mode::empty()) {
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
            rustix::fs::openat(parent, name, OPEN_DIR, Mode::empty())?
        }
        other => other?,
    };
    let mode = rustix::fs::fstat(&opened)?.st_mode;
    if mode & 0o700 != 0o700 {
        rustix::fs::fchmod(&opened, Mode::RWXU)?;
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn removes_what_resists_and_nothing_else() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("keep"), "x").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::write(tree.join("a/b/c/file"), "x").unwrap();
        symlink(outside.path(), tree.join("a/link")).unwrap();
        fs::set_permissions(tree.join("a/b"), fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert!(outside.path().join("keep").exists());
        remove_tree(&tree).unwrap();
    }

    /// Deeper than there are descriptors, with names that are taken where it is moved to.
    #[test]
    fn nesting_has_no_end() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::create_dir(tree.join("deep-1")).unwrap();
        let mut at = super::super::open_dir(&tree).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, "d", OPEN_DIR, Mode::empty()).unwrap();
        }
        drop(at);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }
}
