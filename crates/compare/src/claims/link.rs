//! From a claim to where it was read. A value that stands somewhere is not yet right: the record that the statement is
//! about may have another one in the same slot, and then that is the finding.

use super::about::{About, question};
use super::answer::{Manner, Statement};
use super::bind::Binding;
use super::evidence::{Evidence, Source};
use super::extract::{Answer, Raw, within};
use super::moment;
use super::rank::Ranking;
use super::report::{Claim, ClaimKind, ClaimStatus, Quoted, Why};
use super::rules::Case;
use super::scan::Value;
use super::status::{self, Deed};
use super::words::Word;
use crate::reason::Place;
use cofferdam_model::Run;
use std::collections::HashSet;
use std::ops::Range;

/// How much of a statement a line has to share to be about the same.
const SAME_LINE: f32 = 0.3;

/// Where a claim was found.
#[derive(Debug, Clone)]
pub(super) struct Hit {
    pub(super) piece: usize,
    pub(super) range: Range<usize>,
    pub(super) record: usize,
    pub(super) slot: Option<usize>,
}

pub(crate) struct Judge<'r> {
    pub(super) run: &'r Run,
    pub(crate) evidence: &'r Evidence,
    /// The act that answers: only what came before it counts.
    pub(crate) act: usize,
    pub(crate) text: &'r str,
    pub(crate) answer: &'r Answer,
    /// For each claim, the records and lines that say its value.
    pub(super) homes: Vec<Vec<(usize, usize)>>,
    /// And the slots.
    pub(super) keys: Vec<Vec<usize>>,
    /// What the user's last words are about.
    pub(super) asked: About,
    /// Which records the parts of the answer tell of.
    pub(super) binding: Binding,
    /// The words that name somebody.
    pub(super) people: HashSet<u64>,
    /// How far ahead something else has to be for a doubt, beside what is usual.
    pub(super) caution: f32,
}

impl<'r> Judge<'r> {
    pub(crate) fn new(
        run: &'r Run,
        evidence: &'r Evidence,
        act: usize,
        text: &'r str,
        answer: &'r Answer,
    ) -> Self {
        let asked = About::of_words(evidence, question(run, act));
        let (homes, keys, binding) = (Vec::new(), Vec::new(), Binding::default());
        let people = super::person::people(evidence);
        let mut judge =
            Self { run, evidence, act, text, answer, homes, keys, asked, binding, people, caution: 1.0 };
        for raw in &answer.claims {
            let (homes, slots) = judge.places(raw);
            judge.homes.push(homes);
            // only which keys they are is ever asked
            let mut keys: Vec<usize> = Vec::new();
            for slot in slots {
                if !keys.iter().any(|known| evidence.slots[*known].name == evidence.slots[slot].name) {
                    keys.push(slot);
                }
            }
            judge.keys.push(keys);
        }
        judge.binding = Binding::of(answer, &judge.homes);
        judge
    }

    /// Where a claim stands: records with lines, and slots.
    fn places(&self, raw: &Raw) -> (Vec<(usize, usize)>, Vec<usize>) {
        let Some(value) = &raw.value else { return self.places_of_words(raw) };
        let before = self.evidence.seen.partition_point(|s| self.evidence.pieces[s.piece].act < self.act);
        let said = self.evidence.seen[..before].iter().filter(|s| value.said_by(&s.found.value));
        let said: Vec<_> = said.take(400).collect();
        (said.iter().map(|s| (s.record, s.segment)).collect(), said.iter().filter_map(|s| s.slot).collect())
    }

    fn places_of_words(&self, raw: &Raw) -> (Vec<(usize, usize)>, Vec<usize>) {
        if raw.kind == ClaimKind::Status {
            return (Vec::new(), Vec::new());
        }
        let phrase: Vec<u64> = self.words_in(&raw.range).iter().map(|w| w.exact).collect();
        let found = self.evidence.phrase(&phrase, self.act, 60);
        let home = |(piece, range): &(usize, Range<usize>)| {
            (self.evidence.record_of(*piece, range.start), self.evidence.segment_of(*piece, range.start))
        };
        let slot = |(piece, range): &(usize, Range<usize>)| self.evidence.slot_of(*piece, range.start);
        (found.iter().map(home).collect(), found.iter().filter_map(slot).collect())
    }

    /// The claim as it is judged by itself, and how its value stands beside the others that were read.
    pub(super) fn claim(&self, raw: &Raw) -> (Claim, Option<Ranking>) {
        let statement = &self.answer.statements[raw.statement];
        let ((status, why, evidence), ranking) = if raw.kind == ClaimKind::Status {
            (self.deed(raw, statement), None)
        } else {
            let about = self.about(raw, statement);
            let ranking = self.ranking(raw, statement, &about);
            (self.judge(raw, statement, &about, ranking.as_ref()), ranking)
        };
        let range = if why == Why::Nowhere { self.unread(raw) } else { raw.range.clone() };
        let claim = Claim {
            act: self.act,
            bytes: (range.start, range.end),
            text: self.text[range].to_owned(),
            kind: raw.kind,
            value: raw.value.clone(),
            hedged: statement.manner == Manner::Hedged,
            status,
            why,
            evidence,
        };
        (claim, ranking)
    }

