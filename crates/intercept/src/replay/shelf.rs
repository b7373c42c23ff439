//! Recorded exchanges, each to be served once, and the search for the one that a request asks for. Whether a request
//! is found depends on what was asked before it only where two recorded requests cannot be told apart.

use super::identity::{Shape, exact};
use super::nearest::{self, By};
use super::recording::{Answered, Recorded, Recording, Request};
use super::rules::Rules;
use super::volatile::{Class, Word, note, split};
use cofferdam_model::{Matching, Miss, Nearest};
use std::collections::{HashMap, HashSet};

pub struct Shelf {
    rules: Rules,
    slots: Vec<Slot>,
    by_exact: HashMap<Vec<u8>, Vec<usize>>,
    by_shape: HashMap<Vec<u8>, Vec<usize>>,
    /// Words that the agent did not make up: they stood in an answer, or in what it was given, before it said them.
    known: HashSet<String>,
    made_up: HashSet<String>,
    /// What it made up then and now, one for one.
    now: HashMap<String, String>,
    then: HashMap<String, String>,
}

struct Slot {
    recorded: Recorded,
    words: Vec<Word>,
    taken: bool,
}

/// A recorded exchange that answers a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its place among the exchanges.
    pub index: usize,
    pub matching: Matching,
    pub repeated: bool,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missed {
    pub why: Miss,
    pub nearest: Option<Nearest>,
    /// What the recording says about it.
    pub detail: String,
}

impl Shelf {
    pub fn new(recording: Recording, rules: Rules) -> Self {
        let mut known = HashSet::new();
        recording.given.iter().for_each(|text| note(text, &mut known));
        let mut shelf = Self {
            slots: Vec::with_capacity(recording.exchanges.len()),
            by_exact: HashMap::new(),
            by_shape: HashMap::new(),
            known,
            made_up: HashSet::new(),
            now: HashMap::new(),
            then: HashMap::new(),
            rules,
        };
        recording.exchanges.into_iter().for_each(|recorded| shelf.put(recorded));
        shelf
    }

    fn put(&mut self, recorded: Recorded) {
        let index = self.slots.len();
        self.learn_words(&recorded);
        let key = exact(&recorded.request, &self.rules);
        self.by_exact.entry(key).or_default().push(index);
        let mut words = Vec::new();
        if self.rules.is_normalised() {
            let shape = Shape::of(&recorded.request, &self.rules);
            words = shape.words;
            self.by_shape.entry(shape.key).or_default().push(index);
        }
        self.slots.push(Slot { recorded, words, taken: false });
    }

