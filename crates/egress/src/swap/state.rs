//! One immutable picture of the session's credentials, replaced as a whole when one of them changes.

use super::{At, Destination, Refusal, Why};
use crate::forms::{self, Finder, Form, Hit, Kind};
use crate::http::mint::Until;
use crate::scrub::Screen;
use cofferdam_vault::{Credential, Place, Plain, Role};
use std::sync::Arc;

/// A credential and all values it has had: an old one may still open doors, and still come back.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: Arc<str>,
    pub(crate) credential: Arc<Credential>,
    pub(crate) placeholder: Arc<str>,
    pub(crate) plain: Arc<Plain>,
    /// What else belongs to it.
    pub(crate) parts: Vec<EntryPart>,
    pub(crate) earlier: Vec<Arc<Plain>>,
    pub(crate) generation: u64,
    pub(crate) revoked: bool,
    /// Of one that is exchanged for tokens.
    pub(crate) until: Option<Arc<Until>>,
}

/// A value beside the one that a credential is named for.
#[derive(Clone)]
pub(crate) struct EntryPart {
    pub(crate) role: Role,
    pub(crate) placeholder: Arc<str>,
    pub(crate) plain: Arc<Plain>,
}

/// Whether a host is one of those that a credential is for.
pub(crate) fn goes_to(hosts: &[String], host: &str) -> bool {
    hosts.iter().any(|pattern| match pattern.strip_prefix("*.") {
        Some(parent) => {
            host.strip_suffix(parent).is_some_and(|below| below.len() > 1 && below.ends_with('.'))
        }
        None => pattern == host,
    })
}

impl Entry {
    pub(crate) fn part(&self, role: Role) -> Option<&EntryPart> {
        self.parts.iter().find(|part| part.role == role)
    }

    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &Arc<str>> {
        std::iter::once(&self.placeholder).chain(self.parts.iter().map(|part| &part.placeholder))
    }

    /// Every value with what stands for it inside.
    fn pairs(&self) -> impl Iterator<Item = (&Arc<Plain>, &Arc<str>)> {
        let earlier = self.values().map(|plain| (plain, &self.placeholder));
        earlier.chain(self.parts.iter().map(|part| (&part.plain, &part.placeholder)))
    }

    /// The value, and those before it.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<Plain>> {
        std::iter::once(&self.plain).chain(&self.earlier)
    }

    pub(crate) fn goes_to(&self, host: &str) -> bool {
        goes_to(&self.credential.hosts, host)
    }

    /// Whether this credential may be sent to this destination by this program at all.
    fn admits(&self, to: &Destination<'_>) -> Result<(), Why> {
        let programs = &self.credential.programs;
        if !self.goes_to(to.host) {
            Err(Why::OtherHost(to.host.to_owned()))
        } else if !programs.is_empty()
            && !to.program.is_some_and(|p| programs.iter().any(|listed| listed == p))
        {
            Err(Why::OtherProgram(to.program.map(str::to_owned)))
        } else if self.revoked {
            Err(Why::Revoked)
        } else {
            Ok(())
        }
    }

    /// Whether it is swapped at a place of the request that `place` tells from others.
    pub(crate) fn permits(
        &self,
        to: &Destination<'_>,
        at: &At,
        place: impl Fn(&Place) -> bool,
    ) -> Result<(), Refusal> {
        let there = if self.credential.places.iter().any(place) { Ok(()) } else { Err(Why::OtherPlace) };
        self.admits(to).and(there).map_err(|why| self.refuse(at, why))
    }

    pub(crate) fn refuse(&self, at: &At, why: Why) -> Refusal {
        Refusal::of(&self.name, at.clone(), why)
    }
}

/// What a pattern stands for.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    entry: usize,
    pub(crate) kind: Kind,
    pub(crate) real: bool,
}

pub(crate) struct State {
    pub(crate) entries: Vec<Entry>,
    index: Arc<Index>,
}

