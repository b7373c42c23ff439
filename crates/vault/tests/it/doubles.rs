//! A place with a vault in it, and what opens it.

use cofferdam_model::SessionId;
use cofferdam_seal::Stretch;
use cofferdam_vault::{Bound, Draft, Kept, Outside, SecretError, Unlock, Vault};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use tempfile::TempDir;
use zeroize::Zeroizing;

/// A keyring in memory, and a person who knows one passphrase.
#[derive(Default)]
pub(crate) struct Keys {
    pub(crate) ring: RefCell<BTreeMap<String, Vec<u8>>>,
    pub(crate) phrase: RefCell<String>,
}

impl Unlock for Keys {
    fn keyring_read(&self, name: &str) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        Ok(self.ring.borrow().get(name).cloned().map(Zeroizing::new))
    }

    fn keyring_write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.ring.borrow_mut().insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn keyring_remove(&self, name: &str) -> io::Result<()> {
        self.ring.borrow_mut().remove(name);
        Ok(())
    }

    fn passphrase(&self, _: bool) -> io::Result<Zeroizing<Vec<u8>>> {
        Ok(Zeroizing::new(self.phrase.borrow().as_bytes().to_vec()))
    }

    fn stretch(&self) -> Stretch {
        Stretch { memory_kib: 64, passes: 1, lanes: 1 }
    }
}

pub(crate) struct Place {
    pub(crate) dir: TempDir,
    pub(crate) keys: Keys,
    pub(crate) env: BTreeMap<&'static str, OsString>,
}

pub(crate) const VALUE: &str = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: TempDir::new().unwrap(), keys: Keys::default(), env: BTreeMap::new() }
    }

    pub(crate) fn vault(&self) -> Vault<'_> {
        Vault::new(self.dir.path(), &self.keys)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn draft(name: &str) -> Draft {
        Draft { name: name.into(), hosts: vec!["api.example.com".into()], ..Draft::default() }
    }

    pub(crate) fn with<T>(&self, input: &str, then: impl FnOnce(&mut Outside<'_>) -> T) -> T {
        let env = |name: &str| self.env.get(name).cloned();
        then(&mut Outside { env: &env, input: &mut input.as_bytes() })
    }

    pub(crate) fn add(&self, draft: Draft, input: &str) -> Result<Kept, SecretError> {
        self.with(input, |outside| self.vault().add(draft, outside, 1_000))
    }

    pub(crate) fn rotate(&self, name: &str, from: Option<&str>, input: &str) -> Result<Kept, SecretError> {
        self.with(input, |outside| self.vault().rotate(name, from, outside, 2_000))
    }

    pub(crate) fn bind(&self, names: &[&str]) -> Result<Vec<Bound>, SecretError> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let seed = Zeroizing::new([7; 32]);
        self.with("", |outside| self.vault().bind(&names, &SessionId::new(1, 1), seed, outside))
    }

    /// The real value of one secret.
    #[track_caller]
    pub(crate) fn value(&self, name: &str) -> String {
        let bound = self.bind(&[name]).map_err(|error| error.to_string()).unwrap();
        String::from_utf8(bound[0].plain.reveal().to_vec()).unwrap()
    }
}

/// The error of a result, in words.
#[track_caller]
pub(crate) fn refusal<T>(result: Result<T, SecretError>) -> String {
    result.err().expect("should have been refused").to_string()
}
