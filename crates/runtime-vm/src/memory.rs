//! The memory of machines that others are copied from: a file that is never written to once it is made. Copies map it for
//! themselves, and share what they do not change. Where their VMM could open it for writing, it has a copy of it in memory,
//! which nobody can write to.

use crate::stamp;
use cofferdam_seal::Hasher;
use rustix::fs::{FlockOperation, MemfdFlags, SealFlags, SeekFrom};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

/// What is read at once.
const PIECE: usize = 1 << 20;

/// Memory for a machine of its own.
pub(crate) fn own(size: u64) -> io::Result<File> {
    let memory = rustix::fs::memfd_create(c"cofferdam-vm", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&memory, size)?;
    Ok(File::from(memory))
}

/// Parts that have something in them, in order; the rest is holes.
fn parts(of: &File, size: u64, mut each: impl FnMut(u64, u64) -> io::Result<()>) -> io::Result<()> {
    let mut at = 0;
    while at < size {
        at = match rustix::fs::seek(of, SeekFrom::Data(at)) {
            Ok(at) => at,
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        let end = rustix::fs::seek(of, SeekFrom::Hole(at))?.min(size);
        each(at, end)?;
        at = end;
    }
    Ok(())
}

const PAGE: usize = 4096;
const NOTHING: [u8; PAGE] = [0; PAGE];

/// Memory that can be read from its first byte to its last.
pub(crate) trait Readable {
    /// Parts in which there may be something, in order.
    fn parts(&self, size: u64, each: &mut dyn FnMut(u64, u64) -> io::Result<()>) -> io::Result<()>;

    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;
}

impl Readable for File {
    fn parts(&self, size: u64, each: &mut dyn FnMut(u64, u64) -> io::Result<()>) -> io::Result<()> {
        parts(self, size, each)
    }

    fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(bytes, at)
    }
}

/// Pages that have something in them, with where they are. What a file system takes for a hole does not matter.
fn pages(
    of: &impl Readable,
    size: u64,
    mut each: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut bytes = vec![0u8; PIECE];
    of.parts(size, &mut |mut at, end| {
        while at < end {
            let most = bytes.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let part = bytes.get_mut(..most).unwrap_or_default();
            of.read(part, at)?;
            for (number, page) in part.chunks(PAGE).enumerate() {
                if NOTHING.get(..page.len()) != Some(page) {
                    each(at + (number * PAGE) as u64, page)?;
                }
            }
            at += most as u64;
        }
        Ok(())
    })
}

/// Writes pages that follow each other at once.
struct Writing<'a> {
    to: &'a File,
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> Writing<'a> {
    fn new(to: &'a File) -> Self {
        Self { to, at: 0, bytes: Vec::with_capacity(PIECE) }
    }

    fn put(&mut self, at: u64, page: &[u8]) -> io::Result<()> {
        if at != self.at + self.bytes.len() as u64 || self.bytes.len() + page.len() > PIECE {
            self.finish()?;
            self.at = at;
        }
        self.bytes.extend_from_slice(page);
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.to.write_all_at(&self.bytes, self.at)?;
        self.bytes.clear();
        Ok(())
    }
}

/// What memory is known by: against change, and, quickly, against decay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) digest: String,
    pub(crate) sum: u32,
}

/// Writes memory down that can be made again: nobody waits for the disk, and decay is seen by the sum, which is given back.
pub(crate) fn put_down(memory: &impl Readable, path: &Path, size: u64) -> io::Result<u32> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.set_len(size)?;
    let (mut sum, mut writing) = (crc32fast::Hasher::new(), Writing::new(&file));
    pages(memory, size, |at, page| {
        sum.update(&at.to_le_bytes());
        sum.update(page);
        writing.put(at, page)
    })?;
    writing.finish()?;
    Ok(sum.finalize())
}

