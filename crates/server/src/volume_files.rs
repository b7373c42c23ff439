//! The files of a volume, reached from outside of any sandbox. What lies there was written by the inside: every path is
//! resolved by the kernel beneath the volume, without following a link, and what is made belongs to whom the volume
//! belongs to.

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Entries that one listing tells, and how deep one goes.
const MOST: usize = 100_000;
const DEEPEST: u32 = 64;

const HERE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

pub(crate) struct Files {
    root: OwnedFd,
    owner: (u32, u32),
}

/// One thing in a volume.
pub(crate) struct Entry {
    /// From the volume's top, with a leading slash.
    pub(crate) path: PathBuf,
    pub(crate) stat: Stat,
    pub(crate) target: Option<String>,
}

/// A file that is being written. It appears when it is finished, or never.
pub(crate) struct Writing {
    pub(crate) file: File,
    dir: OwnedFd,
    making: String,
    name: PathBuf,
    done: bool,
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.done {
            let _ = rustix::fs::unlinkat(&self.dir, &self.making, AtFlags::empty());
        }
    }
}

impl Writing {
    pub(crate) fn finish(mut self) -> Result<(), Errno> {
        rustix::fs::renameat(&self.dir, &self.making, &self.dir, &self.name)?;
        self.done = true;
        Ok(())
    }
}

/// As it is beneath the volume: no `..`, no NUL, nothing of it absolute.
fn beneath(path: &str) -> Result<PathBuf, Errno> {
    if path.contains('\0') || path.len() > 4095 {
        return Err(Errno::INVAL);
    }
    let mut plain = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(Errno::INVAL),
        }
    }
    Ok(if plain.as_os_str().is_empty() { PathBuf::from(".") } else { plain })
}

fn open_dir(at: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(at, path, flags, Mode::empty(), HERE)
}

impl Files {
    pub(crate) fn open(data: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let root = rustix::fs::openat(CWD, data, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&root)?;
        Ok(Self { owner: (stat.st_uid, stat.st_gid), root })
    }

    /// The directory that a path lies in, and its last name.
    fn place(&self, path: &str, make: bool) -> Result<(OwnedFd, PathBuf), Errno> {
        let path = beneath(path)?;
        let name = path.file_name().ok_or(Errno::INVAL)?.into();
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if make {
            self.make_all(above)?;
        }
        Ok((open_dir(&self.root, above)?, name))
    }

    fn make_all(&self, path: &Path) -> Result<(), Errno> {
        let mut so_far = PathBuf::new();
        for part in path.components().filter(|part| matches!(part, Component::Normal(_))) {
            so_far.push(part);
            match rustix::fs::mkdirat(
                &open_dir(&self.root, above(&so_far))?,
                part,
                Mode::from_raw_mode(0o755),
            ) {
                Ok(()) => self.own(&open_dir(&self.root, &so_far)?)?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn own(&self, made: impl AsFd) -> Result<(), Errno> {
        use rustix::fs::{Gid, Uid};
        let (uid, gid) = self.owner;
        match rustix::fs::fchown(made, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))) {
            // A plain user's are its own already.
            Err(Errno::PERM) => Ok(()),
            other => other,
        }
    }

    pub(crate) fn stat(&self, path: &str) -> Result<Entry, Errno> {
        let plain = beneath(path)?;
        if plain == Path::new(".") {
            return Ok(Entry { path: "/".into(), stat: rustix::fs::fstat(&self.root)?, target: None });
        }
        let (dir, name) = self.place(path, false)?;
        entry(&dir, &name, Path::new("/").join(plain))
    }

    /// What is in a directory, so deep.
    pub(crate) fn list(&self, path: &str, depth: u32) -> Result<Vec<Entry>, Errno> {
        let top = beneath(path)?;
        let mut found = Vec::new();
        let mut open = vec![(top.clone(), depth.clamp(1, DEEPEST))];
        while let Some((at, depth)) = open.pop() {
            let dir = open_dir(&self.root, &at)?;
            for one in Dir::read_from(&dir)?.flatten() {
                let name: &CStr = one.file_name();
                if name == c"." || name == c".." {
                    continue;
                }
                if found.len() >= MOST {
                    return Err(Errno::TOOBIG);
                }
                let name = PathBuf::from(name.to_string_lossy().into_owned());
                let whole = Path::new("/")
                    .join(&at)
                    .components()
                    .filter(|c| *c != Component::CurDir)
                    .collect::<PathBuf>();
                // What went meanwhile is not there.
                let Ok(seen) = entry(&dir, &name, whole.join(&name)) else { continue };
                if FileType::from_raw_mode(seen.stat.st_mode) == FileType::Directory && depth > 1 {
                    open.push((at.join(&name), depth - 1));
                }
                found.push(seen);
            }
        }
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    pub(crate) fn make_dir(&self, path: &str, mode: Option<u32>, parents: bool) -> Result<(), Errno> {
        let (dir, name) = self.place(path, parents)?;
        let mode = Mode::from_raw_mode(mode.unwrap_or(0o755) & 0o777);
        match rustix::fs::mkdirat(&dir, &name, mode) {
            Err(Errno::EXIST) if parents => Ok(()),
            Ok(()) => self.own(&open_dir(&dir, &name)?),
            other => other,
        }
    }

    pub(crate) fn read(&self, path: &str) -> Result<(File, u64), Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = rustix::fs::openat2(&self.root, beneath(path)?, flags, Mode::empty(), HERE)?;
        let stat = rustix::fs::fstat(&file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((file.into(), u64::try_from(stat.st_size).unwrap_or(0))),
            FileType::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    pub(crate) fn write(&self, path: &str, mode: Option<u32>, making: String) -> Result<Writing, Errno> {
        let (dir, name) = self.place(path, true)?;
        let mode = Mode::from_raw_mode(mode.unwrap_or(0o644) & 0o777);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&dir, &making, flags, mode)?;
        let writing = Writing { file: file.into(), dir, making, name, done: false };
        self.own(&writing.file)?;
        Ok(writing)
    }

    pub(crate) fn change(&self, path: &str, mode: u32) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = rustix::fs::openat2(&self.root, beneath(path)?, flags, Mode::empty(), HERE)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777))
    }

    /// With all that is in it.
    pub(crate) fn remove(&self, path: &str) -> Result<(), Errno> {
        let (dir, name) = self.place(path, false)?;
        remove(&dir, &name, 0)
    }
}

