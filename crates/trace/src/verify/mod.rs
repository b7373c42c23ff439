//! Says whether a trace is what its signer wrote, and if not, which event is the first that is not.
//!
//! Nothing in a trace is believed before it is checked against the chain, and nothing in the chain vouches for
//! itself: a trace is worth what the trusted keys have signed. No repair, no guess, no "probably fine".

mod chain;
mod held;
mod reason;

pub use held::{Held, verify_held};
pub use reason::Reason;

use crate::archive::{self, Part};
use crate::blob::{self, BlobError};
use crate::lines::{Lines, Next};
use crate::reader::{ReadError, is_locked, open_regular};
use crate::{EVENTS_FILE, MAX_ARCHIVE, MAX_BLOB};
use chain::Chain;
use cofferdam_model::{BlobRef, Digest, Event, SessionId};
use cofferdam_seal::Keyring;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;

/// What a trace is held against.
#[derive(Clone, Copy)]
pub struct Check<'a> {
    /// The only keys whose signatures count.
    pub keys: &'a Keyring,
    /// The session it must be the trace of, where one was asked for by name.
    pub session: Option<&'a SessionId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum State {
    /// Finished, and every byte is what a trusted key has signed.
    Valid,
    /// Sound as far as it goes, without an end. Live while its writer holds it.
    Incomplete { live: bool },
    /// Not to be believed from `first_bad` on.
    Broken,
}

/// The first event that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bad {
    /// The sequence number that belongs at this place.
    pub seq: u64,
    /// In the events file, from 1.
    pub line: u64,
    /// As far as it can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(flatten)]
    pub reason: Reason,
}

/// What became of the payloads that events name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Payloads {
    /// Distinct ones named by sound events.
    pub named: u64,
    /// Fewer than `named` where only the events were given.
    pub sound: u64,
    pub missing: u64,
    pub damaged: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verification {
    #[serde(flatten)]
    pub state: State,
    /// From the first event; absent where that is not sound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Events that hang together from the first on.
    pub events: u64,
    /// How many of them a trusted key has signed. Those after are sound but unsigned: anyone could have
    /// written them.
    pub signed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signer: Option<Digest>,
    /// Whether it ends within a line, as a killed writer may leave it.
    pub torn_tail: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_bad: Option<Bad>,
    pub payloads: Payloads,
}

impl Verification {
    /// Sound events that no trusted key vouches for yet.
    pub fn unsigned(&self) -> u64 {
        self.events - self.signed
    }
}

/// Verifies a bundle's directory, a bundle in one file, or a bare file of events (whose payloads cannot be
/// checked). An error means that it could not be read; a bad trace is an answer.
pub fn verify(path: &Path, check: &Check<'_>) -> Result<Verification, ReadError> {
    Ok(gone_through(path, check, &mut Nothing)?.0)
}

/// Whoever wants what was found sound while it is at hand.
trait Keep {
    fn event(&mut self, event: Event);
    fn payload(&mut self, digest: Digest, plain: Vec<u8>);
}

struct Nothing;

impl Keep for Nothing {
    fn event(&mut self, _: Event) {}
    fn payload(&mut self, _: Digest, _: Vec<u8>) {}
}

/// What a path turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Dir,
    Archive,
    /// Without payloads.
    Events,
}

fn gone_through(
    path: &Path,
    check: &Check<'_>,
    keep: &mut dyn Keep,
) -> Result<(Verification, Form), ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let is_dir = path.is_dir();
    let mut file = if is_dir { open_regular(&path.join(EVENTS_FILE))? } else { open_regular(path)? };
    let mut run = Run::new(check, is_locked(&file), keep);
    let packed = !is_dir
        && archive::is_archive(&mut file).and_then(|yes| file.rewind().map(|()| yes)).map_err(failed)?;
    if packed {
        run.archive(file);
        return Ok((run.finish(), Form::Archive));
    }
    run.events(BufReader::with_capacity(64 << 10, file)).map_err(failed)?;
    if is_dir {
        run.payloads_of(path);
    }
    Ok((run.finish(), if is_dir { Form::Dir } else { Form::Events }))
}

/// Where a payload was first named.
struct Wanted {
    size: u64,
    seq: u64,
    kind: String,
}

struct Run<'a> {
    chain: Chain<'a>,
    live: bool,
    torn: bool,
    bad: Option<Bad>,
    wanted: BTreeMap<Digest, Wanted>,
    payloads: Payloads,
    keep: &'a mut dyn Keep,
}

impl<'a> Run<'a> {
    fn new(check: &'a Check<'a>, live: bool, keep: &'a mut dyn Keep) -> Self {
        let (bad, wanted, payloads) = (None, BTreeMap::new(), Payloads::default());
        Self { chain: Chain::new(check), live, torn: false, bad, wanted, payloads, keep }
    }

