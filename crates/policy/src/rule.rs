//! A rule as it is kept: everything parsed, nothing left to look up.

use crate::action::Access;
use crate::condition::Condition;
use crate::contract::Contract;
use crate::flow::{BaselineMatch, FlowMatch};
use crate::glob::{GlobError, PathPattern, Pattern};
use crate::host::Hosts;
use crate::json::Field;
use crate::mistake::Spot;
use crate::octets::{Octets, Writing};
use crate::sql::{Shape, SqlKind};
use crate::ssh::{SshCommand, SshKind, bare, barest};
use cofferdam_model::Verdict;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// What becomes of an action. Deny beats review beats allow, so the order is that of strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    Deny,
    Review,
    Allow,
}

/// As it stands on record.
impl From<Effect> for Verdict {
    fn from(effect: Effect) -> Self {
        match effect {
            Effect::Allow => Self::Allow,
            Effect::Deny => Self::Deny,
            Effect::Review => Self::Review,
        }
    }
}

impl Effect {
    pub(crate) const NAMES: &'static [&'static str] = &["allow", "deny", "review"];

    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Review => "review",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Allow, Self::Deny, Self::Review].into_iter().find(|effect| effect.name() == name)
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a decision says of the rule that made it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct RuleName {
    pub id: String,
    pub reason: String,
    pub effect: Effect,
    pub line: usize,
}

#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) name: Arc<RuleName>,
    pub(crate) spot: Spot,
    pub(crate) subject: Subject,
    pub(crate) condition: Option<Condition>,
    /// What the body or the arguments must keep to.
    pub(crate) contract: Option<Contract>,
}

impl Rule {
    /// Whether it asks for the body or its length.
    pub(crate) fn looks_at_body(&self) -> bool {
        let needs = self.condition.as_ref().map(|condition| &condition.needs);
        let Subject::Http(http) = &self.subject else { return false };
        !http.body.is_empty()
            || self.contract.is_some()
            || http.max_body.is_some()
            || needs.is_some_and(|needs| needs.has("body") || needs.has("size"))
    }
}

#[derive(Debug)]
pub(crate) enum Subject {
    Http(HttpMatch),
    Tool { names: Vec<Pattern>, args: Vec<Field> },
    Exec { commands: Vec<PathPattern> },
    File { paths: Vec<PathPattern>, access: Vec<Access> },
    Browser { actions: Vec<Pattern>, args: Vec<Field>, page: Option<PageMatch> },
    Step { names: Vec<Pattern>, args: Vec<Field> },
    Flow(FlowMatch),
    Baseline(BaselineMatch),
    Sql(SqlMatch),
    Ssh(SshMatch),
}

/// Where something goes; what is none matches anything.
#[derive(Debug, PartialEq)]
pub(crate) struct PageMatch {
    pub(crate) hosts: Hosts,
    pub(crate) schemes: Option<Vec<String>>,
    pub(crate) ports: Option<Vec<u16>>,
    pub(crate) paths: Option<Vec<PathPattern>>,
    pub(crate) query: Vec<NamedText>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct HttpMatch {
    pub(crate) page: PageMatch,
    pub(crate) sni: Option<Hosts>,
    pub(crate) methods: Option<Methods>,
    pub(crate) headers: Vec<NamedText>,
    pub(crate) content_types: Option<Vec<Pattern>>,
    pub(crate) max_body: Option<u64>,
    pub(crate) body: Vec<Field>,
    pub(crate) programs: Option<Vec<PathPattern>>,
}

/// What is done in a database, and in which; what is none matches anything.
#[derive(Debug)]
pub(crate) struct SqlMatch {
    /// None for all kinds, the session's own included.
    pub(crate) kinds: Option<Vec<SqlKind>>,
    pub(crate) hosts: Hosts,
    pub(crate) ports: Option<Vec<u16>>,
    pub(crate) databases: Option<Vec<Pattern>>,
    pub(crate) users: Option<Vec<Pattern>>,
    pub(crate) tables: Option<Vec<Pattern>>,
    pub(crate) functions: Option<Vec<Pattern>>,
    pub(crate) statements: Option<Vec<Shape>>,
    pub(crate) programs: Option<Vec<PathPattern>>,
}

impl SqlMatch {
    /// Whether it lets more happen than reading.
    pub(crate) fn writes(&self) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|kind| *kind != SqlKind::Read))
    }
}

