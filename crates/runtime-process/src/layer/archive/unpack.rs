//! Makes layers from an archive.

use super::{ABOUT, ATTRIBUTE, About, ArchiveError, FORMAT, OPAQUE, TIME, base};
use crate::layer::cursor::{Cursor, Spot};
use crate::layer::{copy, mark, open_dir};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use tar::{Archive, Entry, EntryType};

/// How much is taken of an archive before it is refused.
#[derive(Debug, Clone, Copy)]
pub struct Most {
    pub bytes: u64,
    pub entries: u64,
    /// Wait until what was taken is on the disk.
    pub sync: bool,
}

/// Of a name, a link's target or the headers of an entry.
const NAME: u64 = 1 << 20;
/// So many layers lie above each other at most.
const LAYERS: usize = 48;

/// A directory gets its mode, owner and time when everything is in it.
struct Later {
    layer: usize,
    path: PathBuf,
    mode: Mode,
    times: Timestamps,
    owner: Option<(u32, u32)>,
}

/// What stands before an entry and belongs to it.
#[derive(Default)]
struct Before {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    attributes: Vec<(CString, Vec<u8>)>,
    opaque: bool,
    time: Option<(i64, u64)>,
}

/// Unpacks each layer to a directory that `place` makes for it. Where this fails, what was made stays for the caller to
/// remove.
pub fn unpack(
    from: impl Read,
    by_root: bool,
    most: Most,
    place: &mut dyn FnMut(&About) -> io::Result<Vec<PathBuf>>,
) -> Result<About, ArchiveError> {
    let reading = || ArchiveError::io("read the archive");
    let zstd = zstd::Decoder::new(from).map_err(reading())?;
    let mut archive = Archive::new(zstd.take(most.bytes.saturating_add(most.entries.saturating_mul(1024))));
    let mut entries = archive.entries().map_err(reading())?.raw(true);
    let first = entries.next().ok_or_else(|| ArchiveError::Format("it is empty".into()))?;
    let about = about(first.map_err(|error| ArchiveError::Format(error.to_string()))?)?;
    let places = place(&about).map_err(ArchiveError::io("make a place for the layers"))?;
    let base = if by_root { base(&about.since) } else { None };
    let mut unpack = Unpack { by_root, base, layers: Vec::new(), later: Vec::new(), left: most };
    for path in &places {
        let made = fs::create_dir(path).and_then(|()| open_dir(path).map_err(io::Error::other));
        unpack.layers.push(made.map_err(ArchiveError::io(format!("make {}", path.display())))?);
    }
    let mut before = Before::default();
    for entry in entries {
        unpack.entry(entry.map_err(reading())?, &mut before, most)?;
    }
    unpack.finish()?;
    Ok(about)
}

fn about(mut entry: Entry<'_, impl Read>) -> Result<About, ArchiveError> {
    let wrong = |what: &str| ArchiveError::Format(what.to_owned());
    if &*entry.path_bytes() != ABOUT.as_bytes() || entry.size() > NAME {
        return Err(wrong("it does not begin with what it is of"));
    }
    let mut text = Vec::new();
    entry.read_to_end(&mut text).map_err(ArchiveError::io("read the archive"))?;
    let about: About =
        serde_json::from_slice(&text).map_err(|error| ArchiveError::Format(error.to_string()))?;
    if about.format != FORMAT {
        return Err(wrong("it is of another version"));
    }
    if about.layers == 0 || about.layers > LAYERS {
        return Err(wrong("it has no layers, or too many"));
    }
    Ok(about)
}

/// An entry, with all that is known of it.
struct One<'a> {
    layer: usize,
    path: &'a Path,
    /// As the archive has it.
    name: &'a Path,
    before: &'a Before,
    mode: Mode,
    owner: Option<(u32, u32)>,
    times: Timestamps,
}

