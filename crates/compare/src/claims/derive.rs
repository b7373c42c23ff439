//! Values that were worked out: counts, sums, differences, averages, shares, spans and weekdays. A number is only
//! called derived when its operands can be named and the answer gives a reason to compute: a column of one result, a
//! word like "total", or operands that the answer itself shows. Otherwise any number is a sum of something.

use super::amount::Unit;
use super::evidence::Piece;
use super::extract::within;
use super::layout::lines;
use super::link::Judge;
use super::moment;
use super::report::{Claim, ClaimKind, ClaimStatus, Operation, Quoted, Why};
use super::scan::Value;
use crate::reason::Place;
use std::collections::BTreeMap;

type Derived = (Operation, Vec<Quoted>);

/// Words that say that something was worked out.
const CUES: [&str; 19] = [
    "total",
    "totals",
    "totaling",
    "sum",
    "altogether",
    "combined",
    "difference",
    "increase",
    "increased",
    "decrease",
    "decreased",
    "average",
    "remaining",
    "overall",
    "additional",
    "adjusted",
    "adjustment",
    "count",
    "number",
];

/// More operands than this are not tried in pairs: a match among so many means nothing.
const MOST: usize = 60;

pub(crate) fn derive(judge: &Judge<'_>, claims: &mut [Claim]) {
    for at in 0..claims.len() {
        if let Some(why) = wrong_weekday(judge.text, claims, at) {
            claims[at].status = ClaimStatus::Contradicted;
            claims[at].why = why;
        } else if claims[at].status.flagged()
            && !judge.is_firm(at)
            && let Some((operation, operands)) = operands_of(judge, claims, at)
        {
            claims[at].status = ClaimStatus::Derived;
            claims[at].why = Why::Computed { operation, operands };
        }
    }
}

impl Judge<'_> {
    /// Whether a claim is held against a field of what it is about, and its own statement does not say that anything was
    /// worked out: a value of an item below "here is the total" is no total.
    fn is_plain_field(&self, claim: &Claim, at: usize) -> bool {
        let raw = &self.answer.claims[at];
        let words = self.words_in(&self.answer.statements[raw.statement].range);
        let worked_out = words.iter().any(|w| CUES.iter().any(|c| w.of(self.text).eq_ignore_ascii_case(c)));
        claim.status == ClaimStatus::Contradicted
            && matches!(&claim.why, Why::OtherValue { field: Some(_), .. })
            && !worked_out
            && !self.counts_a_noun(raw)
    }

    /// Whether what speaks against a claim names the very value that belongs there: no sum of others outweighs that.
    fn is_firm(&self, at: usize) -> bool {
        let raw = &self.answer.claims[at];
        let statement = &self.answer.statements[raw.statement];
        self.counted_otherwise(raw).is_some()
            || self.summed_otherwise(raw).is_some()
            || self.not_of_its_title(raw, statement).is_some()
            || self.among_the_same_words(raw).is_some_and(|(_, sure)| sure)
            || self.not_of_its_subject(raw, statement).is_some_and(|(_, sure)| sure)
    }
}

fn operands_of(judge: &Judge<'_>, claims: &[Claim], at: usize) -> Option<Derived> {
    let claim = &claims[at];
    if let Some(written) = judge.written_out(&judge.answer.claims[at]) {
        return Some(written);
    }
    if judge.is_plain_field(claim, at) {
        return None;
    }
    match claim.value.as_ref()? {
        Value::Weekday(day) => {
            let date = dates_near(claims, at).find(|c| weekday_of(c) == Some(*day))?;
            Some((Operation::Weekday, vec![own(date)]))
        }
        Value::Amount(amount) if amount.unit == Some(Unit::Seconds) => {
            span(judge, claims, amount.value).or_else(|| arithmetic(judge, claims, at))
        }
        Value::Amount(amount) if amount.unit.is_none() => {
            let counted = count(judge, claim, amount.value);
            // how many there are is no difference of two prices
            let sole = judge.counts_a_noun(&judge.answer.claims[at]);
            counted.or_else(|| if sole { None } else { arithmetic(judge, claims, at) })
        }
        Value::Amount(_) => arithmetic(judge, claims, at),
        _ => None,
    }
}

