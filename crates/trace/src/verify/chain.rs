//! The chain, followed one line at a time.

use super::{Check, Reason};
use crate::{FORMAT, MAX_UNSIGNED};
use cofferdam_model::{Checkpoint, Digest, Event, SessionId};
use cofferdam_seal::{Encoder, Mark, SignatureError, Statement};
use serde_json::Value;

pub(super) struct Chain<'a> {
    check: &'a Check<'a>,
    encoder: Encoder,
    rewritten: Vec<u8>,
    next: u64,
    prev: Digest,
    session: Option<SessionId>,
    signed: u64,
    signer: Option<Digest>,
    sealed: bool,
}

/// What is wrong, and the kind of the event as far as it could be read.
pub(super) type Flaw = (Option<String>, Reason);

impl<'a> Chain<'a> {
    pub(super) fn new(check: &'a Check<'a>) -> Self {
        Self {
            check,
            encoder: Encoder::default(),
            rewritten: Vec::new(),
            next: 0,
            prev: Digest::ZERO,
            session: None,
            signed: 0,
            signer: None,
            sealed: false,
        }
    }

    /// How many events have been accepted, which is also the number of the next.
    pub(super) fn events(&self) -> u64 {
        self.next
    }

    pub(super) fn signed(&self) -> u64 {
        self.signed
    }

    pub(super) fn signer(&self) -> Option<Digest> {
        self.signer
    }

    pub(super) fn sealed(&self) -> bool {
        self.sealed
    }

    pub(super) fn session(&self) -> Option<&SessionId> {
        self.session.as_ref()
    }

    /// Takes the next line if it is the next event.
    pub(super) fn accept(&mut self, line: &[u8]) -> Result<Event, Flaw> {
        let event: Event = match serde_json::from_slice(line) {
            Ok(event) => event,
            Err(_) if self.sealed => return Err((None, Reason::AfterHead)),
            Err(error) => return Err((None, Reason::NotAnEvent { problem: error.to_string() })),
        };
        match self.judge(&event, line) {
            Ok(()) => {
                self.prev = event.hash;
                self.next += 1;
                Ok(event)
            }
            Err(reason) => Err((Some(event.kind), reason)),
        }
    }

    fn judge(&mut self, event: &Event, line: &[u8]) -> Result<(), Reason> {
        if self.sealed {
            return Err(Reason::AfterHead);
        }
        self.rewritten.clear();
        match self.encoder.event(event, &mut self.rewritten) {
            Err(error) => return Err(Reason::NotAnEvent { problem: error.to_string() }),
            Ok(hash) if hash != event.hash => return Err(Reason::Changed),
            Ok(_) if self.rewritten != line => return Err(Reason::NotCanonical),
            Ok(_) => {}
        }
        if event.seq != self.next {
            return Err(Reason::OutOfOrder { found: event.seq });
        }
        if event.prev != self.prev {
            return Err(Reason::NotLinked);
        }
        if let Some(parent) = event.parent.filter(|&parent| parent >= event.seq) {
            return Err(Reason::BadParent { parent });
        }
        match event.kind.as_str() {
            "session.started" => self.start(event),
            _ if event.seq == 0 => Err(Reason::NoStart),
            "checkpoint" => self.signature(event, Mark::Checkpoint),
            "head" => self.signature(event, Mark::Head),
            _ if self.next - self.signed >= MAX_UNSIGNED => Err(Reason::UnsignedTooLong),
            _ => Ok(()),
        }
    }

    /// Only what the format needs is looked at, so that later versions may say more.
    fn start(&mut self, event: &Event) -> Result<(), Reason> {
        if event.seq != 0 {
            return Err(Reason::NoStart);
        }
        match event.body.get("format").and_then(Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            Some(format) => return Err(Reason::UnknownFormat { format }),
            None => return Err(Reason::NoStart),
        }
        let session = event.body.get("session").and_then(Value::as_str).and_then(|id| id.parse().ok());
        let session: SessionId = session.ok_or(Reason::NoStart)?;
        if self.check.session.is_some_and(|wanted| *wanted != session) {
            return Err(Reason::OtherSession { found: session });
        }
        self.session = Some(session);
        Ok(())
    }

    /// The statement is put together from the chain, not from the event: what a signature is about is what
    /// was read, or it is wrong. Every field of the event is thereby either signed or checked.
    fn signature(&mut self, event: &Event, mark: Mark) -> Result<(), Reason> {
        let signed: Checkpoint = serde::Deserialize::deserialize(&event.body)
            .map_err(|error: serde_json::Error| Reason::NotAnEvent { problem: error.to_string() })?;
        if signed.count != self.next || signed.covers != self.prev || event.parent.is_some() {
            return Err(Reason::Misplaced);
        }
        let key = signed.key;
        let statement = Statement { mark, count: self.next, covers: self.prev, time: event.time };
        match self.check.keys.check(&statement, &signed) {
            Ok(()) => {}
            Err(SignatureError::UnknownSigner(key)) => return Err(Reason::UnknownSigner { key }),
            Err(SignatureError::Wrong(_)) => return Err(Reason::WrongSignature),
        }
        if self.signer.is_some_and(|signer| signer != key) {
            return Err(Reason::OtherSigner { key });
        }
        self.signer = Some(key);
        // The signature vouches for itself too: every field of its event is signed or follows from the chain.
        self.signed = self.next + 1;
        self.sealed = mark == Mark::Head;
        Ok(())
    }
}
