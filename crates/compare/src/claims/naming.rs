//! What a record calls itself, so that a reason can say of what it speaks: its title, subject or name.

use super::link::{Hit, Judge};
use super::report::{Quoted, Why};
use crate::reason::Place;
use std::ops::Range;

/// Keys under which records have their names, the best first.
const NAMES: [&str; 6] = ["title", "subject", "name", "filename", "file name", "event"];
/// A name is no text.
const LONGEST: usize = 60;

/// As much of a line as a reason shows.
const SHOWN: usize = 80;

impl Judge<'_> {
    /// The line that something was read in, or what of it stands around.
    pub(super) fn line_of(&self, hit: &Hit) -> Quoted {
        let text = &self.evidence.pieces[hit.piece].text;
        let near = |at: usize| {
            let mut at = at.clamp(0, text.len());
            while !text.is_char_boundary(at) {
                at += 1;
            }
            at
        };
        let from = text[..hit.range.start].rfind('\n').map_or(0, |n| n + 1);
        let from = from.max(near(hit.range.start.saturating_sub(SHOWN / 2)));
        let to = text[hit.range.end..].find('\n').map_or(text.len(), |n| hit.range.end + n);
        let to = to.min(near(hit.range.end + SHOWN / 2));
        let line = &text[from..to];
        let lead = line.len() - line.trim_start_matches([' ', '-']).len();
        let held = line[lead..].trim_end();
        self.quote(hit.piece, from + lead..from + lead + held.len())
    }

    /// A place of the answer itself.
    pub(super) fn own_words(&self, range: &Range<usize>) -> Quoted {
        let place = Place::new(self.act).bytes(range.start, range.end);
        Quoted { place, text: self.text[range.clone()].to_owned() }
    }

    pub(super) fn other(&self, field: Option<String>, found: Quoted) -> Why {
        Why::OtherValue { of: self.name_of(field.as_deref(), &found), field, found }
    }

    pub(super) fn likelier(&self, field: Option<String>, found: Quoted) -> Why {
        Why::Likelier { of: self.name_of(field.as_deref(), &found), field, found }
    }

    /// The name of the record that something stands in, where it has one that is not this.
    fn name_of(&self, field: Option<&str>, found: &Quoted) -> Option<String> {
        let (from, _) = found.place.bytes?;
        let pieces = &self.evidence.pieces;
        let piece = pieces.iter().position(|p| p.act == found.place.act && p.leaves.is_empty())?;
        let slots = self.evidence.slots_in(self.evidence.record_of(piece, from));
        let named = NAMES.iter().filter(|key| Some(**key) != field);
        let mut values = named.filter_map(|key| slots.iter().find(|s| s.key == *key)).map(|slot| {
            let text = pieces[piece].text.get(slot.value.clone()).unwrap_or_default();
            text.trim_matches(|c: char| c.is_whitespace() || "\"',{}[]-".contains(c))
        });
        let short = values.find(|v| !v.is_empty() && v.len() <= LONGEST && !v.contains('\n'))?;
        Some(short.to_owned())
    }
}