fn own(claim: &Claim) -> Quoted {
    claim.evidence.first().cloned().unwrap_or_else(|| Quoted {
        place: Place::new(claim.act).bytes(claim.bytes.0, claim.bytes.1),
        text: claim.text.clone(),
    })
}

fn weekday_of(claim: &Claim) -> Option<u8> {
    match claim.value.as_ref()? {
        Value::Date(date) => date.weekday(),
        _ => None,
    }
}

fn dates_near(claims: &[Claim], at: usize) -> impl Iterator<Item = &Claim> {
    let (from, to) = claims[at].bytes;
    claims.iter().filter(move |c| c.kind == ClaimKind::Date && c.bytes.0 < to + 60 && from < c.bytes.1 + 60)
}

/// `Friday, May 18, 2024` when that day is a Saturday: the calendar is evidence enough.
fn wrong_weekday(text: &str, claims: &[Claim], at: usize) -> Option<Why> {
    let Some(Value::Weekday(day)) = claims[at].value else { return None };
    let date = claims
        .get(at + 1)
        .filter(|c| c.bytes.0 >= claims[at].bytes.1 && text[claims[at].bytes.1..c.bytes.0].len() <= 3)?;
    let real = weekday_of(date).filter(|real| *real != day)?;
    Some(Why::OtherWeekday { date: date.text.clone(), weekday: moment::weekday_name(real).to_owned() })
}

/// As many as a result has items, or as the answer goes on to list.
fn count(judge: &Judge<'_>, claim: &Claim, value: f64) -> Option<Derived> {
    let counts = judge.text[claim.bytes.1..]
        .trim_start_matches('*')
        .strip_prefix(' ')
        .is_some_and(|r| r.starts_with(|c: char| c.is_alphabetic()) && !opens_with_common(r));
    if value.fract() != 0.0 || !(0.0..=10_000.0).contains(&value) || !(counts || cued(judge, claim)) {
        return None;
    }
    let n = value as usize;
    let lists: Vec<(usize, usize)> = judge
        .evidence
        .pieces
        .iter()
        .enumerate()
        .filter(|(_, p)| p.act < judge.act && p.leaves.is_empty())
        .filter_map(|(i, p)| Some((i, items(judge, p)?)))
        .collect();
    let named: Vec<&(usize, usize)> =
        lists.iter().filter(|(i, _)| asked_for(judge, claim, judge.evidence.pieces[*i].act)).collect();
    let fitting: Vec<&(usize, usize)> = if named.is_empty() { lists.iter().collect() } else { named };
    if let Some((number, _)) = fitting.iter().find(|(_, listed)| *listed == n) {
        let text = &judge.evidence.pieces[*number].text;
        let end = text.char_indices().nth(40).map_or(text.len(), |(at, _)| at);
        return Some((Operation::Count, vec![judge.quote(*number, 0..end)]));
    }
    let listed = listed_after(judge.text, claim.bytes.1)?;
    let place = Place::new(judge.act).bytes(claim.bytes.1, judge.text.len());
    (listed == n)
        .then(|| (Operation::Count, vec![Quoted { place, text: format!("{n} items listed in the answer") }]))
}

/// Whether a text opens with a word that names nothing: `5 to Bob` counts no `to`.
fn opens_with_common(text: &str) -> bool {
    super::words::words(text.split([' ', '\n']).next().unwrap_or_default()).first().is_none_or(|w| w.common)
}

/// Whether the statement names something that this act's arguments name and not every other act's do.
fn asked_for(judge: &Judge<'_>, claim: &Claim, act: usize) -> bool {
    let statement = judge
        .answer
        .statements
        .iter()
        .find(|s| s.range.start <= claim.bytes.0 && claim.bytes.1 <= s.range.end);
    let said = statement.map(|s| judge.words_in(&s.range)).unwrap_or_default();
    let args = judge.evidence.pieces.iter().filter(|p| p.act == act && !p.leaves.is_empty());
    args.flat_map(|p| p.leaves.iter().flat_map(|(r, _)| within(&p.words, r, |w| w.range().start)))
        .any(|a| !a.common && said.iter().any(|s| s.stem == a.stem))
}