/// Writes memory down. What is nothing but zeros becomes a hole.
pub(crate) fn keep(memory: &impl Readable, path: &Path, size: u64) -> io::Result<Known> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.set_len(size)?;
    let (mut hasher, mut sum) = (Hasher::new(), crc32fast::Hasher::new());
    let mut writing = Writing::new(&file);
    pages(memory, size, |at, page| {
        hasher.update(&at.to_le_bytes());
        hasher.update(page);
        sum.update(&at.to_le_bytes());
        sum.update(page);
        writing.put(at, page)
    })?;
    writing.finish()?;
    file.sync_data()?;
    Ok(Known { digest: hasher.finish().to_string(), sum: sum.finalize() })
}

/// What a file of memory is, by its digest, as `keep` says it.
pub(crate) fn digest(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    let mut hasher = Hasher::new();
    pages(&file, file.metadata()?.len(), |at, page| {
        hasher.update(&at.to_le_bytes());
        hasher.update(page);
        Ok(())
    })?;
    Ok(hasher.finish().to_string())
}

/// The same by its sum, which takes a tenth of the time.
fn sum(file: &File) -> io::Result<u32> {
    let mut sum = crc32fast::Hasher::new();
    pages(file, file.metadata()?.len(), |at, page| {
        sum.update(&at.to_le_bytes());
        sum.update(page);
        Ok(())
    })?;
    Ok(sum.finalize())
}

/// Memory that copies have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    file: File,
    /// It is what was written, and not a copy of it.
    is_lent: bool,
    /// Whether it is what was written; who asks first looks.
    whole: Mutex<Option<bool>>,
}

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Shared {
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is open for reading alone, to be lent.
    pub(crate) const fn is_lent(&self) -> bool {
        self.is_lent
    }

    /// Whether it is what was written, by its sum.
    pub(crate) fn check(&self, known: u32) -> io::Result<()> {
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let is_whole = match *whole {
            Some(is) => is,
            None => sum(&self.file)? == known,
        };
        *whole = Some(is_whole);
        if is_whole { Ok(()) } else { Err(damaged("its memory is not what was written")) }
    }
}

/// Memory that others share, on its way from the disk.
#[derive(Debug)]
pub(crate) struct Sharing {
    pub(crate) memory: Arc<Shared>,
    filling: Option<JoinHandle<io::Result<()>>>,
    /// Nothing comes from it: it closes when all is there.
    filled: Option<Receiver<()>>,
    of: (PathBuf, Stamp),
}

type Stamp = Option<(u64, i64, i64)>;
type InUse = HashMap<(PathBuf, Stamp), Weak<Shared>>;

/// What machines of this process share now.
static SHARED: LazyLock<Mutex<InUse>> = LazyLock::new(Mutex::default);

/// Begins to share a file of memory; what is shared already is not read again. One that is lent is opened, and no more.
/// Whether it is what was written is for its user to ask.
pub(crate) fn share(path: &Path, size: u64, is_lent: bool) -> io::Result<Sharing> {
    let of = (path.to_owned(), stamp(path));
    let there = SHARED.lock().unwrap_or_else(PoisonError::into_inner).get(&of).and_then(Weak::upgrade);
    if let Some(memory) = there {
        return Ok(Sharing { memory, filling: None, filled: None, of });
    }
    let from = File::open(path)?;
    if is_lent {
        // Who touches a page behind its end is ended by it.
        if from.metadata()?.len() != size {
            return Err(damaged("its memory is of another size"));
        }
        let memory = Arc::new(Shared { file: from, is_lent, whole: Mutex::default() });
        // It is whole from the first: others that begin at the same time need not look at it as well.
        remember(&of, &memory);
        return Ok(Sharing { memory, filling: None, filled: None, of });
    }
    let memory = Arc::new(Shared { file: own(size)?, is_lent, whole: Mutex::default() });
    let to = memory.clone();
    let (fills, filled) = channel::<()>();
    let fill = move || {
        let _fills = fills;
        parts(&from, size, |at, end| copy(&from, &to.file, at, end))
    };
    let filling = Some(std::thread::Builder::new().name("vm-memory".into()).spawn(fill)?);
    Ok(Sharing { memory, filling, filled: Some(filled), of })
}

