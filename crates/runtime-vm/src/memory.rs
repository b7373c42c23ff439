//! The memory of machines that others are copied from: on disk between runs, and while machines run, a file in memory
//! that nobody can write to. Copies map it for themselves, and share what they do not change.

use crate::stamp;
use cofferdam_seal::Hasher;
use rustix::fs::{FlockOperation, MemfdFlags, SealFlags, SeekFrom};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
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

/// Writes memory down. What is nothing but zeros becomes a hole. Says what it is by its digest.
pub(crate) fn keep(memory: &File, path: &Path, size: u64) -> io::Result<String> {
    const PAGE: usize = 4096;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.set_len(size)?;
    let mut hasher = Hasher::new();
    let mut bytes = vec![0u8; PIECE];
    parts(memory, size, |mut at, end| {
        while at < end {
            let most = bytes.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let part = bytes.get_mut(..most).unwrap_or_default();
            memory.read_exact_at(part, at)?;
            for (number, page) in part.chunks(PAGE).enumerate() {
                if page.iter().any(|byte| *byte != 0) {
                    let to = at + (number * PAGE) as u64;
                    hasher.update(&to.to_le_bytes());
                    hasher.update(page);
                    file.write_all_at(page, to)?;
                }
            }
            at += most as u64;
        }
        Ok(())
    })?;
    file.sync_data()?;
    Ok(hasher.finish().to_string())
}

/// What a file of memory is, by its digest, as `keep` says it.
pub(crate) fn digest(path: &Path) -> io::Result<String> {
    const PAGE: usize = 4096;
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut hasher = Hasher::new();
    let mut bytes = vec![0u8; PIECE];
    parts(&file, size, |mut at, end| {
        while at < end {
            let most = bytes.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let part = bytes.get_mut(..most).unwrap_or_default();
            file.read_exact_at(part, at)?;
            for (number, page) in part.chunks(PAGE).enumerate() {
                if page.iter().any(|byte| *byte != 0) {
                    hasher.update(&(at + (number * PAGE) as u64).to_le_bytes());
                    hasher.update(page);
                }
            }
            at += most as u64;
        }
        Ok(())
    })?;
    Ok(hasher.finish().to_string())
}

/// Memory that others share, on its way from the disk.
#[derive(Debug)]
pub(crate) struct Sharing {
    pub(crate) memory: Arc<File>,
    filling: Option<JoinHandle<io::Result<()>>>,
    of: (PathBuf, Stamp),
}

type Stamp = Option<(u64, i64, i64)>;
type Known = HashMap<(PathBuf, Stamp), Weak<File>>;

/// What machines of this process share now.
static SHARED: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

/// Begins to share a file of memory; what is shared already is not read again.
pub(crate) fn share(path: &Path, size: u64) -> io::Result<Sharing> {
    let of = (path.to_owned(), stamp(path));
    let known = SHARED.lock().unwrap_or_else(PoisonError::into_inner).get(&of).and_then(Weak::upgrade);
    if let Some(memory) = known {
        return Ok(Sharing { memory, filling: None, of });
    }
    let from = File::open(path)?;
    let memory = Arc::new(own(size)?);
    let to = memory.clone();
    let fill = move || parts(&from, size, |at, end| copy(&from, &to, at, end));
    let filling = Some(std::thread::Builder::new().name("vm-memory".into()).spawn(fill)?);
    Ok(Sharing { memory, filling, of })
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

impl Sharing {
    /// Waits until it is whole. From then on nobody can write to it, not even who opens it for writing: who breaks out
    /// of one machine cannot change what others begin with.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let Some(filling) = self.filling.take() else { return Ok(()) };
        filling.join().map_err(|_| io::Error::other("the memory was not read"))??;
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&*self.memory, seals)?;
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|_, memory| memory.strong_count() > 0);
        shared.insert(self.of.clone(), Arc::downgrade(&self.memory));
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
        assert_eq!(digest(&path).unwrap(), kept);

        let mut sharing = share(&path, size).unwrap();
        sharing.finish().unwrap();
        let mut bytes = [0; 5];
        sharing.memory.read_exact_at(&mut bytes, 4096).unwrap();
        assert_eq!(&bytes, b"first");
        assert!(sharing.memory.write_all_at(b"x", 0).is_err(), "it is sealed");
        let again = share(&path, size).unwrap();
        assert!(Arc::ptr_eq(&again.memory, &sharing.memory), "read once");

        File::options().write(true).open(&path).unwrap().write_all_at(b"F", 4096).unwrap();
        assert_ne!(digest(&path).unwrap(), kept, "a change is seen");
    }
}
