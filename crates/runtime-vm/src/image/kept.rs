//! An image as it is given out, block by block, and as it is kept for the next time.

use super::tree::Tree;
use super::{BLOCK, erofs};
use crate::memory::damaged;
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

/// A file of the host's in the image.
pub(super) struct Extent<'a> {
    pub(super) start: u32,
    pub(super) nanos: u32,
    pub(super) size: u64,
    pub(super) inode: u64,
    pub(super) seconds: i64,
    pub(super) name: &'a [u8],
}

/// Of an extent, as it is kept: all of the above, with the name by its place.
const RECORD: usize = 40;
/// So many files stay open.
const OPEN: usize = 32;

/// Names and where files begin. Files are found by the block that is asked for, so extents are in that order.
#[derive(Debug, Default)]
pub(crate) struct Image {
    pub(super) meta: Vec<u8>,
    extents: Vec<u8>,
    names: Vec<u8>,
}

impl Image {
    /// Nothing if a name or the whole is larger than the file system can say.
    pub(crate) fn of(tree: &Tree) -> Option<Self> {
        erofs::write(tree)
    }

    pub(super) fn add(&mut self, extent: &Extent<'_>) -> Option<()> {
        let name = u32::try_from(self.names.len()).ok()?;
        self.extents.extend_from_slice(&extent.start.to_le_bytes());
        self.extents.extend_from_slice(&extent.nanos.to_le_bytes());
        self.extents.extend_from_slice(&extent.size.to_le_bytes());
        self.extents.extend_from_slice(&extent.inode.to_le_bytes());
        self.extents.extend_from_slice(&extent.seconds.to_le_bytes());
        self.extents.extend_from_slice(&name.to_le_bytes());
        self.extents.extend_from_slice(&u32::try_from(extent.name.len()).ok()?.to_le_bytes());
        self.names.extend_from_slice(extent.name);
        Some(())
    }

    /// What it is, by its names, owners, sizes and times.
    pub(crate) fn digest(&self) -> cofferdam_model::Digest {
        let mut hasher = cofferdam_seal::Hasher::new();
        for part in [&self.meta, &self.extents, &self.names] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.finish()
    }

    /// Writes it down, to be opened by `Kept::open`.
    pub(crate) fn keep(&self, to: &mut impl Write) -> io::Result<()> {
        let parts = [&self.meta, &self.extents, &self.names];
        let mut sum = crc32fast::Hasher::new();
        parts.iter().for_each(|part| sum.update(part));
        for part in parts {
            to.write_all(&(part.len() as u64).to_le_bytes())?;
        }
        to.write_all(&u64::from(sum.finalize()).to_le_bytes())?;
        parts.into_iter().try_for_each(|part| to.write_all(part))
    }

    /// To be given out.
    pub(crate) fn give(self) -> Kept {
        let Self { meta, extents, names } = self;
        let (meta_length, extents_length) = (meta.len() as u64, extents.len() as u64);
        let mut bytes = meta;
        bytes.extend_from_slice(&extents);
        bytes.extend_from_slice(&names);
        Kept {
            from: From::Memory(bytes),
            begin: 0,
            meta: meta_length,
            extents: extents_length,
            open: Vec::new(),
        }
    }
}

#[derive(Debug)]
enum From {
    Memory(Vec<u8>),
    File(File),
}

impl From {
    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(bytes, at),
            Self::Memory(all) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                let part = at.checked_add(bytes.len()).and_then(|end| all.get(at..end));
                bytes.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

/// An image that is given out.
#[derive(Debug)]
pub(crate) struct Kept {
    from: From,
    begin: u64,
    meta: u64,
    extents: u64,
    /// The files that were read last, by the block they begin at.
    open: Vec<(u32, File)>,
}

struct Found {
    start: u32,
    nanos: u32,
    size: u64,
    inode: u64,
    seconds: i64,
    name: (u64, usize),
}

/// Three lengths and a sum.
const HEAD: u64 = 32;

fn head(file: &File) -> io::Result<[u64; 4]> {
    let mut bytes = [0u8; HEAD as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let mut numbers = bytes.as_chunks::<8>().0.iter().map(|part| u64::from_le_bytes(*part));
    Ok(std::array::from_fn(|_| numbers.next().unwrap_or(0)))
}

/// Lists that this process has found to be what was written, with their times.
static WHOLE: LazyLock<Mutex<Vec<(PathBuf, Stamp)>>> = LazyLock::new(Mutex::default);

type Stamp = Option<(u64, i64, i64)>;

/// As `check`, once for as long as the file is the same.
pub(crate) fn check_once(path: &Path) -> io::Result<()> {
    let known = (path.to_owned(), crate::stamp(path));
    let whole = || WHOLE.lock().unwrap_or_else(PoisonError::into_inner);
    if whole().contains(&known) {
        return Ok(());
    }
    crate::sound::once(path, || check(path))?;
    let mut whole = whole();
    whole.retain(|(other, _)| other != path && other.is_file());
    whole.push(known);
    Ok(())
}

/// Whether what was kept is what was written: read as a whole, so not by who opens it.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    let [.., known] = head(&file)?;
    let mut sum = crc32fast::Hasher::new();
    let (mut bytes, mut at) = (vec![0u8; 1 << 20], HEAD);
    loop {
        match file.read_at(&mut bytes, at)? {
            0 => break,
            count => {
                sum.update(bytes.get(..count).unwrap_or_default());
                at += count as u64;
            }
        }
    }
    match u64::from(sum.finalize()) == known {
        true => Kept::open(path).map(drop),
        false => Err(damaged("its list of files is not what was written")),
    }
}

impl Kept {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let [meta, extents, names, _] = head(&file)?;
        let whole = [HEAD, meta, extents, names].into_iter().try_fold(0u64, u64::checked_add);
        if whole != Some(file.metadata()?.len())
            || !meta.is_multiple_of(BLOCK)
            || extents % RECORD as u64 != 0
        {
            return Err(damaged("its list of files is not what was written"));
        }
        Ok(Self { from: From::File(file), begin: HEAD, meta, extents, open: Vec::new() })
    }

