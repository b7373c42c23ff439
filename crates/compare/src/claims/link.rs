//! From a claim to where it was read. A value that stands somewhere is not yet right: the record that the statement is
//! about may have another one in the same slot, and then that is the finding.

use super::answer::{Manner, Statement};
use super::evidence::{Evidence, Source};
use super::extract::{Answer, Raw, within};
use super::moment;
use super::report::{Claim, ClaimKind, ClaimStatus, Quoted, Why};
use super::scan::Value;
use super::status::{self, Deed};
use super::words::Word;
use crate::reason::Place;
use cofferdam_model::Run;
use std::collections::BTreeMap;
use std::ops::Range;

/// Where a claim was found.
#[derive(Debug, Clone)]
pub(super) struct Hit {
    pub(super) piece: usize,
    range: Range<usize>,
    pub(super) record: usize,
    pub(super) slot: Option<usize>,
}

/// How much of what a statement is about each record shares.
pub(super) struct About {
    /// By record and by sentence or line, each with what all of it together would be.
    pub(super) shares: Vec<f32>,
    pub(super) total: f32,
    pub(super) near: Vec<f32>,
    pub(super) near_total: f32,
}

impl About {
    /// What stands in few places says more of them than what stands in many.
    fn count(&mut self, weight: f32, records: impl ExactSizeIterator<Item = usize>) {
        let weight = weight * (1.0 + self.shares.len() as f32 / records.len() as f32).ln();
        self.total += weight;
        records.for_each(|record| self.shares[record] += weight);
    }

    fn count_near(&mut self, weight: f32, segments: impl ExactSizeIterator<Item = usize>) {
        let weight = weight * (1.0 + self.near.len() as f32 / segments.len().max(1) as f32).ln();
        self.near_total += weight;
        segments.for_each(|segment| self.near[segment] += weight);
    }

    pub(super) fn of(&self, record: usize) -> f32 {
        self.shares.get(record).copied().unwrap_or(0.0)
    }
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
}

impl<'r> Judge<'r> {
    pub(crate) fn new(
        run: &'r Run,
        evidence: &'r Evidence,
        act: usize,
        text: &'r str,
        answer: &'r Answer,
    ) -> Self {
        let before = evidence.seen.partition_point(|s| evidence.pieces[s.piece].act < act);
        let of = |value: &Value| {
            let said = evidence.seen[..before].iter().filter(|s| value.said_by(&s.found.value));
            said.take(400).map(|s| (s.record, s.segment)).collect()
        };
        let slots = |value: &Value| {
            let said = evidence.seen[..before].iter().filter(|s| value.said_by(&s.found.value));
            said.take(400).filter_map(|s| s.slot).collect()
        };
        let homes = answer.claims.iter().map(|raw| raw.value.as_ref().map(of).unwrap_or_default()).collect();
        let keys =
            answer.claims.iter().map(|raw| raw.value.as_ref().map(slots).unwrap_or_default()).collect();
        Self { run, evidence, act, text, answer, homes, keys }
    }

    pub(crate) fn claim(&self, raw: &Raw) -> Claim {
        let statement = &self.answer.statements[raw.statement];
        let (status, why, evidence) = self.judge(raw, statement);
        Claim {
            act: self.act,
            bytes: (raw.range.start, raw.range.end),
            text: self.text[raw.range.clone()].to_owned(),
            kind: raw.kind,
            value: raw.value.clone(),
            hedged: statement.manner == Manner::Hedged,
            status,
            why,
            evidence,
        }
    }

