//! From a claim to where it was read. A value that stands somewhere is not yet right: the record that the statement is
//! about may have another one in the same slot, and then that is the finding.

use super::about::{About, question};
use super::answer::{Manner, Statement};
use super::bind::Binding;
use super::context::Instead;
use super::evidence::{Evidence, Source};
use super::extract::{Answer, Raw, within};
use super::moment;
use super::rank::Ranking;
use super::report::{Claim, ClaimKind, ClaimStatus, Quoted, Why};
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
    range: Range<usize>,
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
        let mut judge = Self { run, evidence, act, text, answer, homes, keys, asked, binding, people };
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
            && let Some((status, why)) = self.doubt(raw, statement, &hits, about, ranking)
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

    /// What speaks against a claim whose value was read somewhere.
    fn doubt(
        &self,
        raw: &Raw,
        statement: &Statement,
        hits: &[Hit],
        about: &About,
        ranking: Option<&Ranking>,
    ) -> Option<(ClaimStatus, Why)> {
        // rules that go by what stands around are believed where nothing that was said fits there best of all
        let most = self.is_the_most(statement, hits, about);
        let most = most || !super::off('C') && self.comes_out(raw);
        let open = !most && ranking.is_none_or(|ranking| ranking.by > 0.0);
        let around = |found: &dyn Fn() -> Option<Instead>| if open { found() } else { None };
        let same_words = || self.among_the_same_words(raw).filter(|(_, sure)| open || *sure && !most);
        let contradicted = around(&|| self.other_value(raw, statement, hits, about))
            .or_else(|| self.apart(raw))
            .or_else(|| self.not_the_most(raw, statement, hits, about))
            .or_else(|| same_words().map(|(found, _)| found))
            .or_else(|| self.not_its_address(raw))
            .or_else(|| self.not_done_with(raw))
            .or_else(|| self.not_done_to(raw, statement))
            .or_else(|| if super::off('A') { None } else { self.not_done_on(raw, statement) })
            .or_else(|| {
                self.not_of_its_subject(raw, statement)
                    .filter(|(_, sure)| open || *sure && !most)
                    .map(|(found, _)| found)
            })
            .or_else(|| self.not_whose(raw, statement))
            .or_else(|| self.not_of_its_label(raw))
            .or_else(|| self.not_of_its_items(raw))
            .or_else(|| self.not_its_start(raw, statement, hits))
            .or_else(|| self.not_the_writer(raw, statement, about))
            .or_else(|| self.not_the_users(raw))
            .or_else(|| self.not_greeted(raw))
            .or_else(|| self.counted_otherwise(raw))
            .or_else(|| self.not_of_its_title(raw, statement))
            .or_else(|| self.not_its_new_id(raw))
            .or_else(|| around(&|| self.odd_one_out(raw, statement)))
            .or_else(|| self.not_asked_here(raw, statement))
            .or_else(|| self.other_company(raw, statement).map(|found| (None, found)));
        if let Some((field, found)) = contradicted {
            return Some((ClaimStatus::Contradicted, self.other(field, found)));
        }
        if let Some(why) = self.not_the_same_time(raw).or_else(|| self.does_not_add_up(raw)).or_else(|| if super::off('C') {None} else {self.does_not_come_out(raw)}) {
            return Some((ClaimStatus::Contradicted, why));
        }
        let misfit = self.not_its_form(raw).or_else(|| self.no_weekday(raw)).or_else(|| self.no_name(raw, statement));
        if let Some(why) = misfit.or_else(|| self.summed_otherwise(raw)) {
            return Some((ClaimStatus::Unsupported, why));
        }
        if let Some(again) = self.said_twice(raw) {
            return Some((ClaimStatus::Unsupported, Why::SaidTwice { bytes: (again.start, again.end) }));
        }
        let (field, found) = self.outranked(raw, ranking, about).filter(|_| !most)?;
        Some((ClaimStatus::Unsupported, self.likelier(field, found)))
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

    /// The rules that speak against a claim, all of them.
    pub(super) fn against(&self, raw: &Raw, statement: &Statement) -> Vec<&'static str> {
        let mut hits = self.hits(raw);
        if raw.kind == ClaimKind::Status || hits.is_empty() {
            let flagged = self.claim(raw).0.status.flagged();
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
            ("done-to", self.not_done_to(raw, statement).is_some()),
            ("writer", self.not_the_writer(raw, statement, &about).is_some()),
            ("subject", self.not_of_its_subject(raw, statement).is_some()),
            ("items", self.not_of_its_items(raw).is_some()),
            ("start", self.not_its_start(raw, statement, &hits).is_some()),
            ("twice", self.said_twice(raw).is_some()),
            ("users", self.not_the_users(raw).is_some()),
            ("greeted", self.not_greeted(raw).is_some()),
            ("counted", self.counted_otherwise(raw).is_some()),
            ("title", self.not_of_its_title(raw, statement).is_some()),
            ("new-id", self.not_its_new_id(raw).is_some()),
            ("asked", self.not_asked_here(raw, statement).is_some()),
            ("whose", self.not_whose(raw, statement).is_some()),
            ("label", self.not_of_its_label(raw).is_some()),
            ("odd-one", self.odd_one_out(raw, statement).is_some()),
            ("adds-up", self.does_not_add_up(raw).is_some()),
            ("summed", self.summed_otherwise(raw).is_some()),
            ("same-time", self.not_the_same_time(raw).is_some()),
            ("form", self.not_its_form(raw).is_some()),
            ("no-name", self.no_name(raw, statement).is_some()),
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
            if matches!(raw.kind, ClaimKind::Money | ClaimKind::Percent | ClaimKind::Quantity)
                || !super::off('J') && self.is_paid(raw)
            {
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

    /// Whether a bare number is said to be money: `paid 3`, `the amount was 10.0`.
    fn is_paid(&self, raw: &Raw) -> bool {
        const PAID: [&str; 14] = [
            "paid", "received", "cost", "costs", "spent", "charged", "amount", "price", "fee", "refunded",
            "transferred", "owe", "balance", "set",
        ];
        let bare = matches!(&raw.value, Some(Value::Amount(amount)) if amount.unit.is_none());
        let before = within(&self.answer.words, &(0..raw.range.start), |w| w.range().start);
        let mut near = before.iter().rev().take(3).skip_while(|w| w.common).map(|w| w.of(self.text));
        bare && near.next().is_some_and(|word| PAID.iter().any(|p| word.eq_ignore_ascii_case(p)))
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
