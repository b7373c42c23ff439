//! One entry of a layer after the other.

use super::so_far::{SoFar, weight};
use super::spot::{Spot, c_name, names, plain};
use super::{Most, Taken, Tree};
use crate::error::ImageError;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tar::{Archive, Entry, EntryType};

/// Of a name, a link's target, or what stands before an entry.
const NAME: u64 = 1 << 20;
/// Of a name by which something is looked up.
const PATH: usize = 4096;
/// Of an entry's attributes together: no kernel takes a larger one.
const ATTRIBUTES: usize = 64 << 10;
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const ATTRIBUTE: &str = "SCHILY.xattr.";
/// What a sandbox has ids for.
const IDS: u64 = 65_536;
const NOBODY: u32 = 65_534;

pub(super) struct Unpacking<'a> {
    pub(super) tree: &'a Tree,
    pub(super) taken: &'a mut Taken,
    pub(super) most: Most,
    pub(super) so_far: SoFar,
}

/// What stands before an entry and belongs to it.
#[derive(Default)]
struct Before {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    uid: Option<u64>,
    gid: Option<u64>,
    time: Option<i64>,
    attributes: Vec<(CString, Vec<u8>)>,
}

/// An entry with all that is known of it.
pub(super) struct One {
    path: PathBuf,
    mode: Mode,
    owner: Option<(Uid, Gid)>,
    times: Timestamps,
    link: Option<Vec<u8>>,
    attributes: Vec<(CString, Vec<u8>)>,
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().chars().take(300).collect()
}

fn refused(path: &Path, what: &'static str) -> ImageError {
    ImageError::Entry { path: shown(path), what }
}

fn failed(path: &Path) -> impl Fn(Errno) -> ImageError {
    let path = path.to_owned();
    move |errno| match errno {
        Errno::NAMETOOLONG => refused(&path, "its path is too long or too deep"),
        Errno::LOOP | Errno::XDEV | Errno::NOTDIR => {
            refused(&path, "its path leads through something else than directories")
        }
        errno => ImageError::Io { doing: format!("unpack {}", shown(&path)), source: errno.into() },
    }
}

fn reading(error: io::Error) -> ImageError {
    ImageError::Io { doing: "read a layer".into(), source: error }
}

