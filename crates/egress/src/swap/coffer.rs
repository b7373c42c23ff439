//! The door to a session's credentials, open for change while requests pass.

use super::scan::Outward;
use super::state::{Entry, State};
use super::{At, BodyPlan, BodySwap, Destination, Refusal, RequestScan, Used, body, head};
use crate::forms;
use crate::scrub::coding::{CodingError, Decoder};
use crate::scrub::{Mask, Scrubber, scrub_head};
use arc_swap::ArcSwap;
use cofferdam_vault::{Bound, Plain};
use http::{request, response};
use std::sync::{Arc, Mutex, PoisonError};

/// How many values of a rotated credential are still looked for in responses.
const EARLIER: usize = 4;

/// Why a session cannot begin with a credential, or a credential cannot take a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error(
        "the value of `{name}` has {length} bytes: under {} it cannot be told from ordinary text, so use a longer one",
        forms::SHORTEST
    )]
    Short { name: String, length: usize },
    #[error(
        "the value of `{name}` has {length} bytes: at most {} are looked for, so use a shorter one",
        forms::LONGEST
    )]
    Long { name: String, length: usize },
    #[error(
        "the placeholder of `{name}` cannot stand for it: make one of at least {} ASCII characters that no other credential has and that does not show the value",
        forms::SHORTEST
    )]
    Placeholder { name: String },
    #[error(transparent)]
    Unknown(#[from] Unknown),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this session has no credential `{0}`: name one of its own")]
pub struct Unknown(pub String);

pub struct Coffer {
    state: ArcSwap<State>,
    /// Changes come one after the other; requests do not wait for them.
    changing: Mutex<()>,
}

impl Coffer {
    pub fn new(bound: Vec<Bound>) -> Result<Self, Unfit> {
        let mut entries: Vec<Entry> = Vec::with_capacity(bound.len());
        for bound in bound {
            check(&bound.credential.name, bound.plain.reveal(), &bound.placeholder)?;
            let shared = |e: &Entry| {
                e.placeholder.contains(&bound.placeholder) || bound.placeholder.contains(&*e.placeholder)
            };
            if entries.iter().any(shared) {
                return Err(Unfit::Placeholder { name: bound.credential.name });
            }
            entries.push(Entry {
                name: bound.credential.name.as_str().into(),
                credential: Arc::new(bound.credential),
                placeholder: bound.placeholder.into(),
                plain: Arc::new(bound.plain),
                earlier: Vec::new(),
                generation: bound.generation,
                revoked: false,
            });
        }
        Ok(Self { state: ArcSwap::from_pointee(State::new(entries)), changing: Mutex::new(()) })
    }

    /// From the next request on it is refused; its value is still covered in what comes back.
    pub fn revoke(&self, name: &str) -> Result<(), Unknown> {
        self.change(name, State::with, |entry| entry.revoked = true)
    }

    /// A new value for the same placeholder; what was sent under the old one is no longer [current](Self::is_current).
    /// Also the way back for a credential that was revoked.
    pub fn replace(&self, name: &str, plain: Plain) -> Result<u64, Unfit> {
        let state = self.state.load();
        let known =
            state.entries.iter().find(|e| *e.name == *name).ok_or_else(|| Unknown(name.to_owned()))?;
        check(name, plain.reveal(), &known.placeholder)?;
        let plain = Arc::new(plain);
        let mut generation = 0;
        let anew = |_: &State, entries| State::new(entries);
        self.change(name, anew, |entry| {
            entry.earlier.insert(0, std::mem::replace(&mut entry.plain, plain));
            entry.earlier.truncate(EARLIER);
            entry.generation += 1;
            entry.revoked = false;
            generation = entry.generation;
        })?;
        Ok(generation)
    }

    fn change(
        &self,
        name: &str,
        build: impl FnOnce(&State, Vec<Entry>) -> State,
        change: impl FnOnce(&mut Entry),
    ) -> Result<(), Unknown> {
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.state.load();
        let mut entries = state.entries.clone();
        let entry = entries.iter_mut().find(|e| *e.name == *name).ok_or_else(|| Unknown(name.to_owned()))?;
        change(entry);
        self.state.store(Arc::new(build(&state, entries)));
        Ok(())
    }

    /// Whether every value that a request was given is still the credential's own: if not, its streams are cut.
    pub fn is_current(&self, used: &Used) -> bool {
        let state = self.state.load();
        used.credentials.iter().all(|used| {
            let entry = state.entries.iter().find(|e| e.name == used.name);
            entry.is_some_and(|e| !e.revoked && e.generation == used.generation)
        })
    }

    /// What the inside sees of the credentials: a guard has to know them from real keys.
    pub fn placeholders(&self) -> Vec<Arc<str>> {
        self.state.load().entries.iter().map(|e| Arc::clone(&e.placeholder)).collect()
    }

    /// Refuses a host's name that holds a credential's value or placeholder, in whatever case: looking it up would
    /// send it out.
    pub(crate) fn check_name(&self, name: &str) -> Result<(), Refusal> {
        let nowhere = Destination { host: "", port: 0, program: None };
        self.state.load().bare_name(name, &nowhere, At::Host)
    }

    /// A text without real values, in any form: placeholders stand for them.
    pub(crate) fn cover(&self, text: &str) -> String {
        let state = self.state.load();
        if state.is_empty() {
            return text.to_owned();
        }
        let mut mask = Mask::new(state.screen());
        let mut covered = mask.push(text.to_owned().into()).to_vec();
        covered.extend_from_slice(&mask.finish());
        String::from_utf8_lossy(&covered).into_owned()
    }

    /// Puts real values in the place of placeholders, or refuses and leaves the head as it was. Record the head
    /// before this, never after.
    pub fn swap_head(&self, to: &Destination<'_>, head: &mut request::Parts) -> Result<Used, Refusal> {
        let state = self.state.load();
        if state.is_empty() {
            return Ok(Used::default());
        }
        head::swap(&state, to, head)
    }

    /// Ask before [`Self::swap_head`] or after: it looks at the body's type and size only.
    pub fn request_body(&self, to: &Destination<'_>, head: &request::Parts) -> Result<BodyPlan, Refusal> {
        let state = self.state.load_full();
        if state.is_empty() {
            return Ok(BodyPlan::Nothing);
        }
        let outward = Outward::new(state, to);
        match body::Shape::of(&outward, head) {
            Some(shape) => Ok(BodyPlan::Swap(BodySwap::new(outward, shape))),
            None => Ok(BodyPlan::Scan(RequestScan::new(outward, &head.headers)?)),
        }
    }

    /// Covers the head of a response and gives the filter for its body; none when its sender was never given a
    /// secret. An error means that the body cannot be read: answer 502 and close.
    pub fn response(&self, used: &Used, head: &mut response::Parts) -> Result<Option<Scrubber>, CodingError> {
        if !used.watched {
            return Ok(None);
        }
        let mut mask = Mask::new(self.state.load().screen());
        let coding = scrub_head(&mut mask, head, used.bodiless)?;
        Ok(Some(Scrubber::new(mask, coding.map(Decoder::new).transpose()?.map(Box::new))))
    }
}

fn check(name: &str, value: &[u8], placeholder: &str) -> Result<(), Unfit> {
    let length = value.len();
    let shows = |part: &[u8]| part.len() >= value.len() && part.windows(value.len()).any(|w| w == value);
    if length < forms::SHORTEST {
        Err(Unfit::Short { name: name.to_owned(), length })
    } else if length > forms::LONGEST {
        Err(Unfit::Long { name: name.to_owned(), length })
    } else if placeholder.len() < forms::SHORTEST || !placeholder.is_ascii() || shows(placeholder.as_bytes())
    {
        Err(Unfit::Placeholder { name: name.to_owned() })
    } else {
        Ok(())
    }
}
