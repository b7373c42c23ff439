//! Whose: what belongs to somebody is called so somewhere, `Nora's shop` or `nora-shop.example`; and who has a full name has an
//! address that is made of it.

use super::answer::Statement;
use super::context::Instead;
use super::evidence::{Seen, Slot, Source};
use super::extract::Raw;
use super::link::Judge;
use super::report::ClaimKind;
use super::scan::Value;
use super::words::Word;

const THEIRS: [&str; 3] = ["her", "his", "their"];
/// A thing has a name of this many letters, and is looked for in so many places.
const THING: usize = 4;
const PLACES: usize = 60;

impl Judge<'_> {
    /// Whom a thing was read to belong to, where it is said to be another's: `Omar's shop`, "wrote to Omar about her shop".
    pub(super) fn not_whose(&self, raw: &Raw, statement: &Statement) -> Option<Instead> {
        let [own] = self.words_in(&raw.range) else { return None };
        if raw.kind != ClaimKind::Name {
            return None;
        }
        let named = bare(own.of(self.text));
        self.things_of(own, statement).into_iter().find_map(|thing| self.other_owner(&named, thing))
    }

    /// The words that name what is said to be somebody's.
    fn things_of(&self, own: &Word, statement: &Statement) -> Vec<&Word> {
        let words = self.words_in(&statement.range);
        let at = words.partition_point(|w| w.start < own.start);
        let after = words.get(at + 1..).unwrap_or_default();
        let thing = |w: &&Word| !w.common && !w.upper && !w.digits && w.range().len() >= THING;
        if bare(own.of(self.text)) != own.of(self.text).to_lowercase() {
            return after.iter().take(2).filter(thing).collect();
        }
        // whoever is named between is whose it is
        let own = after.iter().position(|w| self.people.contains(&w.exact)).unwrap_or(after.len());
        let theirs = |w: &Word| THEIRS.iter().any(|t| w.of(self.text).eq_ignore_ascii_case(t));
        let things =
            (0..own).filter(|at| theirs(&after[*at])).flat_map(|at| after.iter().skip(at + 1).take(2));
        things.filter(thing).collect()
    }

    /// Somebody else whose thing was read, and never this one's.
    fn other_owner(&self, named: &str, thing: &Word) -> Option<Instead> {
        let mut found = None;
        for (number, at) in self.evidence.where_is(thing.exact, self.act, PLACES) {
            let piece = &self.evidence.pieces[number];
            let Some(owner) = at.checked_sub(1).and_then(|at| piece.words.get(at)) else { continue };
            let said = owner.of(&piece.text);
            let whose = bare(said);
            let gap = piece.text.get(owner.range().end..piece.words[at].range().start).unwrap_or_default();
            let joined = ["-", "."].contains(&gap) || gap == " " && whose != said.to_lowercase();
            if !joined || !self.people.contains(&owner.exact) {
                continue;
            }
            if whose == named {
                return None;
            }
            found = found.or(Some((number, owner.range().start..piece.words[at].range().end)));
        }
        found.map(|(piece, range)| (None, self.quote(piece, range)))
    }

    /// The address that the full name before it has: `Rosa Diaz: ann.lee@…`, where `rosa.diaz@…` was read.
    pub(super) fn not_of_its_label(&self, raw: &Raw) -> Option<Instead> {
        let Some(Value::Email(said)) = &raw.value else { return None };
        let line = self.text[..raw.range.start].rfind('\n').map_or(0, |n| n + 1);
        let [first, last] = self.words_in(&(line..raw.range.start)) else { return None };
        let gap = self.text[last.range().end..raw.range.start].trim_matches(['*', '`', ' ', '<', '(', '[']);
        if !matches!(gap, ":" | "-" | "–" | "") {
            return None;
        }
        let user = format!("{}.{}", first.of(self.text), last.of(self.text)).to_lowercase();
        let of_name =
            |address: &str| address.split('@').next().is_some_and(|u| u.eq_ignore_ascii_case(&user));
        let read = |s: &&Seen| self.evidence.pieces[s.piece].act < self.act;
        let own = |s: &&Seen| matches!(&s.found.value, Value::Email(address) if of_name(address));
        let seen = self.evidence.seen.iter().filter(read).find(own).filter(|_| !of_name(said))?;
        Some((None, self.quote(seen.piece, seen.found.range.clone())))
    }

    /// Another first name than the one who is called so has in the address that was read: `Sync Diaz`, `rosa.diaz@…`.
    pub(super) fn not_called_so(&self, raw: &Raw) -> Option<Instead> {
        let [first, last] = self.words_in(&raw.range) else { return None };
        let (first, last) = (first.of(self.text).to_lowercase(), last.of(self.text).to_lowercase());
        let mut found = None;
        for seen in self.evidence.seen.iter().filter(|s| self.evidence.pieces[s.piece].act < self.act) {
            let Value::Email(address) = &seen.found.value else { continue };
            let user = address.split('@').next().unwrap_or_default();
            let Some((a, b)) = user.split_once('.').filter(|(_, b)| !b.contains('.')) else { continue };
            if b == last && a == first {
                return None;
            }
            let whole = a.len() > 2 && self.evidence.pieces[seen.piece].source != Source::Instructed;
            if b == last && whole {
                found = found.or(Some(seen));
            }
        }
        match found {
            Some(seen) => Some((None, self.quote(seen.piece, seen.found.range.clone()))),
            None => self.other_first_name(&first, &last),
        }
    }

    /// The first name in the record of somebody with this last name.
    fn other_first_name(&self, first: &str, last: &str) -> Option<Instead> {
        let held = |slot: &Slot| {
            let record = &self.evidence.records[slot.record];
            let text = &self.evidence.pieces[record.piece].text[slot.value.clone()];
            text.trim().trim_matches(|c: char| "'\",{}[] ".contains(c)).to_lowercase()
        };
        let is = |slot: &Slot, keys: &[&str]| keys.contains(&slot.key.as_str());
        let mut found = None;
        for slot in self.evidence.slots.iter().filter(|s| is(s, &["last name", "surname", "family name"])) {
            if held(slot) != last || !self.counts(slot.record) {
                continue;
            }
            let mut given = self.evidence.slots_in(slot.record).iter();
            let Some(given) = given.find(|s| is(s, &["first name", "given name"])) else { continue };
            if held(given) == first {
                return None;
            }
            found = found.or(Some(given));
        }
        let slot = found?;
        let piece = self.evidence.records[slot.record].piece;
        let text = &self.evidence.pieces[piece].text[slot.value.clone()];
        let from = slot.value.start + (text.len() - text.trim_start().len());
        Some((Some(slot.key.clone()), self.quote(piece, from..from + text.trim().len())))
    }
}

/// A word in lower case, without the ending that makes it an owner.
fn bare(word: &str) -> String {
    let lower = word.to_lowercase();
    lower.trim_end_matches("'s").trim_end_matches("’s").to_owned()
}
