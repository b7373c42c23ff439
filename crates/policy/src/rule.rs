//! A rule as it is kept: everything parsed, nothing left to look up.

use crate::action::Access;
use crate::condition::Condition;
use crate::contract::Contract;
use crate::flow::{BaselineMatch, FlowMatch};
use crate::glob::{PathPattern, Pattern};
use crate::host::Hosts;
use crate::json::Field;
use crate::mistake::Spot;
use crate::sql::{Shape, SqlKind};
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
