//! What a deed was done to. A call often names its object by an id alone: `append_to_file` is given 13, and which file that is
//! stands in what the call gave back, or in the record of that id. Where a statement says that something was added to
//! another one, that is the finding.

use super::answer::Statement;
use super::context::Instead;
use super::evidence::{Seen, Source};
use super::extract::{Raw, within};
use super::link::Judge;
use super::report::ClaimKind;
use super::scan::Value;
use super::status;
use super::words::Word;

/// Words that may stand between a deed's preposition and its object.
const PAST: [&str; 12] =
    ["the", "file", "files", "document", "your", "a", "new", "existing", "named", "called", "our", "this"];
const INTO: [&str; 3] = ["to", "into", "onto"];
/// Values of a record that are looked through.
const MOST: usize = 400;

impl Judge<'_> {
    /// What the calls that did it were given or gave back in the place of a claim.
    pub(super) fn not_done_on(&self, raw: &Raw, statement: &Statement) -> Option<Instead> {
        let value = raw.value.as_ref().filter(|v| matches!(v, Value::Id(_)))?;
        let deed = self.deed_on(raw, statement)?;
        let acts = status::doing(self.run, self.act, &deed);
        let mut found: Option<&Seen> = None;
        for seen in acts.iter().flat_map(|act| self.objects_of(*act)) {
            if value.said_by(&seen.found.value) {
                return None;
            }
            let like = value.like(&seen.found.value) && self.fills(seen);
            found = found.or(Some(seen).filter(|_| like));
        }
        let seen = found?;
        let key = seen.slot.map(|s| self.evidence.slots[s].key.clone());
        Some((key, self.quote(seen.piece, seen.found.range.clone())))
    }

    /// The deed that a claim is the object of: `added … to the "notes.txt" file`, `updated notes.txt`, and what was read
    /// and then changed: "reviewed notes.txt and added two lines to it".
    fn deed_on(&self, raw: &Raw, statement: &Statement) -> Option<String> {
        let words = self.words_in(&statement.range);
        let first = words.partition_point(|w| w.range().start < raw.range.start);
        let end = words.partition_point(|w| w.range().start < raw.range.end);
        let is = |w: &Word, list: &[&str]| list.iter().any(|l| w.of(self.text).eq_ignore_ascii_case(l));
        let files = self.answer.claims.iter().filter(|c| c.statement == raw.statement);
        let sole = files.filter(|c| matches!(c.value, Some(Value::Id(_)))).count() == 1;
        let lead: Vec<&Word> = words[..first].iter().rev().skip_while(|w| is(w, &PAST)).take(1).collect();
        let before = lead.first()?;
        let deeds = self.answer.claims.iter().filter(|c| c.statement == raw.statement);
        let deeds: Vec<&Raw> = deeds.filter(|c| c.kind == ClaimKind::Status).collect();
        let last = deeds.iter().filter(|c| c.range.end <= raw.range.start).max_by_key(|c| c.range.end);
        if is(before, &INTO) {
            let between =
                |c: &&&Raw| within(words, &(c.range.end..raw.range.start), |w| w.range().start).len() <= 9;
            return last.filter(between).map(|c| self.text[c.range.clone()].to_owned());
        }
        let said = before.of(self.text);
        if status::is_deed_word(said) && (first < 6 || last.is_some_and(|c| c.range == before.range())) {
            return Some(said.to_lowercase());
        }
        let next = deeds.iter().find(|c| c.range.start >= raw.range.end).filter(|_| sole)?;
        let after = within(words, &(next.range.end..statement.range.end), |w| w.range().start);
        let joined = words[end..].iter().take_while(|w| w.start < next.range.start as u32).count() <= 3;
        (joined && after.iter().any(|w| is(w, &["it", "file"])))
            .then(|| self.text[next.range.clone()].to_owned())
    }

    /// What a call was given, gave back, and named by an id.
    fn objects_of(&self, act: usize) -> Vec<&Seen> {
        let evidence = self.evidence;
        let own: Vec<&Seen> =
            evidence.seen.iter().filter(|s| evidence.pieces[s.piece].act == act).take(MOST).collect();
        let id_of = |s: &&&Seen| {
            let key = s.slot.map(|slot| evidence.slots[slot].key.as_str());
            evidence.pieces[s.piece].source == Source::Did
                && key.is_some_and(|key| key == "id" || key.ends_with(" id"))
        };
        let mut all = own.clone();
        for id in own.iter().filter(id_of) {
            let same = |s: &&Seen| {
                let key = s.slot.map(|slot| evidence.slots[slot].key.as_str());
                let keyed = key.is_some_and(|key| key == "id" || key.ends_with(" id"));
                keyed && s.same == id.same && evidence.pieces[s.piece].source == Source::Read
            };
            let homes = evidence.seen.iter().filter(same).filter(|s| evidence.pieces[s.piece].act < self.act);
            all.extend(homes.take(4).flat_map(|s| self.values_of(s.record)));
        }
        all
    }

    /// Whether a value is all that its field holds.
    fn fills(&self, seen: &Seen) -> bool {
        let slot = seen.slot.map(|s| &self.evidence.slots[s]);
        slot.is_some_and(|slot| {
            let text = self.evidence.pieces[seen.piece].text[slot.value.clone()].trim();
            text.trim_matches(|c: char| "'\",{}[]".contains(c)).len() <= seen.found.range.len() + 1
        })
    }
}
