//! Mounts in a root whose files are not ours: an image's, with what earlier sessions made of it. Every path is looked up
//! as if that root were the root of everything, so that no link of it leads to the host's files. Nothing allocates.

use crate::boot::Graft;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags};
use std::ffi::CStr;

const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

fn open(root: BorrowedFd<'_>, path: &CStr, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn is_dir(found: &OwnedFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(found)?.st_mode).is_dir())
}

/// What stands at a path, if it is of the kind that is wanted.
fn found(root: BorrowedFd<'_>, path: &CStr, dir: bool, own: bool) -> Result<Option<OwnedFd>, Errno> {
    let resolve = if own { IN_ROOT | ResolveFlags::NO_SYMLINKS } else { IN_ROOT };
    match open(root, path, resolve) {
        Ok(found) if is_dir(&found)? == dir => Ok(Some(found)),
        Ok(_) | Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Makes it in its directory, in the place of what stands there and leads nowhere.
fn make(above: BorrowedFd<'_>, name: &CStr, dir: bool) -> Result<(), Errno> {
    let new = || match dir {
        true => rustix::fs::mkdirat(above, name, Mode::from_raw_mode(0o755)),
        false => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(above, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        }
    };
    match new() {
        Err(Errno::EXIST) => {}
        done => return done,
    }
    rustix::fs::unlinkat(above, name, AtFlags::empty())?;
    new()
}

pub(crate) fn put(graft: &Graft) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, graft.root.as_c_str(), flags, Mode::empty())?;
    let mut above: Option<OwnedFd> = None;
    let last = graft.places.len().saturating_sub(1);
    for (at, (path, name)) in graft.places.iter().enumerate() {
        let dir = graft.dir || at < last;
        let place = match found(root.as_fd(), path, dir, graft.own)? {
            Some(place) => place,
            None if !graft.make => return Ok(()),
            None => {
                let above = above.as_ref().unwrap_or(&root);
                // A link of the root may lead into what was mounted in it before: nothing of that is made or removed.
                if rustix::fs::fstat(above)?.st_dev != rustix::fs::fstat(&root)?.st_dev {
                    return Err(Errno::XDEV);
                }
                make(above.as_fd(), name, dir)?;
                found(root.as_fd(), path, dir, graft.own)?.ok_or(Errno::NOENT)?
            }
        };
        above = Some(place);
    }
    let place = above.ok_or(Errno::INVAL)?;
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let tree = rustix::mount::open_tree(CWD, graft.from.as_c_str(), flags)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree.as_fd(), c"", place.as_fd(), c"", flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::fs::symlink;

    fn c(text: &str) -> CString {
        CString::new(text).unwrap()
    }

    #[test]
    fn a_link_of_the_root_leads_to_nothing_outside() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("file"), b"host").unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        symlink(outside.path(), dir.path().join("absolute")).unwrap();
        symlink("../../../../../../../../tmp", dir.path().join("relative")).unwrap();
        symlink("etc", dir.path().join("within")).unwrap();
        let root = rustix::fs::open(dir.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let find = |path: &str, own| found(root.as_fd(), &c(path), true, own).unwrap().is_some();
        for path in ["absolute", "relative", "absolute/file"] {
            assert!(!find(path, false), "{path}");
        }
        assert!(find("etc", true) && find("within", false));
        assert!(!find("within", true), "where no link may stand, none is followed");
    }

    #[test]
    fn what_leads_nowhere_is_replaced_and_a_directory_with_files_is_not() {
        let dir = tempfile::tempdir().unwrap();
        symlink("/no/such/file", dir.path().join("resolv.conf")).unwrap();
        std::fs::create_dir_all(dir.path().join("full/of")).unwrap();
        let above = rustix::fs::open(dir.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        make(above.as_fd(), c"resolv.conf", false).unwrap();
        assert!(dir.path().join("resolv.conf").symlink_metadata().unwrap().is_file());
        make(above.as_fd(), c"resolv.conf", true).unwrap();
        assert!(dir.path().join("resolv.conf").is_dir());
        assert!(make(above.as_fd(), c"full", false).is_err());
        assert!(dir.path().join("full/of").is_dir());
    }
}
