//! Writes layers to an archive.

use super::{ABOUT, ATTRIBUTE, About, ArchiveError, OPAQUE, TIME, base};
use crate::layer::cursor::{DEPTH, enter};
use crate::layer::tree::READ_FILE;
use crate::layer::{attributes, is_opaque, is_whiteout, kind, names, open_dir};
use crate::users::USER;
use cofferdam_model::FileKind;
use rustix::fs::{AtFlags, Mode, Stat};
use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// Of compression: more takes much longer and gives little.
const LEVEL: i32 = 3;

/// Writes these layers, which nobody changes any more. Says what was left out: sockets, and devices that are no mark.
pub fn pack(
    about: &About,
    layers: &[PathBuf],
    by_root: bool,
    out: impl Write,
) -> Result<Vec<PathBuf>, ArchiveError> {
    let writing = || ArchiveError::io("write the archive");
    let zstd = zstd::Encoder::new(out, LEVEL).map_err(writing())?;
    let mut tar = Builder::new(zstd);
    let text = serde_json::to_vec(about).map_err(|error| ArchiveError::Format(error.to_string()))?;
    let mut header = Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, ABOUT, text.as_slice()).map_err(writing())?;
    let mut omitted = Vec::new();
    for (at, layer) in layers.iter().enumerate() {
        let reading =
            |source: io::Error| ArchiveError::Io { doing: format!("read {}", layer.display()), source };
        let root = open_dir(layer).map_err(|error| reading(io::Error::other(error)))?;
        let mut pack = Pack {
            tar: &mut tar,
            by_root,
            base: base(&about.since),
            links: HashMap::new(),
            omitted: &mut omitted,
        };
        let top = PathBuf::from(at.to_string());
        let stat = rustix::fs::fstat(&root).map_err(|errno| reading(errno.into()))?;
        pack.dir(root.as_fd(), &top, &stat, 0)?;
    }
    let zstd = tar.into_inner().map_err(writing())?;
    zstd.finish().and_then(|mut out| out.flush()).map_err(writing())?;
    Ok(omitted)
}

struct Pack<'a, W: Write> {
    tar: &'a mut Builder<W>,
    by_root: bool,
    base: Option<u32>,
    /// The first name of every file that has several.
    links: HashMap<(u64, u64), PathBuf>,
    omitted: &'a mut Vec<PathBuf>,
}

impl<W: Write> Pack<'_, W> {
    fn header(&self, kind: EntryType, stat: &Stat) -> Header {
        let inside = |id: u32| match self.base {
            Some(base) => id.checked_sub(base).filter(|id| *id < 65_536).unwrap_or(USER),
            None => USER,
        };
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(stat.st_mode & 0o7777);
        header.set_uid(inside(stat.st_uid).into());
        header.set_gid(inside(stat.st_gid).into());
        header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
        header.set_size(0);
        header
    }

    fn dir(&mut self, dir: BorrowedFd<'_>, at: &Path, stat: &Stat, depth: usize) -> Result<(), ArchiveError> {
        let reading = |errno: rustix::io::Errno| ArchiveError::Io {
            doing: format!("read {}", at.display()),
            source: errno.into(),
        };
        if depth > DEPTH {
            return Err(reading(rustix::io::Errno::NAMETOOLONG));
        }
        let attributes = attributes::read(dir).map_err(reading)?;
        self.extended(&attributes, is_opaque(dir, self.by_root), stat)?;
        let mut header = self.header(EntryType::Directory, stat);
        self.tar.append_data(&mut header, at, io::empty()).map_err(ArchiveError::io("write the archive"))?;
        for name in names(dir).map_err(reading)? {
            let stat =
                rustix::fs::statat(dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).map_err(reading)?;
            let path = at.join(OsStr::from_bytes(name.to_bytes()));
            match kind(&stat) {
                FileKind::Dir => {
                    let inner = enter(dir, OsStr::from_bytes(name.to_bytes())).map_err(reading)?;
                    self.dir(inner.as_fd(), &path, &stat, depth + 1)?;
                }
                _ => self.leaf(dir, &name, &path, &stat)?,
            }
        }
        Ok(())
    }

    fn leaf(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        path: &Path,
        stat: &Stat,
    ) -> Result<(), ArchiveError> {
        let reading = |errno: rustix::io::Errno| ArchiveError::Io {
            doing: format!("read {}", path.display()),
            source: errno.into(),
        };
        let writing = || ArchiveError::io("write the archive");
        match kind(stat) {
            FileKind::File => {
                let own = (stat.st_dev, stat.st_ino);
                if stat.st_nlink > 1 {
                    if let Some(first) = self.links.get(&own).cloned() {
                        let mut header = self.header(EntryType::Link, stat);
                        return self.tar.append_link(&mut header, path, first).map_err(writing());
                    }
                    self.links.insert(own, path.to_owned());
                }
                let file = rustix::fs::openat(dir, name, READ_FILE, Mode::empty()).map_err(reading)?;
                let attributes = attributes::read(file.as_fd()).map_err(reading)?;
                self.extended(&attributes, false, stat)?;
                let mut header = self.header(EntryType::Regular, stat);
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                header.set_size(size);
                // Exactly what the header says, whatever becomes of the file meanwhile.
                let content = File::from(file).take(size).chain(io::repeat(0)).take(size);
                self.tar.append_data(&mut header, path, content).map_err(writing())
            }
            FileKind::Symlink => {
                let target = rustix::fs::readlinkat(dir, name, Vec::new()).map_err(reading)?;
                let target = PathBuf::from(OsStr::from_bytes(target.to_bytes()));
                self.extended(&Vec::new(), false, stat)?;
                let mut header = self.header(EntryType::Symlink, stat);
                self.tar.append_link(&mut header, path, target).map_err(writing())
            }
            FileKind::Fifo => {
                self.extended(&Vec::new(), false, stat)?;
                let mut header = self.header(EntryType::Fifo, stat);
                self.tar.append_data(&mut header, path, io::empty()).map_err(writing())
            }
            FileKind::Device if is_whiteout(stat) => {
                let mut header = self.header(EntryType::Char, stat);
                header.set_device_major(0).and_then(|()| header.set_device_minor(0)).map_err(writing())?;
                self.tar.append_data(&mut header, path, io::empty()).map_err(writing())
            }
            _ => {
                self.omitted.push(path.to_owned());
                Ok(())
            }
        }
    }

    fn extended(
        &mut self,
        found: &attributes::Attributes,
        opaque: bool,
        stat: &Stat,
    ) -> Result<(), ArchiveError> {
        let time = format!("{}.{:09}", stat.st_mtime, stat.st_mtime_nsec);
        let mut named: Vec<(String, &[u8])> = found
            .iter()
            .map(|(name, value)| (format!("{ATTRIBUTE}{}", name.to_string_lossy()), value.as_slice()))
            .chain(opaque.then(|| (OPAQUE.to_owned(), &b"y"[..])))
            .collect();
        if stat.st_mtime_nsec != 0 {
            named.push((TIME.to_owned(), time.as_bytes()));
        }
        if named.is_empty() {
            return Ok(());
        }
        let each = named.iter().map(|(name, value)| (name.as_str(), *value));
        self.tar.append_pax_extensions(each).map_err(ArchiveError::io("write the archive"))
    }
}