    fn judge(
        &self,
        raw: &Raw,
        statement: &Statement,
        about: &About,
        ranking: Option<&Ranking>,
    ) -> (ClaimStatus, Why, Vec<Quoted>) {
        let mut hits = self.hits(raw);
        if hits.is_empty() {
            hits = self.digits(raw, about);
        }
        if hits.is_empty() {
            return self.not_found(raw, statement, about);
        }
        hits.sort_by(|a, b| {
            let share = |h: &Hit| about.of(h.record);
            share(b)
                .total_cmp(&share(a))
                .then(self.source(a).cmp(&self.source(b)))
                .then((a.piece, a.range.start).cmp(&(b.piece, b.range.start)))
        });
        // what a label calls its item was read: what is said of it is doubted, and not the label
        let label = statement.label.as_ref() == Some(&raw.range) && raw.value.is_none();
        if statement.manner != Manner::NotAsserted
            && !label
            && let Some((status, why)) = self.doubt(&Case::of(self, (raw, statement), &hits, about, ranking))
        {
            return (status, why, Vec::new());
        }
        let users = hits.iter().all(|h| self.source(h) == Source::User);
        let quoted: Vec<Quoted> = hits.iter().take(3).map(|h| self.quote(h.piece, h.range.clone())).collect();
        let verbatim = quoted.iter().any(|q| q.text.eq_ignore_ascii_case(&self.text[raw.range.clone()]));
        match (users, verbatim) {
            (true, _) => (ClaimStatus::QuotedFromUser, Why::UsersOwn, quoted),
            (false, true) => (ClaimStatus::Supported, Why::Verbatim, quoted),
            (false, false) => (ClaimStatus::Supported, Why::SameValue, quoted),
        }
    }

    /// Of a name, the words that stand nowhere: `Participants` of `Participants Emma`, where Emma was read.
    fn unread(&self, raw: &Raw) -> Range<usize> {
        let unread = |w: &&Word| {
            let read =
                self.evidence.holds(w.exact, self.act) || !self.evidence.records_with(w.stem).is_empty();
            !w.common && !read
        };
        let words = self.words_in(&raw.range);
        let (first, last) = (words.iter().find(unread), words.iter().rev().find(unread));
        match first.zip(last).filter(|_| raw.kind == ClaimKind::Name) {
            Some((first, last)) => first.range().start..last.range().end,
            None => raw.range.clone(),
        }
    }

    fn source(&self, hit: &Hit) -> Source {
        self.evidence.pieces[hit.piece].source
    }

    /// Every place that says the claim, up to a number that no reader would go through.
    pub(super) fn hits(&self, raw: &Raw) -> Vec<Hit> {
        let mut hits = Vec::new();
        if let Some(value) = &raw.value {
            // of a month that was read no day is
            let whole = |read: &Value| !matches!((value, read), (Value::Date(said), Value::Date(read)) if said.day.is_some() && read.day.is_none());
            let seen = self.evidence.seen.iter().filter(|s| {
                self.evidence.pieces[s.piece].act < self.act
                    && value.said_by(&s.found.value)
                    && whole(&s.found.value)
            });
            hits.extend(seen.take(400).map(|s| Hit {
                piece: s.piece,
                range: s.found.range.clone(),
                record: s.record,
                slot: s.slot,
            }));
            // an id is no sum of money, whatever its digits
            let id = |h: &Hit| {
                h.slot.is_some_and(|s| {
                    self.evidence.slots[s].key == "id" || self.evidence.slots[s].key.ends_with(" id")
                })
            };
            if matches!(raw.kind, ClaimKind::Money | ClaimKind::Percent | ClaimKind::Quantity) {
                hits.retain(|h| !id(h));
            }
            if self.is_paid(raw) {
                hits.retain(|h| !id(h) && self.is_money(h));
            }
            if let Value::Date(date) = value {
                hits.retain(|h| self.year_known(date, h));
            }
        }
        let worded = matches!(
            raw.kind,
            ClaimKind::Name | ClaimKind::Quote | ClaimKind::Id | ClaimKind::Url | ClaimKind::Email
        );
        if hits.is_empty() && worded {
            let phrase: Vec<u64> = self.words_in(&raw.range).iter().map(|w| w.exact).collect();
            hits.extend(self.evidence.phrase(&phrase, self.act, 400).into_iter().map(|(piece, range)| Hit {
                piece,
                record: self.evidence.record_of(piece, range.start),
                slot: self.evidence.slot_of(piece, range.start),
                range,
            }));
        }
        hits
    }

