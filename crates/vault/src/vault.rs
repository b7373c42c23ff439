//! What can be done with secrets: add, list, replace, revoke, remove, and bind them to a session. A value comes in
//! from a source and goes out in a [`Bound`]; nothing here shows one.

use crate::credential::CredentialError;
use crate::draft::{Draft, Remark, Settled, remarks};
use crate::placeholder::{Mint, PlaceholderError};
use crate::sealed::{About, Contents, KeyKind, Record, SealedFile, Unlock, VaultError};
use crate::source::{Outside, Source, SourceError};
use crate::{Bound, PlaceError, Plain, PresetError};
use cofferdam_model::SessionId;
use cofferdam_seal::{KEY_LEN, mark};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use zeroize::Zeroizing;

const MAX_SECRETS: usize = 4_096;

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Preset(#[from] PresetError),
    #[error(transparent)]
    Placeholder(#[from] PlaceholderError),
    #[error(
        "there is a secret `{0}` already: replace its value with `cofferdam secret rotate {0}`, or remove it with `cofferdam secret rm {0}`"
    )]
    Exists(String),
    #[error(
        "there is no secret `{0}`: see `cofferdam secret ls`, or add it with `cofferdam secret add {0} …`"
    )]
    Missing(String),
    #[error("the secret `{0}` was revoked: give it a new value with `cofferdam secret rotate {0}`")]
    Revoked(String),
    #[error("this is the value of `{0}` that was revoked: give a new one")]
    SameAsRevoked(String),
    #[error(
        "standard input cannot be read again for every session: leave out --live, or name another source"
    )]
    LiveInput,
    #[error(
        "the secrets `{first}` and `{second}` both stand in the variable `{env}`: use one of them, or add one again with another --env"
    )]
    SameVariable { first: String, second: String, env: String },
    #[error("there are {MAX_SECRETS} secrets already: remove some with `cofferdam secret rm`")]
    Full,
}

/// A secret as it may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub name: String,
    pub env: String,
    pub hosts: Vec<String>,
    pub places: Vec<String>,
    pub programs: Vec<String>,
    pub source: String,
    /// Read from its source for every session, and not stored.
    pub live: bool,
    /// Milliseconds since 1970, as all times here.
    pub added: u64,
    pub changed: u64,
    pub revoked: Option<u64>,
    pub generation: u64,
    /// The same for the same value in this vault. Made with a key that never leaves it, and too short to search
    /// for a value by it.
    pub fingerprint: Option<String>,
}

impl Entry {
    fn of(about: &About) -> Self {
        let About { credential, source, live, added, changed, revoked, generation, mark } = about;
        let hex = |mark: &[u8; 32]| mark.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        Self {
            name: credential.name.clone(),
            env: credential.env.clone(),
            hosts: credential.hosts.clone(),
            places: credential.places.iter().map(ToString::to_string).collect(),
            programs: credential.programs.clone(),
            source: source.to_string(),
            live: *live,
            added: *added,
            changed: *changed,
            revoked: *revoked,
            generation: *generation,
            fingerprint: mark.as_ref().filter(|_| !live).map(hex),
        }
    }
}

/// What became of a value that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub entry: Entry,
    pub remarks: Vec<Remark>,
}

pub struct Vault<'a> {
    file: SealedFile<'a>,
}

impl<'a> Vault<'a> {
    /// The vault of a state directory. Nothing is read or made yet.
    pub fn new(dir: &Path, unlock: &'a dyn Unlock) -> Self {
        Self { file: SealedFile::new(dir, unlock) }
    }

    /// Seals the vault with a new key of this kind, also where it is empty. Says which kind it had before.
    pub fn rekey(&self, kind: KeyKind) -> Result<Option<KeyKind>, SecretError> {
        Ok(self.file.rekey(kind)?)
    }

    pub fn list(&self) -> Result<Vec<Entry>, SecretError> {
        let contents = self.file.read()?;
        Ok(contents
            .iter()
            .flat_map(|contents| &contents.records)
            .map(|record| Entry::of(&record.about))
            .collect())
    }

    /// Reads the value and keeps it, or what it is read from.
    pub fn add(&self, draft: Draft, outside: &mut Outside<'_>, now: u64) -> Result<Kept, SecretError> {
        let live = draft.live;
        let Settled { credential, source, preset } = draft.settle()?;
        match self.about(&credential.name) {
            Ok(_) => return Err(SecretError::Exists(credential.name)),
            Err(SecretError::Missing(_)) => {}
            Err(error) => return Err(error),
        }
        // Also where it is not stored: a source that cannot be read is found out now.
        let value = source.read(outside)?;
        let remarks = remarks(&value, preset);
        self.file.change(|contents| {
            if find(contents, &credential.name).is_ok() {
                return Err(SecretError::Exists(credential.name));
            }
            if contents.records.len() >= MAX_SECRETS {
                return Err(SecretError::Full);
            }
            let mark = Some(mark(&contents.mark_key, value.reveal()));
            let about = About {
                credential,
                source,
                live,
                added: now,
                changed: now,
                revoked: None,
                generation: 1,
                mark,
            };
            let entry = Entry::of(&about);
            contents.records.push(Record { about, value: (!live).then_some(value) });
            contents.records.sort_by(|a, b| a.about.credential.name.cmp(&b.about.credential.name));
            Ok(Kept { entry, remarks })
        })
    }

