//! Who is who. A name after "a message to" is somebody's, an address with "(you)" beside it is the user's own, and a word that
//! was only ever read inside a longer name is no name by itself.

use super::answer::Statement;
use super::context::Instead;
use super::cue;
use super::evidence::{Evidence, Source};
use super::extract::{Raw, within};
use super::link::Judge;
use super::report::{ClaimKind, Quoted, Why};
use super::scan::Value;
use super::words::{Word, hash_of, words};
use std::collections::HashSet;

/// An argument or a field longer than this is a text, and names nobody.
const SHORT: usize = 60;
/// Places where a word is looked at.
const PLACES: usize = 64;
/// Bytes beside an address in which it is called the user's.
const BESIDE: usize = 24;

const GREETINGS: [&str; 4] = ["dear", "hi", "hello", "hey"];
/// What is sent to somebody.
const SENT: [&str; 12] = [
    "message",
    "messages",
    "email",
    "emails",
    "mail",
    "invitation",
    "reply",
    "sent",
    "forwarded",
    "replied",
    "dm",
    "feedback",
];
const PRONOUNS: [&str; 4] = ["her", "him", "she", "he"];

/// The words that name somebody, or something that can be written to: parts of addresses like `ann.lee@…`, what stands in
/// fields of people, what calls were given, the items of bare lists, and whatever the user names.
pub(super) fn people(evidence: &Evidence) -> HashSet<u64> {
    let mut people = HashSet::new();
    for seen in &evidence.seen {
        let Value::Email(address) = &seen.found.value else { continue };
        let parts: Vec<&str> = address.split('@').next().unwrap_or_default().split(['.', '_']).collect();
        if parts.len() == 2 || parts.len() == 1 && !parts[0].contains('-') {
            let named = parts.iter().map(|p| p.trim_end_matches(|c: char| !c.is_alphabetic()));
            people.extend(named.filter(|p| p.len() > 1).map(hash_of));
        }
    }
    for slot in evidence.slots.iter().filter(|s| s.cues & (1 | cue::WHOM) != 0 && s.value.len() <= SHORT) {
        let piece = &evidence.pieces[evidence.records[slot.record].piece];
        people.extend(within(&piece.words, &slot.value, |w| w.range().start).iter().map(|w| w.exact));
    }
    for piece in &evidence.pieces {
        match piece.source {
            Source::User | Source::Instructed => {
                people.extend(piece.words.iter().filter(|w| w.upper).map(|w| w.exact));
            }
            Source::Did => {
                let whom = |pointer: &str| {
                    let key = pointer.split('/').rfind(|p| !p.bytes().all(|b| b.is_ascii_digit()));
                    cue::of_key(&key.unwrap_or_default().replace('_', " ")) & (1 | cue::WHOM | cue::PLACE)
                        != 0
                };
                for (range, _) in piece.leaves.iter().filter(|(r, pointer)| r.len() <= SHORT && whom(pointer))
                {
                    people.extend(within(&piece.words, range, |w| w.range().start).iter().map(|w| w.exact));
                }
            }
            Source::Read if !piece.text.contains(':') && piece.words.len() <= PLACES => {
                people.extend(piece.words.iter().map(|w| w.exact));
            }
            Source::Read => {}
        }
        for pair in piece.words.windows(2) {
            if pair[1].upper && one_of(pair[0].of(&piece.text), &GREETINGS) {
                people.insert(pair[1].exact);
            }
        }
    }
    people
}

