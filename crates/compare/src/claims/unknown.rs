//! Names and quotes that do not stand anywhere as said: spelled in another way, put together from words that were read, somebody
//! else's, or made up.

use super::answer::Statement;
use super::evidence::Source;
use super::extract::Raw;
use super::link::Judge;
use super::report::{ClaimKind, ClaimStatus, Quoted, Why};
use super::words::Word;

/// Letters that a name needs to be looked for without its gaps, and pieces that are looked through for one.
const APART: usize = 8;
const PIECES: usize = 64;

impl Judge<'_> {
    /// A name or quote that does not stand anywhere as said.
    pub(super) fn unknown_name(&self, raw: &Raw, statement: &Statement) -> (ClaimStatus, Why, Vec<Quoted>) {
        if self.written_apart(raw) {
            return (ClaimStatus::NotCheckable, Why::NoReferent, Vec::new());
        }
        if let Some((field, found)) = self.unread_otherwise(raw, statement) {
            return (ClaimStatus::Contradicted, self.other(field, found), Vec::new());
        }
        let phrase = self.words_in(if statement.heading { &statement.range } else { &raw.range });
        let telling = |w: &&Word| !w.common && w.range().len() > 2;
        let missing = phrase
            .iter()
            .filter(telling)
            .filter(|w| {
                !self.evidence.holds(w.exact, self.act) && self.evidence.records_with(w.stem).is_empty()
            })
            .count();
        let all = phrase.iter().filter(telling).count();
        match (missing, all) {
            // each word was read, though not side by side
            (0, _) => (ClaimStatus::NotCheckable, Why::NoReferent, Vec::new()),
            _ if statement.heading || self.in_title_label(raw, statement) => {
                (ClaimStatus::NotCheckable, Why::NoReferent, Vec::new())
            }
            _ if raw.kind == ClaimKind::Quote && missing < all => {
                (ClaimStatus::NotCheckable, Why::NoReferent, Vec::new())
            }
            _ => (ClaimStatus::Unsupported, Why::Nowhere, Vec::new()),
        }
    }

    /// What was read with one word of a name or quote another.
    pub(super) fn misquoted(&self, raw: &Raw, statement: &Statement) -> Option<Quoted> {
        let phrase = self.words_in(if statement.heading { &statement.range } else { &raw.range });
        // a heading of two words is the answer's own more often than not, unless its like were read
        if statement.heading && phrase.len() < 3 && !self.lists_what_was_read(raw, statement) {
            return None;
        }
        let named =
            statement.heading || raw.kind == ClaimKind::Quote || phrase.iter().all(|w| w.upper || w.common);
        self.one_word_off(phrase).filter(|_| named)
    }

    /// Whether headings of the same list are titles that were read as they are.
    fn lists_what_was_read(&self, raw: &Raw, statement: &Statement) -> bool {
        let others =
            self.answer.statements.iter().enumerate().filter(|(at, other)| {
                *at != raw.statement && other.heading && other.under == statement.under
            });
        let mut titles = others.map(|(_, other)| self.words_in(&other.range)).filter(|words| words.len() > 1);
        titles.any(|words| {
            let phrase: Vec<u64> = words.iter().map(|w| w.exact).collect();
            !self.evidence.phrase(&phrase, self.act, 1).is_empty()
        })
    }

    /// `TechServices Support` where `Tech Services Support` was read: the same letters, cut into other words.
    fn written_apart(&self, raw: &Raw) -> bool {
        let letters = |text: &str| -> String {
            text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
        };
        let said = letters(&self.text[raw.range.clone()]);
        let read = self.evidence.pieces.iter().filter(|p| p.act < self.act && p.source == Source::Read);
        said.len() >= APART && read.take(PIECES).any(|piece| letters(&piece.text).contains(&said))
    }

    /// Whether a name stands in a label of title case, which capitalises any word, or is what a link is called.
    pub(super) fn in_title_label(&self, raw: &Raw, statement: &Statement) -> bool {
        let rest = &self.text[raw.range.end..statement.range.end.max(raw.range.end)];
        let link = rest.find("](").is_some_and(|at| !rest[..at].contains('['));
        if link && self.text[statement.range.start.min(raw.range.start)..raw.range.start].contains('[') {
            return true;
        }
        let Some(label) = statement.label.as_ref().filter(|l| l.contains(&raw.range.start)) else {
            return false;
        };
        self.words_in(label).iter().filter(|w| !w.common).skip(1).all(|w| w.upper)
    }
}
