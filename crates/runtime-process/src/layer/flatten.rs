//! Several layers as one, so that they can be told and kept as one: the names in it are links to the files of the
//! layers, so that no content is copied and none of the layers is touched. Whoever reads the result must not
//! write to it.

use super::cursor::{DEPTH, enter};
use super::merge::look;
use super::{OPEN_DIR, attributes, copy, io, is_opaque, is_whiteout, kind, mark, names, remove};
use cofferdam_model::FileKind;
use cofferdam_runtime::RuntimeError;
use rustix::fs::{AtFlags, FileType, Gid, Mode, Stat, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Makes the directory `into` show what these layers show together, the upper ones first.
pub(crate) fn flatten(layers: &[PathBuf], into: &Path, by_root: bool) -> Result<OwnedFd, RuntimeError> {
    let failed = || io(format!("put the layers together in {}", into.display()));
    remove::remove_tree(into).map_err(failed())?;
    rustix::fs::mkdir(into, Mode::RWXU).map_err(failed())?;
    let target = super::open_dir(into)?;
    for layer in layers.iter().rev() {
        let layer = super::open_dir(layer)?;
        Flatten { by_root }.add(layer.as_fd(), target.as_fd(), 0).map_err(failed())?;
    }
    Ok(target)
}

struct Flatten {
    by_root: bool,
}

impl Flatten {
    /// One layer on top of those that are there.
    fn add(&self, layer: BorrowedFd<'_>, target: BorrowedFd<'_>, depth: usize) -> Result<(), Errno> {
        if depth > DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        for name in names(layer)? {
            let Some(new) = look(layer, &name)? else { continue };
            let old = look(target, &name)?;
            if is_whiteout(&new) {
                remove::remove_at(target, &name)?;
                rustix::fs::mknodat(target, &*name, FileType::CharacterDevice, Mode::empty(), 0)?;
            } else if kind(&new) == FileKind::Dir {
                self.directory(layer, target, &name, (&new, old.as_ref()), depth)?;
            } else {
                if old.is_some() {
                    remove::remove_at(target, &name)?;
                }
                rustix::fs::linkat(layer, &*name, target, &*name, AtFlags::empty())?;
            }
        }
        Ok(())
    }

    fn directory(
        &self,
        layer: BorrowedFd<'_>,
        target: BorrowedFd<'_>,
        name: &CStr,
        (new, old): (&Stat, Option<&Stat>),
        depth: usize,
    ) -> Result<(), Errno> {
        let enter = || enter(layer, OsStr::from_bytes(name.to_bytes()));
        match enter() {
            // A plain user's own may be closed to itself: it is opened, and then is as it was.
            Err(Errno::ACCESS) => {
                rustix::fs::chmodat(layer, name, Mode::RWXU, AtFlags::empty())?;
                let merged = enter().and_then(|from| self.merge(&from, target, name, (new, old), depth));
                let mode = Mode::from_raw_mode(new.st_mode & 0o7777);
                rustix::fs::chmodat(layer, name, mode, AtFlags::empty()).and(merged)
            }
            from => self.merge(&from?, target, name, (new, old), depth),
        }
    }

    fn merge(
        &self,
        from: &OwnedFd,
        target: BorrowedFd<'_>,
        name: &CStr,
        (new, old): (&Stat, Option<&Stat>),
        depth: usize,
    ) -> Result<(), Errno> {
        let merged =
            old.is_some_and(|old| kind(old) == FileKind::Dir) && !is_opaque(from.as_fd(), self.by_root);
        if !merged {
            remove::remove_at(target, name)?;
            rustix::fs::mkdirat(target, name, Mode::RWXU)?;
        }
        // What an earlier layer closed is open until the last has been added.
        let to = match rustix::fs::openat(target, name, OPEN_DIR, Mode::empty()) {
            Err(Errno::ACCESS) => {
                rustix::fs::chmodat(target, name, Mode::RWXU, AtFlags::empty())?;
                rustix::fs::openat(target, name, OPEN_DIR, Mode::empty())?
            }
            other => other?,
        };
        rustix::fs::fchmod(&to, Mode::RWXU)?;
        // What was there hid the directory beneath, and so must what takes its place.
        if !merged && (old.is_some() || is_opaque(from.as_fd(), self.by_root)) {
            rustix::fs::fsetxattr(&to, mark("opaque", self.by_root).as_str(), b"y", XattrFlags::empty())?;
        }
        self.add(from.as_fd(), to.as_fd(), depth + 1)?;
        attributes::replace(to.as_fd(), &attributes::read(from.as_fd())?)?;
        let here = rustix::fs::fstat(&to)?;
        if (here.st_uid, here.st_gid) != (new.st_uid, new.st_gid) {
            rustix::fs::fchown(&to, Some(Uid::from_raw(new.st_uid)), Some(Gid::from_raw(new.st_gid)))?;
        }
        rustix::fs::fchmod(&to, Mode::from_raw_mode(new.st_mode & 0o7777))?;
        rustix::fs::futimens(&to, &copy::times(new.st_mtime, new.st_mtime_nsec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    fn whiteout(path: PathBuf) {
        rustix::fs::mknodat(rustix::fs::CWD, path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    }

    #[test]
    fn the_upper_wins_and_nothing_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("low/dir/gone")).unwrap();
        fs::create_dir_all(at("high/dir")).unwrap();
        for (path, text) in [
            ("low/a", "low"),
            ("low/b", "low"),
            ("low/dir/x", "low"),
            ("high/b", "high"),
            ("high/dir/y", "high"),
        ] {
            fs::write(at(path), text).unwrap();
        }
        whiteout(at("high/a"));
        whiteout(at("high/dir/gone"));
        flatten(&[at("high"), at("low")], &at("flat"), true).unwrap();
        let read = |path: &str| fs::read_to_string(at(path)).unwrap();
        assert_eq!((read("flat/b").as_str(), read("flat/dir/x").as_str()), ("high", "low"));
        assert_eq!(read("flat/dir/y"), "high");
        assert!(is_whiteout(&rustix::fs::lstat(at("flat/a")).unwrap()));
        assert!(is_whiteout(&rustix::fs::lstat(at("flat/dir/gone")).unwrap()));
        assert_eq!(fs::metadata(at("flat/b")).unwrap().ino(), fs::metadata(at("high/b")).unwrap().ino());
        assert!(at("low/a").exists() && at("low/dir/gone").exists(), "no layer is touched");
    }

    /// A directory in the place of a file must not show what lies beneath both.
    #[test]
    fn what_replaced_something_hides_what_is_beneath() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        let by_root = rustix::process::geteuid().is_root();
        fs::create_dir(at("low")).unwrap();
        fs::create_dir_all(at("high/was-file")).unwrap();
        fs::create_dir_all(at("high/was-gone")).unwrap();
        fs::create_dir_all(at("high/fresh")).unwrap();
        fs::write(at("low/was-file"), "x").unwrap();
        whiteout(at("low/was-gone"));
        flatten(&[at("high"), at("low")], &at("flat"), by_root).unwrap();
        let opaque = |path: &str| is_opaque(super::super::open_dir(&at(path)).unwrap().as_fd(), by_root);
        assert!(opaque("flat/was-file") && opaque("flat/was-gone") && !opaque("flat/fresh"));
    }

    #[test]
    fn a_name_that_leads_out_is_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir(at("low")).unwrap();
        fs::create_dir_all(at("high/link")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        std::os::unix::fs::symlink(at("outside"), at("low/link")).unwrap();
        fs::write(at("high/link/file"), "x").unwrap();
        flatten(&[at("high"), at("low")], &at("flat"), true).unwrap();
        assert!(at("flat/link/file").exists() && fs::read_dir(at("outside")).unwrap().next().is_none());
    }
}
