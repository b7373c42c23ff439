//! Places in the tree, reached without ever leaving it.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Deeper trees exist only to exhaust whoever walks them.
const DEPTH: usize = 256;

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const PLAIN: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
const WITHIN: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// The tree under construction.
pub(crate) struct Tree {
    root: OwnedFd,
    /// How deep it lies itself.
    depth: usize,
    /// Whether owners can be given: by root.
    pub(crate) owners: bool,
}

/// A directory and a name in it.
pub(crate) struct Spot {
    pub(crate) dir: OwnedFd,
    pub(crate) name: CString,
}

pub(crate) fn c_name(name: &OsStr) -> Result<CString, Errno> {
    CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)
}

fn depth_of(dir: &OwnedFd) -> Result<usize, Errno> {
    use std::os::fd::AsRawFd;
    let link = rustix::fs::readlink(format!("/proc/self/fd/{}", dir.as_raw_fd()), Vec::new())?;
    Ok(link.to_bytes().iter().filter(|byte| **byte == b'/').count())
}

/// A path as it is meant: relative to the root, without `.`; nothing where it has `..`.
pub(crate) fn plain(path: &[u8]) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in Path::new(OsStr::from_bytes(path)).components() {
        match part {
            Component::Normal(part) => out.push(part),
            Component::ParentDir => return None,
            _ => {}
        }
    }
    Some(out)
}

impl Tree {
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        let root = rustix::fs::openat(CWD, path, DIR | OFlags::NOFOLLOW, Mode::empty())?;
        let depth = depth_of(&root)?;
        Ok(Self { root, depth, owners: rustix::process::geteuid().is_root() })
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// A directory of the tree, through links of it if there are any on the way.
    pub(crate) fn dir(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        if path.components().count() > DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        match rustix::fs::openat2(&self.root, path, DIR, Mode::empty(), PLAIN) {
            Err(Errno::LOOP) => {}
            done => return done,
        }
        let found = rustix::fs::openat2(&self.root, path, DIR, Mode::empty(), WITHIN)?;
        // Through links a path can go deeper than it is long.
        match depth_of(&found)? > self.depth + DEPTH {
            true => Err(Errno::NAMETOOLONG),
            false => Ok(found),
        }
    }

    /// The same, made where it is missing.
    pub(crate) fn make_dir(&self, path: &Path) -> Result<OwnedFd, Errno> {
        match self.dir(path) {
            Err(Errno::NOENT) => {}
            done => return done,
        }
        let above = self.make_dir(path.parent().ok_or(Errno::NOENT)?)?;
        let name = c_name(path.file_name().ok_or(Errno::INVAL)?)?;
        match rustix::fs::mkdirat(&above, name.as_c_str(), Mode::from_raw_mode(0o755)) {
            // A link that leads nowhere.
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(&above, name.as_c_str(), AtFlags::empty())?;
                rustix::fs::mkdirat(&above, name.as_c_str(), Mode::from_raw_mode(0o755))?;
            }
            done => done?,
        }
        self.dir(path)
    }

    /// Where a name is to be; the directories on the way are made.
    pub(crate) fn spot(&self, path: &Path) -> Result<Spot, Errno> {
        let name = c_name(path.file_name().ok_or(Errno::INVAL)?)?;
        Ok(Spot { dir: self.make_dir(path.parent().unwrap_or(Path::new("")))?, name })
    }

    /// Where a name is; nothing where there is not even its directory.
    pub(crate) fn find(&self, path: &Path) -> Result<Option<Spot>, Errno> {
        let name = c_name(path.file_name().ok_or(Errno::INVAL)?)?;
        match self.dir(path.parent().unwrap_or(Path::new(""))) {
            Ok(dir) => Ok(Some(Spot { dir, name })),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl Spot {
    pub(crate) fn kind(&self) -> Result<Option<FileType>, Errno> {
        match rustix::fs::statat(&self.dir, self.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Makes room for something else.
    pub(crate) fn clear(&self) -> Result<(), Errno> {
        match self.kind()? {
            None => Ok(()),
            Some(FileType::Directory) => remove_dir(&self.dir, &self.name, 0),
            Some(_) => rustix::fs::unlinkat(&self.dir, self.name.as_c_str(), AtFlags::empty()),
        }
    }
}

/// A directory with all that is in it. No link is followed.
fn remove_dir(above: &OwnedFd, name: &CString, depth: usize) -> Result<(), Errno> {
    if depth > 2 * DEPTH {
        return Err(Errno::NAMETOOLONG);
    }
    let dir = rustix::fs::openat(above, name.as_c_str(), DIR | OFlags::NOFOLLOW, Mode::empty())?;
    for inner in names(&dir)? {
        match rustix::fs::unlinkat(&dir, inner.as_c_str(), AtFlags::empty()) {
            Err(Errno::ISDIR) => remove_dir(&dir, &inner, depth + 1)?,
            done => done?,
        }
    }
    drop(dir);
    rustix::fs::unlinkat(above, name.as_c_str(), AtFlags::REMOVEDIR)
}

pub(crate) fn names(dir: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let name = entry?.file_name().to_owned();
        if name.as_c_str() != c"." && name.as_c_str() != c".." {
            found.push(name);
        }
    }
    Ok(found)
}