    /// Follows the chain to its end or to the first event that is not part of it.
    fn events(&mut self, from: impl BufRead) -> io::Result<()> {
        let mut lines = Lines::new(from);
        loop {
            let (kind, reason) = match lines.next()? {
                Next::End => return Ok(()),
                Next::Torn if !self.chain.sealed() => {
                    self.torn = true;
                    return Ok(());
                }
                Next::Torn => (None, Reason::AfterHead),
                Next::TooLong => (None, Reason::TooLong),
                Next::Line(line) => match self.chain.accept(line) {
                    Ok(event) => {
                        let (seq, kind) = (event.seq, &event.kind);
                        name_payloads(&event.body, &mut |BlobRef { digest, size }| {
                            let first = || Wanted { size, seq, kind: kind.clone() };
                            self.wanted.entry(digest).or_insert_with(first);
                        });
                        self.keep.event(event);
                        continue;
                    }
                    Err(flaw) => flaw,
                },
            };
            self.bad(self.chain.events(), kind, reason);
            return Ok(());
        }
    }

    fn bad(&mut self, seq: u64, kind: Option<String>, reason: Reason) {
        if self.bad.as_ref().is_none_or(|bad| seq < bad.seq) {
            self.bad = Some(Bad { seq, line: seq + 1, kind, reason });
        }
    }

    fn payloads_of(&mut self, bundle: &Path) {
        for (digest, wanted) in std::mem::take(&mut self.wanted) {
            let blob = BlobRef { digest, size: wanted.size };
            self.payload(digest, wanted, blob::read(bundle, &blob));
        }
    }

    fn payload(&mut self, digest: Digest, wanted: Wanted, found: Result<Vec<u8>, BlobError>) {
        self.payloads.named += 1;
        let reason = match found {
            Ok(plain) => {
                self.payloads.sound += 1;
                self.keep.payload(digest, plain);
                return;
            }
            Err(BlobError::Missing(_)) => {
                self.payloads.missing += 1;
                Reason::PayloadMissing { digest }
            }
            Err(_) => {
                self.payloads.damaged += 1;
                Reason::PayloadDamaged { digest }
            }
        };
        self.bad(wanted.seq, Some(wanted.kind), reason);
    }

    /// The events come first in the file, so each payload can be checked as it passes.
    fn archive(&mut self, file: File) {
        let walked = archive::walk(file, MAX_ARCHIVE, |part, size, content| {
            match part {
                Part::Events => self.events(BufReader::with_capacity(64 << 10, content))?,
                Part::Blob(digest) => {
                    let Some(wanted) = self.wanted.remove(&digest) else { return Ok(()) };
                    let found = check_content(digest, wanted.size, size, content);
                    self.payload(digest, wanted, found);
                }
            }
            Ok(())
        });
        match walked {
            Ok(id) => {
                if let Some(found) = self.chain.session().filter(|session| **session != id).cloned() {
                    self.bad(0, None, Reason::OtherSession { found });
                }
            }
            Err(error) => self.bad(self.chain.events(), None, Reason::Archive { problem: error.to_string() }),
        }
        for (digest, wanted) in std::mem::take(&mut self.wanted) {
            self.payload(digest, wanted, Err(BlobError::Missing(digest)));
        }
    }

    fn finish(mut self) -> Verification {
        let (events, signed) = (self.chain.events(), self.chain.signed());
        // The first event is written with its signature in one go, so there is no honest way to have less of it.
        let something = events > 0 || self.torn;
        if something && signed == 0 && self.bad.is_none() {
            self.bad(0, None, Reason::NothingSigned);
        }
        self.payloads.named += self.wanted.len() as u64;
        Verification {
            state: match &self.bad {
                Some(_) => State::Broken,
                None if self.chain.sealed() => State::Valid,
                None => State::Incomplete { live: self.live },
            },
            session: self.chain.session().cloned(),
            events,
            signed,
            signer: self.chain.signer(),
            torn_tail: self.torn,
            first_bad: self.bad,
            payloads: self.payloads,
        }
    }
}

fn check_content(digest: Digest, size: u64, held: u64, content: &mut dyn Read) -> Result<Vec<u8>, BlobError> {
    if size > MAX_BLOB || held > blob::max_compressed(size) {
        return Err(BlobError::Damaged(digest));
    }
    let mut compressed = Vec::new();
    content.read_to_end(&mut compressed).map_err(|source| BlobError::Read { digest, source })?;
    blob::open(&compressed, &BlobRef { digest, size })
}

/// An object of exactly `digest` and `size` names a payload, in an event of any kind: so a reader can check
/// the payloads of kinds it does not know.
fn name_payloads(value: &serde_json::Value, found: &mut dyn FnMut(BlobRef)) {
    match value {
        serde_json::Value::Array(items) => items.iter().for_each(|item| name_payloads(item, found)),
        serde_json::Value::Object(map) => {
            let text = map.get("digest").and_then(|digest| digest.as_str());
            match (
                map.len(),
                text.and_then(|text| text.parse().ok()),
                map.get("size").and_then(|s| s.as_u64()),
            ) {
                (2, Some(digest), Some(size)) => found(BlobRef { digest, size }),
                _ => map.values().for_each(|item| name_payloads(item, found)),
            }
        }
        _ => {}
    }
}
