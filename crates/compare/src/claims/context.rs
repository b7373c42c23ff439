//! What stands around a claim, word for word. Where the words on both sides of it were read with another value between
//! them, and never with this one, that other value is what was read. A name and the address in brackets after it belong
//! together, and what a statement says was done is held against what the call was given.

use super::evidence::Source;
use super::extract::{Raw, within};
use super::link::Judge;
use super::report::{ClaimKind, Quoted};
use super::scan::Value;
use super::status;
use super::words::{Word, hash_of};

/// Words before and after a claim that are looked for, and how many of them must tell something; what says more comes
/// first. The last is for names alone: values stand in too many places.
const WINDOWS: [(usize, usize, usize); 6] =
    [(2, 2, 1), (3, 1, 1), (1, 3, 1), (3, 0, 1), (0, 3, 1), (1, 2, 2)];
/// Longer stretches, which say more than any of these: what was read in one of them needs no other.
const WIDE: [(usize, usize, usize); 4] = [(4, 2, 3), (2, 4, 3), (5, 0, 3), (0, 5, 3)];
/// A value takes up to so many words: `May 15th, 2024`, `10:00:00`.
const LONGEST: usize = 4;
const PLACES: usize = 60;
/// Bytes between words that follow each other across a full stop.
const ACROSS: usize = 8;
/// Bytes between a name and the address that is its.
const BESIDE: usize = 24;
/// And between values that one verb has: `to a@… and b@…`.
const TOGETHER: usize = 30;

/// Another value, with its field where it has one.
pub(super) type Instead = (Option<String>, Quoted);