impl Unpacking<'_> {
    pub(super) fn all(&mut self, from: impl Read) -> Result<(), ImageError> {
        let mut archive = Archive::new(from);
        let mut before = Before::default();
        for entry in archive.entries().map_err(reading)?.raw(true) {
            let mut entry = entry.map_err(reading)?;
            let kind = entry.header().entry_type();
            // What stands before an entry counts as well: there may be any number of it.
            self.taken.entries += 1;
            if self.taken.entries > self.most.entries {
                return Err(ImageError::TooMany(self.most.entries));
            }
            match kind {
                EntryType::GNULongName
                | EntryType::GNULongLink
                | EntryType::XHeader
                | EntryType::XGlobalHeader => {
                    ahead(&mut entry, kind, &mut before, self.taken)?;
                }
                _ => {
                    let before = std::mem::take(&mut before);
                    self.entry(&mut entry, kind, before)?;
                }
            }
        }
        finish(self.tree, std::mem::take(&mut self.so_far.later))
    }

    fn entry(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
        kind: EntryType,
        before: Before,
    ) -> Result<(), ImageError> {
        self.taken.files += 1;
        let name = before.name.clone().unwrap_or_else(|| entry.path_bytes().into_owned());
        let given = PathBuf::from(OsStr::from_bytes(&name));
        let path = plain(&name).ok_or_else(|| refused(&given, "its path leads elsewhere"))?;
        if let Some(last) = path.file_name().filter(|last| last.as_bytes().starts_with(WHITEOUT)) {
            let last = last.as_bytes().to_vec();
            return self.whiteout(&path, &last);
        }
        if matches!(kind, EntryType::Char | EntryType::Block) {
            self.taken.notes.devices += 1;
            return Ok(());
        }
        let one = self.one(entry, kind, path, before)?;
        if one.path.as_os_str().is_empty() {
            return match kind {
                EntryType::Directory => Ok(()),
                _ => Err(refused(&given, "it would be the root itself")),
            };
        }
        self.make(entry, kind, &one)?;
        self.so_far.bring(&one.path)?;
        match kind {
            EntryType::Directory => {
                let values: usize = one.attributes.iter().map(|(_, value)| value.len()).sum();
                self.so_far.keep(2 * weight(&one.path) + values)?;
                drop(self.so_far.later.insert(one.path.clone(), one));
            }
            _ => drop(self.so_far.later.remove(&one.path)),
        }
        Ok(())
    }

    fn one(
        &mut self,
        entry: &Entry<'_, impl Read>,
        kind: EntryType,
        path: PathBuf,
        before: Before,
    ) -> Result<One, ImageError> {
        let header = entry.header();
        let mode = header.mode().map_err(|_| refused(&path, "it has no mode"))?;
        if mode & 0o6000 != 0 && kind != EntryType::Directory {
            self.taken.set_id(shown(&path));
        }
        // Nothing of it may grant anything; and who unpacks it as a plain user must be able to remove it again.
        let own = match (self.tree.owners, kind) {
            (true, _) => 0,
            (false, EntryType::Directory) => 0o700,
            (false, _) => 0o600,
        };
        let mode = Mode::from_raw_mode((mode & 0o1777) | own);
        let uid = before.uid.or(header.uid().ok()).unwrap_or(0);
        let gid = before.gid.or(header.gid().ok()).unwrap_or(0);
        if uid >= IDS || gid >= IDS {
            self.taken.notes.owners += 1;
        }
        let id = |id: u64| u32::try_from(id).ok().filter(|_| id < IDS).unwrap_or(NOBODY);
        let owner = self.tree.owners.then(|| (Uid::from_raw(id(uid)), Gid::from_raw(id(gid))));
        let seconds =
            before.time.or(header.mtime().ok().and_then(|time| i64::try_from(time).ok())).unwrap_or(0);
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        let link = before.link.or_else(|| entry.link_name_bytes().map(|link| link.into_owned()));
        Ok(One { path, mode, owner, times, link, attributes: before.attributes })
    }

    /// Takes away what the layers beneath have there.
    fn whiteout(&mut self, path: &Path, last: &[u8]) -> Result<(), ImageError> {
        let failed = failed(path);
        let above = path.parent().unwrap_or(Path::new(""));
        if last == OPAQUE {
            let Some(dir) = self.tree.dir(above).map(Some).or_else(missing).map_err(&failed)? else {
                return Ok(());
            };
            // Once is enough: all that has come since is this layer's.
            if self.so_far.is_emptied(above) {
                return Ok(());
            }
            self.empty(&dir, above).map_err(failed)?;
            self.so_far.emptied.insert(above.to_owned());
            return self.so_far.keep(weight(above));
        }
        let name = OsStr::from_bytes(last.get(WHITEOUT.len()..).unwrap_or_default());
        if name.as_bytes().starts_with(WHITEOUT) {
            // Marks of the file system that first had such layers.
            return Ok(());
        }
        let target = above.join(name);
        if name.is_empty() || name == "." || name == ".." {
            return Err(refused(path, "it takes nothing away"));
        }
        if self.so_far.brought.contains(&target) {
            return Ok(());
        }
        match self.tree.find(&target).map_err(&failed)? {
            Some(spot) => spot.clear().map_err(failed),
            None => Ok(()),
        }
    }

    /// All but what this layer has brought.
    fn empty(&self, dir: &OwnedFd, path: &Path) -> Result<(), Errno> {
        for name in names(dir)? {
            let inner = path.join(OsStr::from_bytes(name.as_bytes()));
            let spot = Spot { dir: rustix::io::fcntl_dupfd_cloexec(dir, 3)?, name };
            match (self.so_far.brought.contains(&inner), spot.kind()?) {
                (false, _) => spot.clear()?,
                (true, _) if self.so_far.emptied.contains(&inner) => {}
                (true, Some(FileType::Directory)) => {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    let inside = rustix::fs::openat(dir, spot.name.as_c_str(), flags, Mode::empty())?;
                    self.empty(&inside, &inner)?;
                }
                (true, _) => {}
            }
        }
        Ok(())
    }

    fn make(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
        kind: EntryType,
        one: &One,
    ) -> Result<(), ImageError> {
        let failed = failed(&one.path);
        let spot = self.tree.spot(&one.path).map_err(&failed)?;
        let there = spot.kind().map_err(&failed)?;
        match kind {
            EntryType::Directory => {
                if there != Some(FileType::Directory) {
                    spot.clear().map_err(&failed)?;
                    rustix::fs::mkdirat(&spot.dir, spot.name.as_c_str(), Mode::RWXU).map_err(failed)?;
                }
                return Ok(());
            }
            EntryType::Regular | EntryType::Continuous => {
                let size = entry.size();
                self.taken.bytes = self.taken.bytes.saturating_add(size);
                if self.taken.bytes > self.most.bytes {
                    return Err(ImageError::TooMuch(self.most.bytes));
                }
                spot.clear().map_err(failed)?;
                return file(entry, &spot, one, size);
            }
            EntryType::Link => return self.hard_link(&spot, one),
            EntryType::Symlink => {
                let link = one.link.clone().ok_or_else(|| refused(&one.path, "it is a link to nothing"))?;
                let link = CString::new(link).map_err(|_| refused(&one.path, "it is a link to nothing"))?;
                spot.clear().map_err(&failed)?;
                rustix::fs::symlinkat(&link, &spot.dir, spot.name.as_c_str()).map_err(&failed)?;
            }
            EntryType::Fifo => {
                spot.clear().map_err(&failed)?;
                rustix::fs::mknodat(&spot.dir, spot.name.as_c_str(), FileType::Fifo, one.mode, 0)
                    .map_err(&failed)?;
            }
            EntryType::GNUSparse => {
                return Err(refused(&one.path, "it has holes in a form that is not understood"));
            }
            _ => return Err(refused(&one.path, "it is of a kind that no image has")),
        }
        if let Some((uid, gid)) = one.owner {
            rustix::fs::chownat(
                &spot.dir,
                spot.name.as_c_str(),
                Some(uid),
                Some(gid),
                AtFlags::SYMLINK_NOFOLLOW,
            )
            .map_err(&failed)?;
        }
        rustix::fs::utimensat(&spot.dir, spot.name.as_c_str(), &one.times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(failed)
    }

    /// To a file that is there, reached as every other.
    fn hard_link(&self, spot: &Spot, one: &One) -> Result<(), ImageError> {
        let failed = failed(&one.path);
        let target = one.link.as_deref().and_then(plain).filter(|path| !path.as_os_str().is_empty());
        let target = target.ok_or_else(|| refused(&one.path, "it is a link to nothing"))?;
        let nothing = || refused(&one.path, "it is another name of a file that is not there");
        let first = self.tree.find(&target).map_err(&failed)?.ok_or_else(nothing)?;
        match first.kind().map_err(&failed)? {
            Some(FileType::Directory) => return Err(refused(&one.path, "it is another name of a directory")),
            Some(_) => {}
            None => return Err(nothing()),
        }
        if target == one.path {
            return Ok(());
        }
        // It may stand in the place of the very file.
        let stat =
            |spot: &Spot| rustix::fs::statat(&spot.dir, spot.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
        let same = |a: rustix::fs::Stat, b: rustix::fs::Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
        if let (Ok(a), Ok(b)) = (stat(spot), stat(&first))
            && same(a, b)
        {
            return Ok(());
        }
        spot.clear().map_err(&failed)?;
        let (from, to) = (first.name.as_c_str(), spot.name.as_c_str());
        rustix::fs::linkat(&first.dir, from, &spot.dir, to, AtFlags::empty()).map_err(failed)
    }
}

fn missing(errno: Errno) -> Result<Option<OwnedFd>, Errno> {
    match errno {
        Errno::NOENT | Errno::NOTDIR => Ok(None),
        errno => Err(errno),
    }
}

fn file(entry: &mut Entry<'_, impl Read>, spot: &Spot, one: &One, size: u64) -> Result<(), ImageError> {
    let failed = failed(&one.path);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::openat(&spot.dir, spot.name.as_c_str(), flags, mode).map_err(&failed)?;
    let mut to = std::fs::File::from(file);
    let written = io::copy(&mut entry.take(size), &mut to);
    match written.map_err(ImageError::io(format!("unpack {}", shown(&one.path))))? {
        count if count == size => {}
        _ => return Err(refused(&one.path, "it is cut short")),
    }
    settle(to.as_fd(), one).map_err(failed)
}

/// Attributes, owner, mode and time, in the order in which none undoes another.
fn settle(file: impl AsFd, one: &One) -> Result<(), Errno> {
    for (name, value) in &one.attributes {
        match rustix::fs::fsetxattr(&file, name.as_c_str(), value, XattrFlags::empty()) {
            // Not every file system has them.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
    }
    if let Some((uid, gid)) = one.owner {
        rustix::fs::fchown(&file, Some(uid), Some(gid))?;
    }
    rustix::fs::fchmod(&file, one.mode)?;
    rustix::fs::futimens(&file, &one.times)
}

/// Directories get what they are to have when all is in them; inner ones first.
fn finish(tree: &Tree, later: BTreeMap<PathBuf, One>) -> Result<(), ImageError> {
    for (path, one) in later.into_iter().rev() {
        let failed = failed(&path);
        let Some(dir) = tree.dir(&path).map(Some).or_else(missing).map_err(&failed)? else { continue };
        settle(dir.as_fd(), &one).map_err(failed)?;
    }
    Ok(())
}

fn text(entry: &mut Entry<'_, impl Read>) -> io::Result<Vec<u8>> {
    if entry.size() > NAME {
        return Err(io::Error::other("a name in it is too long"));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Long names, numbers and attributes, which stand before the entry that they belong to.
fn ahead(
    entry: &mut Entry<'_, impl Read>,
    kind: EntryType,
    before: &mut Before,
    taken: &mut Taken,
) -> Result<(), ImageError> {
    let bytes = text(entry).map_err(reading)?;
    let plain = || bytes.strip_suffix(b"\0").unwrap_or(&bytes).to_vec();
    match kind {
        EntryType::GNULongName => before.name = Some(plain()),
        EntryType::GNULongLink => before.link = Some(plain()),
        EntryType::XHeader => {
            for extension in tar::PaxExtensions::new(&bytes) {
                let extension = extension.map_err(reading)?;
                let Ok(key) = extension.key() else { continue };
                let number =
                    || extension.value().ok().and_then(|text| text.split('.').next()?.parse::<i64>().ok());
                let value = extension.value_bytes();
                match key {
                    "path" => before.name = Some(value.to_vec()),
                    "linkpath" => before.link = Some(value.to_vec()),
                    "uid" => before.uid = number().and_then(|n| u64::try_from(n).ok()),
                    "gid" => before.gid = number().and_then(|n| u64::try_from(n).ok()),
                    "mtime" => before.time = number(),
                    "size" => {
                        let what = "an entry of more than 8G, or one whose size is said twice".to_owned();
                        return Err(ImageError::Format { part: "layer", what });
                    }
                    key if key.starts_with("GNU.sparse") => {
                        let what = "files with holes in a form that is not understood".to_owned();
                        return Err(ImageError::Format { part: "layer", what });
                    }
                    key => attribute(key, value, before, taken)?,
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Only what an owner may set: every other name space grants or labels something, or is the overlay's own.
fn attribute(key: &str, value: &[u8], before: &mut Before, taken: &mut Taken) -> Result<(), ImageError> {
    let Some(name) = key.strip_prefix(ATTRIBUTE) else { return Ok(()) };
    let held: usize = before.attributes.iter().map(|(name, value)| name.count_bytes() + value.len()).sum();
    if held.saturating_add(key.len()).saturating_add(value.len()) > ATTRIBUTES {
        let what = "an entry has more attributes than a file can have".to_owned();
        return Err(ImageError::Format { part: "layer", what });
    }
    let name = c_name(OsStr::new(name));
    match name.ok().filter(|name| {
        let name = name.as_bytes();
        name.starts_with(b"user.") && !name.starts_with(b"user.overlay.")
    }) {
        Some(name) => before.attributes.push((name, value.to_vec())),
        None => taken.notes.attributes += 1,
    }
    Ok(())
}

/// The name that stands before an entry of an archive, if that is what stands there.
pub(crate) fn long_name(entry: &mut Entry<'_, impl Read>, kind: EntryType) -> io::Result<Option<String>> {
    let bytes = text(entry)?;
    let name = |bytes: &[u8]| match bytes.len() <= PATH {
        true => Ok(Some(String::from_utf8_lossy(bytes).into_owned())),
        false => Err(io::Error::other("a name in it is too long")),
    };
    if kind == EntryType::GNULongName {
        return name(bytes.strip_suffix(b"\0").unwrap_or(&bytes));
    }
    for extension in tar::PaxExtensions::new(&bytes) {
        let extension = extension?;
        if extension.key_bytes() == b"path" {
            return name(extension.value_bytes());
        }
    }
    Ok(None)
}
