//! Removes a tree whose owner may have made it hard to: directories without permissions, deep nesting,
//! overlayfs's own `work/work` of mode 0000. Never follows a link, never leaves the file system it began on.

use super::OPEN_DIR;
use rustix::fs::{AtFlags, CWD, Mode};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) fn remove_tree(path: &Path) -> Result<(), Errno> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    remove_at(CWD, &name)
}

fn remove_at(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let dir = open_with_permission(parent, name)?;
    for entry in super::names(dir.as_fd())? {
        remove_at(dir.as_fd(), &entry)?;
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Opens a directory of ours, giving us permission first where it has none.
fn open_with_permission(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
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
}
