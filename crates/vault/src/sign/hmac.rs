//! Signatures by declaration: which bytes of a request, with which hash, in which writing, and where it stands. A file
//! of a few lines describes the scheme of a service that nobody here has heard of.

use crate::Plain;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use cofferdam_seal::Hash;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// As it is written in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// sha1, sha256, sha384, sha512
    #[serde(default = "sha256")]
    hash: String,
    /// How the key is written: text, base64, hex.
    #[serde(default)]
    key: Writing,
    /// How the signature is written: hex, base64, base64url.
    #[serde(default = "hex")]
    encoding: Writing,
    /// Where it stands: `header:NAME` or `query:NAME`.
    #[serde(rename = "in")]
    place: String,
    /// What stands before it there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    prefix: String,
    /// What is signed: a text with `{method}`, `{path}`, `{query}`, `{target}`, `{host}`, `{body}`, `{body_sha256}`,
    /// `{body_sha512}`, `{header:NAME}` and `{query:NAME}` in it.
    text: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Writing {
    #[default]
    Text,
    Hex,
    Base64,
    Base64url,
}

fn sha256() -> String {
    "sha256".to_owned()
}

fn hex() -> Writing {
    Writing::Hex
}

/// A piece of what is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    Method,
    Path,
    /// Without the signature, where that stands in it.
    Query,
    /// Path and query.
    Target,
    Host,
    Body,
    /// In hexadecimal digits.
    BodyHash(Hash),
    Header(String),
    Parameter(String),
}

/// Where a signature stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stands {
    Header(String),
    Query(String),
}

/// A declaration that was read and found right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    hash: Hash,
    key: Writing,
    encoding: Writing,
    pub stands: Stands,
    pub prefix: String,
    pub pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemeError {
    #[error("`{path}` cannot be read: {why}")]
    File { path: String, why: String },
    #[error("the declaration cannot be read at line {line}: {why}")]
    Syntax { line: usize, why: String },
    #[error("`hash`: {0}")]
    Hash(#[from] cofferdam_seal::UnknownHash),
    #[error("`encoding`: a signature is bytes: use hex, base64 or base64url")]
    Encoding,
    #[error("`in`: write header:NAME or query:NAME, and found `{0}`")]
    Place(String),
    #[error(
        "`text`: there is no `{{{0}}}`: use method, path, query, target, host, body, body_sha256, body_sha512, header:NAME or query:NAME"
    )]
    Piece(String),
    #[error("`text`: a `{{` without its `}}`")]
    Open,
    #[error("`text` covers neither body nor path: a signature over less can be put under any request")]
    Bare,
    #[error("it is signed with text that is not {0}: write the key as the declaration says")]
    Key(&'static str),
}

const LONGEST: u64 = 64 << 10;

impl Declaration {
    /// A file in TOML.
    pub fn read(path: &str) -> Result<Self, SchemeError> {
        let failed = |why: String| SchemeError::File { path: path.chars().take(200).collect(), why };
        let length = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
        if length > LONGEST {
            return Err(failed("it is too large for what it should be".into()));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        Self::parse(&text)
    }

    pub fn parse(text: &str) -> Result<Self, SchemeError> {
        let syntax = |error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            SchemeError::Syntax { line: before.matches('\n').count() + 1, why: error.message().to_owned() }
        };
        let declaration: Self = toml::from_str(text).map_err(syntax)?;
        declaration.scheme()?;
        Ok(declaration)
    }

    pub fn scheme(&self) -> Result<Scheme, SchemeError> {
        let stands = match self.place.split_once(':') {
            Some(("header", name)) if is_name(name) => Stands::Header(name.to_ascii_lowercase()),
            Some(("query", name)) if is_name(name) => Stands::Query(name.to_owned()),
            _ => return Err(SchemeError::Place(self.place.chars().take(80).collect())),
        };
        if self.encoding == Writing::Text {
            return Err(SchemeError::Encoding);
        }
        let pieces = pieces(&self.text)?;
        let covers =
            |piece: &Piece| !matches!(piece, Piece::Text(_) | Piece::Header(_) | Piece::Method | Piece::Host);
        if !pieces.iter().any(covers) {
            return Err(SchemeError::Bare);
        }
        let (hash, prefix) = (self.hash.parse()?, self.prefix.clone());
        Ok(Scheme { hash, key: self.key, encoding: self.encoding, stands, prefix, pieces })
    }
}