    /// Replaces a value, from another source or from the one it had. A revoked secret can be used again, but not
    /// with the value that was revoked.
    pub fn rotate(
        &self,
        name: &str,
        from: Option<&str>,
        outside: &mut Outside<'_>,
        now: u64,
    ) -> Result<Kept, SecretError> {
        let about = self.about(name)?;
        let source = from.map(Source::parse).transpose()?.unwrap_or(about.source);
        if about.live && source == Source::Input {
            return Err(SecretError::LiveInput);
        }
        let value = source.read(outside)?;
        let mut remarks = remarks(&value, None);
        self.file.change(|contents| {
            let mark = mark(&contents.mark_key, value.reveal());
            let record = find(contents, name)?;
            let about = &mut record.about;
            let same = about.mark.is_some_and(|old| cofferdam_seal::same(&old, &mark));
            if same && about.revoked.is_some() {
                return Err(SecretError::SameAsRevoked(name.to_owned()));
            }
            if same {
                remarks.push(Remark::Same);
            }
            about.generation += 1;
            (about.source, about.mark) = (source, Some(mark));
            (about.changed, about.revoked) = (now, None);
            record.value = (!about.live).then_some(value);
            Ok(Kept { entry: Entry::of(&record.about), remarks })
        })
    }

    /// Wipes the value and keeps the name, so that its use is refused and not merely unknown.
    pub fn revoke(&self, name: &str, now: u64) -> Result<Entry, SecretError> {
        self.existing(name, |contents| {
            let record = find(contents, name)?;
            if record.about.revoked.is_none() {
                record.about.revoked = Some(now);
                record.about.generation += 1;
            }
            record.value = None;
            Ok(Entry::of(&record.about))
        })
    }

    pub fn remove(&self, name: &str) -> Result<Entry, SecretError> {
        self.existing(name, |contents| {
            let entry = Entry::of(&find(contents, name)?.about);
            contents.records.retain(|record| record.about.credential.name != name);
            Ok(entry)
        })
    }

    /// The named secrets for one session, each once, with placeholders of its own. Those that are read live are
    /// read now. The seed is 32 random bytes: with the same one, a session finds its placeholders again.
    pub fn bind(
        &self,
        names: &[String],
        session: &SessionId,
        seed: Zeroizing<[u8; KEY_LEN]>,
        outside: &mut Outside<'_>,
    ) -> Result<Vec<Bound>, SecretError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let first = names.first().map_or("", String::as_str);
        let mut contents = self.file.read()?.ok_or_else(|| missing(first))?;
        let mut taken: Vec<(About, Plain)> = Vec::with_capacity(names.len());
        for name in names {
            if taken.iter().any(|(about, _)| about.credential.name == *name) {
                continue;
            }
            let record = find(&mut contents, name)?;
            if record.about.revoked.is_some() {
                return Err(SecretError::Revoked(name.clone()));
            }
            let value = match record.value.take() {
                Some(value) => value,
                None => record.about.source.read(outside)?,
            };
            taken.push((record.about.clone(), value));
        }
        distinct_variables(&taken)?;
        with_placeholders(taken, Mint::new(seed, session.clone()))
    }

    fn about(&self, name: &str) -> Result<About, SecretError> {
        let mut contents = self.file.read()?.ok_or_else(|| missing(name))?;
        Ok(find(&mut contents, name)?.about.clone())
    }

    fn existing<T>(
        &self,
        name: &str,
        change: impl FnOnce(&mut Contents) -> Result<T, SecretError>,
    ) -> Result<T, SecretError> {
        // Asked first, so that a name that is not there makes no vault.
        self.about(name)?;
        self.file.change(change)
    }
}

fn find<'c>(contents: &'c mut Contents, name: &str) -> Result<&'c mut Record, SecretError> {
    let found = contents.records.iter_mut().find(|record| record.about.credential.name == name);
    found.ok_or_else(|| missing(name))
}

fn missing(name: &str) -> SecretError {
    SecretError::Missing(name.chars().filter(|c| !c.is_control()).take(80).collect())
}

fn distinct_variables(taken: &[(About, Plain)]) -> Result<(), SecretError> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for (About { credential, .. }, _) in taken {
        if let Some(first) = seen.insert(&credential.env, &credential.name) {
            return Err(SecretError::SameVariable {
                first: first.to_owned(),
                second: credential.name.clone(),
                env: credential.env.clone(),
            });
        }
    }
    Ok(())
}

fn with_placeholders(taken: Vec<(About, Plain)>, mut mint: Mint) -> Result<Vec<Bound>, SecretError> {
    let values: Vec<&Plain> = taken.iter().map(|(_, value)| value).collect();
    let made = taken.iter().map(|(about, value)| mint.placeholder(&about.credential.name, value, &values));
    let made: Vec<String> = made.collect::<Result<_, _>>()?;
    let bound = taken.into_iter().zip(made).map(|((about, plain), placeholder)| Bound {
        credential: about.credential,
        placeholder,
        plain,
        generation: about.generation,
    });
    Ok(bound.collect())
}
