//! What a record calls itself, so that a reason can say of what it speaks: its title, subject or name.

use super::link::Judge;
use super::report::{Quoted, Why};

/// Keys under which records have their names, the best first.
const NAMES: [&str; 6] = ["title", "subject", "name", "filename", "file name", "event"];
/// A name is no text.
const LONGEST: usize = 60;

impl Judge<'_> {
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
