//! The vault's file: read, changed and replaced as a whole. Whoever changes it holds the lock, a reader needs none:
//! it finds the old file or the new one. What cannot be read is never written over.

mod contents;
mod header;
mod key;
mod private;

pub(crate) use contents::{About, Contents, Record};
pub use key::{KeyKind, Unlock};

use cofferdam_seal::{CipherError, CipherKey};
use header::{Header, Lock, Salt};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Far more than all secrets of a person.
const MAX_FILE: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("cannot use `{path}`: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("`{0}` is not a plain file: move it away")]
    NotAFile(PathBuf),
    #[error(
        "others may read or replace `{path}` (owner {owner}, mode {mode:04o}): run `chmod 600` if it was never exposed, else renew the secrets in it"
    )]
    Exposed { path: PathBuf, owner: u32, mode: u32 },
    #[error("`{0}` is too large for what it should be: move it away")]
    TooLarge(PathBuf),
    #[error(
        "`{0}` is not a vault, and is left as it is: move it away, or choose another state directory with --home"
    )]
    Foreign(PathBuf),
    #[error(
        "`{path}` has the format `{version}`, which this version of cofferdam does not know: use a newer one"
    )]
    Version { path: PathBuf, version: String },
    #[error("`{path}` is damaged, and is left as it is ({why}): restore it from a backup")]
    Damaged { path: PathBuf, why: String },
    #[error(
        "`{0}` does not open with its key, and is left as it is: it was changed or damaged; restore it from a backup"
    )]
    NotAuthentic(PathBuf),
    #[error("`{0}` does not open with this passphrase")]
    WrongPassphrase(PathBuf),
    #[error(
        "the vault's key {id} is not in `{path}`: restore that file; without it nobody can open the vault"
    )]
    NoKeyFile { path: PathBuf, id: String },
    #[error("`{0}` is not a key file of a vault: restore it from a backup")]
    KeyFile(PathBuf),
    #[error(
        "the vault's key `{0}` is not in your user keyring, which is emptied by a restart: put it back with `keyctl padd user {0} @u`"
    )]
    NotInKeyring(String),
    #[error(
        "the kernel's keyring cannot be used ({0}): choose another key with `cofferdam secret init --key file`"
    )]
    Keyring(#[source] io::Error),
    #[error("there is no passphrase to open the vault with: {0}")]
    Passphrase(#[source] io::Error),
    #[error("the passphrase is too short: use at least {0} characters")]
    WeakPassphrase(usize),
    #[error("`{path}`: {source}")]
    Stretch { path: PathBuf, source: CipherError },
    #[error("the system gives no random bytes: {0}")]
    Random(#[source] io::Error),
}

pub(crate) struct Paths {
    pub(crate) sealed: PathBuf,
    pub(crate) key: PathBuf,
    lock: PathBuf,
}

pub(crate) struct SealedFile<'a> {
    paths: Paths,
    unlock: &'a dyn Unlock,
}

/// The file as it was found, and what opens it.
struct Found {
    header: Header,
    start: usize,
    bytes: Vec<u8>,
}

impl<'a> SealedFile<'a> {
    pub(crate) fn new(dir: &Path, unlock: &'a dyn Unlock) -> Self {
        let paths = Paths {
            sealed: dir.join("vault.sealed"),
            key: dir.join("vault.key"),
            lock: dir.join("vault.lock"),
        };
        Self { paths, unlock }
    }

    /// What it holds; nothing if there is no vault yet.
    pub(crate) fn read(&self) -> Result<Option<Contents>, VaultError> {
        let Some((key, found)) = self.unlocked()? else { return Ok(None) };
        self.open(&key, found).map(Some)
    }

    /// Changes what it holds. A vault that is not there yet is made with a key file.
    pub(crate) fn change<T, E: From<VaultError>>(
        &self,
        change: impl FnOnce(&mut Contents) -> Result<T, E>,
    ) -> Result<T, E> {
        // Before the lock, because a person may be asked.
        let known = self.unlocked()?.map(|(key, found)| (key, found.header.key));
        let _held = self.hold()?;
        let (lock, key, mut contents) = match self.find()? {
            Some(found) => {
                let lock = found.header.key.clone();
                let key = match known {
                    Some((key, known)) if known == lock => key,
                    _ => key::find(&lock, &self.paths, self.unlock)?,
                };
                let contents = self.open(&key, found)?;
                (lock, key, contents)
            }
            None => {
                let (lock, key) = key::make(KeyKind::File, &self.paths, self.unlock)?;
                (lock, key, empty()?)
            }
        };
        let done = change(&mut contents)?;
        self.write(lock, &key, &contents)?;
        Ok(done)
    }

    /// Seals it with a new key of this kind. Says which kind it had, if it was there.
    pub(crate) fn rekey(&self, kind: KeyKind) -> Result<Option<KeyKind>, VaultError> {
        let _held = self.hold()?;
        let (old, contents) = match self.find()? {
            Some(found) => {
                let old = found.header.key.clone();
                let key = key::find(&old, &self.paths, self.unlock)?;
                (Some(old), self.open(&key, found)?)
            }
            None => (None, empty()?),
        };
        // In this order, whoever is killed between two of them leaves a vault that opens.
        let (lock, key) = key::make(kind, &self.paths, self.unlock)?;
        self.write(lock.clone(), &key, &contents)?;
        match old {
            Some(old) => {
                key::forget(&old, &lock, &self.paths, self.unlock)?;
                Ok(Some(key::kind(&old)))
            }
            None => Ok(None),
        }
    }

    fn hold(&self) -> Result<File, VaultError> {
        private::lock(&self.paths.lock)
    }

    fn find(&self) -> Result<Option<Found>, VaultError> {
        let path = &self.paths.sealed;
        let Some(mut bytes) = private::read(path, MAX_FILE)? else { return Ok(None) };
        let bytes = std::mem::take(&mut *bytes);
        let (header, start) = Header::parse(path, &bytes)?;
        Ok(Some(Found { header, start, bytes }))
    }

    fn unlocked(&self) -> Result<Option<(CipherKey, Found)>, VaultError> {
        let Some(found) = self.find()? else { return Ok(None) };
        let key_of = |found: &Found| key::find(&found.header.key, &self.paths, self.unlock);
        match key_of(&found) {
            // Another process may just have given it a new key.
            Err(error @ (VaultError::NoKeyFile { .. } | VaultError::NotInKeyring(_))) => match self.find()? {
                Some(newer) if newer.header.key != found.header.key => Ok(Some((key_of(&newer)?, newer))),
                _ => Err(error),
            },
            key => Ok(Some((key?, found))),
        }
    }

    fn open(&self, key: &CipherKey, found: Found) -> Result<Contents, VaultError> {
        let path = &self.paths.sealed;
        let (head, sealed) = found.bytes.split_at(found.start);
        let text =
            key.open(&found.header.salt.0, head, sealed.to_vec()).map_err(|_| match found.header.key {
                Lock::Passphrase { .. } => VaultError::WrongPassphrase(path.clone()),
                _ => VaultError::NotAuthentic(path.clone()),
            })?;
        Contents::parse(&text).map_err(|why| VaultError::Damaged { path: path.clone(), why: why.to_string() })
    }

    fn write(&self, lock: Lock, key: &CipherKey, contents: &Contents) -> Result<(), VaultError> {
        let path = &self.paths.sealed;
        let damaged = |why: String| VaultError::Damaged { path: path.clone(), why };
        let header = Header { key: lock, salt: Salt(*key::random()?) };
        let mut bytes = header.to_bytes().map_err(|error| damaged(error.to_string()))?;
        let text = contents.to_bytes().map_err(|error| damaged(error.to_string()))?;
        let sealed = key.seal(&header.salt.0, &bytes, text).map_err(|error| damaged(error.to_string()))?;
        bytes.extend_from_slice(&sealed);
        private::replace(path, &bytes)
    }
}

fn empty() -> Result<Contents, VaultError> {
    Ok(Contents { mark_key: key::random()?, records: Vec::new() })
}
