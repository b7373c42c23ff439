//! The signing key, made on first use, and the public keys that are believed.
//!
//! A key is published among the trusted ones before it can sign anything, so that nothing it ever signed is
//! left without its public half. The private half leaves this file only as a [`SigningKey`].

use crate::Home;
use crate::home::in_dir;
use cofferdam_seal::{KeyError, Keyring, PublicKey, SigningKey, seed_to_pem};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use zeroize::Zeroizing;

/// More than any PEM file of one key with its comments.
const MAX_KEY_FILE: u64 = 16 << 10;

#[derive(Debug, thiserror::Error)]
pub enum KeyStoreError {
    #[error("cannot use the key file `{path}`: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("the key file `{path}` cannot be used: {source}")]
    Key { path: PathBuf, source: KeyError },
    #[error("the key given cannot be used: {0}")]
    Given(#[source] KeyError),
    #[error(
        "others may read or replace the signing key `{path}` (owner {owner}, mode {mode:04o}): run `chmod 600` if it was never exposed, else remove it and run `cofferdam key rotate`"
    )]
    Exposed { path: PathBuf, owner: u32, mode: u32 },
    #[error("`{0}` is too large for a key file: remove it")]
    TooLarge(PathBuf),
    #[error("the system gives no random bytes for a new key: {0}")]
    Random(#[source] io::Error),
}

/// By what a key file is known to be the one that was read: whose it is and who may read it are part of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    owner: u32,
    mode: u32,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(meta: &fs::Metadata) -> Self {
        Self {
            file: (meta.dev(), meta.ino()),
            owner: meta.uid(),
            mode: meta.mode(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// A key that was read, and the file that it was read from.
#[derive(Default)]
pub(crate) struct KeptKey(Mutex<Option<(Stamp, Arc<SigningKey>)>>);

impl fmt::Debug for KeptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptKey")
    }
}

/// What a rotation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotated {
    /// Absent if there was no key before.
    pub old: Option<PublicKey>,
    pub new: PublicKey,
}

impl Home {
    /// The key that signs traces here. The first caller of all makes it; of several at once, one does.
    pub fn signing_key(&self) -> Result<SigningKey, KeyStoreError> {
        if let Some(key) = self.load_signing_key()? {
            return Ok(key);
        }
        let _lock = self.lock_keys()?;
        match self.load_signing_key()? {
            Some(key) => Ok(key),
            None => self.install_new_key(),
        }
    }

