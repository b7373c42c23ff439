//! What a policy decides on: one action, as those who carry it out see it. All of it is borrowed.

use crate::flow::{Baseline, Flow};
use crate::sql::{Act, Shape};
use crate::ssh::SshCommand;
use serde_json::Value as Json;

/// Something that is about to happen, or what is known of it.
#[derive(Clone, Copy)]
pub enum Action<'a> {
    Http(Http<'a>),
    Tool(Tool<'a>),
    Exec(Exec<'a>),
    File(File<'a>),
    Browser(Browser<'a>),
    Step(Step<'a>),
    Sql(Sql<'a>),
    Ssh(Ssh<'a>),
    Flow(Flow<'a>),
    Baseline(Baseline<'a>),
}

/// A request that would leave.
#[derive(Clone, Copy)]
pub struct Http<'a> {
    /// `http` or `https`.
    pub scheme: &'a str,
    pub host: &'a str,
    pub port: u16,
    /// The name in the TLS hello; none without TLS.
    pub sni: Option<&'a str>,
    pub method: &'a str,
    /// As written, without the query.
    pub path: &'a str,
    pub query: Option<&'a str>,
    pub headers: &'a dyn Headers,
    /// The whole body, where it was collected; see [`Policy::wants_body`](crate::Policy::wants_body).
    pub body: Option<&'a [u8]>,
    pub content_type: Option<&'a str>,
    /// The declared length of the body; zero where there is none, unknown while it streams.
    pub length: Option<u64>,
    /// The program that asks, by its path inside; none if it is not known.
    pub program: Option<&'a str>,
}

/// A call of a tool by a model.
#[derive(Clone, Copy)]
pub struct Tool<'a> {
    pub name: &'a str,
    pub args: &'a Json,
}

/// A program that would be started.
#[derive(Clone, Copy)]
pub struct Exec<'a> {
    pub argv: &'a [&'a str],
    pub cwd: Option<&'a str>,
}

/// A file that would be opened.
#[derive(Clone, Copy)]
pub struct File<'a> {
    /// Absolute, inside.
    pub path: &'a str,
    pub access: Access,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Delete,
}

impl Access {
    pub(crate) const NAMES: &'static [&'static str] = &["read", "write", "delete"];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Read, Self::Write, Self::Delete].into_iter().find(|access| access.name() == name)
    }
}

/// Something done in a browser.
#[derive(Clone, Copy)]
pub struct Browser<'a> {
    /// As `navigate`, `click`, `type`, `upload`.
    pub name: &'a str,
    /// The page it is done on or would lead to.
    pub url: Option<&'a str>,
    pub args: &'a Json,
}

/// A step of a workflow.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    pub name: &'a str,
    pub args: &'a Json,
}

/// A statement for a database, or the wish to speak to one.
#[derive(Clone, Copy)]
pub struct Sql<'a> {
    pub host: &'a str,
    pub port: u16,
    pub database: &'a str,
    pub user: &'a str,
    /// Judged one by one; the strictest answer is the statement's.
    pub acts: &'a [Act],
    /// None where there is no statement yet.
    pub shape: Option<&'a Shape>,
    /// The program that asks, by its path inside; none if it is not known.
    pub program: Option<&'a str>,
}

/// A command for a host that is reached over SSH.
#[derive(Clone, Copy)]
pub struct Ssh<'a> {
    pub host: &'a str,
    pub port: u16,
    pub user: &'a str,
    pub command: &'a SshCommand,
    /// The program that asks, by its path inside; none if it is not known.
    pub program: Option<&'a str>,
}

/// The header fields of a request, wherever they are kept.
pub trait Headers {
    /// Calls for each field in order; names may come in any case.
    fn each(&self, visit: &mut dyn FnMut(&str, &[u8]));

    /// Calls for each value of a name, which is given in lower case.
    fn values(&self, name: &str, visit: &mut dyn FnMut(&[u8])) {
        self.each(&mut |field, value| {
            if field.eq_ignore_ascii_case(name) {
                visit(value);
            }
        });
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> Headers for Vec<(N, V)> {
    fn each(&self, visit: &mut dyn FnMut(&str, &[u8])) {
        self.iter().for_each(|(name, value)| visit(name.as_ref(), value.as_ref()));
    }
}

impl Headers for () {
    fn each(&self, _: &mut dyn FnMut(&str, &[u8])) {}
}

impl Action<'_> {
    /// The word for its kind, as rules and errors use it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Http(_) => "host",
            Self::Tool(_) => "tool",
            Self::Exec(_) => "exec",
            Self::File(_) => "file",
            Self::Browser(_) => "browser",
            Self::Step(_) => "step",
            Self::Sql(_) => "sql",
            Self::Ssh(_) => "ssh",
            Self::Flow(_) => "flow",
            Self::Baseline(_) => "baseline",
        }
    }

    /// Whether rules can only forbid or hold it: the call itself has been judged by the others.
    pub(crate) fn is_restricted_only(&self) -> bool {
        matches!(self, Self::Flow(_) | Self::Baseline(_))
    }
}