impl Judge<'_> {
    /// Something that is no name by itself, or nobody's, in the place of one.
    pub(super) fn no_name(&self, raw: &Raw, statement: &Statement) -> Option<Why> {
        let [word] = self.words_in(&raw.range) else { return None };
        let label = statement.label.as_ref().is_some_and(|label| label.contains(&raw.range.start));
        let named = raw.kind == ClaimKind::Name && raw.range.len() > 2 && !statement.heading && !label;
        if !named || self.people.is_empty() {
            return None;
        }
        let noun = self.only_a_noun(word, statement);
        if self.people.contains(&word.exact) && noun.is_none() {
            return None;
        }
        if self.wants_somebody(raw, statement) {
            return Some(Why::Misfit { wants: "somebody's name".into(), found: None, beside: Vec::new() });
        }
        if noun.is_some() {
            return Some(Why::Misfit { wants: "a name".into(), found: noun, beside: Vec::new() });
        }
        let found = self.only_inside(word)?;
        Some(Why::Misfit { wants: "a name of its own".into(), found: Some(found), beside: Vec::new() })
    }

    /// Whether a name stands where only somebody can: "a message to", "Dear", "I sent … a message".
    fn wants_somebody(&self, raw: &Raw, statement: &Statement) -> bool {
        let words = self.words_in(&statement.range);
        let at = words.partition_point(|w| w.range().start < raw.range.start);
        let said = |back: usize, list: &[&str]| {
            at.checked_sub(back).is_some_and(|at| one_of(words[at].of(self.text), list))
        };
        let next = |ahead: usize, list: &[&str]| {
            words.get(at + ahead).is_some_and(|w| one_of(w.of(self.text), list))
        };
        let to = said(1, &["to"]) && (said(2, &SENT) || said(2, &["successfully"]) && said(3, &SENT));
        let given = said(1, &["sent", "messaged", "emailed"])
            && (next(1, &["a", "an", "the"]) || words.len() == at + 1);
        let pronoun =
            words[(at + 1).min(words.len())..].iter().take(12).any(|w| one_of(w.of(self.text), &PRONOUNS));
        let only = self
            .answer
            .claims
            .iter()
            .filter(|c| c.statement == raw.statement && c.kind == ClaimKind::Name)
            .count()
            == 1;
        to || given || said(1, &GREETINGS) || pronoun && only
    }

    /// The longer name that a word was read in, where it was never read with a capital outside of one.
    fn only_inside(&self, word: &Word) -> Option<Quoted> {
        let mut longer = None;
        for (piece, at) in self.evidence.where_is(word.exact, self.act, PLACES) {
            let text = &self.evidence.pieces[piece].text;
            let all = &self.evidence.pieces[piece].words;
            if !all[at].upper {
                continue;
            }
            let joins = |a: &Word, b: &Word| {
                a.upper && b.upper && !a.digits && !b.digits && &text[a.range().end..b.range().start] == " "
            };
            let mut from = at;
            while from > 0 && joins(&all[from - 1], &all[from]) {
                from -= 1;
            }
            let mut to = at + 1;
            while to < all.len() && joins(&all[to - 1], &all[to]) {
                to += 1;
            }
            let whole = all[from].range().start..all[to - 1].range().end;
            if to - from < 2 || self.evidence.pieces[piece].source != Source::Read {
                return None;
            }
            longer = longer.or_else(|| Some(self.quote(piece, whole)));
        }
        longer
    }

    /// An address that is called the user's, where what the run was told names another as that.
    pub(super) fn not_the_users(&self, raw: &Raw) -> Option<Instead> {
        let value = raw.value.as_ref().filter(|v| matches!(v, Value::Email(_)))?;
        let after = self.text[raw.range.end..].trim_start_matches(['*', '`', ' ']);
        let yours = ["(you)", "(you,", "(your email", "(your address", "(that's you", "(yourself"];
        let mut from = raw.range.start.saturating_sub(BESIDE);
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        let lead = self.text[from..raw.range.start].to_lowercase();
        let lead = lead.trim_end_matches(['(', ':', ' ', '*', '`']);
        let called = lead.rsplit(['.', ',', ';', '\n', '(']).next().unwrap_or_default();
        let own = ["your email", "your email address", "your address", "you", "yourself", "your own email"];
        let named = self.text[..raw.range.start].ends_with(['(', '`', '*', ' '])
            && own.iter().any(|own| called == *own || called.ends_with(&format!(" {own}")))
            && self.text[..raw.range.start].trim_end_matches(['`', '*']).ends_with('(');
        if !named && !yours.iter().any(|y| after.get(..y.len()).is_some_and(|a| a.eq_ignore_ascii_case(y))) {
            return None;
        }
        let told = |address: &Value| {
            let Value::Email(address) = address else { return false };
            let mut parts = address.split('@').next().unwrap_or_default().split('.').peekable();
            parts.peek().is_some_and(|part| part.len() > 1)
                && parts.all(|part| self.is_instructed(hash_of(part)))
        };
        if told(value) {
            return None;
        }
        let mut read = self.evidence.seen.iter().filter(|s| self.evidence.pieces[s.piece].act < self.act);
        let mine = read.find(|s| told(&s.found.value))?;
        Some((Some("the user's own address".into()), self.quote(mine.piece, mine.found.range.clone())))
    }

    /// Whether the instructions of a run hold a word as a name.
    fn is_instructed(&self, word: u64) -> bool {
        let places = self.evidence.where_is(word, self.act, PLACES);
        let piece = |piece: usize| &self.evidence.pieces[piece];
        places.iter().any(|(at, nth)| piece(*at).source == Source::Instructed && piece(*at).words[*nth].upper)
    }

    /// Another name than the one that was greeted: `Dear Emma` was read, and `Dear Support` is said.
    pub(super) fn not_greeted(&self, raw: &Raw) -> Option<Instead> {
        if raw.kind != ClaimKind::Name {
            return None;
        }
        let line = self.text[..raw.range.start].rsplit('\n').next().unwrap_or_default();
        let lead = words(line);
        let [greeting] = lead.as_slice() else { return None };
        if !one_of(greeting.of(line), &GREETINGS) || !self.text[raw.range.end..].starts_with(',') {
            return None;
        }
        let own = self.words_in(&raw.range).first()?;
        let mut found = None;
        let greeted = GREETINGS.iter().flat_map(|g| self.evidence.where_is(hash_of(g), self.act, PLACES));
        for (piece, at) in greeted {
            let Some(name) = self.evidence.pieces[piece].words.get(at + 1) else { continue };
            if name.exact == own.exact {
                return None;
            }
            let read = self.evidence.pieces[piece].source == Source::Read && name.upper;
            found = found.or_else(|| read.then(|| self.quote(piece, name.range())));
        }
        Some((None, found?))
    }
}

fn one_of(word: &str, list: &[&str]) -> bool {
    list.iter().any(|one| word.eq_ignore_ascii_case(one))
}
