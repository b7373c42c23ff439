//! The vault of the state directory, joined with what opens it: the kernel's keyring, a passphrase file, or a
//! person whom the door asks. Before anything is opened, this process's memory is kept out of core dumps.

use crate::Engine;
use crate::error::EngineError;
use cofferdam_model::SessionId;
use cofferdam_sys::{dump, keyring};
use cofferdam_vault::{Bound, Draft, Entry, Kept, KeyKind, Outside, Unlock, Vault};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::time::{SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Names a file with the vault's passphrase, for programs that nobody sits at. `/dev/fd/3` is one too.
const PASSPHRASE_FILE: &str = "COFFERDAM_VAULT_PASSPHRASE_FILE";
/// The same for a new one, where it shall differ.
const NEW_PASSPHRASE_FILE: &str = "COFFERDAM_VAULT_NEW_PASSPHRASE_FILE";
const MAX_PASSPHRASE: u64 = 4 << 10;

/// Asks a person for something that is not shown while it is typed.
pub type Ask = dyn Fn(&str) -> io::Result<Zeroizing<Vec<u8>>>;

/// For a door without a person behind it.
pub fn nobody(_: &str) -> io::Result<Zeroizing<Vec<u8>>> {
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!("nobody can be asked; name a file with {PASSPHRASE_FILE}"),
    ))
}

/// What can be done with secrets.
pub struct Secrets<'a> {
    engine: &'a Engine,
    keys: Keys<'a>,
}

impl Engine {
    /// `ask` is used where a passphrase or a value has to be typed.
    pub fn secrets<'a>(&'a self, ask: &'a Ask) -> Result<Secrets<'a>, EngineError> {
        let doing = "keeping secrets out of core dumps";
        dump::keep_memory_out().map_err(|source| EngineError::Io { doing, source })?;
        Ok(Secrets { engine: self, keys: Keys { ask } })
    }
}

impl Secrets<'_> {
    pub fn list(&self) -> Result<Vec<Entry>, EngineError> {
        Ok(self.vault().list()?)
    }

    pub fn add(&self, draft: Draft) -> Result<Kept, EngineError> {
        let mut input = self.input(&draft.name);
        Ok(self.vault().add(draft, &mut Outside { env: &variable, input: &mut input }, now())?)
    }

    /// Keeps a value that the caller has, in place of the one that was there.
    pub fn put(&self, draft: Draft, value: Vec<u8>) -> Result<Kept, EngineError> {
        let value = Zeroizing::new(value);
        let vault = self.vault();
        if vault.list()?.iter().any(|entry| entry.name == draft.name) {
            vault.remove(&draft.name)?;
        }
        let draft = Draft { from: None, live: false, ..draft };
        let mut input = value.as_slice();
        Ok(vault.add(draft, &mut Outside { env: &variable, input: &mut input }, now())?)
    }

    pub fn rotate(&self, name: &str, from: Option<&str>) -> Result<Kept, EngineError> {
        let mut input = self.input(name);
        Ok(self.vault().rotate(name, from, &mut Outside { env: &variable, input: &mut input }, now())?)
    }

    pub fn revoke(&self, name: &str) -> Result<Entry, EngineError> {
        Ok(self.vault().revoke(name, now())?)
    }

    pub fn remove(&self, name: &str) -> Result<Entry, EngineError> {
        Ok(self.vault().remove(name)?)
    }

    /// Seals the vault with a new key of this kind; says which kind it had.
    pub fn rekey(&self, kind: KeyKind) -> Result<Option<KeyKind>, EngineError> {
        Ok(self.vault().rekey(kind)?)
    }

    /// The named secrets with the placeholders of one session.
    pub fn bind(&self, names: &[String], session: &SessionId) -> Result<Vec<Bound>, EngineError> {
        let mut seed = Zeroizing::new([0; 32]);
        let doing = "drawing random bytes";
        let filled = getrandom(&mut *seed, GetRandomFlags::empty())
            .map_err(|errno| EngineError::Io { doing, source: errno.into() })?;
        if filled != seed.len() {
            return Err(EngineError::Io { doing, source: io::ErrorKind::UnexpectedEof.into() });
        }
        let mut outside = Outside { env: &variable, input: &mut io::empty() };
        Ok(self.vault().bind(names, session, seed, &mut outside)?)
    }

    fn vault(&self) -> Vault<'_> {
        Vault::new(self.engine.home.path(), &self.keys)
    }

    fn input(&self, name: &str) -> Input<'_> {
        Input { ask: self.keys.ask, prompt: format!("value of {name}"), typed: None }
    }
}

