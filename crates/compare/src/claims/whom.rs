//! Who: to whom something was sent, whom it was shared with, who wrote it. A name fits any sentence, so that these rules
//! speak only where the sentence says which part the name plays, and a call or a record says who played it.

use super::about::About;
use super::answer::Statement;
use super::context::Instead;
use super::cue;
use super::evidence::Source;
use super::extract::{Raw, within};
use super::link::Judge;
use super::report::ClaimKind;
use super::rival::LEAST;
use super::status;
use super::words::Word;

/// An argument longer than this is a text, and no name.
const SHORT: usize = 60;
/// How much better another record has to fit: as a factor, and as a share of all that is said.
const AHEAD: f32 = 2.5;
const MARGIN: f32 = 0.15;

/// Deeds whose object follows `to`, and those whose object follows at once.
const TO: [&str; 7] = ["sent", "posted", "forwarded", "shared", "transferred", "paid", "replied"];
const AT_ONCE: [&str; 3] = ["invited", "added", "removed"];
/// Words that deny a deed.
const DENIALS: [&str; 8] = ["not", "unable", "couldn't", "cannot", "can't", "didn't", "failed", "already"];
/// What somebody writes, and what somebody does who writes.
const WRITINGS: [&str; 14] = [
    "message", "messages", "email", "emails", "mail", "post", "article", "note", "letter", "link", "comment",
    "review", "invoice", "request",
];
const WRITES: [&str; 11] = [
    "posted",
    "mentioned",
    "recommended",
    "wrote",
    "said",
    "shared",
    "sent",
    "writes",
    "says",
    "mentions",
    "asked",
];
const SENDER: u32 = 1;

