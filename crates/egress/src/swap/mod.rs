//! The session's credentials: real values in the place of placeholders, for the destinations, programs and places
//! that each credential declares, and for nothing else.
//!
//! A placeholder anywhere else, in any usual encoding, is an attempt to leak and refuses the request; so does a
//! real value from inside. It never swaps in a body unless a field of it is declared, so what a model or a paste
//! service stores is never a secret. It records nothing: what it returns names credentials, not values.

mod body;
mod coffer;
mod head;
mod refusal;
mod scan;
mod spend;
pub(crate) mod state;
mod value;

pub use body::BodySwap;
pub use coffer::{Coffer, Unfit, Unknown};
pub use refusal::{At, Refusal, Why};
pub use scan::RequestScan;
pub(crate) use spend::Unspendable;
pub(crate) use state::goes_to;
pub(crate) use value::readings;

use std::sync::Arc;

/// Where a request goes, after it was identified: the name in canonical form (lower case, no final dot).
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    pub host: &'a str,
    pub port: u16,
    /// The program that opened the connection, by its path inside.
    pub program: Option<&'a str>,
}

/// What a request was given.
#[derive(Debug, Clone, Default)]
pub struct Used {
    pub credentials: Vec<UsedCredential>,
    /// The destination may know a real value, by this request or an earlier one.
    pub(crate) watched: bool,
    /// HEAD: the response speaks of a body that does not come.
    pub(crate) bodiless: bool,
    /// Nothing that opens anything by itself was sent: a body that comes back is looked through as it is.
    pub(crate) sealed: bool,
}

/// A credential whose real value left, and which value that was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedCredential {
    pub name: Arc<str>,
    pub generation: u64,
}

impl Used {
    pub(crate) fn add(&mut self, name: &Arc<str>, generation: u64) {
        let used = UsedCredential { name: Arc::clone(name), generation };
        if !self.credentials.contains(&used) {
            self.credentials.push(used);
        }
    }
}

/// What a request's body needs before it may leave.
pub enum BodyPlan {
    /// The session has no credentials.
    Nothing,
    /// To be looked through as it passes; nothing is held back or changed.
    Scan(RequestScan),
    /// To be gathered, up to [`BodySwap::limit`], and swapped: a field of it is declared.
    Swap(BodySwap),
}

#[cfg(test)]
pub(crate) mod tests;
