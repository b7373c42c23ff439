//! Where a value comes from: standard input, a variable, a file, a program, or a HashiCorp Vault. A value is never
//! part of a source's own text, so that the text can be kept and shown.

mod command;
mod kv;

pub use command::CommandError;
pub use kv::KvError;

use crate::Plain;
use crate::value::{self, ValueError};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use zeroize::{Zeroize, Zeroizing};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    Input,
    Env(String),
    File(PathBuf),
    /// A program and its arguments; no shell is between.
    Command(Vec<String>),
    /// A field of a secret in a KV version 2 store, by the path that `vault kv get` takes.
    Vault {
        path: String,
        field: String,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    // Whatever was given may be the value itself: it is not repeated.
    #[error(
        "--from names no source: use `-`, env:VAR, file:PATH, cmd:PROGRAM… or vault:PATH#FIELD; if you gave the value itself, it is now in your shell's history, so renew it"
    )]
    Unknown,
    #[error("`{0}` names nothing: write it as in `{1}`")]
    Incomplete(&'static str, &'static str),
    #[error("the command of `cmd:` has an unclosed quotation mark or ends in a backslash")]
    Quoting,
    #[error("the variable `{0}` is not set: set it, or name another source with --from")]
    Unset(String),
    #[error("cannot read `{path}`: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("cannot read the value from standard input: {0}")]
    Input(#[source] io::Error),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Vault(#[from] KvError),
    #[error("{from}: {source}")]
    Value { from: String, source: ValueError },
}

/// What a source reads from.
pub struct Outside<'a> {
    pub env: &'a dyn Fn(&str) -> Option<OsString>,
    pub input: &'a mut dyn Read,
}

impl Source {
    /// `-`, `env:VAR`, `file:PATH`, `cmd:PROGRAM ARGS`, `vault:PATH#FIELD`. Paths are made absolute: a source is
    /// read again later, from elsewhere.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        if text == "-" {
            return Ok(Self::Input);
        }
        let (kind, rest) = text.split_once(':').ok_or(SourceError::Unknown)?;
        match kind {
            "env" if rest.is_empty() => Err(SourceError::Incomplete("env:", "env:STRIPE_KEY")),
            "file" if rest.is_empty() => Err(SourceError::Incomplete("file:", "file:/run/secrets/key")),
            "env" => Ok(Self::Env(rest.to_owned())),
            "file" => {
                let absolute = std::path::absolute(rest);
                absolute.map(Self::File).map_err(|source| SourceError::File { path: rest.into(), source })
            }
            "cmd" => {
                let words = shlex::split(rest).ok_or(SourceError::Quoting)?;
                let named = words.first().is_some_and(|word| !word.is_empty());
                if named {
                    Ok(Self::Command(words))
                } else {
                    Err(SourceError::Incomplete("cmd:", "cmd:pass show stripe"))
                }
            }
            "vault" => {
                let parts =
                    rest.split_once('#').filter(|(path, field)| kv::is_path(path) && !field.is_empty());
                let (path, field) =
                    parts.ok_or(SourceError::Incomplete("vault:", "vault:secret/stripe#key"))?;
                Ok(Self::Vault { path: path.to_owned(), field: field.to_owned() })
            }
            _ => Err(SourceError::Unknown),
        }
    }

    /// All that it gives, where that is more than a value on one line.
    pub(crate) fn document(&self, outside: &mut Outside<'_>) -> Result<Zeroizing<Vec<u8>>, SourceError> {
        let bytes = match self {
            Self::Input => value::read(outside.input).map_err(SourceError::Input)?,
            Self::Env(name) => {
                let found = (outside.env)(name).ok_or_else(|| SourceError::Unset(name.clone()))?;
                Zeroizing::new(found.into_encoded_bytes())
            }
            Self::File(path) => read_file(path)?,
            Self::Command(words) => command::output(words)?,
            Self::Vault { path, field } => kv::get(path, field, outside.env)?,
        };
        match bytes.len() {
            0 => Err(self.unfit(ValueError::Empty)),
            length if length > value::LONGEST => Err(self.unfit(ValueError::TooLong)),
            _ => Ok(bytes),
        }
    }

    pub fn read(&self, outside: &mut Outside<'_>) -> Result<Plain, SourceError> {
        let value = |result| self.named(result);
        match self {
            Self::Input => {
                let bytes = value::read(outside.input).map_err(SourceError::Input)?;
                value(value::line(&bytes))
            }
            Self::Env(name) => {
                let found = (outside.env)(name).ok_or_else(|| SourceError::Unset(name.clone()))?;
                let mut bytes = found.into_encoded_bytes();
                let read = value::exact(&bytes);
                bytes.zeroize();
                value(read)
            }
            Self::File(path) => value(value::line(&read_file(path)?)),
            Self::Command(words) => value(value::line(&command::output(words)?)),
            Self::Vault { path, field } => value(value::exact(&kv::get(path, field, outside.env)?)),
        }
    }

    fn named(&self, value: Result<Plain, ValueError>) -> Result<Plain, SourceError> {
        value.map_err(|source| self.unfit(source))
    }

    fn unfit(&self, source: ValueError) -> SourceError {
        SourceError::Value { from: self.to_string(), source }
    }
}