impl Judge<'_> {
    /// The value that was read among the same words, and whether those tell enough to be believed whatever else fits.
    pub(super) fn among_the_same_words(&self, raw: &Raw) -> Option<(Instead, bool)> {
        if matches!(raw.kind, ClaimKind::Quote | ClaimKind::Status) {
            return None;
        }
        let all = &self.answer.words;
        let first = all.partition_point(|w| w.range().start < raw.range.start);
        let own = self.words_in(&raw.range).len();
        if own == 0 {
            return None;
        }
        let narrow = WINDOWS.iter().filter(|(_, _, least)| raw.value.is_none() || *least < 2);
        match self.in_windows(raw, first, own, &mut WIDE.iter().copied()) {
            Some(None) => None,
            Some(Some(found)) => Some(((None, found.0), found.1)),
            None => self
                .in_windows(raw, first, own, &mut narrow.copied())
                .flatten()
                .map(|(quoted, sure)| ((None, quoted), sure)),
        }
    }

    /// What stands in a claim's place among the words around it: itself (`Some(None)`), something else, or nothing known.
    fn in_windows(
        &self,
        raw: &Raw,
        first: usize,
        own: usize,
        windows: &mut dyn Iterator<Item = (usize, usize, usize)>,
    ) -> Option<Option<(Quoted, bool)>> {
        let all = &self.answer.words;
        let mut found = None;
        for (before, after, least) in windows {
            let Some(from) = first.checked_sub(before) else { continue };
            let Some(window) = all.get(from..first + own + after) else { continue };
            let beside: Vec<&Word> = window[..before].iter().chain(&window[before + own..]).collect();
            let telling = beside.iter().filter(|w| !w.common && w.range().len() > 2 && !w.digits).count();
            let line = &self.text[window[0].range().start..window[window.len() - 1].range().end];
            if telling < least || line.contains('\n') {
                continue;
            }
            for gap in 1..=LONGEST {
                if raw.value.is_none() && gap != own {
                    continue;
                }
                let pattern: Vec<Option<&Word>> = window[..before]
                    .iter()
                    .map(Some)
                    .chain((0..gap).map(|_| None))
                    .chain(window[before + own..].iter().map(Some))
                    .collect();
                for (piece, start) in self.evidence.around(&pattern, self.act, PLACES) {
                    // what closes one record and what opens the next stand side by side by chance
                    if !self.in_one_line(piece, start..start + pattern.len()) {
                        continue;
                    }
                    let held = &self.evidence.pieces[piece].words[start + before..start + before + gap];
                    match self.says(raw, piece, held, telling > 1) {
                        Some(None) => return Some(None),
                        Some(Some((other, like))) => found = found.or(Some((other, like && telling > 1))),
                        None => {}
                    }
                }
            }
        }
        found.map(Some)
    }

    /// Whether words stand in one sentence or line, or follow each other across a full stop within one text.
    fn in_one_line(&self, piece: usize, words: std::ops::Range<usize>) -> bool {
        let held = &self.evidence.pieces[piece].words[words];
        let line = |word: Option<&Word>| word.map(|w| self.evidence.segment_of(piece, w.range().start));
        let text = &self.evidence.pieces[piece].text;
        let close = |pair: &[Word]| {
            let between = &text[pair[0].range().end..pair[1].range().start];
            between.len() <= ACROSS && !between.contains([':', '-', '|', '{', '}', '[', ']'])
        };
        let ends = held.last().is_some_and(|w| !text[w.range().end..].starts_with(':'));
        line(held.first()) == line(held.last()) || ends && held.windows(2).all(close)
    }

    /// Whether these words of a piece say the claim (`Some(None)`), another value and whether it is of its kind, or neither.
    /// Among words that tell enough, a value of another kind is another value too.
    fn says(&self, raw: &Raw, piece: usize, held: &[Word], any_kind: bool) -> Option<Option<(Quoted, bool)>> {
        let range = held.first()?.range().start..held.last()?.range().end;
        let whose = self.evidence.pieces[piece].source;
        // the user's own words too: whoever repeats them has to repeat them right
        let speaks = matches!(whose, Source::Read | Source::User) || self.evidence.pieces[piece].done;
        let Some(value) = &raw.value else {
            let mine = self.words_in(&raw.range);
            if mine.iter().zip(held).all(|(a, b)| a.stem == b.stem) {
                return Some(None);
            }
            let names =
                held.iter().all(|w| w.upper && (!w.common || any_kind && w.range().len() > 2)) && speaks;
            return names.then(|| Some((self.quote(piece, range), true)));
        };
        let from =
            self.evidence.seen.partition_point(|s| (s.piece, s.found.range.end) < (piece, range.start + 1));
        let mut inside = self.evidence.seen[from..]
            .iter()
            .take_while(|s| s.piece == piece && s.found.range.start < range.end);
        let seen = inside.next()?;
        if value.said_by(&seen.found.value) {
            return Some(None);
        }
        let whole = seen.found.range.start >= range.start && seen.found.range.end <= range.end + 1;
        let like = value.like(&seen.found.value);
        // a number may be written as an id or a time; an address is nothing else
        let loose = any_kind && !matches!(value, Value::Email(_) | Value::Url(_));
        (whole && speaks && (loose || like))
            .then(|| Some((self.quote(piece, seen.found.range.clone()), like)))
    }

    /// A name with an address that is not its: `Maria Garcia (emma.johnson@…)`, where `maria.garcia@…` was read.
    pub(super) fn not_its_address(&self, raw: &Raw) -> Option<Instead> {
        let address = |c: &Raw| matches!(c.value, Some(Value::Email(_) | Value::Url(_)));
        let (name, web) = if address(raw) {
            let before = self.answer.claims.iter().filter(|c| c.range.end <= raw.range.start);
            (before.max_by_key(|c| c.range.end)?, raw)
        } else {
            let after = self.answer.claims.iter().filter(|c| c.range.start >= raw.range.end);
            (raw, after.min_by_key(|c| c.range.start)?)
        };
        let between = self.text.get(name.range.end..web.range.start)?;
        let opens = between.trim_end_matches(['*', '`', '[', '<', ' ']).ends_with(['(', ':', '-', '–'])
            || self.text[..name.range.end].ends_with("'s") && between.len() <= BESIDE;
        if name.kind != ClaimKind::Name
            || !address(web)
            || !opens
            || between.len() > BESIDE
            || between.contains(['\n', '.', ',', ';', ')'])
        {
            return None;
        }
        let words: Vec<String> = self
            .words_in(&name.range)
            .iter()
            .filter(|w| !w.common && w.range().len() > 2)
            .map(|w| w.of(self.text).to_lowercase())
            .collect();
        let of = |value: &Value| match value {
            Value::Email(text) => text.split('@').next().unwrap_or_default().to_owned(),
            Value::Url(text) => text.clone(),
            _ => String::new(),
        };
        let holds = |value: &Value| {
            let text = of(value);
            words.iter().any(|w| text.contains(w.trim_end_matches("'s").trim_end_matches("’s")))
        };
        let said = web.value.as_ref()?;
        let seen = || self.evidence.seen.iter().filter(|s| self.evidence.pieces[s.piece].act < self.act);
        let in_it = match said {
            Value::Email(text) => text.clone(),
            other => of(other),
        };
        let foreign = words.iter().any(|w| !in_it.contains(w.trim_end_matches("'s").trim_end_matches("’s")));
        if words.is_empty() || !foreign {
            return None;
        }
        if matches!(said, Value::Email(_)) && self.is_of_another(&words, &of(said)) {
            let read = seen().find(|s| said.said_by(&s.found.value))?;
            return Some((None, self.quote(read.piece, read.found.range.clone())));
        }
        if holds(said) {
            return None;
        }
        let right = seen().filter(|s| said.like(&s.found.value)).find(|s| holds(&s.found.value))?;
        Some((None, self.quote(right.piece, right.found.range.clone())))
    }

    /// Whether an address names somebody else: `sarah.connor@…` after `Park`, where a Sarah was read of.
    fn is_of_another(&self, name: &[String], user: &str) -> bool {
        let parts: Vec<&str> =
            user.split(|c: char| !c.is_alphabetic()).filter(|part| part.len() > 2).collect();
        let rest: Vec<&str> =
            parts.iter().copied().filter(|part| !name.iter().any(|w| w.starts_with(part))).collect();
        let person = |part: &&&str| {
            let held = self.evidence.places_of(hash_of(part), self.act);
            held.iter().any(|w| w.upper && !w.common)
        };
        // a first and a last name
        parts.len() == 2 && rest.iter().any(|part| person(&part))
    }

    /// What was done was done with another value: the first of its kind after "I have sent" is what the call was given.
    pub(super) fn not_done_with(&self, raw: &Raw) -> Option<Instead> {
        let value = raw.value.as_ref()?;
        let small =
            |v: &Value| matches!(v, Value::Amount(a) if a.unit.is_none() && a.step >= 1.0 && a.value < 10.0);
        if small(value) || matches!(value, Value::Weekday(_)) {
            return None;
        }
        let here = || self.answer.claims.iter().filter(|c| c.statement == raw.statement);
        let verbs = || here().filter(|c| c.kind == ClaimKind::Status);
        let Some(verb) = verbs().filter(|c| c.range.end <= raw.range.start).max_by_key(|c| c.range.end)
        else {
            let passive = verbs().filter(|c| c.range.start >= raw.range.end).min_by_key(|c| c.range.start)?;
            return self.not_done_to_all(raw, passive);
        };
        let mut last = None;
        for claim in here().filter(|c| c.range.start >= verb.range.end && c.range.start <= raw.range.start) {
            if !claim.value.as_ref().is_some_and(|v| value.like(v) && !small(v)) {
                continue;
            }
            let near = last.is_none_or(|end: usize| claim.range.start.saturating_sub(end) <= TOGETHER);
            if !near {
                return None;
            }
            last = Some(claim.range.end);
        }
        let acts = status::doing(self.run, self.act, &self.text[verb.range.clone()]);
        let mut found = None;
        for seen in self.evidence.seen.iter().filter(|s| {
            let piece = &self.evidence.pieces[s.piece];
            piece.source == Source::Did && acts.contains(&piece.act)
        }) {
            if value.said_by(&seen.found.value) {
                return None;
            }
            let id = seen.slot.is_some_and(|s| {
                self.evidence.slots[s].key == "id" || self.evidence.slots[s].key.ends_with(" id")
            });
            if value.like(&seen.found.value) && !id && !small(&seen.found.value) {
                found = found.or(Some(seen));
            }
        }
        let seen = found?;
        let far = raw.range.start - verb.range.end > 2 * TOGETHER;
        if far && matches!(value, Value::Date(_) | Value::Time(_)) || self.is_senders(raw) {
            return None;
        }
        let field = seen.slot.map(|s| self.evidence.slots[s].key.clone());
        Some((field, self.quote(seen.piece, seen.found.range.clone())))
    }

    /// `from your address (…)`: what something was sent from is not among what it was sent to.
    fn is_senders(&self, raw: &Raw) -> bool {
        let words = within(&self.answer.words, &(0..raw.range.start), |w| w.range().start);
        let near = words.iter().rev().take(5).map(|w| w.of(self.text));
        near.take_while(|w| !w.eq_ignore_ascii_case("to")).any(|w| w.eq_ignore_ascii_case("from"))
    }

    /// Of several addresses that something "has been" done to, one that the call was not given, where it was given one that
    /// is not said.
    fn not_done_to_all(&self, raw: &Raw, verb: &Raw) -> Option<Instead> {
        let value =
            raw.value.as_ref().filter(|v| matches!(v, Value::Email(_) | Value::Id(_) | Value::Url(_)))?;
        let between = self.text.get(raw.range.end..verb.range.start)?;
        if !between.contains("been ")
            || between.len() > 2 * TOGETHER + BESIDE
            || between.contains(['.', ';', '\n']) && !between.contains('@')
        {
            return None;
        }
        let said = |read: &Value| {
            let here = self.answer.claims.iter().filter(|c| c.statement == raw.statement);
            here.filter_map(|c| c.value.as_ref()).any(|v| v.said_by(read))
        };
        let acts = status::doing(self.run, self.act, &self.text[verb.range.clone()]);
        let mut found = None;
        for seen in self.evidence.seen.iter().filter(|s| {
            let piece = &self.evidence.pieces[s.piece];
            piece.source == Source::Did && acts.contains(&piece.act)
        }) {
            if value.said_by(&seen.found.value) {
                return None;
            }
            if value.like(&seen.found.value) && !said(&seen.found.value) {
                found = found.or(Some(seen));
            }
        }
        let seen = found?;
        let field = seen.slot.map(|s| self.evidence.slots[s].key.clone());
        Some((field, self.quote(seen.piece, seen.found.range.clone())))
    }
}
