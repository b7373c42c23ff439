//! Why a request that carries a credential does not leave.

use crate::scrub::CodingError;
use crate::sign::SignError;
use std::fmt;

/// An attempt to move a credential to where it does not belong, or a request that nobody could vouch for. It names
/// the credential and the position, never a value.
#[derive(Debug, thiserror::Error)]
#[error("{}{at}: {why}", of(.credential))]
pub struct Refusal {
    /// Absent when the request could not be read, so that nobody knows.
    pub credential: Option<String>,
    pub at: At,
    pub why: Why,
}

fn of(credential: &Option<String>) -> String {
    credential.as_ref().map_or(String::new(), |name| format!("credential `{name}` in "))
}

/// A position in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    Method,
    Host,
    Path,
    Query(String),
    Header(String),
    /// A header's name, which would itself tell the value.
    HeaderName,
    Body,
    Field(String),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => f.write_str("the method"),
            Self::Host => f.write_str("the host's name"),
            Self::Path => f.write_str("the path"),
            Self::Query(name) => write!(f, "the query parameter `{name}`"),
            Self::Header(name) => write!(f, "the header `{name}`"),
            Self::HeaderName => f.write_str("a header's name"),
            Self::Body => f.write_str("the body"),
            Self::Field(path) => write!(f, "the body's field `{path}`"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Why {
    #[error("it may not go to `{0}`: add that host to the credential, if it is right")]
    OtherHost(String),
    #[error("the program {} may not spend it: add it to the credential's programs, if it is right", named(.0))]
    OtherProgram(Option<String>),
    #[error("it is not swapped there: use one of its declared places, or declare this one")]
    OtherPlace,
    #[error("it stands there twice: send it once")]
    Repeated,
    #[error("it was revoked: ask for a new one")]
    Revoked,
    #[error("its real value was sent from inside, where it should not be known: rotate it")]
    RealValue,
    #[error("its real value has bytes that cannot stand there: store it without line ends or controls")]
    Unsendable,
    #[error("`{0}` makes the other side repeat the request: use another method")]
    Echo(http::Method),
    #[error("the body is larger than {0} bytes, too large to swap in: send less, or use a header")]
    TooLarge(usize),
    #[error(transparent)]
    Unreadable(#[from] CodingError),
    #[error(transparent)]
    Signing(#[from] SignError),
}

fn named(program: &Option<String>) -> String {
    program.as_ref().map_or("of this connection (unknown)".to_owned(), |path| format!("`{path}`"))
}

impl Refusal {
    pub(crate) fn of(credential: &str, at: At, why: Why) -> Self {
        Self { credential: Some(credential.to_owned()), at, why }
    }

    pub(crate) fn unreadable(why: impl Into<Why>) -> Self {
        Self { credential: None, at: At::Body, why: why.into() }
    }

    /// Whether this is an attempt to leak rather than a mistake or a limit: worth waking someone.
    pub fn is_alarm(&self) -> bool {
        matches!(self.why, Why::OtherHost(_) | Why::OtherProgram(_) | Why::OtherPlace | Why::RealValue)
    }
}