impl One<'_> {
    fn failed(&self, errno: Errno) -> ArchiveError {
        match errno {
            Errno::EXIST => refused(self.name, "it is there twice"),
            Errno::LOOP | Errno::XDEV | Errno::NOTDIR => {
                refused(self.name, "its path leads through a link or a file")
            }
            Errno::NAMETOOLONG => refused(self.name, "its path is too long or too deep"),
            errno => {
                ArchiveError::Io { doing: format!("unpack {}", self.name.display()), source: errno.into() }
            }
        }
    }

    fn link(&self, entry: &Entry<'_, impl Read>) -> Result<Vec<u8>, ArchiveError> {
        let own = || entry.link_name_bytes().map(|link| link.into_owned());
        self.before.link.clone().or_else(own).ok_or_else(|| refused(self.name, "it is a link to nothing"))
    }
}

fn file(entry: &mut Entry<'_, impl Read>, spot: &Spot<'_>, one: &One<'_>) -> Result<(), ArchiveError> {
    let failed = |errno: Errno| one.failed(errno);
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::openat(spot.dir, spot.name.as_c_str(), write, mode).map_err(failed)?;
    let size = entry.size();
    fill(entry, &file, size).map_err(ArchiveError::io(format!("unpack {}", one.name.display())))?;
    attach(file.as_fd(), one.before).map_err(failed)?;
    copy::own(file.as_fd(), one.owner).map_err(failed)?;
    rustix::fs::fchmod(&file, one.mode).map_err(failed)?;
    rustix::fs::futimens(&file, &one.times).map_err(failed)
}

struct Unpack {
    by_root: bool,
    base: Option<u32>,
    layers: Vec<OwnedFd>,
    later: Vec<Later>,
    left: Most,
}

fn refused(path: &Path, what: &'static str) -> ArchiveError {
    ArchiveError::Entry { path: path.to_string_lossy().into_owned(), what }
}