pub(crate) fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Without the detour of our own memory.
fn copy(from: &File, to: &File, at: u64, end: u64) -> io::Result<()> {
    rustix::fs::seek(to, SeekFrom::Start(at))?;
    let mut offset = at;
    while offset < end {
        let most = usize::try_from(end - offset).unwrap_or(usize::MAX).min(64 << 20);
        if rustix::fs::sendfile(to, from, Some(&mut offset), most)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Whoever begins with the same has it from now on.
fn remember(of: &(PathBuf, Stamp), memory: &Arc<Shared>) {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.retain(|_, memory| memory.strong_count() > 0);
    shared.insert(of.clone(), Arc::downgrade(memory));
}

fn seal(memory: &File) -> io::Result<()> {
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    Ok(rustix::fs::fcntl_add_seals(memory, seals)?)
}

/// A copy that nobody can write to.
pub(crate) fn sealed(from: &File) -> io::Result<File> {
    let size = from.metadata()?.len();
    let memory = own(size)?;
    parts(from, size, |at, end| copy(from, &memory, at, end))?;
    seal(&memory)?;
    Ok(memory)
}

impl Sharing {
    /// What waits until it has come from the disk, whether it is whole or not.
    pub(crate) fn filled(&mut self) -> impl FnOnce() + Send + use<> {
        let filled = self.filled.take();
        move || filled.into_iter().for_each(|filled| _ = filled.recv())
    }

    /// Waits until it is whole. From then on nobody can write to a copy of it, not even who opens it for writing: who breaks
    /// out of one machine cannot change what others begin with.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if let Some(filling) = self.filling.take() {
            filling.join().map_err(|_| io::Error::other("the memory was not read"))??;
            seal(&self.memory.file)?;
            remember(&self.of, &self.memory);
        }
        Ok(())
    }
}

/// Held while anything is made that others would make too.
pub(crate) struct Lock(#[expect(dead_code, reason = "held, not used")] File);

impl Lock {
    pub(crate) fn take(dir: &Path) -> io::Result<Self> {
        let path = dir.join("lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        Ok(Self(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_shared_as_it_was_and_cannot_be_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ram");
        let size = 8 << 20;
        let memory = own(size).unwrap();
        memory.write_all_at(b"first", 4096).unwrap();
        memory.write_all_at(&[0; 4096], 1 << 20).unwrap();
        memory.write_all_at(b"last", size - 4).unwrap();
        let kept = keep(&memory, &path, size).unwrap();
        assert_eq!(digest(&path).unwrap(), kept.digest);
        let mut sharing = share(&path, size, false).unwrap();
        sharing.finish().unwrap();
        sharing.memory.check(kept.sum).unwrap();
        let mut bytes = [0; 5];
        sharing.memory.file.read_exact_at(&mut bytes, 4096).unwrap();
        assert_eq!(&bytes, b"first");
        assert!(sharing.memory.file.write_all_at(b"x", 0).is_err(), "it is sealed");
        let again = share(&path, size, false).unwrap();
        assert!(Arc::ptr_eq(&again.memory, &sharing.memory), "read once");

        File::options().write(true).open(&path).unwrap().write_all_at(b"F", 4096).unwrap();
        assert_ne!(digest(&path).unwrap(), kept.digest, "a change is seen");
        let mut changed = share(&path, size, false).unwrap();
        changed.finish().unwrap();
        for _ in 0..2 {
            let said = changed.memory.check(kept.sum).unwrap_err().to_string();
            assert!(said.contains("memory is not what was written"), "{said}");
        }
    }

    #[test]
    fn what_is_lent_is_the_file_itself_and_open_for_reading_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ram");
        let size = 1 << 20;
        let memory = own(size).unwrap();
        memory.write_all_at(b"first", 4096).unwrap();
        let sum = put_down(&memory, &path, size).unwrap();
        let lent = share(&path, size, true).unwrap();
        assert!(lent.memory.is_lent());
        assert!(lent.memory.file.write_all_at(b"x", 0).is_err());
        lent.memory.check(sum).unwrap();
        let again = share(&path, size, true).unwrap();
        assert!(Arc::ptr_eq(&again.memory, &lent.memory), "looked at once");
        drop((again, lent));
        File::options().write(true).open(&path).unwrap().set_len(size - 4096).unwrap();
        assert_eq!(share(&path, size, true).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
