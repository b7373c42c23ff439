//! Databases that speak the protocol of Postgres. The client proves that it has the session's placeholder, to us; we
//! prove to the server that we have the password. In between every statement is parsed, judged and on record before it
//! goes on; the rest of the protocol passes. No password is ever sent, in either direction.
//!
//! It refuses what it cannot judge: replication, the fast path of functions, settings that change how text is read.

mod cancel;
mod inside;
mod judge;
mod ledger;
mod outside;
mod relay;
mod scram;
mod walk;
pub(crate) mod wire;

pub(crate) use cancel::Cancels;

use crate::exchange::Exchange;
use crate::http::decide::record_spent;
use crate::http::forward::still_allowed;
use crate::rescue::Failure;
use crate::rules::Rules;
use crate::session::Session;
use crate::swap::state::Entry;
use crate::swap::{Unspendable, Used, UsedCredential};
use crate::upstream::dial::{DialError, Route};
use cofferdam_model::{Ending, Via};
use cofferdam_policy::Sql;
use cofferdam_policy::sql::{Act, SqlKind};
use cofferdam_vault::Place;
use scram::ScramError;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use thiserror::Error;
use wire::Told;

/// Why a session with a database does not come about, or ends.
#[derive(Debug, Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Credential(#[from] Unspendable),
    #[error("the password is not the placeholder of the credential `{name}`: use what stands in {env}")]
    Placeholder { name: String, env: String },
    #[error("the startup names no user")]
    NoUser,
    #[error("the startup parameter `{0}` is not carried: leave it out")]
    Parameter(String),
    #[error("the startup cannot be read")]
    Malformed,
    #[error("a message of the kind `{0}` is not carried")]
    Message(char),
    #[error("a message has more than {0} bytes: send less at once")]
    TooLong(usize),
    #[error("there is no randomness on this machine: a sign-in needs some")]
    NoRandomness,
    #[error("no session of this kind is to be cancelled")]
    NoSuchSession,
    #[error("`{0}` speaks no TLS: switch it on there, or write `plain = true` in its [[upstream]]")]
    NoTls(Arc<str>),
    #[error(
        "`{host}` does not ask for a password in the one way that does not send it ({asked}): use scram-sha-256 there"
    )]
    Method { host: Arc<str>, asked: &'static str },
    #[error("`{host}`: {source}")]
    Scram { host: Arc<str>, source: ScramError },
    #[error("`{host}` refuses the session ({code}): {message}")]
    Server { host: Arc<str>, code: String, message: String },
    #[error("`{0}` broke off: is it up?")]
    Broken(Arc<str>),
    #[error("`{host}` does not keep to `{setting}`, which the rules need")]
    Setting { host: Arc<str>, setting: &'static str },
}

impl Refused {
    pub(crate) fn cause(&self) -> &'static str {
        match self {
            Self::Credential(why) => why.cause(),
            Self::Placeholder { .. } => "credential-misused",
            Self::NoUser | Self::Parameter(_) | Self::Malformed => "startup",
            Self::Message(_) | Self::TooLong(_) | Self::NoSuchSession => "message",
            Self::NoTls(_) | Self::Method { .. } | Self::Scram { .. } | Self::Setting { .. } => {
                "unsafe-server"
            }
            Self::NoRandomness => "no-randomness",
            Self::Server { .. } | Self::Broken(_) => "upstream",
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Placeholder { .. } => "28P01",
            Self::Credential(_) => "28000",
            Self::Server { code, .. } if code.starts_with("28") => "28000",
            Self::NoTls(_)
            | Self::Method { .. }
            | Self::Scram { .. }
            | Self::Server { .. }
            | Self::Broken(_) => "08006",
            _ => "08P01",
        }
    }
}

/// What a client is told of a failure.
fn told(failure: &Failure) -> Told {
    let (code, hint) = match failure {
        Failure::Postgres(refused) => (refused.code(), None),
        Failure::Denied(denial) => (
            "42501",
            denial.allow.as_ref().map(|allow| format!("this rule would allow it:\n{}", allow.trim_end())),
        ),
        Failure::Leak(_) => ("42501", None),
        Failure::Dial(_) => ("08006", None),
        Failure::Cut(_) | Failure::Paused => ("57P01", None),
        _ => ("58000", None),
    };
    Told { fatal: true, code, message: format!("cofferdam: {failure}"), hint }
}

/// A stream to a database.
pub(crate) struct Visit {
    pub(crate) session: Arc<Session>,
    pub(crate) via: Via,
    pub(crate) program: Option<Arc<str>>,
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

/// The session with a database that a client asks for.
struct Wish {
    database: String,
    user: String,
    /// Those that are passed on.
    parameters: Vec<(String, String)>,
}

impl Visit {
    fn destination(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    fn sql<'a>(&'a self, wish: &'a Wish, acts: &'a [Act]) -> Sql<'a> {
        Sql {
            host: &self.host,
            port: self.port,
            database: &wish.database,
            user: &wish.user,
            acts,
            shape: None,
            program: self.program.as_deref(),
        }
    }

    /// The credential for this place, if it may be spent here and now.
    fn credential(&self) -> Result<Entry, Failure> {
        let (coffer, program) = (&self.session.coffer, self.program.as_deref());
        Ok(coffer.spendable(self.destination(), Place::Postgres, program).map_err(Refused::Credential)?)
    }

    /// Puts the decision on the session on record, or refuses.
    async fn decide(&self, rules: &Arc<Rules>, wish: &Wish, entry: &Entry) -> Result<Arc<Exchange>, Failure> {
        let began = Instant::now();
        self.session.is_open()?;
        let acts = [Act::new(SqlKind::Connect, "")];
        let sql = self.sql(wish, &acts);
        let (decision, _) = rules.policy().decide_sql(&sql);
        let spent = vec![UsedCredential { name: entry.name.clone(), generation: entry.generation }];
        let event = judge::asked(self, wish, &decision);
        let (seq, event) = judge::connect(&self.session, rules, &sql, &decision, event, &spent).await?;
        let budgets = rules.policy().budgets(&self.host);
        let meter = self.session.tallies.open(budgets).map_err(Failure::OverBudget)?;
        let limits = (meter, rules.policy().large_transfer());
        record_spent(&self.session, seq, &event, &spent)?;
        let exchange = self.session.live.begin(seq, event, spent.clone(), limits, began);
        let used = Used { credentials: spent, ..Used::default() };
        still_allowed(&self.session, rules, &used, &exchange)?;
        Ok(exchange)
    }

    fn route(&self, rules: &Rules) -> Route {
        Route { fixed: rules.fixed(&self.host).cloned(), host: self.host.clone(), port: self.port }
    }
}

fn ended(exchange: &Exchange, failure: &Failure) {
    exchange.explain(failure.to_string());
    exchange.end(match failure {
        Failure::Dial(_) | Failure::Postgres(_) => Ending::UpstreamFailed,
        _ => Ending::Refused,
    });
}

fn broken(host: &Arc<str>) -> impl Fn(io::Error) -> Failure + '_ {
    move |_| Refused::Broken(host.clone()).into()
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Postgres(Box::new(refused))
    }
}

/// Kept apart from [`DialError`], which says the same of all protocols.
fn dial(error: DialError) -> Failure {
    error.into()
}
