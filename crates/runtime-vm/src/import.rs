//! Writes down what a machine says it changed, as the layer of a session: the same directory, with the same marks,
//! that an overlay on the host would have left. What follows from it is for the code that reads layers.
//!
//! All of it is hostile. Names are single ones and lead nowhere, since every directory on the way was made here and
//! nobody else writes in it; sizes and counts are bounded; modes lose what grants something.

use cofferdam_inside::wire::{Entry, FROM_INSIDE, Frame, PIECE, Stat, Tell, receive};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Levels of directories, as everywhere where layers are read.
const DEPTH: usize = 250;
const NAME: usize = 255;
const ATTRIBUTES: usize = 64;

/// How much may come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
}

/// Whose what is written is, where that is not us; and whether marks are root's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whose {
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) by_root: bool,
}

struct Writer {
    above: Vec<(OwnedFd, Option<Stat>)>,
    at: PathBuf,
    root: OwnedFd,
    whose: Whose,
    left: Bounds,
    file: Option<(File, u64, Stat)>,
    /// Where files were put, for those with another name.
    files: Vec<PathBuf>,
}

fn broken(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the machine told of its changes what cannot be: {what}"),
    )
}

const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Takes all of it from the stream into the directory `upper`, which is there.
pub(crate) fn import(from: &mut impl Read, upper: &Path, whose: Whose, bounds: Bounds) -> io::Result<()> {
    let root = rustix::fs::openat(CWD, upper, OPEN_DIR, Mode::empty())?;
    let mut writer = Writer {
        above: Vec::new(),
        at: PathBuf::new(),
        root,
        whose,
        left: bounds,
        file: None,
        files: Vec::new(),
    };
    loop {
        match receive(from, FROM_INSIDE)? {
            Frame::Entry(Entry::Bytes { at }) => match receive::<Tell>(from, PIECE as u32)? {
                Frame::Piece(bytes) => writer.bytes(at, &bytes)?,
                _ => return Err(broken("bytes that do not follow")),
            },
            Frame::Entry(entry) => writer.entry(entry)?,
            Frame::Message(Tell::End) => return writer.end(),
            _ => return Err(broken("something else")),
        }
    }
}

fn name(bytes: &[u8]) -> io::Result<CString> {
    let plain =
        !bytes.is_empty() && bytes.len() <= NAME && bytes != b"." && bytes != b".." && !bytes.contains(&b'/');
    CString::new(bytes).ok().filter(|_| plain).ok_or_else(|| broken("a name that is none"))
}

