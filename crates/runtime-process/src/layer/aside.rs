//! The inside's versions of what a commit leaves out: nothing outside is overwritten by them, and none is lost. They
//! lie in a directory for each commit, beside all others' and out of every sandbox's sight:
//!
//! ```text
//!   about    whose they are and of which work dir
//!   index    a line for each path: what it is, and why it was left out
//!   files/   the versions, at their paths, readable for us alone: their modes are in the index
//! ```
//!
//! It is filled under another name and gets its own once the commit is decided: a commit that never was leaves none.
//! Everything in it can be written again after a crash, and the last line about a path counts.

use super::commit::{Moment, Watch};
use super::copy::{self, Wanted, kept};
use super::cursor::{Cursor, Spot, enter};
use super::diff::mode;
use super::journal::Head;
use super::{OPEN_DIR, kind, names, remove};
use cofferdam_model::{AsidePath, FileKind, RawPath};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) const ABOUT: &str = "about";
pub(super) const INDEX: &str = "index";
pub(super) const FILES: &str = "files";
/// What a name begins with that is not one yet.
pub(super) const MAKING: &str = ".making-";
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Where a commit's are to lie, chosen before there are any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Site {
    conflicts: RawPath,
    session: String,
    name: String,
}

/// What is said of all of them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) session: String,
    pub(super) workdir: RawPath,
}

impl Site {
    /// A session may commit more than once, and each of them has a name of its own.
    pub(super) fn choose(conflicts: &Path, session: &Path) -> Self {
        let session = session.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let free = |name: &String| conflicts.join(name).symlink_metadata().is_err();
        let later = (2u32..).map(|n| format!("{session}.{n}"));
        let name = std::iter::once(session.clone()).chain(later).find(free).unwrap_or_default();
        Self { conflicts: RawPath::from(conflicts), session, name }
    }

    fn making(&self) -> PathBuf {
        self.conflicts.as_path().join(format!("{MAKING}{}", self.session))
    }

    fn place(&self) -> PathBuf {
        self.conflicts.as_path().join(&self.name)
    }

    /// Removes what was put aside for a commit that never was.
    pub(super) fn sweep(&self) -> Result<(), Errno> {
        remove::remove_tree(&self.making())
    }
}

/// What is put aside in one commit.
pub(super) struct Aside<'a> {
    /// Journals of earlier versions name none.
    site: Option<&'a Site>,
    workdir: &'a RawPath,
    /// Made with the first.
    open: Option<Open>,
}

struct Open {
    root: OwnedFd,
    files: Cursor,
    index: BufWriter<File>,
}

impl<'a> Aside<'a> {
    pub(super) fn of(head: &'a Head) -> Self {
        Self { site: head.aside.as_ref(), workdir: &head.workdir, open: None }
    }

    /// Puts aside what stands at a path, with all that is in it if it is a directory that goes `whole`. Says whether
    /// there is something that can be.
    pub(super) fn keep(
        &mut self,
        from: &Spot<'_>,
        path: &Path,
        (mode, reason): (Option<u32>, &str),
        whole: bool,
    ) -> Result<bool, Errno> {
        let Some(seen) = from.stat()? else { return Ok(false) };
        if matches!(kind(&seen), FileKind::Socket | FileKind::Device) {
            return Ok(false);
        }
        let Some(open) = self.open()? else { return Ok(false) };
        open.put(from, path, &seen)?;
        open.note(path, &seen, mode, reason)?;
        if whole && kind(&seen) == FileKind::Dir {
            let dir = remove::open_with_permission(from.dir, &from.name)?;
            for name in names(dir.as_fd())? {
                let inner = path.join(OsStr::from_bytes(name.to_bytes()));
                self.keep(&Spot { dir: dir.as_fd(), name }, &inner, (None, reason), true)?;
            }
        }
        Ok(true)
    }

    fn open(&mut self) -> Result<Option<&mut Open>, Errno> {
        if let (None, Some(site)) = (&self.open, self.site) {
            self.open = Some(Open::at(site, self.workdir)?);
        }
        Ok(self.open.as_mut())
    }

    /// All that was put aside is on disk.
    pub(super) fn sync(&mut self, watch: Watch<'_>) -> Result<(), Errno> {
        let Some(open) = &mut self.open else { return Ok(()) };
        watch.at(Moment::Aside)?;
        open.index.flush().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        rustix::fs::syncfs(&open.root)
    }

