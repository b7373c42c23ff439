//! The company that words keep. Every word of a name may have been read and the name still be wrong: `Team Sarah`, where
//! what was read is `Team Sync` and `Lunch with Sarah`. So a word is held against the words right beside it: if those
//! were read with another word between them, and never with this one, that other word is what should stand there.

use super::answer::Statement;
use super::evidence::Source;
use super::extract::Raw;
use super::link::Judge;
use super::report::{ClaimKind, Quoted};
use super::words::Word;

/// More places than this are not looked through: words that stand together so often tell nothing.
const MOST: usize = 200;

/// What the neighbours of a word say of it.
enum Company {
    /// It was read among these words.
    Own,
    /// Something else was.
    Other(usize, usize),
    Unknown,
}

impl Judge<'_> {
    /// For a name or a quote: what was read in the place of one of its words, if none of its neighbours was read with it.
    pub(super) fn other_company(&self, raw: &Raw, statement: &Statement) -> Option<Quoted> {
        let number = raw.kind == ClaimKind::Number && self.words_in(&raw.range).len() == 1;
        if !number && !matches!(raw.kind, ClaimKind::Name | ClaimKind::Quote | ClaimKind::Weekday) {
            return None;
        }
        let words = self.words_in(&statement.range);
        let first = words.partition_point(|w| w.range().start < raw.range.start);
        let inside = self.words_in(&raw.range).len();
        for at in first..(first + inside).min(words.len()) {
            if words[at].common && !words[at].upper || !number && words[at].range().len() < 3 {
                continue;
            }
            if let Company::Other(piece, word) = self.company(words, at, first..first + inside) {
                let word = &self.evidence.pieces[piece].words[word];
                return Some(self.quote(piece, word.range()));
            }
        }
        None
    }

    fn company(&self, words: &[Word], at: usize, own: std::ops::Range<usize>) -> Company {
        let mut other = None;
        // the word and two beside it, then the word and one that is of the same name
        for (from, long) in [
            (at.checked_sub(2), 3),
            (at.checked_sub(1), 3),
            (Some(at), 3),
            (at.checked_sub(1), 2),
            (Some(at), 2),
        ] {
            let Some(window) = from.and_then(|from| words.get(from..from + long)) else { continue };
            let gap = at - from.unwrap_or(at);
            let beside = window.iter().enumerate().filter(|(i, _)| *i != gap);
            let telling = beside.clone().filter(|(_, w)| !w.common && w.range().len() > 1).count();
            let named = |i: usize| own.contains(&(from.unwrap_or(0) + i));
            let number = words[at].digits && telling < 2;
            if telling == 0 || number || long == 2 && !beside.clone().all(|(i, w)| named(i) && w.upper) {
                continue;
            }
            if !self.runs_on(window) {
                continue;
            }
            let pattern: Vec<Option<&Word>> =
                window.iter().enumerate().map(|(i, w)| (i != gap).then_some(w)).collect();
            for (piece, first) in self.evidence.around(&pattern, self.act, MOST) {
                let found = &self.evidence.pieces[piece].words[first..first + long];
                if self.same_word(piece, &found[gap], &words[at]) {
                    return Company::Own;
                }
                let fits = !found[gap].common
                    && (found[gap].upper || !words[at].upper)
                    && found[gap].digits == words[at].digits;
                if other.is_none() && fits && self.was_read(piece) && self.reads_on(piece, found) {
                    other = Some((piece, first + gap));
                }
            }
        }
        other.map_or(Company::Unknown, |(piece, word)| Company::Other(piece, word))
    }

    /// `ID` and `IDs` are one word, though no rule of endings says so.
    fn same_word(&self, piece: usize, read: &Word, said: &Word) -> bool {
        let (read_as, said_as) = (read.of(&self.evidence.pieces[piece].text), said.of(self.text));
        let begins = |a: &str, b: &str| a.get(..b.len()).is_some_and(|start| start.eq_ignore_ascii_case(b));
        read.stem == said.stem || !said.digits && (begins(read_as, said_as) || begins(said_as, read_as))
    }

    /// What the user wishes and what the run asks for contradict nobody.
    fn was_read(&self, piece: usize) -> bool {
        self.evidence.pieces[piece].source == Source::Read
    }

    /// Whether words of the answer follow each other with nothing between them that parts sentences or fields.
    fn runs_on(&self, window: &[Word]) -> bool {
        window.windows(2).all(|w| close(&self.text[w[0].range().end..w[1].range().start]))
    }

    /// The same of words that were read.
    pub(super) fn reads_on(&self, piece: usize, window: &[Word]) -> bool {
        let text = &self.evidence.pieces[piece].text;
        window.windows(2).all(|w| close(&text[w[0].range().end..w[1].range().start]))
    }
}

fn close(between: &str) -> bool {
    between.len() <= 6 && !between.contains(['.', ':', ';', '|', '!', '?', ',', '"', '{', '}'])
}