/// How many items a result lists; nothing for a text that is no list.
fn items(judge: &Judge<'_>, piece: &Piece) -> Option<usize> {
    let text = piece.text.trim();
    if ["[]", "{}", "None", "null", "()"].contains(&text) {
        return Some(0);
    }
    let opens = |at: usize| piece.text[at..].starts_with("- ") || piece.text[at..].starts_with('{');
    let records =
        judge.evidence.records[piece.records.clone()].iter().filter(|r| opens(r.range.start)).count();
    if records > 0 {
        return Some(records);
    }
    let flat = text.strip_prefix('[')?.strip_suffix(']')?;
    Some(flat.split(", ").count())
}

/// The items of the next list of the answer, at its outermost level; or of the list after a colon.
fn listed_after(text: &str, from: usize) -> Option<usize> {
    let rest = &text[from..];
    let (mut level, mut n) = (None, 0);
    for (_, line) in lines(rest).skip(1) {
        let body = line.trim_start();
        let indent = line.len() - body.len();
        let digits = body.bytes().take_while(u8::is_ascii_digit).count();
        let marked = body.starts_with("- ")
            || body.starts_with("* ")
            || body.starts_with("• ")
            || (digits > 0 && body[digits..].starts_with(['.', ')']));
        match (marked, level) {
            (true, None) => (level, n) = (Some(indent), 1),
            (true, Some(outer)) if indent <= outer => n += 1,
            (false, Some(_)) if indent == 0 && !body.is_empty() => break,
            _ => {}
        }
    }
    if n > 0 {
        return Some(n);
    }
    let line = rest.lines().next()?;
    let (lead, inline) = line.split_once(": ").filter(|(lead, _)| lead.len() < 40 && !lead.contains('.'))?;
    let inline = inline.split(". ").next().unwrap_or(lead);
    Some(
        inline.matches(", ").count() + inline.matches(" and ").count() + 1 - inline.matches(", and ").count(),
    )
}

/// The time between two times of one record, or of the answer.
fn span(judge: &Judge<'_>, claims: &[Claim], seconds: f64) -> Option<Derived> {
    let minutes = |value: &Value| match value {
        Value::Time(time) => Some(f64::from(time.minute)),
        _ => None,
    };
    let apart = |a: f64, b: f64| (b - a).rem_euclid(1440.0) * 60.0;
    let said: Vec<(f64, &Claim)> =
        claims.iter().filter_map(|c| Some((minutes(c.value.as_ref()?)?, c))).take(MOST).collect();
    if let Some(pair) = said.windows(2).find(|w| same(apart(w[0].0, w[1].0), seconds)) {
        return Some((Operation::Span, vec![own(pair[0].1), own(pair[1].1)]));
    }
    let read: Vec<_> = judge
        .evidence
        .seen
        .iter()
        .filter(|s| judge.evidence.pieces[s.piece].act < judge.act)
        .filter_map(|s| Some((minutes(&s.found.value)?, s)))
        .collect();
    let pair = read.windows(2).find(|w| {
        w[0].1.record == w[1].1.record
            && (same(apart(w[0].0, w[1].0), seconds) || same(apart(w[1].0, w[0].0), seconds))
    })?;
    Some((Operation::Span, pair.iter().map(|(_, s)| judge.quote(s.piece, s.found.range.clone())).collect()))
}

#[derive(Clone)]
struct Operand {
    value: f64,
    percent: bool,
    quoted: Quoted,
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs()) + 1e-9
}

/// As the claim was written: to its step.
fn lands(value: f64, step: f64, result: f64) -> bool {
    same(value, result) || (step < 1.0 && (value - result).abs() <= step * 0.5 + 1e-9)
}

fn arithmetic(judge: &Judge<'_>, claims: &[Claim], at: usize) -> Option<Derived> {
    let Some(Value::Amount(amount)) = &claims[at].value else { return None };
    let is = |result: f64| lands(amount.value, amount.step, result);
    let cued = cued(judge, &claims[at]);
    let telling =
        cued || amount.value.abs() >= 10.0 && amount.value % 10.0 != 0.0 || amount.value.fract() != 0.0;
    let columns = columns(judge);
    if telling && let Some(found) = columns.iter().find_map(|column| whole_column(column, &is)) {
        return Some(found);
    }
    let shown = shown(judge, claims, at, cued);
    if telling && let Some(found) = pairwise(&shown, &is) {
        return Some(found);
    }
    if shown.len() > 2 && same(shown.iter().filter(|o| !o.percent).map(|o| o.value).sum(), amount.value) {
        return Some((Operation::Sum, shown.into_iter().map(|o| o.quoted).collect()));
    }
    if !cued {
        return None;
    }
    columns.iter().filter(|c| c.len() <= MOST).find_map(|column| pairwise(column, &is))
}