    fn judge(&self, raw: &Raw, statement: &Statement) -> (ClaimStatus, Why, Vec<Quoted>) {
        if raw.kind == ClaimKind::Status {
            return self.deed(raw, statement);
        }
        let mut hits = self.hits(raw);
        if hits.is_empty() {
            return self.not_found(raw, statement);
        }
        let about = self.about(raw, statement);
        hits.sort_by(|a, b| {
            let share = |h: &Hit| about.of(h.record);
            share(b)
                .total_cmp(&share(a))
                .then(self.source(a).cmp(&self.source(b)))
                .then((a.piece, a.range.start).cmp(&(b.piece, b.range.start)))
        });
        if statement.manner != Manner::NotAsserted
            && let Some((field, found)) = self
                .other_value(raw, statement, &hits, &about)
                .or_else(|| self.apart(raw))
                .or_else(|| self.not_the_most(raw, statement, &hits, &about))
                .or_else(|| self.among_the_same_words(raw))
                .or_else(|| self.not_its_address(raw))
                .or_else(|| self.not_done_with(raw))
        {
            return (ClaimStatus::Contradicted, Why::OtherValue { field, found }, Vec::new());
        }
        if statement.manner != Manner::NotAsserted
            && let Some(found) = self.other_company(raw, statement)
        {
            return (ClaimStatus::Contradicted, Why::OtherValue { field: None, found }, Vec::new());
        }
        if statement.manner != Manner::NotAsserted
            && let Some((field, found)) = self.outranked(raw, statement, &about)
        {
            return (ClaimStatus::Unsupported, Why::Likelier { field, found }, Vec::new());
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

    /// The rules that speak against a claim, all of them.
    pub(super) fn against(&self, raw: &Raw, statement: &Statement) -> Vec<&'static str> {
        let mut hits = self.hits(raw);
        if raw.kind == ClaimKind::Status || hits.is_empty() {
            let flagged = self.judge(raw, statement).0.flagged();
            return if flagged { vec!["nowhere"] } else { Vec::new() };
        }
        let about = self.about(raw, statement);
        hits.sort_by(|a, b| about.of(b.record).total_cmp(&about.of(a.record)));
        let rules = [
            ("other-value", self.other_value(raw, statement, &hits, &about).is_some()),
            ("apart", self.apart(raw).is_some()),
            ("not-the-most", self.not_the_most(raw, statement, &hits, &about).is_some()),
            ("same-words", self.among_the_same_words(raw).is_some()),
            ("address", self.not_its_address(raw).is_some()),
            ("done-with", self.not_done_with(raw).is_some()),
            ("company", self.other_company(raw, statement).is_some()),
        ];
        if statement.manner == Manner::NotAsserted {
            return Vec::new();
        }
        rules.into_iter().filter(|(_, found)| *found).map(|(name, _)| name).collect()
    }

    fn source(&self, hit: &Hit) -> Source {
        self.evidence.pieces[hit.piece].source
    }

    /// Every place that says the claim, up to a number that no reader would go through.
    fn hits(&self, raw: &Raw) -> Vec<Hit> {
        let mut hits = Vec::new();
        if let Some(value) = &raw.value {
            let seen =
                self.evidence.seen.iter().filter(|s| {
                    self.evidence.pieces[s.piece].act < self.act && value.said_by(&s.found.value)
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

    /// Which records the statement around a claim is about: its other words, the nearer the heavier, and its headings.
    pub(super) fn about(&self, raw: &Raw, statement: &Statement) -> About {
        // in one order, so that sums of fractions come out the same every time
        let mut weights: BTreeMap<u64, f32> = BTreeMap::new();
        let own = self.words_in(&statement.range);
        let middle = own.partition_point(|w| w.range().start < raw.range.start);
        for (at, word) in own.iter().enumerate() {
            if !tells(word) || raw.range.contains(&word.range().start) {
                continue;
            }
            let apart = at.abs_diff(middle) as f32;
            let weight = 1.0 / (1.0 + apart / 8.0);
            let held = weights.entry(word.stem).or_default();
            *held = held.max(weight);
        }
        let block = self.words_in(&statement.block);
        for word in block.iter().filter(|w| tells(w) && !raw.range.contains(&w.range().start)).take(80) {
            let held = weights.entry(word.stem).or_default();
            *held = held.max(0.4);
        }
        for (level, range) in statement.under.iter().rev().enumerate() {
            for word in
                self.words_in(range).iter().filter(|w| tells(w) && !raw.range.contains(&w.range().start))
            {
                let held = weights.entry(word.stem).or_default();
                *held = held.max(if level == 0 { 0.9 } else { 0.5 });
            }
        }
        let mut about = About {
            shares: vec![0.0; self.evidence.records.len()],
            total: 0.0,
            near: vec![0.0; self.evidence.segments.len()],
            near_total: 0.0,
        };
        for (stem, weight) in weights {
            let records = self.evidence.records_with(stem);
            if records.is_empty() || records.len() > 2000 {
                continue;
            }
            about.count(weight, records.iter().map(|(_, r)| *r as usize));
            about.count_near(weight, self.evidence.segments_with(stem).iter().map(|(_, s)| *s as usize));
        }
        self.about_values(raw, statement, &mut about);
        about
    }

    /// The values beside a claim say which record is meant, as words do: `May 15, 10:00` is about what is on that day.
    fn about_values(&self, raw: &Raw, statement: &Statement, about: &mut About) {
        for (at, other) in self.answer.claims.iter().enumerate() {
            let here = statement.block.contains(&other.range.start);
            if !here || other.range == raw.range || other.value == raw.value || self.homes[at].is_empty() {
                continue;
            }
            let same = self.answer.statements[other.statement].range == statement.range;
            let weight = if same { 1.0 } else { 0.6 };
            let mut records: Vec<usize> = self.homes[at].iter().map(|h| h.0).collect();
            records.dedup();
            about.count(weight, records.into_iter());
            let mut segments: Vec<usize> = self.homes[at].iter().map(|h| h.1).collect();
            segments.dedup();
            about.count_near(weight, segments.into_iter());
        }
    }

    fn not_found(&self, raw: &Raw, statement: &Statement) -> (ClaimStatus, Why, Vec<Quoted>) {
        if statement.manner == Manner::NotAsserted {
            return (ClaimStatus::NotCheckable, Why::NotAsserted, Vec::new());
        }
        if self.evidence.pieces.iter().all(|p| p.act >= self.act || p.source != Source::Read) {
            return (ClaimStatus::NotCheckable, Why::NothingRead, Vec::new());
        }
        if raw.value.is_none() {
            return self.unknown_name(raw, statement);
        }
        let about = self.about(raw, statement);
        let instead = if self.counts_things(raw) { None } else { self.instead(raw, statement, &about) };
        match instead {
            Some((field, found)) => (ClaimStatus::Contradicted, Why::OtherValue { field, found }, Vec::new()),
            None => (ClaimStatus::Unsupported, Why::Nowhere, Vec::new()),
        }
    }

    /// `three transfers`, `2 files`: how many there are is no value of any of them.
    fn counts_things(&self, raw: &Raw) -> bool {
        let Some(Value::Amount(amount)) = &raw.value else { return false };
        let after = self.text[raw.range.end..].trim_start_matches('*');
        let spelled = self.text[raw.range.clone()].starts_with(char::is_alphabetic);
        let noun = after.strip_prefix(' ').is_some_and(|rest| rest.starts_with(char::is_alphabetic));
        amount.unit.is_none() && amount.value.fract() == 0.0 && amount.value < 100.0 && (spelled || noun)
    }

    /// A name or quote that does not stand anywhere as said.
    fn unknown_name(&self, raw: &Raw, statement: &Statement) -> (ClaimStatus, Why, Vec<Quoted>) {
        let phrase = self.words_in(if statement.heading { &statement.range } else { &raw.range });
        // a heading of two words is the answer's own more often than not
        let phrase_of = if statement.heading && phrase.len() < 3 { &[] } else { phrase };
        if let Some(found) = self.one_word_off(phrase_of).filter(|_| {
            statement.heading || raw.kind == ClaimKind::Quote || phrase.iter().all(|w| w.upper || w.common)
        }) {
            return (ClaimStatus::Contradicted, Why::OtherValue { field: None, found }, Vec::new());
        }
        if !self.in_title_label(raw, statement)
            && let Some(found) = self.other_company(raw, statement)
        {
            return (ClaimStatus::Contradicted, Why::OtherValue { field: None, found }, Vec::new());
        }
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

    /// Whether a name stands in a label of title case, which capitalises any word.
    fn in_title_label(&self, raw: &Raw, statement: &Statement) -> bool {
        let Some(label) = statement.label.as_ref().filter(|l| l.contains(&raw.range.start)) else {
            return false;
        };
        self.words_in(label).iter().filter(|w| !w.common).skip(1).all(|w| w.upper)
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
        let text = piece.text[range.clone()].to_owned();
        let leaf = piece.leaves.iter().find(|(r, _)| r.start <= range.start && range.end <= r.end);
        let place = match (leaf, piece.source) {
            (Some((_, pointer)), _) => Place::new(piece.act).path(pointer.clone()),
            (None, Source::Did) => Place::new(piece.act),
            (None, _) => Place::new(piece.act).bytes(range.start, range.end),
        };
        Quoted { place, text }
    }
}

/// Whether a word says what a statement is about: parts of other numbers, like the `30` of a time, do not.
fn tells(word: &Word) -> bool {
    !word.common && (!word.digits || word.range().len() > 3)
}
