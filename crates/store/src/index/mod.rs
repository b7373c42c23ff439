//! What is known of each trace without opening it.

mod sqlite;

pub use sqlite::SqliteIndex;

use crate::Stamp;
use cofferdam_model::{Exit, RawPath, SessionId, Tier};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// As far as a look at the events tells; whether they are to be believed is for verification to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceState {
    /// Its writer is at work.
    Running,
    /// It has its head.
    Finished,
    /// Its writer died.
    Incomplete,
    /// Its events cannot be read.
    Unreadable,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub id: SessionId,
    pub started_us: u64,
    pub ended_us: Option<u64>,
    pub command: Vec<String>,
    pub exit: Option<Exit>,
    pub state: TraceState,
    pub tier: Option<Tier>,
    pub workdir: Option<RawPath>,
    pub events: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("the index is damaged: {0}")]
    Damaged(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the index cannot be used: {0}")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A cache of summaries. Nothing is in it that cannot be had again from the bundles.
pub trait Index: Send {
    /// What every entry was made from.
    fn stamps(&self) -> Result<HashMap<SessionId, Stamp>, IndexError>;
    /// Adds or replaces, all or none.
    fn upsert(&mut self, entries: &[(Summary, Stamp)]) -> Result<(), IndexError>;
    fn remove(&mut self, ids: &[SessionId]) -> Result<(), IndexError>;
    /// The newest first.
    fn list(&self, limit: usize) -> Result<Vec<Summary>, IndexError>;
    /// Those whose id begins so, the newest first.
    fn find(&self, prefix: &str, limit: usize) -> Result<Vec<Summary>, IndexError>;
}