/// The variables that the inside sees, with placeholders in them.
pub fn placeholder_variables(bound: &[Bound]) -> Vec<(String, String)> {
    let owned = |(name, placeholder): (&str, &str)| (name.to_owned(), placeholder.to_owned());
    bound.iter().flat_map(Bound::variables).map(owned).collect()
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Standard input; on a terminal the value is asked for and not shown.
struct Input<'a> {
    ask: &'a Ask,
    prompt: String,
    typed: Option<(Zeroizing<Vec<u8>>, usize)>,
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.typed.is_none() && !io::stdin().is_terminal() {
            // Past the buffer of the standard library, in which the value would stay.
            return Ok(rustix::io::read(rustix::stdio::stdin(), buffer)?);
        }
        if self.typed.is_none() {
            self.typed = Some(((self.ask)(&self.prompt)?, 0));
        }
        let Some((typed, done)) = &mut self.typed else { return Ok(0) };
        let mut rest = typed.get(*done..).unwrap_or_default();
        let read = rest.read(buffer)?;
        *done += read;
        Ok(read)
    }
}

struct Keys<'a> {
    ask: &'a Ask,
}

impl Unlock for Keys<'_> {
    fn keyring_read(&self, name: &str) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
        Ok(keyring::read(name)?.map(Zeroizing::new))
    }

    fn keyring_write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        Ok(keyring::write(name, bytes)?)
    }

    fn keyring_remove(&self, name: &str) -> io::Result<()> {
        Ok(keyring::remove(name)?)
    }

    fn passphrase(&self, new: bool) -> io::Result<Zeroizing<Vec<u8>>> {
        let named = |name: &str| variable(name).filter(|path| !path.is_empty());
        let path = if new { named(NEW_PASSPHRASE_FILE) } else { None };
        if let Some(path) = path.or_else(|| named(PASSPHRASE_FILE)) {
            return passphrase_in(File::open(&path)?);
        }
        if !new {
            return (self.ask)("passphrase of the vault");
        }
        let (first, second) = ((self.ask)("new passphrase of the vault")?, (self.ask)("the same again")?);
        let differ = || io::Error::new(io::ErrorKind::InvalidInput, "the two differ; try again");
        if *first == *second { Ok(first) } else { Err(differ()) }
    }
}

/// One line.
fn passphrase_in(file: File) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_PASSPHRASE as usize + 1));
    file.take(MAX_PASSPHRASE).read_to_end(&mut bytes)?;
    let end = bytes.iter().position(|&byte| byte == b'\n' || byte == b'\r').unwrap_or(bytes.len());
    bytes.truncate(end);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// As the caller of `add` would have it, from a file.
    fn add(secrets: &Secrets<'_>, dir: &TempDir, name: &str, value: &str) {
        let file = dir.path().join(name);
        std::fs::write(&file, value).unwrap();
        let draft = Draft {
            name: name.into(),
            from: Some(format!("file:{}", file.display())),
            hosts: vec!["api.example.com".into()],
            ..Draft::default()
        };
        secrets.add(draft).unwrap();
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_session_sees_placeholders_of_its_own() {
        let dir = TempDir::new().unwrap();
        let engine = Engine::open(Some(dir.path().join("home"))).unwrap();
        let secrets = engine.secrets(&nobody).unwrap();
        let real = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";
        add(&secrets, &dir, "one", real);
        add(&secrets, &dir, "two", "ghp_0123456789abcdefghijklmnopqrstuvwxyz");
        let names: Vec<String> = ["two", "one", "two"].map(Into::into).to_vec();
        let bind = |n| secrets.bind(&names, &SessionId::new(n, n)).unwrap();
        let (first, second) = (bind(1), bind(2));
        assert_eq!(
            first.iter().map(|bound| bound.credential.name.as_str()).collect::<Vec<_>>(),
            ["two", "one"]
        );
        let variables = placeholder_variables(&first);
        assert_eq!(variables[1].0, "ONE");
        assert!(
            variables[1].1.starts_with("sk_live_")
                && variables[1].1 != real
                && variables[1].1.len() == real.len()
        );
        assert_ne!(first[0].placeholder, second[0].placeholder);
        assert!(secrets.bind(&["three".into()], &SessionId::new(1, 1)).is_err());
        secrets.revoke("one").unwrap();
        let error = secrets.bind(&names, &SessionId::new(1, 1)).err().unwrap().to_string();
        assert!(error.contains("`one` was revoked"), "{error}");
        assert!(secrets.bind(&[], &SessionId::new(1, 1)).unwrap().is_empty());
    }

    #[test]
    fn a_passphrase_is_one_line_of_its_file() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("phrase");
        for text in ["correct horse", "correct horse\n", "correct horse\r\nsecond line\n"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(*passphrase_in(File::open(&path).unwrap()).unwrap(), b"correct horse");
        }
    }
}