fn above(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn entry(dir: &OwnedFd, name: &Path, path: PathBuf) -> Result<Entry, Errno> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let target = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            Some(rustix::fs::readlinkat(dir, name, Vec::new())?.to_string_lossy().into_owned())
        }
        _ => None,
    };
    Ok(Entry { path, stat, target })
}

fn remove(dir: &OwnedFd, name: &Path, depth: u32) -> Result<(), Errno> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        other => return other,
    }
    if depth > 512 {
        return Err(Errno::TOOBIG);
    }
    let inner = open_dir(dir, name)?;
    for one in Dir::read_from(&inner)?.flatten() {
        let name = one.file_name();
        if name != c"." && name != c".." {
            use std::os::unix::ffi::OsStrExt;
            let name = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
            remove(&inner, name, depth + 1)?;
        }
    }
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn nothing_is_reached_outside_of_a_volume_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir_all(data.join("sub")).unwrap();
        std::fs::write(dir.path().join("secret"), "outside").unwrap();
        std::os::unix::fs::symlink(dir.path(), data.join("link")).unwrap();
        std::os::unix::fs::symlink("../secret", data.join("file")).unwrap();
        let files = Files::open(&data).unwrap();
        for path in ["../secret", "sub/../../secret", "link/secret", "file", "a\0b", "/../secret"] {
            assert!(files.read(path).is_err(), "{path}");
            assert!(files.write(&format!("{path}/x"), None, "making".into()).is_err(), "{path}");
        }
        assert!(files.list("link", 1).is_err());
        assert_eq!(files.stat("link").unwrap().target.as_deref(), dir.path().to_str());
        // Removing a link removes the link.
        files.remove("link").unwrap();
        files.remove("file").unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("secret")).unwrap(), "outside");
        let mut writing = files.write("/new/a.txt", Some(0o4777), "making".into()).unwrap();
        writing.file.write_all(b"text").unwrap();
        assert!(files.read("new/a.txt").is_err(), "not whole yet");
        writing.finish().unwrap();
        assert_eq!(files.read("new/a.txt").unwrap().1, 4);
        assert_eq!(files.stat("new/a.txt").unwrap().stat.st_mode & 0o7777 & !0o777, 0, "no set-id bit");
        drop(files.write("new/b.txt", None, "making".into()).unwrap());
        let listed: Vec<PathBuf> = files.list(".", 9).unwrap().into_iter().map(|entry| entry.path).collect();
        assert_eq!(listed, ["/new", "/new/a.txt", "/sub"].map(PathBuf::from));
        files.remove("new").unwrap();
        assert!(files.stat("new").is_err());
    }
}