    /// The same for who signs many traces: read again only when its file is another one, or was changed.
    pub fn kept_signing_key(&self) -> Result<Arc<SigningKey>, KeyStoreError> {
        let stamp = fs::metadata(self.signing_key_file()).ok().map(|meta| Stamp::of(&meta));
        let mut kept = self.key.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, key)) = kept.as_ref().filter(|(of, _)| Some(*of) == stamp) {
            return Ok(key.clone());
        }
        // Looked at before it is read: what changes in between is read again the next time.
        let key = Arc::new(self.signing_key()?);
        *kept = stamp.map(|stamp| (stamp, key.clone()));
        Ok(key)
    }

    /// Every key whose traces are believed: the signing key, those it replaced, and those added by hand.
    pub fn trusted_keys(&self) -> Result<Keyring, KeyStoreError> {
        let mut ring: Keyring = self.load_signing_key()?.iter().map(|key| *key.public()).collect();
        let dir = self.trusted_dir();
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ring),
            entries => entries.map_err(at(&dir))?,
        };
        for entry in entries {
            let path = entry.map_err(at(&dir))?.path();
            let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden && path.extension().is_some_and(|extension| extension == "pem") {
                let text = read_small(&path, &File::open(&path).map_err(at(&path))?)?;
                let key = PublicKey::from_pem(&text);
                ring.add(key.map_err(|source| KeyStoreError::Key { path, source })?);
            }
        }
        Ok(ring)
    }

    /// Replaces the signing key. What the old one signed stays valid.
    pub fn rotate_key(&self) -> Result<Rotated, KeyStoreError> {
        let _lock = self.lock_keys()?;
        let old = self.load_signing_key()?.map(|key| *key.public());
        if let Some(old) = &old {
            self.publish(old, "signed here until")?;
        }
        let new = self.install_new_key()?;
        Ok(Rotated { old, new: *new.public() })
    }

    /// Believes the traces of this public key, given in PEM, from now on.
    pub fn trust_key(&self, pem: &str) -> Result<PublicKey, KeyStoreError> {
        let key = PublicKey::from_pem(pem).map_err(KeyStoreError::Given)?;
        self.publish(&key, "trusted by hand since")?;
        Ok(key)
    }

    fn signing_key_file(&self) -> PathBuf {
        self.keys_dir().join("signing.pem")
    }

    fn load_signing_key(&self) -> Result<Option<SigningKey>, KeyStoreError> {
        let path = self.signing_key_file();
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(at(&path))?,
        };
        let meta = file.metadata().map_err(at(&path))?;
        let (owner, mode) = (meta.uid(), meta.mode() & 0o7777);
        if mode & 0o077 != 0 || owner != rustix::process::geteuid().as_raw() {
            return Err(KeyStoreError::Exposed { path, owner, mode });
        }
        let text = read_small(&path, &file)?;
        SigningKey::from_pem(&text).map(Some).map_err(|source| KeyStoreError::Key { path, source })
    }

    /// Whoever makes or replaces the signing key holds this.
    fn lock_keys(&self) -> Result<Locked, KeyStoreError> {
        let dir = self.keys_dir();
        let path = dir.join("lock");
        let open = || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = in_dir(&dir, open).map_err(at(&path))?;
        file.lock().map_err(at(&path))?;
        Ok(Locked(file))
    }

    fn install_new_key(&self) -> Result<SigningKey, KeyStoreError> {
        let mut seed = Zeroizing::new([0u8; 32]);
        let filled =
            getrandom(&mut *seed, GetRandomFlags::empty()).map_err(|e| KeyStoreError::Random(e.into()))?;
        if filled != seed.len() {
            return Err(KeyStoreError::Random(io::ErrorKind::UnexpectedEof.into()));
        }
        let path = self.signing_key_file();
        let unusable = |source| KeyStoreError::Key { path: path.clone(), source };
        let key = SigningKey::from_seed(&seed).map_err(unusable)?;
        self.publish(key.public(), "signs here since")?;
        replace(&path, seed_to_pem(&seed).as_bytes(), 0o600)?;
        Ok(key)
    }

    /// Puts a key among the trusted ones, with a remark and the date for whoever looks there.
    fn publish(&self, key: &PublicKey, remark: &str) -> Result<(), KeyStoreError> {
        let (dir, id) = (self.trusted_dir(), key.id());
        // To the second: for people, not for programs.
        let now = jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default();
        let text = format!("# {id}\n# {remark} {now}\n{}", key.to_pem());
        replace(&dir.join(format!("{id}.pem")), text.as_bytes(), 0o644)
    }
}

/// Writes a file whole, or not at all.
fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), KeyStoreError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial = dir.join(format!(".{name}.{}", std::process::id()));
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    let written = in_dir(dir, write).and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written.and_then(|()| File::open(dir)?.sync_all()).map_err(at(path))
}