/// Whether the statement says that something was worked out.
fn cued(judge: &Judge<'_>, claim: &Claim) -> bool {
    let statement = judge
        .answer
        .statements
        .iter()
        .find(|s| s.range.start <= claim.bytes.0 && claim.bytes.1 <= s.range.end);
    let around = statement.map(|s| std::iter::once(&s.range).chain(s.under.last()));
    around
        .into_iter()
        .flatten()
        .flat_map(|r| judge.words_in(r))
        .any(|w| CUES.iter().any(|c| w.of(judge.text).eq_ignore_ascii_case(c)))
}

/// Amounts shown beside the claim, or anywhere in the answer if it says that it was worked out, and found themselves.
fn shown(judge: &Judge<'_>, claims: &[Claim], at: usize, cued: bool) -> Vec<Operand> {
    let mut shown: Vec<Operand> = Vec::new();
    let home = judge
        .answer
        .statements
        .iter()
        .find(|s| s.range.start <= claims[at].bytes.0 && claims[at].bytes.1 <= s.range.end);
    let near = home.map_or(0..0, |s| if cued { 0..judge.text.len() } else { s.range.clone() });
    let money = claims[at].kind == ClaimKind::Money;
    for (i, claim) in claims
        .iter()
        .enumerate()
        .filter(|(i, c)| *i != at && !c.status.flagged() && near.contains(&c.bytes.0))
    {
        let Some(Value::Amount(amount)) = &claim.value else { continue };
        // so many transfers and a sum of money add up to nothing
        if money && judge.counts_things(&judge.answer.claims[i]) {
            continue;
        }
        shown.push(Operand {
            value: amount.value,
            percent: amount.unit == Some(Unit::Percent),
            quoted: own(claim),
        });
        if shown.len() == MOST {
            break;
        }
    }
    shown
}

/// Amounts that stand under one key of one result, column by column; what the user named is a column too.
fn columns(judge: &Judge<'_>) -> Vec<Vec<Operand>> {
    let mut columns: BTreeMap<(usize, &str), Vec<Operand>> = BTreeMap::new();
    for seen in judge.evidence.seen.iter().filter(|s| judge.evidence.pieces[s.piece].act < judge.act) {
        let Value::Amount(amount) = &seen.found.value else { continue };
        let key = seen.slot.map_or("", |s| judge.evidence.slots[s].key.as_str());
        if key == "id" || key.ends_with(" id") {
            continue;
        }
        let column = columns.entry((seen.piece, key)).or_default();
        if column.len() < 1000 {
            let quoted = judge.quote(seen.piece, seen.found.range.clone());
            column.push(Operand { value: amount.value, percent: amount.unit == Some(Unit::Percent), quoted });
        }
    }
    columns.into_values().collect()
}

fn whole_column(column: &[Operand], is: &impl Fn(f64) -> bool) -> Option<Derived> {
    if column.len() < 2 {
        return None;
    }
    let sum: f64 = column.iter().map(|o| o.value).sum();
    let operands = || column.iter().map(|o| o.quoted.clone()).collect();
    if is(sum) {
        return Some((Operation::Sum, operands()));
    }
    is(sum / column.len() as f64).then(|| (Operation::Average, operands()))
}

fn pairwise(operands: &[Operand], is: &impl Fn(f64) -> bool) -> Option<Derived> {
    for (i, a) in operands.iter().enumerate() {
        for b in &operands[i + 1..] {
            let operation = match (a.percent, b.percent) {
                (false, false) if is(a.value + b.value) => Operation::Sum,
                (false, false) if is(a.value - b.value) || is(b.value - a.value) => Operation::Difference,
                (true, false) if share(b.value, a.value).into_iter().any(is) => Operation::Share,
                (false, true) if share(a.value, b.value).into_iter().any(is) => Operation::Share,
                _ => continue,
            };
            return Some((operation, vec![a.quoted.clone(), b.quoted.clone()]));
        }
    }
    None
}

fn share(of: f64, percent: f64) -> [f64; 3] {
    let part = of * percent / 100.0;
    [part, of + part, of - part]
}
