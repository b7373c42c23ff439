//! A trace that was verified, with what was read on the way: whoever goes on to work with it neither reads nor checks it
//! a second time, and works with the very bytes that were checked.

use super::{Check, Form, Keep, Verification, gone_through};
use crate::blob::{self, BlobError};
use crate::reader::{ReadError, open_regular};
use crate::{MAX_ARCHIVE, unpack};
use cofferdam_model::{BlobRef, Digest, Event};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// So many bytes of payloads stay in memory; those beyond are read again when they are asked for.
const MOST_HELD: usize = 32 << 20;

pub struct Held {
    pub verification: Verification,
    /// Those that hang together from the first on.
    pub events: Vec<Event>,
    form: Form,
    payloads: HashMap<Digest, Vec<u8>>,
    /// Where the others are.
    bundle: Option<PathBuf>,
    /// That of a file which was unfolded for them.
    _unfolded: Option<TempDir>,
}

impl Held {
    /// The plain bytes of a payload, which are those that its reference names.
    pub fn payload(&self, wanted: &BlobRef) -> Result<Vec<u8>, ReadError> {
        let held = self.payloads.get(&wanted.digest).filter(|bytes| bytes.len() as u64 == wanted.size);
        if let Some(bytes) = held {
            return Ok(bytes.clone());
        }
        let bundle = self.bundle.as_deref().ok_or(BlobError::Missing(wanted.digest))?;
        Ok(blob::read(bundle, wanted)?)
    }

    /// Whether it is a bare file of events, of which no payload can be had.
    pub fn is_without_payloads(&self) -> bool {
        self.form == Form::Events
    }
}

#[derive(Default)]
struct Keeper {
    events: Vec<Event>,
    payloads: HashMap<Digest, Vec<u8>>,
    held: usize,
    /// Not all of them fitted.
    more: bool,
}

impl Keep for Keeper {
    fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    fn payload(&mut self, digest: Digest, plain: Vec<u8>) {
        self.more |= self.held + plain.len() > MOST_HELD;
        if !self.more {
            self.held += plain.len();
            self.payloads.insert(digest, plain);
        }
    }
}

/// [`verify`](crate::verify), and what it read. Of a trace that is broken nothing is to be believed but the verdict.
pub fn verify_held(path: &Path, check: &Check<'_>) -> Result<Held, ReadError> {
    let mut keeper = Keeper::default();
    let (verification, form) = gone_through(path, check, &mut keeper)?;
    let Keeper { events, payloads, more, .. } = keeper;
    let (mut bundle, mut unfolded) = (None, None);
    match form {
        Form::Dir => bundle = Some(path.to_owned()),
        Form::Archive if more => {
            let failed = |source| ReadError::Io { path: path.to_owned(), source };
            let room = tempfile::tempdir().map_err(failed)?;
            let id = unpack(open_regular(path)?, room.path(), MAX_ARCHIVE);
            let id = id.map_err(|error| failed(io::Error::other(error)))?;
            bundle = Some(room.path().join(id.as_str()));
            unfolded = Some(room);
        }
        Form::Archive | Form::Events => {}
    }
    Ok(Held { verification, events, form, payloads, bundle, _unfolded: unfolded })
}