    /// Who says a word first has made it.
    fn learn_words(&mut self, recorded: &Recorded) {
        let mut said = HashSet::new();
        let Request { path, query, headers, body, .. } = &recorded.request;
        note(path, &mut said);
        note(query.as_deref().unwrap_or_default(), &mut said);
        note(&String::from_utf8_lossy(body), &mut said);
        headers.iter().for_each(|(_, value)| note(&String::from_utf8_lossy(value), &mut said));
        self.made_up.extend(said.into_iter().filter(|word| !self.known.contains(word)));
        if let Answered::Whole(response) = &recorded.answer {
            let mut heard = HashSet::new();
            note(&String::from_utf8_lossy(&response.plain()), &mut heard);
            response.headers.iter().for_each(|(_, value)| note(&String::from_utf8_lossy(value), &mut heard));
            self.known.extend(heard.into_iter().filter(|word| !self.made_up.contains(word)));
        }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub fn get(&self, index: usize) -> Option<&Recorded> {
        self.slots.get(index).map(|slot| &slot.recorded)
    }

    /// Those that nobody asked for.
    pub fn unused(&self) -> impl Iterator<Item = &Recorded> {
        self.slots.iter().filter(|slot| !slot.taken).map(|slot| &slot.recorded)
    }

    /// What a word of a recorded request is called now, for all that are known: an answer that repeats the word must
    /// say the new one.
    pub(super) fn renamed(&self) -> impl Iterator<Item = (&str, &str)> {
        let changed = self.now.iter().filter(|(then, now)| then != now);
        changed.map(|(then, now)| (then.as_str(), now.as_str()))
    }

    /// The exchange that answers this request, which is then used.
    pub fn take(&mut self, request: &Request) -> Result<Found, Missed> {
        let key = exact(request, &self.rules);
        let same = self.by_exact.get(&key).map_or(&[][..], Vec::as_slice);
        if let Some(index) = same.iter().copied().find(|index| self.is_free(*index)) {
            return self.serve(index, Matching::Strict, request);
        }
        let mut last = same.last().copied().map(|index| (index, Matching::Strict));
        if self.rules.is_normalised() {
            let shape = Shape::of(request, &self.rules);
            let like = self.by_shape.get(&shape.key).map_or(&[][..], Vec::as_slice);
            let fits = |index: &usize| self.fits(*index, &shape.words);
            if let Some(index) = like.iter().copied().filter(fits).find(|index| self.is_free(*index)) {
                self.learn(index, &shape.words);
                return self.serve(index, Matching::Normalised, request);
            }
            let like = like.iter().copied().rfind(fits);
            last = last.or(like.map(|index| (index, Matching::Normalised)));
        }
        match last {
            Some((index, matching)) if self.rules.may_repeat(&request.method) => {
                let found = self.serve(index, matching, request)?;
                Ok(Found { repeated: true, ..found })
            }
            Some((index, _)) => Err(self.missed(Miss::UsedUp, Some(index), request)),
            None => Err(self.missed(Miss::Different, None, request)),
        }
    }

    fn is_free(&self, index: usize) -> bool {
        self.slots.get(index).is_some_and(|slot| !slot.taken)
    }

    fn serve(&mut self, index: usize, matching: Matching, request: &Request) -> Result<Found, Missed> {
        let Some(slot) = self.slots.get_mut(index) else {
            return Err(self.missed(Miss::Different, None, request));
        };
        slot.taken = true;
        match &slot.recorded.answer {
            Answered::Whole(_) => Ok(Found { index, matching, repeated: false }),
            Answered::Not(why) => {
                let detail = why.clone();
                Err(Missed { detail, ..self.missed(Miss::NoAnswer, Some(index), request) })
            }
        }
    }

    /// Whether words that differ were both made up, and no other word was ever taken for either.
    fn fits(&self, index: usize, words: &[Word]) -> bool {
        let Some(slot) = self.slots.get(index).filter(|slot| slot.words.len() == words.len()) else {
            return false;
        };
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        slot.words.iter().zip(words).all(|(then, now)| {
            if then.text == now.text {
                return true;
            }
            let made_up = !self.known.contains(&then.text) && !self.known.contains(&now.text);
            if then.class != now.class || !made_up {
                return false;
            }
            if !is_name(then.class) {
                return true;
            }
            let is_other = |known: Option<&String>, word: &str| known.is_some_and(|known| known != word);
            let clashes = |(a, b): &(&str, &str)| (*a == then.text) != (*b == now.text);
            if is_other(self.now.get(&then.text), &now.text)
                || is_other(self.then.get(&now.text), &then.text)
                || pairs.iter().any(clashes)
            {
                return false;
            }
            pairs.push((&then.text, &now.text));
            true
        })
    }

    fn learn(&mut self, index: usize, words: &[Word]) {
        let Some(slot) = self.slots.get(index) else { return };
        for (then, now) in slot.words.iter().zip(words).filter(|(then, now)| then.text != now.text) {
            if is_name(then.class) {
                self.now.insert(then.text.clone(), now.text.clone());
                self.then.insert(now.text.clone(), then.text.clone());
            }
        }
    }

    fn missed(&self, why: Miss, index: Option<usize>, request: &Request) -> Missed {
        let detail = String::new();
        let excuse = |then: &str, now: &str| self.excuses(then, now);
        let by = By { rules: &self.rules, excuse: &excuse };
        if let Some(slot) = index.and_then(|index| self.slots.get(index)) {
            return Missed { why, nearest: Some(nearest::compare(&slot.recorded, request, by)), detail };
        }
        let same_host = |slot: &&Slot| slot.recorded.request.host == request.host;
        if !self.slots.iter().any(|slot| same_host(&slot)) {
            return Missed { why: Miss::UnknownHost, nearest: None, detail };
        }
        // What nobody has asked for yet is the likelier one to be meant.
        let free = self.slots.iter().filter(|slot| !slot.taken && same_host(slot));
        let used = self.slots.iter().filter(|slot| slot.taken && same_host(slot));
        let candidates = free.chain(used).map(|slot| &slot.recorded);
        Missed { why, nearest: nearest::find(candidates, request, by), detail }
    }

    /// Whether two texts are the same but for words that may differ.
    fn excuses(&self, then: &str, now: &str) -> bool {
        let parts = |text: &str| {
            let (mut between, mut words) = (String::new(), Vec::new());
            split(text, &self.rules.volatile, |before, word| {
                between.push_str(before);
                between.push('\0');
                words.extend(word);
            });
            (between, words)
        };
        if !self.rules.is_normalised() {
            return false;
        }
        let ((between_then, then), (between_now, now)) = (parts(then), parts(now));
        let may = |(then, now): (&Word, &Word)| {
            let made_up = !self.known.contains(&then.text) && !self.known.contains(&now.text);
            then.text == now.text || (then.class == now.class && made_up)
        };
        between_then == between_now && then.len() == now.len() && then.iter().zip(&now).all(may)
    }
}

/// A name means the same thing wherever it stands; a time is only ever now.
fn is_name(class: Class) -> bool {
    matches!(class, Class::Uuid | Class::Id | Class::Tmp)
}

#[cfg(test)]
mod tests;
