//! The DNS that a sandbox sees, and what becomes of its other datagrams.
//!
//! A name that some rule could allow has an address that stands for it (`names`); any other does not exist. No
//! query is ever passed on, so nothing can be carried out in a name: a real name is resolved only when a request
//! for it was allowed. Datagrams to anywhere else are read, told and dropped.

mod answer;
mod serve;
mod stray;

pub use answer::Desk;
pub use serve::{serve_tcp, serve_udp};
pub use stray::{Receive, stray_udp};

use std::net::{Ipv4Addr, SocketAddr};

/// What the session knows and wants to know. Calls come from a task of the proxy and should return at once.
pub trait Tap: Send + Sync + 'static {
    /// Whether some rule could allow a request to this host (in its normal form).
    fn knows(&self, name: &str) -> bool;

    /// A name was given an address, for the first time.
    fn named(&self, name: &str, address: Ipv4Addr);

    /// A query was refused. Floods are told in short: see `Query::times`.
    fn query(&self, query: Query);

    /// Datagrams to a place that no client here has any business with.
    fn stray(&self, stray: Stray);
}

/// A query that was not answered with an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// As it was asked for, made printable.
    pub name: String,
    /// The type of record, as in `TXT`.
    pub kind: String,
    pub verdict: Verdict,
    /// More than once only for `Verdict::Flood`.
    pub times: u64,
}

/// Why a query was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No rule speaks of this name.
    Unknown,
    /// Nobody's host can be called so.
    BadName,
    /// A known domain, but a name that looks like data in disguise.
    Encoded,
    /// A type of record that is not given out.
    Kind,
    /// The session has asked for too many names.
    TooMany,
    /// Refused queries that were counted, not told one by one.
    Flood,
}

impl Verdict {
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Unknown => "no rule allows this host",
            Self::BadName => "not the name of a host",
            Self::Encoded => "looks like data carried in a name",
            Self::Kind => "only addresses are given out",
            Self::TooMany => "the session has asked for too many names",
            Self::Flood => "more refused queries than are told one by one",
        }
    }
}

/// Datagrams that were dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// Where they were meant to go; nothing where they are only counted.
    pub to: Option<SocketAddr>,
    /// What they seem to be, by their port.
    pub what: &'static str,
    pub bytes: usize,
    /// More than once only for those that were counted.
    pub times: u64,
}
