//! The key of a vault, from one of three places: a file beside it, the kernel's keyring, or a passphrase.

use super::header::{Lock, Salt};
use super::{Paths, VaultError, private};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cofferdam_seal::{CipherKey, KEY_LEN, SALT_LEN, Stretch};
use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use zeroize::Zeroizing;

const MAX_KEY_FILE: u64 = 4 << 10;
/// A passphrase is all that stands between a copy of the file and its contents.
const SHORTEST_PASSPHRASE: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    File,
    Keyring,
    Passphrase,
}

impl FromStr for KeyKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "file" => Ok(Self::File),
            "keyring" => Ok(Self::Keyring),
            "passphrase" => Ok(Self::Passphrase),
            _ => Err("use file, keyring or passphrase".to_owned()),
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Keyring => "keyring",
            Self::Passphrase => "passphrase",
        })
    }
}

/// What opening a vault may need and this crate cannot do itself: the kernel's keyring, and a person.
pub trait Unlock {
    /// The bytes of a key of the user's keyring; nothing if it is not there.
    fn keyring_read(&self, name: &str) -> io::Result<Option<Zeroizing<Vec<u8>>>>;
    fn keyring_write(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
    fn keyring_remove(&self, name: &str) -> io::Result<()>;
    /// A new one is asked for twice.
    fn passphrase(&self, new: bool) -> io::Result<Zeroizing<Vec<u8>>>;
    /// What a guess at a new passphrase shall cost.
    fn stretch(&self) -> Stretch {
        Stretch::DEFAULT
    }
}

pub(super) fn kind(lock: &Lock) -> KeyKind {
    match lock {
        Lock::File { .. } => KeyKind::File,
        Lock::Keyring { .. } => KeyKind::Keyring,
        Lock::Passphrase { .. } => KeyKind::Passphrase,
    }
}

/// The key that the header names.
pub(super) fn find(lock: &Lock, paths: &Paths, unlock: &dyn Unlock) -> Result<CipherKey, VaultError> {
    match lock {
        Lock::File { id } => {
            let keys = key_lines(&paths.key)?;
            let found = keys.into_iter().find(|(name, _)| name == id).map(|(_, key)| key);
            found
                .map(CipherKey::new)
                .ok_or_else(|| VaultError::NoKeyFile { path: paths.key.clone(), id: id.clone() })
        }
        Lock::Keyring { id } => {
            let name = keyring_name(id);
            let bytes = unlock.keyring_read(&name).map_err(VaultError::Keyring)?;
            let bytes = bytes.ok_or_else(|| VaultError::NotInKeyring(name.clone()))?;
            let bytes: [u8; KEY_LEN] =
                bytes.as_slice().try_into().map_err(|_| VaultError::NotInKeyring(name))?;
            Ok(CipherKey::new(Zeroizing::new(bytes)))
        }
        Lock::Passphrase { salt: Salt(salt), memory_kib, passes, lanes } => {
            let stretch = Stretch { memory_kib: *memory_kib, passes: *passes, lanes: *lanes };
            let phrase = unlock.passphrase(false).map_err(VaultError::Passphrase)?;
            CipherKey::from_passphrase(&phrase, salt, stretch)
                .map_err(|source| VaultError::Stretch { path: paths.sealed.clone(), source })
        }
    }
}

/// A new key, kept where its kind is kept. Keys that are in use stay until [`forget`].
pub(super) fn make(
    kind: KeyKind,
    paths: &Paths,
    unlock: &dyn Unlock,
) -> Result<(Lock, CipherKey), VaultError> {
    if kind == KeyKind::Passphrase {
        let phrase = unlock.passphrase(true).map_err(VaultError::Passphrase)?;
        if phrase.len() < SHORTEST_PASSPHRASE {
            return Err(VaultError::WeakPassphrase(SHORTEST_PASSPHRASE));
        }
        let (salt, stretch) = (random::<SALT_LEN>()?, unlock.stretch());
        let key = CipherKey::from_passphrase(&phrase, &salt, stretch)
            .map_err(|source| VaultError::Stretch { path: paths.sealed.clone(), source })?;
        return Ok((Lock::passphrase(*salt, stretch), key));
    }
    let id: String = random::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = CipherKey::new(random::<KEY_LEN>()?);
    if kind == KeyKind::Keyring {
        unlock.keyring_write(&keyring_name(&id), key.reveal()).map_err(VaultError::Keyring)?;
        return Ok((Lock::Keyring { id }, key));
    }
    let mut keys = key_lines(&paths.key)?;
    keys.push((id.clone(), Zeroizing::new(*key.reveal())));
    write_key_lines(&paths.key, &keys)?;
    Ok((Lock::File { id }, key))
}

/// Drops the key that nothing is sealed with any more, and whatever else the file holds but the one in use.
pub(super) fn forget(old: &Lock, used: &Lock, paths: &Paths, unlock: &dyn Unlock) -> Result<(), VaultError> {
    match (old, used) {
        (Lock::Keyring { id }, _) => unlock.keyring_remove(&keyring_name(id)).map_err(VaultError::Keyring),
        (Lock::File { .. }, Lock::File { id }) => {
            let keys = key_lines(&paths.key)?;
            let kept: Vec<_> = keys.into_iter().filter(|(name, _)| name == id).collect();
            write_key_lines(&paths.key, &kept)
        }
        (Lock::File { .. }, _) => private::remove(&paths.key),
        (Lock::Passphrase { .. }, _) => Ok(()),
    }
}

pub(super) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, VaultError> {
    use rustix::rand::{GetRandomFlags, getrandom};
    let mut bytes = Zeroizing::new([0; N]);
    match getrandom(&mut *bytes, GetRandomFlags::empty()) {
        Ok(filled) if filled == N => Ok(bytes),
        Ok(_) => Err(VaultError::Random(io::ErrorKind::UnexpectedEof.into())),
        Err(errno) => Err(VaultError::Random(errno.into())),
    }
}

fn keyring_name(id: &str) -> String {
    format!("cofferdam-vault:{id}")
}

type Keys = Vec<(String, Zeroizing<[u8; KEY_LEN]>)>;

/// One key a line: its id, and the key in base64.
fn key_lines(path: &Path) -> Result<Keys, VaultError> {
    let Some(bytes) = private::read(path, MAX_KEY_FILE)? else { return Ok(Vec::new()) };
    let unusable = || VaultError::KeyFile(path.to_owned());
    let text = std::str::from_utf8(&bytes).map_err(|_| unusable())?;
    let read = |line: &str| {
        let (id, key) = line.split_once(' ')?;
        let key = Zeroizing::new(BASE64.decode(key).ok()?);
        Some((id.to_owned(), Zeroizing::new(<[u8; KEY_LEN]>::try_from(key.as_slice()).ok()?)))
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| read(line).ok_or_else(unusable)).collect()
}

fn write_key_lines(path: &Path, keys: &Keys) -> Result<(), VaultError> {
    let about =
        "# Opens vault.sealed in this directory. Who has both has the secrets; without it they are lost.\n";
    // Room for all of it at once, so that no copy is left behind.
    let mut text = Zeroizing::new(String::with_capacity(about.len() + keys.len() * 128));
    text.push_str(about);
    for (id, key) in keys {
        let coded = Zeroizing::new(BASE64.encode(**key));
        for part in [id, " ", &coded, "\n"] {
            text.push_str(part);
        }
    }
    private::replace(path, text.as_bytes())
}