/// What the entries' values and placeholders look like, in all forms.
struct Index {
    /// Placeholders and real values, for what leaves.
    finder: Finder,
    marks: Vec<Mark>,
    /// Real values, for what comes back.
    screen: Arc<Screen>,
}

impl Index {
    fn new(entries: &[Entry]) -> Self {
        let mut real: Vec<Form> = Vec::new();
        let mut sought: Vec<(Mark, Form)> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let mark = |kind, real| Mark { entry: index, kind, real };
            for placeholder in entry.placeholders() {
                let seen = forms::forms(placeholder.as_bytes(), placeholder.as_bytes());
                sought.extend(seen.into_iter().map(|form| (mark(form.kind, false), form)));
            }
            for (plain, placeholder) in entry.pairs() {
                real.extend(forms::forms(plain.reveal(), placeholder.as_bytes()));
                let hidden = forms::forms(plain.reveal(), placeholder.as_bytes());
                sought.extend(hidden.into_iter().map(|form| (mark(form.kind, true), form)));
            }
        }
        let texts: Vec<&[u8]> = sought.iter().map(|(_, form)| form.text.as_slice()).collect();
        let finder = Finder::new(&texts);
        let marks = sought.iter().map(|(mark, _)| *mark).collect();
        Self { finder, marks, screen: Arc::new(Screen::new(real)) }
    }
}

impl State {
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        let index = Arc::new(Index::new(&entries));
        Self { entries, index }
    }

    /// The same values under other rules: nothing is built anew, so it is done at once.
    pub(crate) fn with(&self, entries: Vec<Entry>) -> Self {
        Self { entries, index: Arc::clone(&self.index) }
    }

    pub(crate) fn screen(&self) -> Arc<Screen> {
        Arc::clone(&self.index.screen)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn finder(&self) -> &Finder {
        &self.index.finder
    }

    /// The first placeholder or real value at or after `from`, and whose it is.
    pub(crate) fn find(&self, text: &[u8], from: usize) -> Option<(Hit, Mark, &Entry)> {
        let hit = self.index.finder.find(text, from)?;
        let mark = *self.index.marks.get(hit.pattern)?;
        Some((hit, mark, self.entries.get(mark.entry)?))
    }

    /// The refusal of a text that may hold no credential at all.
    pub(crate) fn bare(&self, text: &[u8], to: &Destination<'_>, at: &At) -> Result<(), Refusal> {
        match self.find(text, 0) {
            None => Ok(()),
            Some((_, mark, entry)) => Err(self.misplaced(mark, entry, to, at)),
        }
    }

    pub(crate) fn misplaced(&self, mark: Mark, entry: &Entry, to: &Destination<'_>, at: &At) -> Refusal {
        let why = if mark.real { Why::RealValue } else { entry.admits(to).err().unwrap_or(Why::OtherPlace) };
        entry.refuse(at, why)
    }

    pub(crate) fn shows_placeholder(&self, text: &[u8]) -> bool {
        let next = |from: usize| self.find(text, from);
        std::iter::successors(next(0), |(hit, ..)| next(hit.end)).any(|(_, mark, _)| !mark.real)
    }

    /// Names are compared without regard to case, because the wire does not keep it.
    pub(crate) fn bare_name(&self, name: &str, to: &Destination<'_>, at: At) -> Result<(), Refusal> {
        for entry in &self.entries {
            if entry.placeholders().any(|placeholder| contains(name, placeholder.as_bytes())) {
                return Err(entry.refuse(&at, entry.admits(to).err().unwrap_or(Why::OtherPlace)));
            }
            if entry.pairs().any(|(plain, _)| contains(name, plain.reveal())) {
                return Err(entry.refuse(&at, Why::RealValue));
            }
        }
        Ok(())
    }

    pub(crate) fn whose(&self, placeholder: &[u8]) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.placeholder.as_bytes() == placeholder)
    }
}

/// Names have no case, so what is in one has lost its own.
fn contains(name: &str, value: &[u8]) -> bool {
    name.len() >= value.len() && name.as_bytes().windows(value.len()).any(|w| w.eq_ignore_ascii_case(value))
}