impl Unpack {
    fn entry(
        &mut self,
        mut entry: Entry<'_, impl Read>,
        before: &mut Before,
        most: Most,
    ) -> Result<(), ArchiveError> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::GNULongName | EntryType::GNULongLink | EntryType::XHeader) {
            return ahead(&mut entry, kind, before);
        }
        let before = std::mem::take(before);
        self.left.entries = self
            .left
            .entries
            .checked_sub(1)
            .ok_or_else(|| ArchiveError::TooMuch(format!("{} entries", most.entries)))?;
        let name = before.name.clone().unwrap_or_else(|| entry.path_bytes().into_owned());
        let name = PathBuf::from(OsStr::from_bytes(name.strip_suffix(b"/").unwrap_or(&name)));
        let (layer, path) = self.place(&name)?;
        let header = entry.header();
        let id =
            |read: io::Result<u64>| read.ok().and_then(|id| u32::try_from(id).ok()).filter(|id| *id < 65_536);
        let owner = match (self.base, id(header.uid()), id(header.gid())) {
            (Some(base), Some(uid), Some(gid)) => Some((base + uid, base + gid)),
            (Some(_), ..) => return Err(refused(&name, "its owner is nobody of the inside")),
            (None, ..) => None,
        };
        let mode = copy::kept(header.mode().map_err(|_| refused(&name, "it has no mode"))?);
        let seconds = header.mtime().ok().and_then(|time| i64::try_from(time).ok()).unwrap_or(0);
        let (seconds, nanos) = before.time.unwrap_or((seconds, 0));
        let times = copy::times(seconds, nanos);
        let one = One { layer, path: &path, name: &name, before: &before, mode, owner, times };
        self.make(&mut entry, kind, &one, most)
    }

    /// The layer that an entry belongs to, and its path in it.
    fn place(&self, name: &Path) -> Result<(usize, PathBuf), ArchiveError> {
        let mut parts = name.components();
        let layer = match parts.next() {
            Some(Component::Normal(first)) => first.to_str().and_then(|first| first.parse::<usize>().ok()),
            _ => None,
        };
        let layer = layer.filter(|at| *at < self.layers.len());
        let layer = layer.ok_or_else(|| refused(name, "it lies in no layer"))?;
        let mut path = PathBuf::new();
        for part in parts {
            match part {
                Component::Normal(part) => path.push(part),
                _ => return Err(refused(name, "its path leads elsewhere")),
            }
        }
        Ok((layer, path))
    }

    fn make(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
        kind: EntryType,
        one: &One<'_>,
        most: Most,
    ) -> Result<(), ArchiveError> {
        let failed = |errno: Errno| one.failed(errno);
        let root = self.layers.get(one.layer).ok_or_else(|| refused(one.name, "it lies in no layer"))?;
        let mut cursor = Cursor::new(root.as_fd()).map_err(failed)?;
        if kind == EntryType::Directory {
            if !one.path.as_os_str().is_empty() {
                let spot = cursor.spot(one.path).map_err(failed)?;
                rustix::fs::mkdirat(spot.dir, spot.name.as_c_str(), Mode::RWXU).map_err(failed)?;
            }
            let dir = cursor.dir(one.path).map_err(failed)?;
            attach(dir, one.before).map_err(failed)?;
            if one.before.opaque {
                let mark = mark("opaque", self.by_root);
                rustix::fs::fsetxattr(dir, mark.as_str(), b"y", XattrFlags::empty()).map_err(failed)?;
            }
            let (path, mode, times, owner) = (one.path.to_owned(), one.mode, one.times.clone(), one.owner);
            self.later.push(Later { layer: one.layer, path, mode, times, owner });
            return Ok(());
        }
        let spot = cursor.spot(one.path).map_err(failed)?;
        let at = spot.name.as_c_str();
        match kind {
            EntryType::Regular | EntryType::Continuous => {
                let too_much = || ArchiveError::TooMuch(cofferdam_model::Bytes(most.bytes).to_string());
                self.left.bytes = self.left.bytes.checked_sub(entry.size()).ok_or_else(too_much)?;
                return file(entry, &spot, one);
            }
            EntryType::Link => {
                let (of, target) = self.place(Path::new(OsStr::from_bytes(&one.link(entry)?)))?;
                if of != one.layer {
                    return Err(refused(one.name, "it is a link to another layer"));
                }
                let mut other = Cursor::new(root.as_fd()).map_err(failed)?;
                let first = other.spot(&target).map_err(failed)?;
                return rustix::fs::linkat(first.dir, first.name.as_c_str(), spot.dir, at, AtFlags::empty())
                    .map_err(failed);
            }
            EntryType::Symlink => {
                let link = CString::new(one.link(entry)?);
                let link = link.map_err(|_| refused(one.name, "it is a link to nothing"))?;
                rustix::fs::symlinkat(&link, spot.dir, at).map_err(failed)?;
            }
            EntryType::Fifo => {
                rustix::fs::mknodat(spot.dir, at, FileType::Fifo, one.mode, 0).map_err(failed)?;
            }
            EntryType::Char if is_mark(entry.header()) => {
                return rustix::fs::mknodat(spot.dir, at, FileType::CharacterDevice, Mode::empty(), 0)
                    .map_err(failed);
            }
            _ => return Err(refused(one.name, "a layer holds nothing of its kind")),
        }
        copy::own_at(&spot, one.owner).map_err(failed)?;
        rustix::fs::utimensat(spot.dir, at, &one.times, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)
    }

    /// Inner ones first: what is closed to writing stays so.
    fn finish(&mut self) -> Result<(), ArchiveError> {
        for later in self.later.drain(..).rev() {
            let failed = |errno: Errno| ArchiveError::Io {
                doing: format!("unpack {}", later.path.display()),
                source: errno.into(),
            };
            let Some(root) = self.layers.get(later.layer) else { continue };
            let mut cursor = Cursor::new(root.as_fd()).map_err(failed)?;
            let dir = cursor.dir(&later.path).map_err(failed)?;
            copy::own(dir, later.owner).map_err(failed)?;
            rustix::fs::fchmod(dir, later.mode).map_err(failed)?;
            rustix::fs::futimens(dir, &later.times).map_err(failed)?;
        }
        for layer in self.layers.iter().filter(|_| self.left.sync) {
            rustix::fs::syncfs(layer).map_err(|errno| ArchiveError::Io {
                doing: "write the layers to disk".into(),
                source: errno.into(),
            })?;
        }
        Ok(())
    }
}

