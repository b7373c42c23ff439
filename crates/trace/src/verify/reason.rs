//! The ways in which an event can be other than what was written.

use crate::{FORMAT, MAX_EVENT, MAX_UNSIGNED};
use cofferdam_model::{Digest, SessionId};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum Reason {
    #[error("not an event: {problem}")]
    NotAnEvent { problem: String },
    #[error("longer than {MAX_EVENT} bytes")]
    TooLong,
    #[error("changed: its content does not have its hash")]
    Changed,
    #[error("changed: its text is not the canonical one")]
    NotCanonical,
    #[error("dropped, added or moved: the event here is number {found}")]
    OutOfOrder { found: u64 },
    #[error("replaced: it does not follow the event before it")]
    NotLinked,
    #[error("names event {parent}, which does not come before it, as its parent")]
    BadParent { parent: u64 },
    #[error("a trace begins with `session.started` and holds no other")]
    NoStart,
    #[error("written in format {format}: this version reads format {FORMAT}")]
    UnknownFormat { format: u64 },
    #[error("this is the trace of session {found}")]
    OtherSession { found: SessionId },
    #[error("added: a finished trace ends with its head")]
    AfterHead,
    #[error("its signature is about other events")]
    Misplaced,
    #[error("its signature is wrong")]
    WrongSignature,
    #[error(
        "signed by {key}, which is not a trusted key: if it is one of yours, name its public key with `--key`, or believe it from now on with `cofferdam key trust`"
    )]
    UnknownSigner { key: Digest },
    #[error("signed by {key}, and not by the signer of the events before it")]
    OtherSigner { key: Digest },
    #[error("more than {MAX_UNSIGNED} events without a signature")]
    UnsignedTooLong,
    #[error("no trusted key has signed any of it")]
    NothingSigned,
    #[error("its payload {digest} is missing")]
    PayloadMissing { digest: Digest },
    #[error("its payload {digest} is not what was stored")]
    PayloadDamaged { digest: Digest },
    #[error("the file it is in is damaged: {problem}")]
    Archive { problem: String },
}
