//! An `[[alert]]` with the files that it names read.

use crate::upstream::trust::{Trust, TrustError};
use cofferdam_policy::{Alert, AlertTo};
use std::io;
use thiserror::Error;
use zeroize::Zeroizing;

/// A code over a text, by which who has the same key knows that it comes from us: HMAC-SHA256.
pub type Sign = fn(key: &[u8], text: &[u8]) -> [u8; 32];

/// What alerts need to know of the session.
pub struct Alerting {
    /// The session's id.
    pub session: String,
    pub sign: Sign,
}

/// A shorter key could be guessed.
const SHORTEST_KEY: usize = 16;

#[derive(Debug, Error)]
pub enum BadRoute {
    #[error("[[alert]] `{id}`: cannot read `{path}` ({source}): give a readable file")]
    File { id: String, path: String, source: io::Error },
    #[error("[[alert]] `{id}`: the key in `{path}` has {length} bytes: write at least {SHORTEST_KEY}")]
    ShortKey { id: String, path: String, length: usize },
    #[error("[[alert]] `{id}`: {source}")]
    Trust { id: String, source: TrustError },
}

pub(crate) struct Route {
    pub(crate) alert: Alert,
    pub(super) trust: Option<Trust>,
    pub(super) key: Option<Zeroizing<Vec<u8>>>,
}

impl Route {
    pub(crate) fn new(alert: &Alert, read: &dyn Fn(&str) -> io::Result<Vec<u8>>) -> Result<Self, BadRoute> {
        let id = || alert.id.clone();
        let file = |path: &String| {
            read(path).map_err(|source| BadRoute::File { id: id(), path: path.clone(), source })
        };
        let trust = match (&alert.ca, &alert.to) {
            (Some(path), AlertTo::Web { host, .. }) => {
                let trust = Trust::anchored(host, &file(path)?);
                Some(trust.map_err(|source| BadRoute::Trust { id: id(), source })?)
            }
            _ => None,
        };
        let key = match &alert.key {
            Some(path) => {
                let mut key = Zeroizing::new(file(path)?);
                // An editor's line end is not meant.
                let length = key.trim_ascii_end().len();
                key.truncate(length);
                if key.len() < SHORTEST_KEY {
                    return Err(BadRoute::ShortKey { id: id(), path: path.clone(), length: key.len() });
                }
                Some(key)
            }
            None => None,
        };
        Ok(Self { alert: alert.clone(), trust, key })
    }
}
