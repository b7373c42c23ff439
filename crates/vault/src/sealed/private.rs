//! Files that nobody else may read: looked at before they are believed, and replaced whole or not at all.

use super::VaultError;
use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use zeroize::Zeroizing;

/// The bytes of a file of ours; nothing if there is none. One that others could have read or written is refused.
pub(super) fn read(path: &Path, most: u64) -> Result<Option<Zeroizing<Vec<u8>>>, VaultError> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(at(path))?,
    };
    let meta = file.metadata().map_err(at(path))?;
    let (owner, mode) = (meta.uid(), meta.mode() & 0o7777);
    if !meta.is_file() {
        return Err(VaultError::NotAFile(path.to_owned()));
    }
    if mode & 0o077 != 0 || owner != rustix::process::geteuid().as_raw() {
        return Err(VaultError::Exposed { path: path.to_owned(), owner, mode });
    }
    if meta.len() > most {
        return Err(VaultError::TooLarge(path.to_owned()));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(meta.len() as usize + 1));
    file.take(most + 1).read_to_end(&mut bytes).map_err(at(path))?;
    if bytes.len() as u64 > most { Err(VaultError::TooLarge(path.to_owned())) } else { Ok(Some(bytes)) }
}

/// Writes a file whole, on the disk, or leaves the old one. Whoever calls this holds the lock, so one partial
/// name is enough; what a killed process left under it is removed.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), VaultError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".new");
    let partial = Path::new(&partial);
    let write = || {
        match fs::remove_file(partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(partial, path)?;
        sync_dir(path)
    };
    write().inspect_err(|_| drop(fs::remove_file(partial))).map_err(at(path))
}

pub(super) fn remove(path: &Path) -> Result<(), VaultError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.and_then(|()| sync_dir(path)).map_err(at(path)),
    }
}

/// Held for as long as the file lives; of several processes one goes on.
pub(super) fn lock(path: &Path) -> Result<File, VaultError> {
    let flags = OFlags::NOFOLLOW.bits() as i32;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(path).map_err(at(path))?;
    file.lock().map_err(at(path))?;
    Ok(file)
}

fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> VaultError {
    let path = path.to_owned();
    move |source| VaultError::Io { path, source }
}