impl Judge<'_> {
    /// The name that a call was given where the statement names another: "I have sent a message to Dora".
    pub(super) fn not_done_to(&self, raw: &Raw, statement: &Statement) -> Option<Instead> {
        if raw.kind != ClaimKind::Name {
            return None;
        }
        let words = self.words_in(&statement.range);
        let says = |list: &[&str], w: &Word| list.iter().any(|l| w.of(self.text).eq_ignore_ascii_case(l));
        if words.iter().any(|w| says(&DENIALS, w)) {
            return None;
        }
        let first = words.partition_point(|w| w.range().start < raw.range.start);
        let lead = self.words_before_list(&words[..first]);
        let (deed, at) = (0..lead.len()).rev().find_map(|at| Some((deed_of(self.text, &lead[at])?, at)))?;
        let last = lead.last()?;
        let fits = if AT_ONCE.contains(&deed) { at + 1 == lead.len() } else { says(&["to"], last) };
        if !fits || !(AT_ONCE.contains(&deed) || TO.contains(&deed)) {
            return None;
        }
        let acts = status::doing(self.run, self.act, deed);
        let mine: Vec<u64> =
            self.words_in(&raw.range).iter().filter(|w| !w.common || w.upper).map(|w| w.exact).collect();
        let mut found = None;
        for (number, piece) in self.evidence.pieces.iter().enumerate() {
            if piece.source != Source::Did || !acts.contains(&piece.act) {
                continue;
            }
            for (range, pointer) in piece.leaves.iter().filter(|(r, _)| r.len() <= SHORT) {
                let key =
                    pointer.split('/').rfind(|p| !p.bytes().all(|b| b.is_ascii_digit())).unwrap_or_default();
                let cues = cue::of_key(&key.replace('_', " "));
                // a message may tell of anybody
                if cues & cue::TEXT != 0 {
                    continue;
                }
                let held = within(&piece.words, range, |w| w.range().start);
                if mine.iter().all(|word| held.iter().any(|w| w.exact == *word)) {
                    return None;
                }
                let whom = cues & cue::WHOM != 0;
                let text = &piece.text[range.clone()];
                let named = text.starts_with(char::is_uppercase) && held.iter().all(|w| !w.digits)
                    || text.contains('@');
                if whom && named && found.is_none() {
                    found = Some((Some(super::layout::normal_key(key)), self.quote(number, range.clone())));
                }
            }
        }
        found
    }

    /// The words before an enumeration that the claim is part of, past `both` and its like.
    fn words_before_list<'w>(&self, words: &'w [Word]) -> &'w [Word] {
        let mut end = words.len();
        while end > 0 {
            let word = &words[end - 1];
            let text = word.of(self.text);
            let listed = ["and", "both", "user", "users"].iter().any(|w| text.eq_ignore_ascii_case(w))
                || word.upper && end > 1;
            if !listed {
                break;
            }
            end -= 1;
        }
        &words[..end]
    }

    /// Who wrote what the statement tells of, where it names another: "a message from Bob that recommends a restaurant".
    pub(super) fn not_the_writer(&self, raw: &Raw, statement: &Statement, about: &About) -> Option<Instead> {
        if raw.kind != ClaimKind::Name || about.near_total < LEAST || !self.writes(raw, statement) {
            return None;
        }
        let named = self.words_in(&raw.range).iter().map(|w| w.of(self.text).to_lowercase());
        let mine: Vec<String> = named.map(|w| w.trim_end_matches("'s").to_owned()).collect();
        let (mut own, mut best) = (0.0_f32, (0.0_f32, None));
        for slot in self.evidence.slots.iter().filter(|s| s.cues & SENDER != 0 && s.value.len() <= SHORT) {
            if !self.counts(slot.record) {
                continue;
            }
            let piece = self.evidence.records[slot.record].piece;
            let held = within(&self.evidence.pieces[piece].words, &slot.value, |w| w.range().start);
            let share = about.of(slot.record);
            let text = self.evidence.pieces[piece].text[slot.value.clone()].to_lowercase();
            if mine.iter().all(|word| text.contains(word)) {
                own = own.max(share);
            } else if share > best.0 && !held.is_empty() && held.len() <= 4 {
                best = (share, Some((slot, piece, held[0].range().start..held[held.len() - 1].range().end)));
            }
        }
        let (slot, piece, range) = best.1.filter(|_| best.0 > own * AHEAD + about.total * MARGIN)?;
        Some((Some(slot.key.clone()), self.quote(piece, range)))
    }

    /// Whether a name is said to have written something.
    fn writes(&self, raw: &Raw, statement: &Statement) -> bool {
        let words = self.words_in(&statement.range);
        let first = words.partition_point(|w| w.range().start < raw.range.start);
        let end = words.partition_point(|w| w.range().start < raw.range.end);
        let is = |w: Option<&Word>, list: &[&str]| {
            w.is_some_and(|w| list.iter().any(|l| w.of(self.text).eq_ignore_ascii_case(l)))
        };
        let from = is(first.checked_sub(1).map(|at| &words[at]), &["from", "by"]);
        let writing = |range: &[Word]| range.iter().any(|w| is(Some(w), &WRITINGS));
        let owns = self.text[..raw.range.end].ends_with("'s") && is(words.get(end), &WRITINGS);
        from && writing(&words[first.saturating_sub(5)..first]) || is(words.get(end), &WRITES) || owns
    }
}

/// The deed that a word says: `sent`, `Sending`.
fn deed_of(text: &str, word: &Word) -> Option<&'static str> {
    const FORMS: [(&str, &str); 7] = [
        ("sending", "sent"),
        ("inviting", "invited"),
        ("posting", "posted"),
        ("adding", "added"),
        ("forwarding", "forwarded"),
        ("sharing", "shared"),
        ("removing", "removed"),
    ];
    let said = word.of(text).to_ascii_lowercase();
    let all = TO.iter().chain(&AT_ONCE);
    all.copied()
        .find(|deed| *deed == said)
        .or_else(|| FORMS.iter().find(|(form, _)| *form == said).map(|(_, deed)| *deed))
}
