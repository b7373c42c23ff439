//! API keys: made once, told once, kept only as digests. A key has 160 random bits, so that a plain digest of it is
//! as good as none to whoever reads the file. Keys are revoked by the file alone: a service that runs sees it.

use crate::disk;
use cofferdam_seal::digest;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// How much of a key is shown again, so that people can tell one from another.
const SHOWN: usize = 10;

#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("the keys in {path} cannot be used: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("there is no key `{0}`; see `cofferdam apikey ls`")]
    Unknown(String),
    #[error("`{0}` is no tenant's name: use up to 63 of a-z, 0-9 and `-`, a letter first")]
    Tenant(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// A tenant's: its own sessions and nothing else.
    Api,
    /// The administrator's: all tenants, and what only an operator may do.
    Admin,
}

/// What is known of a key. Not the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    pub id: String,
    pub name: String,
    pub tenant: String,
    pub kind: KeyKind,
    /// Its beginning.
    pub shown: String,
    /// SHA-256 of all of it.
    pub digest: String,
    pub created_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_us: Option<u64>,
}

/// A key, at the one moment at which it can be told.
#[derive(Debug)]
pub struct NewKey {
    pub key: Key,
    pub secret: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    keys: Vec<Key>,
}

pub struct Keys {
    path: PathBuf,
    read: Mutex<Read>,
}

#[derive(Default)]
struct Read {
    /// Which file it was: another one has another inode or time.
    of: Option<(u64, i64, i64)>,
    valid: HashMap<String, Arc<Key>>,
}

impl Keys {
    /// The keys of a state directory.
    pub fn open(home: &Path) -> Result<Self, KeysError> {
        let dir = home.join("service");
        let path = dir.join("keys.json");
        disk::make_dir(&dir).map_err(|source| KeysError::File { path: path.clone(), source })?;
        Ok(Self { path, read: Mutex::default() })
    }

    fn failed(&self, source: io::Error) -> KeysError {
        KeysError::File { path: self.path.clone(), source }
    }

    pub fn list(&self) -> Result<Vec<Key>, KeysError> {
        self.contents().map(|contents| contents.keys)
    }

    fn contents(&self) -> Result<Contents, KeysError> {
        let read = disk::read::<Contents>(&self.path).map_err(|error| self.failed(error))?;
        Ok(read.unwrap_or_default())
    }

    /// Whoever writes is alone.
    fn change<T>(&self, act: impl FnOnce(&mut Contents) -> Result<T, KeysError>) -> Result<T, KeysError> {
        let lock = self.lock().map_err(|error| self.failed(error))?;
        let mut contents = self.contents()?;
        let done = act(&mut contents)?;
        disk::write(&self.path, &contents).map_err(|error| self.failed(error))?;
        drop(lock);
        Ok(done)
    }

    fn lock(&self) -> io::Result<File> {
        let path = self.path.with_extension("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    pub fn create(&self, kind: KeyKind, tenant: &str, name: &str, now_us: u64) -> Result<NewKey, KeysError> {
        if !cofferdam_model::is_name(tenant) {
            return Err(KeysError::Tenant(tenant.chars().take(80).collect()));
        }
        let random = disk::random_hex::<20>().map_err(|error| self.failed(error))?;
        let id = disk::random_hex::<6>().map_err(|error| self.failed(error))?;
        let secret = match kind {
            // The one form that every E2B SDK accepts.
            KeyKind::Api => format!("e2b_{random}"),
            KeyKind::Admin => format!("cofferdam_admin_{random}"),
        };
        let shown = match kind {
            KeyKind::Api => secret[..SHOWN].to_owned(),
            KeyKind::Admin => secret[..SHOWN + "cofferdam_admin_".len() - "e2b_".len()].to_owned(),
        };
        let key = Key {
            id,
            name: name.to_owned(),
            tenant: tenant.to_owned(),
            kind,
            shown,
            digest: hashed(&secret),
            created_us: now_us,
            revoked_us: None,
        };
        self.change(|contents| {
            contents.keys.push(key.clone());
            Ok(NewKey { key, secret })
        })
    }

    /// By id, or by what of it is shown. Never valid again.
    pub fn revoke(&self, which: &str, now_us: u64) -> Result<Key, KeysError> {
        self.change(|contents| {
            let mut found = contents.keys.iter_mut().filter(|key| key.id == which || key.shown == which);
            match (found.next(), found.next()) {
                (Some(key), None) => {
                    key.revoked_us.get_or_insert(now_us);
                    Ok(key.clone())
                }
                _ => Err(KeysError::Unknown(which.chars().take(40).collect())),
            }
        })
    }

    /// Whose key this is. A file that cannot be read lets nobody in.
    pub(crate) fn check(&self, secret: &str) -> Option<Arc<Key>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = std::fs::metadata(&self.path).ok().map(|m| (m.ino(), m.mtime(), m.mtime_nsec()));
        if now.is_none() || now != read.of {
            let keys = self.list().unwrap_or_default();
            let valid = keys.into_iter().filter(|key| key.revoked_us.is_none());
            read.valid = valid.map(|key| (key.digest.clone(), Arc::new(key))).collect();
            read.of = now;
        }
        // Found by its digest: how long that takes tells nothing of a key that is not known.
        read.valid.get(&hashed(secret)).cloned()
    }
}

fn hashed(secret: &str) -> String {
    digest(secret.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_told_once_kept_as_a_digest_and_gone_when_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(dir.path()).unwrap();
        let one = keys.create(KeyKind::Api, "default", "first", 1).unwrap();
        let two = keys.create(KeyKind::Admin, "default", "admin", 2).unwrap();
        assert!(one.secret.strip_prefix("e2b_").unwrap().bytes().all(|b| b.is_ascii_hexdigit()));
        let file = std::fs::read_to_string(dir.path().join("service/keys.json")).unwrap();
        assert!(!file.contains(&one.secret) && !file.contains(&two.secret));
        assert_eq!(keys.check(&one.secret).unwrap().kind, KeyKind::Api);
        assert!(keys.check("e2b_00").is_none() && keys.check("").is_none());
        // As another process does it.
        let other = Keys::open(dir.path()).unwrap();
        other.revoke(&one.key.id, 3).unwrap();
        assert!(keys.check(&one.secret).is_none());
        assert!(keys.check(&two.secret).is_some());
        assert!(other.revoke("nobody", 3).is_err());
        assert!(keys.create(KeyKind::Api, "../x", "", 1).is_err());
    }

    #[test]
    fn a_broken_file_lets_nobody_in() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(dir.path()).unwrap();
        let one = keys.create(KeyKind::Api, "default", "first", 1).unwrap();
        std::fs::write(dir.path().join("service/keys.json"), "{\"keys\": [").unwrap();
        assert!(keys.check(&one.secret).is_none());
    }
}