    /// Gives it its name, now that the commit is decided. Can be done again.
    pub(super) fn publish(&self, watch: Watch<'_>) -> Result<Option<String>, Errno> {
        let Some(site) = self.site else { return Ok(None) };
        let (making, place) = (site.making(), site.place());
        match rustix::fs::renameat_with(CWD, &making, CWD, &place, RenameFlags::NOREPLACE) {
            Ok(()) => {
                watch.at(Moment::Named)?;
                rustix::fs::fsync(rustix::fs::open(site.conflicts.as_path(), OPEN_DIR, Mode::empty())?)?;
            }
            Err(Errno::NOENT) if place.is_dir() => {}
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        Ok(Some(site.name.clone()))
    }
}

impl Open {
    /// Where it has its name already, whoever completes the commit goes on there.
    fn at(site: &Site, workdir: &RawPath) -> Result<Self, Errno> {
        let place = site.place();
        let at = if place.is_dir() { place } else { site.making() };
        for dir in [site.conflicts.as_path(), &at, &at.join(FILES)] {
            match rustix::fs::mkdir(dir, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        let root = rustix::fs::open(&at, OPEN_DIR, Mode::empty())?;
        let write = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let about = About { session: site.session.clone(), workdir: workdir.clone() };
        let text = serde_json::to_vec(&about).map_err(|_| Errno::INVAL)?;
        let file = rustix::fs::openat(&root, ABOUT, write | OFlags::TRUNC, PRIVATE)?;
        let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        File::from(file).write_all(&text).map_err(failed)?;
        let index = rustix::fs::openat(&root, INDEX, write | OFlags::APPEND, PRIVATE)?;
        let mut index = BufWriter::new(File::from(index));
        // Half a line may stand before it.
        index.write_all(b"\n").map_err(failed)?;
        let files = rustix::fs::openat(&root, FILES, OPEN_DIR, Mode::empty())?;
        Ok(Self { files: Cursor::new(files.as_fd())?, root, index })
    }

    fn put(&mut self, from: &Spot<'_>, path: &Path, seen: &Stat) -> Result<(), Errno> {
        make_way(&mut self.files, path, Mode::RWXU, None)?;
        let to = self.files.spot(path)?;
        if kind(seen) != FileKind::Dir {
            remove::remove_at(to.dir, &to.name)?;
        }
        make(from, &to, seen, &Wanted { mode: PRIVATE, owner: None, sync: false })
    }

    fn note(&mut self, path: &Path, seen: &Stat, as_told: Option<u32>, reason: &str) -> Result<(), Errno> {
        let line = AsidePath {
            path: RawPath::from(path),
            kind: kind(seen),
            mode: kept(as_told.unwrap_or(mode(seen))).as_raw_mode(),
            size: (kind(seen) == FileKind::File).then_some(seen.st_size as u64),
            reason: reason.to_owned(),
        };
        let written = serde_json::to_writer(&mut self.index, &line).map_err(Into::into);
        let written = written.and_then(|()| self.index.write_all(b"\n"));
        written.map_err(|error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// Makes the directories that lead to a path.
pub(super) fn make_way(
    cursor: &mut Cursor,
    path: &Path,
    mode: Mode,
    owner: Option<(u32, u32)>,
) -> Result<(), Errno> {
    let Err(Errno::NOENT) = cursor.spot(path).map(drop) else { return Ok(()) };
    let mut above: Vec<&Path> = path.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty()).collect();
    above.reverse();
    for dir in above {
        let spot = cursor.spot(dir)?;
        match rustix::fs::mkdirat(spot.dir, spot.name.as_c_str(), mode) {
            Ok(()) => copy::own_at(&spot, owner)?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Makes the same at another place, where nothing stands, or a directory if it is one.
pub(super) fn make(from: &Spot<'_>, to: &Spot<'_>, seen: &Stat, wanted: &Wanted) -> Result<(), Errno> {
    let (dir, name) = (to.dir, to.name.as_c_str());
    match kind(seen) {
        FileKind::File => copy::file(from, to, seen, wanted),
        FileKind::Dir => match rustix::fs::mkdirat(dir, name, wanted.mode | Mode::RWXU) {
            Ok(()) => copy::own(enter(dir, OsStr::from_bytes(name.to_bytes()))?.as_fd(), wanted.owner),
            Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno),
        },
        FileKind::Symlink => {
            let link = rustix::fs::readlinkat(from.dir, from.name.as_c_str(), Vec::new())?;
            rustix::fs::symlinkat(link.as_c_str(), dir, name)?;
            copy::own_at(to, wanted.owner)
        }
        FileKind::Fifo => {
            rustix::fs::mknodat(dir, name, rustix::fs::FileType::Fifo, wanted.mode, 0)?;
            copy::own_at(to, wanted.owner)
        }
        FileKind::Socket | FileKind::Device => Err(Errno::INVAL),
    }
}