fn read_file(path: &Path) -> Result<zeroize::Zeroizing<Vec<u8>>, SourceError> {
    let read = File::open(path).and_then(|mut file| value::read(&mut file));
    read.map_err(|source| SourceError::File { path: path.to_owned(), source })
}

/// For people: of a command only the program, since arguments may say more than they should.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input => f.write_str("stdin"),
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Command(words) => write!(f, "cmd:{}", words.first().map_or("", String::as_str)),
            Self::Vault { path, field } => write!(f, "vault:{path}#{field}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tempfile::TempDir;

    fn read(text: &str, input: &str) -> Result<String, String> {
        let source = Source::parse(text).map_err(|error| error.to_string())?;
        let env = |name: &str| (name == "KEY").then(|| OsString::from("from-the-environment"));
        let mut input = input.as_bytes();
        let plain =
            source.read(&mut Outside { env: &env, input: &mut input }).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(plain.reveal().to_vec()).unwrap())
    }

    fn check(text: &str, expected: Result<&str, &str>) {
        let found = read(text, "from-the-input\n");
        match (&found, expected) {
            (Ok(value), Ok(expected)) => assert_eq!(value, expected),
            (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
            _ => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn every_source_is_read() {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, "from-a-file\n").unwrap();
        check("-", Ok("from-the-input"));
        check("env:KEY", Ok("from-the-environment"));
        check(&format!("file:{}", file.display()), Ok("from-a-file"));
        check("cmd:echo 'from a  program'", Ok("from a  program"));
        check("cmd:echo $HOME*`id`", Ok("$HOME*`id`"));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        check("env:NOPE", Err("`NOPE` is not set"));
        check("file:/nonexistent/x", Err("/nonexistent/x"));
        check("cmd:", Err("cmd:pass show"));
        check("cmd:echo 'x", Err("unclosed"));
        check("env:", Err("env:STRIPE_KEY"));
        check("vault:secret/x", Err("vault:secret/stripe#key"));
        check("vault:x#y", Err("vault:secret/stripe#key"));
        check("vault:../x/y#z", Err("vault:secret/stripe#key"));
        check("cmd:printf short", Err("cmd:printf: the value has 5 bytes"));
        assert!(read("-", "").unwrap_err().contains("stdin: the value is empty"));
    }

    #[test]
    fn a_value_given_as_a_source_is_not_repeated() {
        for text in ["sk_live_secretsecret", "sk_live:secretsecret", "secretsecret"] {
            let error = read(text, "").unwrap_err();
            assert!(!error.contains("secret") && error.contains("history"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_source_or_an_error(text in "(env|file|cmd|vault|-)?:?.{0,40}") {
            let _ = Source::parse(&text);
        }
    }
}