    /// Writes down what it is made of, to be opened again.
    pub(crate) fn keep(&self, path: &Path) -> io::Result<()> {
        let mut to = File::create_new(path)?;
        match &self.from {
            From::File(file) => {
                let mut from = file.try_clone()?;
                io::Seek::rewind(&mut from)?;
                io::copy(&mut from, &mut to)?;
            }
            From::Memory(all) => {
                let names = (all.len() as u64).saturating_sub(self.meta + self.extents);
                let sum = u64::from(crc32fast::hash(all));
                for number in [self.meta, self.extents, names, sum] {
                    to.write_all(&number.to_le_bytes())?;
                }
                to.write_all(all)?;
            }
        }
        to.sync_data()
    }

    /// What it is, by its names, owners, sizes and times.
    pub(crate) fn digest(&self) -> io::Result<String> {
        let mut hasher = cofferdam_seal::Hasher::new();
        match &self.from {
            From::Memory(all) => hasher.update(all),
            From::File(file) => {
                let (mut bytes, mut at) = (vec![0u8; 1 << 20], self.begin);
                loop {
                    match file.read_at(&mut bytes, at)? {
                        0 => break,
                        count => {
                            hasher.update(bytes.get(..count).unwrap_or_default());
                            at += count as u64;
                        }
                    }
                }
            }
        }
        hasher.update(&self.meta.to_le_bytes());
        hasher.update(&self.extents.to_le_bytes());
        Ok(crate::template::short(hasher.finish()))
    }

    /// Writes out all that is on it, to a file that is nothing but a hole.
    pub(crate) fn write(&mut self, to: &File) -> io::Result<()> {
        let mut bytes = vec![0u8; 1 << 20];
        let mut put = |this: &mut Self, at: u64, end: u64| -> io::Result<()> {
            let mut at = at;
            while at < end {
                let count = bytes.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
                let part = bytes.get_mut(..count).unwrap_or_default();
                this.read(at, part)?;
                to.write_all_at(part, at)?;
                at += count as u64;
            }
            Ok(())
        };
        put(self, 0, self.meta)?;
        for number in 0..self.extents / RECORD as u64 {
            let found = self.record(number)?;
            let start = u64::from(found.start) * BLOCK;
            put(self, start, start + found.size)?;
        }
        Ok(())
    }