/// What is asked of a host over SSH; what is none matches anything.
#[derive(Debug)]
pub(crate) struct SshMatch {
    pub(crate) kinds: Option<Vec<SshKind>>,
    pub(crate) hosts: Hosts,
    pub(crate) ports: Option<Vec<u16>>,
    pub(crate) users: Option<Vec<Pattern>>,
    /// What git may ask for is narrowed by these, other commands by those below.
    pub(crate) repos: Option<Vec<RepoPattern>>,
    pub(crate) commands: Option<Vec<SshCommand>>,
    pub(crate) programs: Option<Vec<PathPattern>>,
}

fn segments(path: &str, writing: Writing) -> impl Iterator<Item = Octets<'_>> + Clone {
    path.split('/')
        .filter(|segment| !segment.is_empty())
        .map(move |segment| Octets::new(segment.as_bytes(), writing))
}

/// A repository, however its path is written: with `.git` or a slash at its end or without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RepoPattern {
    /// Only paths from the root; otherwise those too that begin at the user's home, or wherever the service likes.
    absolute: bool,
    /// It names the home of somebody, which others reach only by name.
    home: bool,
    exact: PathPattern,
    /// For rules that must not be missed: some services do not tell letters by their case.
    lower: PathPattern,
    text: Box<str>,
}

impl RepoPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, GlobError> {
        let absolute = text.starts_with('/');
        let relative = text.strip_prefix('/').unwrap_or(text);
        let exact = PathPattern::parse_file(&format!("/{}", bare(relative)))?;
        let lower = PathPattern::parse_file(&format!("/{}", barest(relative).to_ascii_lowercase()))?;
        Ok(Self { absolute, home: relative.starts_with('~'), exact, lower, text: text.into() })
    }

    pub(crate) fn matches(&self, path: &str, strict: bool) -> bool {
        if self.absolute && !path.starts_with('/') {
            return false;
        }
        let relative = path.strip_prefix('/').unwrap_or(path);
        let at_home = relative.strip_prefix('~').and_then(|rest| rest.split_once('/'));
        if strict {
            return (self.home || at_home.is_none())
                && self.exact.matches(segments(bare(path), Writing::Plain));
        }
        // Somebody's home may be where paths begin.
        let below =
            at_home.is_some_and(|(_, rest)| self.lower.matches(segments(barest(rest), Writing::AnyCase)));
        below || self.lower.matches(segments(barest(path), Writing::AnyCase))
    }

    pub(crate) fn covers(&self, other: &Self) -> bool {
        (!self.absolute || other.absolute) && (self.home || !other.home) && self.exact.covers(&other.exact)
    }
}

impl fmt::Display for RepoPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A header or parameter, and the texts it may be.
#[derive(Debug, PartialEq)]
pub(crate) struct NamedText {
    pub(crate) name: String,
    pub(crate) texts: Vec<Pattern>,
}

const KNOWN_METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

/// The usual methods as bits, the others by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Methods {
    known: u16,
    others: Vec<Box<str>>,
}

impl Methods {
    /// Upper case.
    pub(crate) fn add(&mut self, method: &str) {
        match KNOWN_METHODS.iter().position(|known| *known == method) {
            Some(at) => self.known |= 1 << at,
            None => self.others.push(method.into()),
        }
    }

    /// A method is case-sensitive, and a careless server is not: `any_case` is for what must not be missed.
    pub(crate) fn matches(&self, method: &str, any_case: bool) -> bool {
        let same = |known: &str| known == method || (any_case && known.eq_ignore_ascii_case(method));
        match KNOWN_METHODS.iter().position(|known| same(known)) {
            Some(at) => self.known & (1 << at) != 0,
            None => self.others.iter().any(|other| same(other)),
        }
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        let known = KNOWN_METHODS.iter().enumerate().filter(|(at, _)| self.known & (1 << at) != 0);
        known.map(|(_, name)| *name).chain(self.others.iter().map(|other| &**other)).collect()
    }

    pub(crate) fn covers(&self, other: &Self) -> bool {
        other.known & !self.known == 0 && other.others.iter().all(|method| self.others.contains(method))
    }
}
