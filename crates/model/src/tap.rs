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

    /// Whether what comes back goes on only as [`Self::mend`] says. Asked once the request is there as a whole; what
    /// is compressed is decompressed for it.
    fn mends(&self) -> bool {
        false
    }

    /// A part of such an answer, in place of [`Self::received`].
    fn mend(&mut self, chunk: &[u8]) -> Mended {
        self.received(chunk);
        Mended { pass: chunk.to_vec(), ..Mended::default() }
    }

    /// What a person said to a question of [`Mended::ask`].
    fn mend_asked(&mut self, _question: &Question, _answer: Answer, _by: &str, _waited_us: u64) -> Mended {
        Mended::default()
    }

    /// Such an answer is over: what is still to be told.
    fn mend_end(&mut self) -> Mended {
        Mended::default()
    }

    /// Whether the messages of a WebSocket that this request opens are shown, each before it goes on.
    fn hears(&self) -> bool {
        false
    }

    /// One such message. One of the client's can be stopped, and with it all of it.
    fn heard(&mut self, _is_sent: bool, _message: &[u8]) -> Result<(), Stop> {
        Ok(())
    }

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

/// What becomes of a part of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// What of it goes on, or stands in its place.
    pub pass: Vec<u8>,
    /// Bodies to be posted where the request went, each as a request of the same sender's.
    pub post: Vec<Vec<u8>>,
    /// What waits for a person while the rest goes on; [`Watcher::mend_asked`] is told what they said.
    pub ask: Vec<Question>,
    /// Questions, by their events, that nobody needs to answer any more.
    pub withdraw: Vec<u64>,
    /// What was kept back, in words for the exchange's end.
    pub flags: Vec<String>,
    /// Nothing more of it may pass.
    pub stop: Option<Stop>,
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