    /// Fills `bytes` with what the disk has from `at` on. Beyond its end there is nothing but zeros.
    pub(crate) fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = at + done as u64;
            let rest = bytes.get_mut(done..).unwrap_or_default();
            done += self.some(at, rest)?;
        }
        Ok(())
    }

    /// Up to where something else begins.
    fn some(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let upto = |bytes: &[u8], end: u64| bytes.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        if at < self.meta {
            let count = upto(bytes, self.meta);
            self.from.read(self.begin + at, bytes.get_mut(..count).unwrap_or_default())?;
            return Ok(count);
        }
        let block = u32::try_from(at / BLOCK).unwrap_or(u32::MAX);
        let (found, next) = self.find(block)?;
        let next = next.map_or(u64::MAX, |start| u64::from(start) * BLOCK);
        let count = upto(bytes, next);
        let bytes = bytes.get_mut(..count).unwrap_or_default();
        bytes.fill(0);
        if let Some(found) = found {
            let from = at - u64::from(found.start) * BLOCK;
            let there = found.size.saturating_sub(from);
            let part = bytes.len().min(usize::try_from(there).unwrap_or(usize::MAX));
            if part > 0 {
                let file = self.file(&found)?;
                file.read_exact_at(bytes.get_mut(..part).unwrap_or_default(), from)?;
            }
        }
        Ok(count)
    }

    fn record(&self, at: u64) -> io::Result<Found> {
        let mut bytes = [0u8; RECORD];
        self.from.read(self.begin + self.meta + at * RECORD as u64, &mut bytes)?;
        let four = |at: usize| {
            bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map_or(0, u32::from_le_bytes)
        };
        let eight = |at: usize| {
            bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map_or(0, u64::from_le_bytes)
        };
        Ok(Found {
            start: four(0),
            nanos: four(4),
            size: eight(8),
            inode: eight(16),
            seconds: eight(24).cast_signed(),
            name: (u64::from(four(32)), four(36) as usize),
        })
    }

    /// The file that this block may belong to, and where the one after it begins.
    fn find(&self, block: u32) -> io::Result<(Option<Found>, Option<u32>)> {
        let count = self.extents / RECORD as u64;
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.record(middle)?.start <= block { low = middle + 1 } else { high = middle }
        }
        let found = if low > 0 { Some(self.record(low - 1)?) } else { None };
        let next = if low < count { Some(self.record(low)?.start) } else { None };
        Ok((found, next))
    }

    fn file(&mut self, found: &Found) -> io::Result<&File> {
        if let Some(at) = self.open.iter().position(|(start, _)| *start == found.start) {
            let kept = self.open.remove(at);
            self.open.push(kept);
        } else {
            let mut name = vec![0u8; found.name.1];
            self.from.read(self.begin + self.meta + self.extents + found.name.0, &mut name)?;
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::open(OsStr::from_bytes(&name), flags, Mode::empty())?);
            let meta = file.metadata()?;
            let same = meta.is_file()
                && (meta.ino(), meta.len()) == (found.inode, found.size)
                && (meta.mtime(), meta.mtime_nsec()) == (found.seconds, i64::from(found.nanos));
            if !same {
                return Err(io::Error::other("the host's file has changed since the image was made"));
            }
            if self.open.len() == OPEN {
                self.open.remove(0);
            }
            self.open.push((found.start, file));
        }
        self.open.last().map(|(_, file)| file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The directories that an image was made from, as a text; and whether they are all as they were.
pub(crate) fn witness(tree: &Tree) -> Vec<u8> {
    let mut text = Vec::new();
    for (path, (seconds, nanos)) in &tree.seen {
        text.extend_from_slice(format!("{seconds} {nanos} ").as_bytes());
        text.extend_from_slice(path.as_os_str().as_bytes());
        text.push(0);
    }
    text
}

pub(crate) fn holds(witness: &[u8]) -> bool {
    let mut all = witness.split(|byte| *byte == 0).filter(|line| !line.is_empty());
    all.all(|line| {
        let mut parts = line.splitn(3, |byte| *byte == b' ');
        let mut number = || parts.next().and_then(|part| str::from_utf8(part).ok()?.parse::<i64>().ok());
        let (Some(seconds), Some(nanos)) = (number(), number()) else { return false };
        let Some(path) = parts.next() else { return false };
        fs::symlink_metadata(OsStr::from_bytes(path))
            .is_ok_and(|meta| (meta.mtime(), meta.mtime_nsec()) == (seconds, nanos))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_list_holds_until_any_of_its_directories_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for path in ["a/b/c", "a/bb", "a/b/d/e/f", "z"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        let line = |path: &Path| {
            let meta = fs::symlink_metadata(path).unwrap();
            format!("{} {} {}\0", meta.mtime(), meta.mtime_nsec(), path.display())
        };
        // In whatever order, and with what lies between left out.
        let orders: [&[&str]; 3] = [
            &["", "a", "a/b", "a/b/c", "a/b/d", "a/b/d/e", "a/b/d/e/f", "a/bb", "z"],
            &["z", "a/b/d/e/f", "a/bb", "a/b/c", "a", "a/b/d", ""],
            &["a/b/d/e/f"],
        ];
        let texts = || orders.map(|order| order.iter().map(|path| line(&at(path))).collect::<String>());
        let check = |texts: &[String], expected: [bool; 3]| {
            let held: Vec<bool> = texts.iter().map(|text| holds(text.as_bytes())).collect();
            assert_eq!(held, expected);
        };
        let before = texts();
        check(&before, [true; 3]);
        assert!(holds(line(Path::new("/")).as_bytes()) && holds(line(Path::new("/usr")).as_bytes()));
        assert!(!holds(b"0 0 relative\0") && !holds(b"1 2\0") && holds(b""));
        fs::write(at("a/b/d/e/f/new"), "").unwrap();
        check(&before, [false; 3]);
        fs::remove_file(at("a/b/d/e/f/new")).unwrap();
        let before = texts();
        fs::remove_dir(at("a/bb")).unwrap();
        check(&before, [false, false, true]);
        fs::create_dir(at("a/bb")).unwrap();
        // What has taken a directory's place is not that directory.
        let before = texts();
        fs::rename(at("a/b/d/e/f"), at("f")).unwrap();
        symlink(at("f"), at("a/b/d/e/f")).unwrap();
        check(&before, [false; 3]);
    }
}