impl Scheme {
    /// The signature as it is written, with what stands before it.
    pub fn sign(&self, key: &Plain, parts: &[&[u8]]) -> Option<String> {
        let key = match self.key {
            Writing::Text => Zeroizing::new(key.reveal().to_vec()),
            Writing::Base64 => Zeroizing::new(STANDARD.decode(key.reveal()).ok()?),
            Writing::Base64url => Zeroizing::new(URL_SAFE_NO_PAD.decode(key.reveal()).ok()?),
            Writing::Hex => Zeroizing::new(unhex(key.reveal())?),
        };
        let signature = self.hash.authenticate(&key, parts);
        let written = match self.encoding {
            Writing::Base64 => STANDARD.encode(&*signature),
            Writing::Base64url => URL_SAFE_NO_PAD.encode(&*signature),
            Writing::Hex | Writing::Text => signature.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        Some(format!("{}{written}", self.prefix))
    }

    /// Whether all of the body is signed.
    pub fn needs_body(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Body | Piece::BodyHash(_)))
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn pieces(text: &str) -> Result<Vec<Piece>, SchemeError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        let (name, behind) = after.split_once('}').ok_or(SchemeError::Open)?;
        pieces.push(piece(name)?);
        rest = behind;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

fn piece(name: &str) -> Result<Piece, SchemeError> {
    let unknown = || SchemeError::Piece(name.chars().take(40).collect());
    match (name, name.split_once(':')) {
        ("method", _) => Ok(Piece::Method),
        ("path", _) => Ok(Piece::Path),
        ("query", _) => Ok(Piece::Query),
        ("target", _) => Ok(Piece::Target),
        ("host", _) => Ok(Piece::Host),
        ("body", _) => Ok(Piece::Body),
        ("body_sha256", _) => Ok(Piece::BodyHash(Hash::Sha256)),
        ("body_sha512", _) => Ok(Piece::BodyHash(Hash::Sha512)),
        (_, Some(("header", name))) if is_name(name) => Ok(Piece::Header(name.to_ascii_lowercase())),
        (_, Some(("query", name))) if is_name(name) => Ok(Piece::Parameter(name.to_owned())),
        _ => Err(unknown()),
    }
}

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    (text.len().is_multiple_of(2) && text.iter().all(u8::is_ascii_hexdigit))
        .then(|| text.chunks(2).map(byte).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: Result<usize, &str>) {
        let found = Declaration::parse(text).and_then(|declaration| declaration.scheme());
        match (&found, expected) {
            (Ok(scheme), Ok(pieces)) => assert_eq!(scheme.pieces.len(), pieces),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
            _ => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn a_scheme_is_a_few_lines() {
        check("in = \"query:signature\"\ntext = \"{query}{body}\"", Ok(2));
        check(
            "in = \"header:X-Sign\"\nhash = \"sha512\"\nkey = \"base64\"\nencoding = \"base64\"\ntext = \"{header:X-Time}\\n{method}\\n{target}\\n{body_sha256}\"",
            Ok(7),
        );
        check("text = \"{body}\"", Err("missing field `in`"));
        check("in = \"cookie\"\ntext = \"{body}\"", Err("header:NAME or query:NAME"));
        check("in = \"header:x\"\ntext = \"{bodi}\"", Err("no `{bodi}`"));
        check("in = \"header:x\"\ntext = \"{body\"", Err("without its"));
        check("in = \"header:x\"\ntext = \"{header:x-time}\"", Err("neither body nor path"));
        check("in = \"header:x\"\ntext = \"{body}\"\nhash = \"md5\"", Err("`md5` is not a hash"));
        check("in = \"header:x\"\ntext = \"{body}\"\nsecret = \"x\"", Err("unknown field `secret`"));
    }

    #[test]
    fn a_signature_as_its_service_writes_it() {
        let of = |text: &str| Declaration::parse(text).unwrap().scheme().unwrap();
        let key = Plain::new(b"Jefe".to_vec());
        let hex = of("in = \"header:x\"\nprefix = \"sha256=\"\ntext = \"{body}\"");
        assert_eq!(
            hex.sign(&key, &[b"what do ya want ", b"for nothing?"]).unwrap(),
            "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let coded = of("in = \"header:x\"\nkey = \"hex\"\nencoding = \"base64\"\ntext = \"{body}\"");
        let key = Plain::new(b"4a656665".to_vec());
        assert_eq!(
            coded.sign(&key, &[b"what do ya want for nothing?"]).unwrap(),
            "W9zBRr9gdU5qBCQmCJV1x1oAPwidJzmDnexYuWTsOEM="
        );
        assert!(coded.sign(&Plain::new(b"no hex".to_vec()), &[]).is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_a_declaration_or_an_error(text in "(in = \"header:x\"\n)?(text = \"[a-z{}:]{0,20}\")?.{0,30}") {
            let _ = Declaration::parse(&text);
        }
    }
}