fn read_small(path: &Path, file: &File) -> Result<Zeroizing<String>, KeyStoreError> {
    let mut text = Zeroizing::new(String::with_capacity(512));
    let read = file.take(MAX_KEY_FILE + 1).read_to_string(&mut text).map_err(at(path))?;
    if read as u64 > MAX_KEY_FILE { Err(KeyStoreError::TooLarge(path.to_owned())) } else { Ok(text) }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> KeyStoreError {
    let path = path.to_owned();
    move |source| KeyStoreError::Io { path, source }
}

/// Let go of by itself and not by closing the file: a child that another thread starts meanwhile has a copy of the
/// descriptor for a while.
struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        // Fails for no lock that is held.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tempfile::TempDir;

    fn home() -> (TempDir, Home) {
        let dir = TempDir::new().unwrap();
        let home = Home::open(&dir.path().join("home")).unwrap();
        (dir, home)
    }

    #[test]
    fn the_key_is_made_once_private_and_trusted() {
        let (_dir, home) = home();
        assert_eq!(home.trusted_keys().unwrap().iter().count(), 0);
        let key = *home.signing_key().unwrap().public();
        assert_eq!(home.signing_key().unwrap().public(), &key);
        assert_eq!(fs::metadata(home.signing_key_file()).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(home.trusted_keys().unwrap().get(&key.id()), Some(&key));
    }

    #[test]
    fn a_replaced_key_stays_trusted() {
        let (_dir, home) = home();
        let first = *home.signing_key().unwrap().public();
        let second = home.rotate_key().unwrap();
        assert_eq!(second.old, Some(first));
        let third = home.rotate_key().unwrap();
        assert_eq!(home.signing_key().unwrap().public(), &third.new);
        let ring = home.trusted_keys().unwrap();
        assert_eq!(ring.iter().count(), 3);
        assert!([first, second.new, third.new].iter().all(|key| ring.get(&key.id()).is_some()));
        let note = fs::read_to_string(home.trusted_dir().join(format!("{}.pem", first.id()))).unwrap();
        assert!(note.contains("# signed here until 2"), "{note}");
    }

    #[test]
    fn a_key_that_is_kept_is_the_one_that_is_there() {
        let (_dir, home) = home();
        home.signing_key().unwrap();
        let first = home.kept_signing_key().unwrap();
        assert!(Arc::ptr_eq(&first, &home.clone().kept_signing_key().unwrap()), "read once");
        let new = home.rotate_key().unwrap().new;
        assert_eq!(home.kept_signing_key().unwrap().public(), &new);
        let exposed = fs::Permissions::from_mode(0o640);
        fs::set_permissions(home.signing_key_file(), exposed).unwrap();
        assert!(matches!(home.kept_signing_key(), Err(KeyStoreError::Exposed { mode: 0o640, .. })));
        fs::remove_file(home.signing_key_file()).unwrap();
        assert_ne!(home.kept_signing_key().unwrap().public(), &new, "another is made");
    }

    #[test]
    fn others_are_trusted_by_hand_and_nonsense_is_not() {
        let (_dir, home) = home();
        let other = *SigningKey::from_seed(&[3; 32]).unwrap().public();
        assert_eq!(home.trust_key(&other.to_pem()).unwrap(), other);
        assert!(home.trusted_keys().unwrap().get(&other.id()).is_some());
        assert!(matches!(home.trust_key("nonsense"), Err(KeyStoreError::Given(KeyError::NotPem { .. }))));
        fs::write(home.trusted_dir().join("notes.txt"), "not a key").unwrap();
        assert_eq!(home.trusted_keys().unwrap().iter().count(), 1);
        fs::write(home.trusted_dir().join("bad.pem"), "not a key").unwrap();
        let error = home.trusted_keys().unwrap_err().to_string();
        assert!(error.contains("bad.pem"), "{error}");
        fs::write(home.trusted_dir().join("bad.pem"), vec![b'x'; 1 << 20]).unwrap();
        assert!(matches!(home.trusted_keys(), Err(KeyStoreError::TooLarge(_))));
    }

    #[test]
    fn an_exposed_or_damaged_signing_key_is_not_used() {
        let (_dir, home) = home();
        home.signing_key().unwrap();
        let path = home.signing_key_file();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(home.signing_key(), Err(KeyStoreError::Exposed { mode: 0o640, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "").unwrap();
        assert!(matches!(home.signing_key(), Err(KeyStoreError::Key { .. })));
    }
}