impl Writer {
    fn dir(&self) -> io::Result<BorrowedFd<'_>> {
        self.above.last().map(|(dir, _)| dir.as_fd()).ok_or_else(|| broken("nothing was entered"))
    }

    fn count(&mut self, bytes: u64) -> io::Result<()> {
        let left = (self.left.entries.checked_sub(1), self.left.bytes.checked_sub(bytes));
        let (Some(entries), Some(bytes)) = left else { return Err(broken("more than it may hold")) };
        self.left = Bounds { bytes, entries };
        Ok(())
    }

    fn entry(&mut self, entry: Entry) -> io::Result<()> {
        self.finish_file()?;
        self.count(0)?;
        match entry {
            Entry::Enter { name: raw, opaque, stat } => self.enter(&raw, opaque, stat),
            Entry::Leave => self.leave(),
            Entry::File { name: raw, size, stat } => self.begin_file(&raw, size, stat),
            Entry::Bytes { .. } => Err(broken("bytes of nothing")),
            Entry::Link { name: raw, target, stat } => {
                let name = self.free(&raw)?;
                let target = CString::new(target).map_err(|_| broken("a link to nothing"))?;
                let dir = self.dir()?;
                rustix::fs::symlinkat(target.as_c_str(), dir, name.as_c_str())?;
                self.own(&name)?;
                let times = times(&stat);
                Ok(rustix::fs::utimensat(self.dir()?, name.as_c_str(), &times, AtFlags::SYMLINK_NOFOLLOW)?)
            }
            Entry::Fifo { name: raw, stat } => {
                let name = self.free(&raw)?;
                rustix::fs::mknodat(self.dir()?, name.as_c_str(), FileType::Fifo, mode(&stat), 0)?;
                self.own(&name)
            }
            Entry::Gone { name: raw } => {
                let name = self.free(&raw)?;
                let device = FileType::CharacterDevice;
                Ok(rustix::fs::mknodat(self.dir()?, name.as_c_str(), device, Mode::empty(), 0)?)
            }
            Entry::Same { name: raw, file } => {
                let name = self.free(&raw)?;
                let first = usize::try_from(file).ok().and_then(|at| self.files.get(at));
                let first = first.ok_or_else(|| broken("another name of no file"))?;
                Ok(rustix::fs::linkat(&self.root, first, self.dir()?, name.as_c_str(), AtFlags::empty())?)
            }
        }
    }

    /// Of a name that is free, or only hides something: that is what it covers now.
    fn free(&mut self, raw: &[u8]) -> io::Result<CString> {
        let name = name(raw)?;
        let dir = self.dir()?;
        match rustix::fs::statat(dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
            Ok(stat) => {
                let hides =
                    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0;
                if !hides {
                    return Err(broken("one name twice"));
                }
                rustix::fs::unlinkat(dir, name.as_c_str(), AtFlags::empty())?;
            }
        }
        Ok(name)
    }

    fn own(&self, name: &CString) -> io::Result<()> {
        let Some((uid, gid)) = self.whose.owner else { return Ok(()) };
        let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::chownat(self.dir()?, name.as_c_str(), Some(uid), Some(gid), flags)?)
    }

    fn enter(&mut self, raw: &[u8], opaque: bool, stat: Stat) -> io::Result<()> {
        if self.above.is_empty() {
            if !raw.is_empty() {
                return Err(broken("a layer with a name"));
            }
            let dir = rustix::io::fcntl_dupfd_cloexec(&self.root, 3)?;
            rustix::fs::fchmod(&dir, mode(&stat))?;
            self.above.push((dir, None));
            return Ok(());
        }
        if self.above.len() > DEPTH {
            return Err(broken("too many directories within each other"));
        }
        let name = name(raw)?;
        match rustix::fs::mkdirat(self.dir()?, name.as_c_str(), Mode::RWXU) {
            Ok(()) => self.own(&name)?,
            // One that leads to what is hidden was there before.
            Err(Errno::EXIST) => {
                let there = rustix::fs::statat(self.dir()?, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)?;
                if FileType::from_raw_mode(there.st_mode) != FileType::Directory {
                    let name = self.free(raw)?;
                    rustix::fs::mkdirat(self.dir()?, name.as_c_str(), Mode::RWXU)?;
                    self.own(&name)?;
                }
            }
            Err(errno) => return Err(errno.into()),
        }
        let dir = rustix::fs::openat(self.dir()?, name.as_c_str(), OPEN_DIR, Mode::empty())?;
        if opaque {
            let mark = if self.whose.by_root { "trusted.overlay.opaque" } else { "user.overlay.opaque" };
            rustix::fs::fsetxattr(&dir, mark, b"y", XattrFlags::empty())?;
        }
        self.at.push(OsStr::from_bytes(raw));
        self.above.push((dir, Some(stat)));
        Ok(())
    }

    /// What a directory is besides its content comes last: writing in it changes its time, and it may be closed.
    fn leave(&mut self) -> io::Result<()> {
        let (dir, stat) = self.above.pop().ok_or_else(|| broken("nothing was entered"))?;
        if let Some(stat) = stat {
            settle(dir.as_fd(), &stat)?;
            self.at.pop();
        }
        Ok(())
    }

    fn begin_file(&mut self, raw: &[u8], size: u64, stat: Stat) -> io::Result<()> {
        let name = self.free(raw)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.dir()?, name.as_c_str(), flags, Mode::RUSR | Mode::WUSR)?;
        self.own(&name)?;
        self.files.push(self.at.join(OsStr::from_bytes(raw)));
        self.file = Some((File::from(file), size, stat));
        Ok(())
    }

    fn bytes(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.count(bytes.len() as u64)?;
        let Some((file, size, _)) = &self.file else { return Err(broken("bytes of nothing")) };
        if at.checked_add(bytes.len() as u64).is_none_or(|end| end > *size) {
            return Err(broken("a file longer than itself"));
        }
        file.write_all_at(bytes, at)
    }

    fn finish_file(&mut self) -> io::Result<()> {
        let Some((file, size, stat)) = self.file.take() else { return Ok(()) };
        file.set_len(size)?;
        settle(file.as_fd(), &stat)
    }

    fn end(mut self) -> io::Result<()> {
        self.finish_file()?;
        if self.above.is_empty() { Ok(()) } else { Err(broken("an end within a directory")) }
    }
}

/// What grants something stays away.
fn mode(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.mode & 0o777)
}

fn times(stat: &Stat) -> Timestamps {
    let time = Timespec { tv_sec: stat.seconds, tv_nsec: i64::from(stat.nanos.min(999_999_999)) };
    Timestamps { last_access: time, last_modification: time }
}

fn settle(file: BorrowedFd<'_>, stat: &Stat) -> io::Result<()> {
    if stat.attributes.len() > ATTRIBUTES {
        return Err(broken("too many attributes"));
    }
    for (name, value) in &stat.attributes {
        if !name.starts_with(b"user.") || name.starts_with(b"user.overlay.") {
            return Err(broken("an attribute that is not its own"));
        }
        let name = CString::new(name.as_slice()).map_err(|_| broken("an attribute without a name"))?;
        match rustix::fs::fsetxattr(file, name.as_c_str(), value, XattrFlags::empty()) {
            // Where the file system has none, the host's own tools could not have kept it either.
            Ok(()) | Err(Errno::NOTSUP | Errno::NOSPC | Errno::RANGE | Errno::TOOBIG) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    rustix::fs::fchmod(file, mode(stat))?;
    Ok(rustix::fs::futimens(file, &times(stat))?)
}
