//! What can be wrong with a policy file. All mistakes of a file are told at once, each with its place, its
//! field and what to write instead.

use crate::condition::ConditionError;
use crate::glob::GlobError;
use crate::host::HostError;
use crate::request::RequestError;
use cofferdam_model::QuantityError;
use serde::Serialize;
use std::fmt;

/// A place in the file, both counted from one; columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Spot {
    pub line: usize,
    pub column: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    #[error("{0}")]
    Syntax(String),
    #[error("unknown key{}", meant(*.near, .known))]
    UnknownKey { near: Option<&'static str>, known: &'static [&'static str] },
    #[error("is missing: {0}")]
    Missing(&'static str),
    #[error("expected {want}, found {found}")]
    Type { want: &'static str, found: &'static str },
    #[error("is empty, so it could never match; leave it out to match anything")]
    Empty,
    #[error("`{value}` is not one of {}", choices(.known))]
    Choice { value: String, known: &'static [&'static str] },
    #[error("`{value}` is not one of {}; did you mean `{near}`?", choices(.known))]
    Meant { value: String, near: &'static str, known: &'static [&'static str] },
    #[error("has a control character; write plain text")]
    Control,
    #[error("`{id}` is already the id of the one on line {line}; ids are unique")]
    DuplicateId { id: String, line: usize },
    #[error("`{0}` is not an id: use letters, digits, `-`, `_` and `.`")]
    Id(String),
    #[error(
        "a rule says what it is about: add one of host, tool, exec, file, browser, step, flow, baseline, sql, ssh"
    )]
    NoSubject,
    #[error("a rule is about one thing: `{first}` and `{second}` do not go together; write two rules")]
    TwoSubjects { first: &'static str, second: &'static str },
    #[error("a rule about {0} only forbids or holds: write \"deny\" or \"review\"")]
    OnlyForbids(&'static str),
    #[error("says nothing: add unseen, missing or more, as in {{ unseen = \"*\" }}")]
    NoDeviation,
    #[error("means nothing in a rule about {kind}; {}", fitting(.fits))]
    Foreign { kind: &'static str, fits: &'static [&'static str] },
    #[error("{0} is not a port: write a number from 1 to 65535")]
    Port(i64),
    #[error("`{0}` is not an address: write HOST:PORT, as in 127.0.0.1:8443")]
    Connect(String),
    #[error("`{0}` is not a method: write letters, as in GET")]
    Method(String),
    #[error("`{0}` is not a header name: use letters, digits and `-`")]
    HeaderName(String),
    #[error("a header value has no control characters")]
    HeaderValue,
    #[error("`{0}` is not a field path: write names separated by dots, as in user.id")]
    FieldPath(String),
    #[error("`{0}` is not an amount of money: write dollars, as in 5.00")]
    Money(String),
    #[error("limits nothing: add requests, bytes_up, bytes_down, spend or tokens")]
    NoLimit,
    #[error("changes nothing: add headers, query or json")]
    NoChange,
    #[error("does nothing: add narrow, pause or revoke")]
    NoDeed,
    #[error("needs exactly one of rule, tool and alarm")]
    NoOccasion,
    #[error("no rule has the id `{id}`{}", meant_text(.near.as_deref()))]
    NoSuchRule { id: String, near: Option<String> },
    #[error("is no JSON Schema that can be used: {0}")]
    Schema(String),
    #[error("stands only in a rule that allows: write effect = \"allow\", or leave it out")]
    SchemaEffect,
    #[error("is no command that can be compared: {0}")]
    Command(String),
    #[error(
        "`{0}` is no key of a host: write its fingerprint, as in SHA256:…, or its line, as in ssh-ed25519 AAAA…"
    )]
    HostKey(String),
    #[error("is no statement that can be compared: {0}")]
    Statement(String),
    #[error("{0}")]
    Host(#[from] HostError),
    #[error("{0}")]
    Glob(#[from] GlobError),
    #[error("{0}")]
    Condition(#[from] ConditionError),
    #[error("{0}")]
    Quantity(#[from] QuantityError),
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error(
        "`{0}` is nowhere an alert can go: write https://…, http:// to 127.0.0.1, syslog, syslog:HOST:PORT, syslog-tcp:HOST:PORT or file:/PATH"
    )]
    AlertTo(String),
    #[error("is for webhooks over https; take it out, or write such a one in `to`")]
    WebOnly,
    #[error("`{0}` is too short or too long: write 1s to 24h")]
    Every(String),
    #[error("only the operator may write this table; take it out")]
    NotOperator,
    #[error("the file has {0} rules, and the most is {max}; use lists and wildcards", max = crate::MAX_RULES)]
    TooMany(usize),
}

fn meant(near: Option<&str>, known: &[&str]) -> String {
    match near {
        Some(near) => format!("; did you mean `{near}`?"),
        None => format!("; known are {}", choices(known)),
    }
}

fn meant_text(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

fn choices(known: &[&str]) -> String {
    known.join(", ")
}

fn fitting(fits: &[&str]) -> String {
    format!("there one can write {}", choices(fits))
}

/// One mistake, where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    pub spot: Spot,
    /// The field, as `rule.methods`; empty where it is the file itself.
    pub field: String,
    pub mistake: Mistake,
}

impl PolicyError {
    /// Field and mistake. What stood in the file may be meant for a terminal: control characters are masked.
    pub fn message(&self) -> String {
        let text = match self.field.as_str() {
            "" => self.mistake.to_string(),
            field => format!("{field}: {}", self.mistake),
        };
        text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.spot.line, self.spot.column, self.message())
    }
}

/// Every mistake of a file, in the order of the file; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct PolicyErrors(pub Vec<PolicyError>);

fn lines(errors: &[PolicyError]) -> String {
    errors.iter().map(PolicyError::to_string).collect::<Vec<_>>().join("\n")
}

/// The known word that `word` was probably meant to be.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let scored =
        known.into_iter().map(|known| (strsim::jaro_winkler(&word, &known.to_ascii_lowercase()), known));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 >= 0.8).then_some(best.1)
}
