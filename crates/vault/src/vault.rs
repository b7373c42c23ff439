//! What can be done with secrets: add, list, replace, revoke, remove, and bind them to a session. A value comes in
//! from a source and goes out in a [`Bound`]; nothing here shows one.

use crate::credential::CredentialError;
use crate::draft::{Draft, Remark, Settled, remarks};
use crate::placeholder::{Mint, PlaceholderError};
use crate::sealed::{About, Contents, KeyKind, Record, SealedFile, Unlock, VaultError};
use crate::sign::{self, Document, DocumentError, SchemeError, ScopeError, Whole};
use crate::source::{Outside, Source, SourceError};
use crate::{Bound, Credential, Part, PlaceError, Plain, Preset, PresetError, Role};
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
    Scope(#[from] ScopeError),
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    #[error("`hmac` needs a file that declares what is signed: write `--as hmac:FILE`")]
    NoDeclaration,
    #[error("{from}: {source}")]
    Document { from: String, source: DocumentError },
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
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
            scopes: credential.scopes.iter().map(ToString::to_string).collect(),
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
        let value = read(&credential, &source, outside)?;
        let remarks = remarks_on(&credential, &value, preset);
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
        let value = read(&about.credential, &source, outside)?;
        let mut remarks = remarks_on(&about.credential, &value, None);
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
        let mut taken: Vec<(About, Whole)> = Vec::with_capacity(names.len());
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
                None => read(&record.about.credential, &record.about.source, outside)?,
            };
            let whole = sign::split(&record.about.credential, value);
            taken.push((record.about.clone(), whole));
        }
        distinct_variables(&taken)?;
        with_placeholders(taken, &mut Mint::new(seed, session.clone()))
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

/// A value as it is kept: a line, or the lines that a document of several values comes to.
fn read(credential: &Credential, source: &Source, outside: &mut Outside<'_>) -> Result<Plain, SecretError> {
    let document = Document::of(&credential.places);
    if document == Document::Line {
        return Ok(source.read(outside)?);
    }
    let mut bytes = source.document(outside)?;
    if let (Document::Aws, Source::Env(name)) = (document, source)
        && name == "AWS_SECRET_ACCESS_KEY"
    {
        bytes = beside_it(&bytes, outside);
    }
    let failed = |why| SecretError::Document { from: source.to_string(), source: why };
    sign::read_document(&credential.places, &bytes).map_err(failed)
}

/// The variables that stand beside this one, as the lines of a file would.
fn beside_it(secret: &[u8], outside: &Outside<'_>) -> Zeroizing<Vec<u8>> {
    let mut lines = Zeroizing::new(Vec::with_capacity(64 << 10));
    lines.extend_from_slice(b"AWS_SECRET_ACCESS_KEY=");
    lines.extend_from_slice(secret);
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"] {
        let Some(value) = (outside.env)(name) else { continue };
        lines.extend_from_slice(format!("\n{name}=").as_bytes());
        lines.extend_from_slice(&Zeroizing::new(value.into_encoded_bytes()));
    }
    lines
}

/// On the value that signs, where there are several.
fn remarks_on(credential: &Credential, kept: &Plain, preset: Option<&'static Preset>) -> Vec<Remark> {
    let whole = sign::split(credential, Plain::new(kept.reveal().to_vec()));
    remarks(&whole.main, preset)
}

fn distinct_variables(taken: &[(About, Whole)]) -> Result<(), SecretError> {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for (About { credential, .. }, _) in taken {
        let parts = sign::roles(credential).into_iter().map(|(_, env)| env);
        for env in std::iter::once(credential.env.clone()).chain(parts).filter(|env| !env.is_empty()) {
            if let Some(first) = seen.insert(env.clone(), &credential.name) {
                let (first, second) = (first.to_owned(), credential.name.clone());
                return Err(SecretError::SameVariable { first, second, env });
            }
        }
    }
    Ok(())
}

fn with_placeholders(taken: Vec<(About, Whole)>, mint: &mut Mint) -> Result<Vec<Bound>, SecretError> {
    let values: Vec<&Plain> = taken.iter().flat_map(|(_, whole)| whole.values()).collect();
    let mut made = Vec::with_capacity(taken.len());
    for (about, whole) in &taken {
        let name = &about.credential.name;
        let main = mint.placeholder(name, &whole.main, &values)?;
        let part =
            |(role, plain): &(Role, Plain)| mint.placeholder(&format!("{name} {role:?}"), plain, &values);
        let parts: Vec<String> = whole.parts.iter().map(part).collect::<Result<_, _>>()?;
        made.push((main, parts));
    }
    let bound = taken.into_iter().zip(made).map(|((about, whole), (placeholder, parts))| {
        let roles = sign::roles(&about.credential);
        let env = |role: Role| roles.iter().find(|(of, _)| *of == role).map(|(_, env)| env.clone());
        let part = |((role, plain), placeholder)| Part {
            role,
            env: env(role).unwrap_or_default(),
            placeholder,
            plain,
        };
        let parts = whole.parts.into_iter().zip(parts).map(part).collect();
        let (credential, generation) = (about.credential, about.generation);
        Bound { credential, placeholder, plain: whole.main, generation, parts }
    });
    Ok(bound.collect())
}
