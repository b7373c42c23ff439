//! How a layer that understands traffic looks at it, without the proxy knowing what it understands: it sees an
//! exchange as the sandbox does, with placeholders where credentials go, and can answer in the upstream's place.

use crate::{Answer, Ending};
use std::time::Duration;

/// A request that a policy let go, as it came from inside.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The event that let it go: what is told about it names this as its parent.
    pub event: u64,
    pub scheme: &'a str,
    pub host: &'a str,
    pub port: u16,
    pub method: &'a str,
    pub path: &'a str,
    pub query: Option<&'a str>,
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The rule that let it go, and the credentials it uses, by name.
    pub rule: Option<&'a str>,
    pub credentials: &'a [String],
}

/// One for a session: it is asked about each exchange, from many threads.
pub trait Tap: Send + Sync {
    /// Looks at a request before any of it goes out; nothing if it is of no interest.
    fn open(&self, request: &Outgoing<'_>) -> Result<Option<Box<dyn Watcher>>, Stop>;
}

/// Follows one exchange. Bodies come as they pass, still encoded as on the wire; nothing is kept waiting for it.
pub trait Watcher: Send {
    /// Whether the request's body must be there as a whole before anything goes out.
    fn holds(&self) -> bool {
        false
    }

    fn sent(&mut self, chunk: &[u8]);

    /// The request is there as a whole. What this says counts only if it holds the request.
    fn sent_all(&mut self) -> Next {
        Next::Forward
    }

    /// What a person said to a question of [`Next::Ask`], or that nobody did. Without a word of its own it is a no.
    fn asked(&mut self, question: &Question, _answer: Answer, _by: &str, _waited_us: u64) -> Next {
        Next::Refuse(Stop { cause: "review".to_owned(), reason: question.reason.clone() })
    }

    fn answered(&mut self, status: u16, headers: &[(&str, &[u8])]);

    fn received(&mut self, chunk: &[u8]);

    /// Nothing more comes. An error fails the session: something happened that is not on record.
    fn ended(self: Box<Self>, ending: Ending) -> Result<(), crate::NotRecorded>;
}

/// What becomes of a request that was held.
#[derive(Debug)]
pub enum Next {
    Forward,
    Refuse(Stop),
    /// It never leaves: this is the answer.
    Answer(Reply),
    /// It waits for a person; [`Watcher::asked`] is told what they said.
    Ask(Question),
}

/// What a person is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Where it is on record.
    pub event: u64,
    pub rule: String,
    pub reason: String,
    /// `tool`, and which with what.
    pub kind: String,
    pub what: String,
}

/// A request that must not go, in words for whoever sent it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Stop {
    /// A short word that stays the same: `spend-cap`, `not-recorded-before`…
    pub cause: String,
    pub reason: String,
}

impl Stop {
    /// The cause of a request that would cost more than a budget has left.
    pub const SPEND_CAP: &str = "spend-cap";
    /// The cause of a request that a replay has no answer for.
    pub const NOT_RECORDED: &str = "not-recorded";
}

/// An answer from a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    /// The parts of the body, each with the wait before it.
    pub parts: Vec<(Duration, Vec<u8>)>,
}