    /// A number that no value of its kind says, but whose digits stand on a line that is about the same: `4 of 5`, `v2`.
    fn digits(&self, raw: &Raw, about: &About) -> Vec<Hit> {
        if !matches!(raw.value, Some(Value::Amount(_))) {
            return Vec::new();
        }
        let digits = self.words_in(&raw.range).iter().filter(|w| w.digits);
        let phrase: Vec<u64> = digits.map(|w| w.exact).collect();
        let found = self.evidence.phrase(&phrase, self.act, 400).into_iter();
        let near = found.filter(|(piece, range)| {
            let line = about.line(self.evidence.segment_of(*piece, range.start));
            self.evidence.pieces[*piece].source == Source::Read && line > about.near_total * SAME_LINE
        });
        let hit = |(piece, range): (usize, Range<usize>)| Hit {
            piece,
            record: self.evidence.record_of(piece, range.start),
            slot: self.evidence.slot_of(piece, range.start),
            range,
        };
        near.map(hit).collect()
    }

    /// A date whose year only the claim writes is said only if that year was read somewhere.
    fn year_known(&self, date: &moment::Date, hit: &Hit) -> bool {
        let Some(year) = date.year else { return true };
        let seen = |h: &super::evidence::Seen| match &h.found.value {
            Value::Date(d) => d.year == Some(year),
            Value::Amount(a) => a.unit.is_none() && a.value == f64::from(year),
            _ => false,
        };
        let has_year = self.evidence.seen.iter().any(|s| {
            s.piece == hit.piece
                && s.found.range == hit.range
                && matches!(&s.found.value, Value::Date(d) if d.year.is_some())
        });
        has_year || self.evidence.seen.iter().any(|s| self.evidence.pieces[s.piece].act < self.act && seen(s))
    }

    pub(crate) fn words_in(&self, range: &Range<usize>) -> &'r [Word] {
        within(&self.answer.words, range, |w| w.range().start)
    }

    fn not_found(&self, raw: &Raw, statement: &Statement, about: &About) -> (ClaimStatus, Why, Vec<Quoted>) {
        if statement.manner == Manner::NotAsserted {
            return (ClaimStatus::NotCheckable, Why::NotAsserted, Vec::new());
        }
        if self.evidence.pieces.iter().all(|p| p.act >= self.act || p.source != Source::Read) {
            return (ClaimStatus::NotCheckable, Why::NothingRead, Vec::new());
        }
        if raw.value.is_none() {
            return self.unknown_name(raw, statement);
        }
        let instead = if self.counts_things(raw) { None } else { self.instead(raw, statement, about) };
        match instead {
            Some((field, found)) => (ClaimStatus::Contradicted, self.other(field, found), Vec::new()),
            None => (ClaimStatus::Unsupported, Why::Nowhere, Vec::new()),
        }
    }

    /// `three transfers`, `2 files`: how many there are is no value of any of them.
    pub(super) fn counts_things(&self, raw: &Raw) -> bool {
        let Some(Value::Amount(amount)) = &raw.value else { return false };
        let after = self.text[raw.range.end..].trim_start_matches('*');
        let spelled = self.text[raw.range.clone()].starts_with(char::is_alphabetic);
        let noun = after.strip_prefix(' ').is_some_and(|rest| rest.starts_with(char::is_alphabetic));
        amount.unit.is_none() && amount.value.fract() == 0.0 && amount.value < 100.0 && (spelled || noun)
    }

    fn deed(&self, raw: &Raw, statement: &Statement) -> (ClaimStatus, Why, Vec<Quoted>) {
        if statement.manner == Manner::NotAsserted {
            return (ClaimStatus::NotCheckable, Why::NotAsserted, Vec::new());
        }
        match status::judge(self.run, self.act, &self.text[raw.range.clone()]) {
            Deed::Done(act, call) => {
                let place = Quoted { place: Place::new(act), text: call.name.clone() };
                (ClaimStatus::Supported, Why::Done { act, name: call.name.clone() }, vec![place])
            }
            Deed::NotDone(act, call) => {
                (ClaimStatus::Contradicted, Why::NotDone { act, name: call.name.clone() }, Vec::new())
            }
            Deed::Unknown => (ClaimStatus::NotCheckable, Why::NoReferent, Vec::new()),
            Deed::Nothing => (ClaimStatus::Unsupported, Why::NothingRead, Vec::new()),
        }
    }

    /// A place of the evidence, as the report names it.
    pub(crate) fn quote(&self, piece: usize, range: Range<usize>) -> Quoted {
        let piece = &self.evidence.pieces[piece];
        let written = if piece.source == Source::Did { None } else { self.run.acts.get(piece.act) };
        let written = written.and_then(|act| act.text.get(range.clone()));
        let text = written.unwrap_or(&piece.text[range.clone()]).to_owned();
        let leaf = piece.leaves.iter().find(|(r, _)| r.start <= range.start && range.end <= r.end);
        let place = match (leaf, piece.source) {
            (Some((_, pointer)), _) => Place::new(piece.act).path(pointer.clone()),
            (None, Source::Did) => Place::new(piece.act),
            (None, _) => Place::new(piece.act).bytes(range.start, range.end),
        };
        Quoted { place, text }
    }
}
