//! What a signer says about a chain, as bytes to sign.

use cofferdam_model::Digest;

/// Whether more may follow. It is part of what is signed: a checkpoint cannot be passed off as a head, which
/// would make a cut trace look finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Checkpoint,
    Head,
}

impl Mark {
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::Head => "head",
        }
    }
}

/// "The first `count` events of the chain that ends in `covers` are what I wrote, at `time`." The chain's
/// first event names the session, so the statement is about that session and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statement {
    pub mark: Mark,
    pub count: u64,
    pub covers: Digest,
    /// Of the event that carries the signature, which nothing else protects when it is the last.
    pub time: u64,
}

impl Statement {
    /// The signed text. Its first line is of this use of the key and no other; all lines are of fixed form,
    /// so that no two statements have the same text.
    pub(crate) fn message(&self, key: &Digest) -> String {
        let Self { mark, count, covers, time } = self;
        let kind = mark.kind();
        format!("cofferdam trace {kind} v1\ncount {count}\ncovers {covers}\ntime {time}\nkey {key}\n")
    }
}