fn is_mark(header: &tar::Header) -> bool {
    let zero = |number: io::Result<Option<u32>>| matches!(number, Ok(Some(0)));
    zero(header.device_major()) && zero(header.device_minor())
}

/// Long names and attributes, which stand before the entry that they belong to.
fn ahead(entry: &mut Entry<'_, impl Read>, kind: EntryType, before: &mut Before) -> Result<(), ArchiveError> {
    if entry.size() > NAME {
        return Err(ArchiveError::Format("it has a name that is too long".into()));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(ArchiveError::io("read the archive"))?;
    let text = || bytes.strip_suffix(b"\0").unwrap_or(&bytes).to_vec();
    match kind {
        EntryType::GNULongName => before.name = Some(text()),
        EntryType::GNULongLink => before.link = Some(text()),
        _ => {
            for extension in tar::PaxExtensions::new(&bytes) {
                let wrong = |error: String| ArchiveError::Format(error);
                let extension = extension.map_err(|error| wrong(error.to_string()))?;
                let key = extension.key().map_err(|error| wrong(error.to_string()))?;
                if key == OPAQUE {
                    before.opaque = true;
                } else if key == TIME {
                    let text = extension.value().map_err(|error| wrong(error.to_string()))?;
                    before.time = Some(time(text).ok_or_else(|| wrong(format!("`{text}` is no time")))?);
                } else if let Some(name) = key.strip_prefix(ATTRIBUTE) {
                    // Every other name space grants or labels something, or is the overlay's own.
                    if !name.starts_with("user.") || name.starts_with("user.overlay.") {
                        return Err(wrong(format!("it has an attribute `{name}`, which no layer has")));
                    }
                    let name = CString::new(name).map_err(|error| wrong(error.to_string()))?;
                    before.attributes.push((name, extension.value_bytes().to_vec()));
                }
            }
        }
    }
    Ok(())
}

fn time(text: &str) -> Option<(i64, u64)> {
    let (seconds, nanos) = text.split_once('.')?;
    let nanos = (nanos.len() == 9).then(|| nanos.parse::<u64>().ok()).flatten()?;
    Some((seconds.parse().ok()?, nanos))
}

fn attach(file: impl AsFd, before: &Before) -> Result<(), Errno> {
    before.attributes.iter().try_for_each(|(name, value)| {
        rustix::fs::fsetxattr(&file, name.as_c_str(), value, XattrFlags::empty())
    })
}

/// What is all zero becomes a hole.
fn fill(from: &mut impl Read, to: &OwnedFd, size: u64) -> io::Result<()> {
    const PIECE: usize = 64 << 10;
    rustix::fs::ftruncate(to, size)?;
    let mut buffer = vec![0u8; PIECE];
    let mut at = 0u64;
    while at < size {
        let room = usize::try_from(size - at).unwrap_or(PIECE).min(PIECE);
        let piece = buffer.get_mut(..room).unwrap_or_default();
        from.read_exact(piece)?;
        if piece.iter().any(|byte| *byte != 0) {
            let mut written = 0;
            while written < piece.len() {
                written += rustix::io::pwrite(to, &piece[written..], at + written as u64)?;
            }
        }
        at += room as u64;
    }
    Ok(())
}
