//! The door to a session's credentials, open for change while requests pass.

use super::scan::Outward;
use super::state::{Entry, EntryPart, State};
use super::{At, BodyPlan, BodySwap, Destination, Refusal, RequestScan, Used, body, head};
use crate::forms::{self, Keep, Kind};
use crate::scrub::coding::{CodingError, Decoder};
use crate::scrub::{Mask, Scrubber, scrub_head};
use crate::sign;
use arc_swap::ArcSwap;
use cofferdam_vault::{Bound, Part, Place, Plain, Role};
use http::header::AUTHORIZATION;
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
            let name = &bound.credential.name;
            check(name, bound.plain.reveal(), &bound.placeholder)?;
            bound.parts.iter().try_for_each(|part| check(name, part.plain.reveal(), &part.placeholder))?;
            let shared = |e: &Entry| {
                let theirs = |own: &str| e.placeholders().any(|p| p.contains(own) || own.contains(&**p));
                bound.variables().any(|(_, own)| theirs(own))
            };
            if entries.iter().any(shared) {
                return Err(Unfit::Placeholder { name: bound.credential.name });
            }
            let until = bound.credential.mints().then(Default::default);
            entries.push(Entry {
                until,
                name: bound.credential.name.as_str().into(),
                credential: Arc::new(bound.credential),
                placeholder: bound.placeholder.into(),
                plain: Arc::new(bound.plain),
                parts: bound.parts.into_iter().map(EntryPart::from).collect(),
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
        self.renew(name, plain, Vec::new())
    }

    /// The same for a credential of several values: the placeholders stay what they were.
    pub fn renew(&self, name: &str, plain: Plain, parts: Vec<Part>) -> Result<u64, Unfit> {
        let state = self.state.load();
        let known =
            state.entries.iter().find(|e| *e.name == *name).ok_or_else(|| Unknown(name.to_owned()))?;
        check(name, plain.reveal(), &known.placeholder)?;
        parts.iter().try_for_each(|part| check(name, part.plain.reveal(), &part.placeholder))?;
        let plain = Arc::new(plain);
        let mut parts: Vec<EntryPart> = parts.into_iter().map(EntryPart::from).collect();
        let mut generation = 0;
        let anew = |_: &State, entries| State::new(entries);
        self.change(name, anew, |entry| {
            for part in &mut parts {
                if let Some(known) = entry.part(part.role) {
                    part.placeholder = Arc::clone(&known.placeholder);
                }
            }
            let gone = std::mem::replace(&mut entry.parts, parts);
            let earlier = std::iter::once(std::mem::replace(&mut entry.plain, plain));
            entry.earlier.splice(0..0, earlier.chain(gone.into_iter().map(|part| part.plain)));
            entry.earlier.truncate(EARLIER);
            entry.generation += 1;
            entry.revoked = false;
            // The token of the old one is not the new one's.
            entry.until = entry.until.as_ref().map(|_| Default::default());
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
        self.state.load().entries.iter().flat_map(Entry::placeholders).cloned().collect()
    }

    /// Refuses a host's name that holds a credential's value or placeholder, in whatever case: looking it up would
    /// send it out.
    pub(crate) fn check_name(&self, name: &str) -> Result<(), Refusal> {
        let nowhere = Destination { host: "", port: 0, program: None };
        self.state.load().bare_name(name, &nowhere, At::Host)
    }

    /// The credential that is proven to this place (`HOST:PORT`) in this protocol, which is not HTTP.
    pub(crate) fn speaking_to(&self, destination: &str, protocol: &Place) -> Option<Entry> {
        let state = self.state.load();
        let speaks =
            |entry: &&Entry| entry.credential.places.contains(protocol) && entry.goes_to(destination);
        state.entries.iter().find(speaks).cloned()
    }

    /// Refuses data that holds a credential's value or placeholder.
    pub(crate) fn check_data(&self, data: &[u8], destination: &str) -> Result<(), Refusal> {
        let state = self.state.load();
        if state.is_empty() {
            return Ok(());
        }
        state.bare(data, &Destination { host: destination, port: 0, program: None }, &At::Body)
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

    /// A credential whose token this request needs.
    pub(crate) fn minting(&self, to: &Destination<'_>, head: &request::Parts) -> Option<Entry> {
        let state = self.state.load();
        let value = head.headers.get(AUTHORIZATION)?;
        let mints = |entry: &&Entry| entry.until.is_some() && !entry.revoked && entry.goes_to(to.host);
        state.entries.iter().find(mints)?;
        let (_, mark, entry) = state.find(value.as_bytes(), 0)?;
        (!mark.real && mints(&entry)).then(|| entry.clone())
    }

    /// What a credential is exchanged for tokens with.
    pub(crate) fn grant(&self, name: &str) -> Option<Arc<Plain>> {
        let state = self.state.load();
        let entry = state.entries.iter().find(|entry| *entry.name == *name)?;
        entry.part(Role::Grant).map(|part| Arc::clone(&part.plain))
    }

    pub(crate) fn any(&self, is_it: impl Fn(&Entry) -> bool) -> bool {
        self.state.load().entries.iter().any(is_it)
    }

    /// What stands for the token of whoever asks for it with the right placeholder.
    pub(crate) fn token_for(&self, body: &[u8], is_it: impl Fn(&Entry) -> bool) -> Option<Arc<str>> {
        let state = self.state.load();
        let asks = |entry: &&Entry| {
            let refresh = entry.part(Role::Refresh).map(|part| Arc::clone(&part.placeholder));
            let coded = |text: &str| {
                forms::encode(Kind::Percent { keep: Keep::Unreserved, upper: true }, text.as_bytes())
            };
            let found = |text: &[u8]| memchr::memmem::find(body, text).is_some();
            refresh.is_some_and(|text| {
                found(text.as_bytes()) || coded(&text).is_some_and(|text| found(text.as_slice()))
            })
        };
        state
            .entries
            .iter()
            .filter(|entry| is_it(entry))
            .find(asks)
            .map(|entry| Arc::clone(&entry.placeholder))
    }

    /// Another token in the place of the last one; requests under way go on.
    pub(crate) fn refresh(&self, name: &str, plain: Plain, grant: Option<Plain>) -> Result<(), Unfit> {
        let state = self.state.load();
        let known =
            state.entries.iter().find(|e| *e.name == *name).ok_or_else(|| Unknown(name.to_owned()))?;
        check(name, plain.reveal(), &known.placeholder)?;
        let (plain, grant) = (Arc::new(plain), grant.map(Arc::new));
        self.change(
            name,
            |_, entries| State::new(entries),
            |entry| {
                entry.earlier.insert(0, std::mem::replace(&mut entry.plain, plain));
                entry.earlier.truncate(EARLIER);
                if let (Some(grant), Some(part)) =
                    (grant, entry.parts.iter_mut().find(|part| part.role == Role::Grant))
                {
                    part.plain = grant;
                }
            },
        )?;
        Ok(())
    }

    /// Takes off a signature that was made with a placeholder, or refuses; none where there is none. Before
    /// [`Self::swap_head`], which finds the placeholder of its key otherwise.
    pub(crate) fn take_signature(
        &self,
        to: &Destination<'_>,
        head: &mut request::Parts,
    ) -> Result<Option<sign::Taken>, Refusal> {
        sign::take(&self.state.load_full(), to, head)
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
        let screen = self.state.load().screen();
        let mut mask = Mask::new(Arc::clone(&screen));
        // What a store of files gives back is the file, whatever it says of its coding.
        let coding = scrub_head(&mut mask, head, used.bodiless || used.sealed)?;
        let decoder = coding.map(Decoder::new).transpose()?.map(Box::new);
        Ok(Some(Scrubber::new(screen, mask, decoder, &head.headers)))
    }
}

impl From<Part> for EntryPart {
    fn from(part: Part) -> Self {
        Self { role: part.role, placeholder: part.placeholder.into(), plain: Arc::new(part.plain) }
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
