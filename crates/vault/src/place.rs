//! Where in a request a credential may stand, as people write it: `bearer`, `header:x-api-key`, `query:key`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where in a request a credential may stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// `Authorization: Bearer …` (and the scheme `token`).
    Bearer,
    /// This header, anywhere in its value. Names are lower case.
    Header(String),
    /// `Authorization: Basic`, as the user or as the password.
    Basic,
    /// This parameter of the query.
    Query(String),
    /// A field of a JSON or form body, by its path: `auth.token`.
    Body(String),
    /// Nowhere: it makes the signature of AWS, version 4.
    #[serde(rename = "sigv4")]
    SigV4,
    /// The same, version 4A.
    #[serde(rename = "sigv4a")]
    SigV4a,
    /// Nowhere: it makes the signature of Azure Storage.
    AzureSharedKey,
    /// Nowhere: it makes a signature as the credential declares it.
    Hmac,
    /// Nowhere: a service account of Google's, exchanged for tokens.
    Jwt,
    /// Nowhere: a refresh token of OAuth 2, exchanged for tokens.
    Oauth,
    /// Nowhere: a password of Postgres, which is proven and not sent.
    Postgres,
    /// Nowhere: a private key of SSH, which signs and is not sent.
    Ssh,
    /// Nowhere: the key of a GitHub App, exchanged for tokens of an installation.
    GithubApp,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    #[error(
        "`{0}` is not a place: use bearer, basic, header:NAME, query:NAME, body:PATH, sigv4, sigv4a, azure-shared-key, hmac:FILE, jwt, oauth, github-app, postgres or ssh"
    )]
    Unknown(String),
    #[error("`{0}:` lacks a name: write it as in `{0}:{1}`")]
    NoName(&'static str, &'static str),
    #[error("`{0}` is not the name of a header: use letters, digits and dashes")]
    HeaderName(String),
    #[error("the header `{0}` says how a request is framed and routed: no credential stands in it")]
    Framing(String),
    #[error(
        "`{0}` is not a name that a query or a body field can have: leave out spaces, `&`, `=` and the like"
    )]
    FieldName(String),
}

/// Headers that a proxy sets or acts on.
const FRAMING: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const MAX_NAME: usize = 128;

impl Place {
    /// Whether requests carry a signature made with the value, and never the value.
    pub fn signs(&self) -> bool {
        matches!(self, Self::SigV4 | Self::SigV4a | Self::AzureSharedKey | Self::Hmac)
    }
}

impl Place {
    /// Whether the value is exchanged for tokens, which are sent in its place.
    pub fn mints(&self) -> bool {
        matches!(self, Self::Jwt | Self::Oauth | Self::GithubApp)
    }
}

impl Place {
    /// The port of a protocol that is not HTTP, for a place of it: the value never stands in a request.
    pub fn own_port(&self) -> Option<u16> {
        match self {
            Self::Postgres => Some(5432),
            Self::Ssh => Some(22),
            _ => None,
        }
    }
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let (kind, name) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "bearer" if kind == text => Ok(Self::Bearer),
            "basic" if kind == text => Ok(Self::Basic),
            "header" if name.is_empty() => Err(PlaceError::NoName("header", "x-api-key")),
            "query" if name.is_empty() => Err(PlaceError::NoName("query", "key")),
            "body" if name.is_empty() => Err(PlaceError::NoName("body", "auth.token")),
            "header" => header(name).map(Self::Header),
            "query" => field(name).map(Self::Query),
            "body" => field(name).map(Self::Body),
            "sigv4" if kind == text => Ok(Self::SigV4),
            "sigv4a" if kind == text => Ok(Self::SigV4a),
            "azure-shared-key" if kind == text => Ok(Self::AzureSharedKey),
            "hmac" if kind == text => Ok(Self::Hmac),
            "jwt" if kind == text => Ok(Self::Jwt),
            "oauth" if kind == text => Ok(Self::Oauth),
            "github-app" if kind == text => Ok(Self::GithubApp),
            "postgres" if kind == text => Ok(Self::Postgres),
            "ssh" if kind == text => Ok(Self::Ssh),
            _ => Err(PlaceError::Unknown(text.chars().take(40).collect())),
        }
    }
}

fn header(name: &str) -> Result<String, PlaceError> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let name = name.to_ascii_lowercase();
    if name.len() > MAX_NAME || !name.bytes().all(token) {
        return Err(PlaceError::HeaderName(name.chars().take(40).collect()));
    }
    if FRAMING.contains(&name.as_str()) { Err(PlaceError::Framing(name)) } else { Ok(name) }
}

fn field(name: &str) -> Result<String, PlaceError> {
    let plain = |c: char| !c.is_control() && !c.is_whitespace() && !"&=#?%+;\"'\\".contains(c);
    if name.len() > MAX_NAME || !name.chars().all(plain) || name.split('.').any(str::is_empty) {
        return Err(PlaceError::FieldName(name.chars().take(40).collect()));
    }
    Ok(name.to_owned())
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bearer => f.write_str("bearer"),
            Self::Basic => f.write_str("basic"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Body(path) => write!(f, "body:{path}"),
            Self::SigV4 => f.write_str("sigv4"),
            Self::SigV4a => f.write_str("sigv4a"),
            Self::AzureSharedKey => f.write_str("azure-shared-key"),
            Self::Hmac => f.write_str("hmac"),
            Self::Jwt => f.write_str("jwt"),
            Self::Oauth => f.write_str("oauth"),
            Self::GithubApp => f.write_str("github-app"),
            Self::Postgres => f.write_str("postgres"),
            Self::Ssh => f.write_str("ssh"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: Result<Place, &str>) {
        let found = text.parse::<Place>();
        match (&found, expected) {
            (Ok(place), Ok(expected)) => assert_eq!(*place, expected),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
            _ => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn places_as_people_write_them() {
        check("bearer", Ok(Place::Bearer));
        check("basic", Ok(Place::Basic));
        check("header:X-API-Key", Ok(Place::Header("x-api-key".into())));
        check("query:key", Ok(Place::Query("key".into())));
        check("body:auth.token", Ok(Place::Body("auth.token".into())));
        check("sigv4", Ok(Place::SigV4));
        check("sigv4a", Ok(Place::SigV4a));
        check("azure-shared-key", Ok(Place::AzureSharedKey));
        check("hmac", Ok(Place::Hmac));
        check("github-app", Ok(Place::GithubApp));
        check("postgres", Ok(Place::Postgres));
        check("ssh", Ok(Place::Ssh));
    }

    #[test]
    fn what_cannot_be_had_is_refused_with_what_can() {
        check("telnet", Err("bearer, basic, header:NAME"));
        check("cookie", Err("is not a place"));
        check("bearer:x", Err("is not a place"));
        check("header:", Err("header:x-api-key"));
        check("header:a b", Err("not the name of a header"));
        check("header:Host", Err("framed and routed"));
        check("query:a&b", Err("not a name"));
        check("body:a..b", Err("not a name"));
    }

    proptest! {
        #[test]
        fn a_place_is_written_as_it_is_read(text in "(bearer|basic|header|query|body|sigv4|x)?:?.{0,20}") {
            if let Ok(place) = text.parse::<Place>() {
                prop_assert_eq!(place.to_string().parse(), Ok(place));
            }
        }
    }
}
