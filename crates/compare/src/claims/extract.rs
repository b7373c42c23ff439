//! Statements into claims: which stretches of an answer can be looked up at all.

use super::amount::Unit;
use super::answer::{Statement, statements};
use super::report::ClaimKind;
use super::scan::{Found, Value, scan};
use super::words::{Word, words};
use std::ops::Range;

/// A claim before it is judged.
pub(crate) struct Raw {
    pub(crate) range: Range<usize>,
    pub(crate) kind: ClaimKind,
    pub(crate) value: Option<Value>,
    /// Which statement it belongs to.
    pub(crate) statement: usize,
    /// `start` or `end` for the sides of a range like `10:00 – 11:00`.
    pub(crate) side: Option<&'static str>,
}

/// An answer cut up.
pub(crate) struct Answer {
    pub(crate) statements: Vec<Statement>,
    pub(crate) words: Vec<Word>,
    pub(crate) claims: Vec<Raw>,
}

pub(crate) fn extract(text: &str) -> Answer {
    let mut answer = Answer { statements: statements(text), words: words(text), claims: Vec::new() };
    let values = scan(text);
    let mut claims = Vec::new();
    for (number, statement) in answer.statements.iter().enumerate() {
        let values = within(&values, &statement.range, |f| f.range.start);
        let before = claims.len();
        claims.extend(
            values.iter().filter(|f| is_claim(text, statement, f)).map(|f| of_value(text, number, f)),
        );
        let quotes = quotes(text, &statement.range);
        let free = |r: &Range<usize>| !values.iter().any(|f| f.range.start < r.end && r.start < f.range.end);
        let whole =
            |q: &&Range<usize>| !values.iter().any(|f| f.range.start <= q.start && q.end <= f.range.end);
        claims.extend(quotes.iter().filter(whole).map(|q| raw(q.clone(), ClaimKind::Quote, number)));
        let words = within(&answer.words, &statement.range, |w| w.range().start);
        // a label is the answer's own word more often than not, but three capitalised words are a title
        let titled = |r: &Range<usize>| within(words, r, |w| w.range().start).len() > 2;
        let label = |r: &Range<usize>| statement.label.as_ref() != Some(r) || titled(r);
        claims.extend(
            names(text, statement, words, &free)
                .into_iter()
                .filter(label)
                .map(|r| raw(r, ClaimKind::Name, number)),
        );
        claims.extend(
            super::status::find(text, words)
                .into_iter()
                .filter(free)
                .map(|r| raw(r, ClaimKind::Status, number)),
        );
        claims[before..].sort_by_key(|c| c.range.start);
    }
    answer.claims = claims;
    answer
}

fn raw(range: Range<usize>, kind: ClaimKind, statement: usize) -> Raw {
    Raw { range, kind, value: None, statement, side: None }
}

/// The part of a list, sorted by place, that stands in a range.
pub(crate) fn within<'l, T>(list: &'l [T], range: &Range<usize>, at: fn(&T) -> usize) -> &'l [T] {
    let from = list.partition_point(|x| at(x) < range.start);
    let len = list[from..].partition_point(|x| at(x) < range.end);
    &list[from..from + len]
}

fn of_value(text: &str, statement: usize, found: &Found) -> Raw {
    let kind = match &found.value {
        Value::Amount(a) => match a.unit {
            None => ClaimKind::Number,
            Some(Unit::Percent) => ClaimKind::Percent,
            Some(Unit::Money(_)) => ClaimKind::Money,
            Some(_) => ClaimKind::Quantity,
        },
        Value::Date(_) => ClaimKind::Date,
        Value::Time(_) => ClaimKind::Time,
        Value::Weekday(_) => ClaimKind::Weekday,
        Value::Email(_) => ClaimKind::Email,
        Value::Url(_) => ClaimKind::Url,
        Value::Id(_) => ClaimKind::Id,
    };
    Raw {
        range: found.range.clone(),
        kind,
        value: Some(found.value.clone()),
        statement,
        side: side(text, found),
    }
}

/// Numbers that count the answer's own steps are not about the world.
fn is_claim(text: &str, statement: &Statement, found: &Found) -> bool {
    let Value::Amount(amount) = &found.value else { return true };
    let before =
        text[statement.range.start..found.range.start].trim_end_matches([' ', '(', '#', '*', '\'', '"', '`']);
    let word = before.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_ascii_lowercase();
    let labelled =
        statement.label.as_ref().is_some_and(|l| l.contains(&found.range.start) && l.end >= found.range.end);
    // a number in a label counts what follows, but an id names it: `File ID '4': notes.txt`
    if labelled && !["id", "no", "number", "ref", "reference"].contains(&&*word) {
        return false;
    }
    let own =
        ["step", "task", "part", "option", "item", "point", "section", "question", "phase"].contains(&&*word);
    let mark = before.is_empty() && text[found.range.end..].starts_with(['.', ')']);
    let spelled = text[found.range.clone()].starts_with(char::is_alphabetic);
    let vague = spelled && amount.unit.is_none() && text[found.range.end..].trim_start().starts_with("of ");
    !(own || mark || vague)
}

/// `10:00 – 11:00`, `from 10:00 to 11:00`, `starts at`, `until`.
fn side(text: &str, found: &Found) -> Option<&'static str> {
    if !matches!(found.value, Value::Time(_) | Value::Date(_)) {
        return None;
    }
    let after = text[found.range.end..].trim_start_matches(['*', ' ', ')']);
    let before = tail(text[..found.range.start].trim_end_matches(['*', ' ', '(']), 24);
    if let Some(side) = side_after(&text[found.range.end..]) {
        return Some(side);
    }
    let dash = |c: char| "-–—".contains(c);
    let timed = |s: &str| {
        s.trim_start_matches(|c: char| dash(c) || c == ' ' || c == '*')
            .starts_with(|c: char| c.is_ascii_digit())
    };
    if (after.starts_with(dash) || after.starts_with("to ")) && (timed(after) || after.starts_with("to "))
        || before.ends_with("from")
        || ends_with_word(&before, &["start", "starts", "starting", "begins"])
    {
        return Some("start");
    }
    (before.ends_with(dash)
        && before
            .trim_end_matches(|c: char| dash(c) || c == ' ')
            .ends_with(|c: char| c.is_ascii_digit() || c == 'm')
        || ends_with_word(&before, &["to", "until", "ends", "ending", "end", "till"]))
    .then_some("end")
}

/// What is said of a moment right behind it: `11:00 (end of the meeting)`, "11:00, when the meeting ends".
fn side_after(after: &str) -> Option<&'static str> {
    let after = after.trim_start_matches('*');
    let told = match after.strip_prefix(" (") {
        Some(inside) => inside.split([')', '\n']).next()?,
        None => {
            let rest = after.strip_prefix(',').unwrap_or(after).strip_prefix(" when ")?;
            rest.split([',', '.', ';', '\n']).next()?
        }
    };
    let has = |words: &[&str]| {
        told.split(|c: char| !c.is_alphabetic()).any(|w| words.iter().any(|x| w.eq_ignore_ascii_case(x)))
    };
    let starts = has(&["start", "starts", "started", "begins", "begin", "beginning"]);
    match (starts, has(&["end", "ends", "ended", "finishes"])) {
        (true, false) => Some("start"),
        (false, true) => Some("end"),
        _ => None,
    }
}

/// The last bytes of a text, lower case.
fn tail(text: &str, most: usize) -> String {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].to_ascii_lowercase()
}

fn ends_with_word(text: &str, words: &[&str]) -> bool {
    let text = text
        .strip_suffix(" at")
        .or_else(|| text.strip_suffix(" on"))
        .or_else(|| text.strip_suffix(':'))
        .unwrap_or(text)
        .trim_end_matches(['*', ':', ' ']);
    let text = text.strip_suffix(" time").unwrap_or(text);
    text.rsplit(|c: char| !c.is_alphanumeric()).next().is_some_and(|w| words.contains(&w))
}

/// Stretches in double quotes, code marks, or single quotes that are no apostrophes.
fn quotes(text: &str, range: &Range<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let said = &text[range.clone()];
    for (open, close) in [('"', '"'), ('“', '”'), ('`', '`'), ('\'', '\''), ('‘', '’')] {
        let mut at = 0;
        while let Some(start) = said[at..].find(open).map(|s| at + s) {
            let inner = start + open.len_utf8();
            let apostrophe = open == '\'' && said[..start].ends_with(char::is_alphanumeric);
            let end = said[inner..].find(close).map(|e| inner + e);
            let Some(end) = end.filter(|_| !apostrophe) else {
                at = inner;
                continue;
            };
            let body = said[inner..end].trim_end_matches(['.', ',', ':']);
            if (2..160).contains(&body.len()) && body.starts_with(char::is_alphanumeric) {
                found.push(range.start + inner..range.start + inner + body.len());
            }
            at = end + close.len_utf8();
        }
    }
    found
}

/// Runs of capitalised words that a sentence's beginning does not explain.
fn names(
    text: &str,
    statement: &Statement,
    words: &[Word],
    free: &impl Fn(&Range<usize>) -> bool,
) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let mut end = at;
        while end < words.len()
            && words[end].upper
            // a word that says nothing opens no name, but may stand in one
            && (!words[end].common || end > at)
            && free(&words[end].range())
            && (end == at || joined(text, &words[end - 1], &words[end]))
        {
            end += 1;
        }
        if end == at {
            if stands_as_name(text, words, at) && free(&words[at].range()) {
                found.push(words[at].range());
            }
            at += 1;
            continue;
        }
        let run = &words[at..end];
        let first = run[0].range().start;
        let mut opens = at == 0 || opens_sentence(text, first);
        let run = if opens && run.len() > 1 && opener(text, &run[0]) { &run[1..] } else { run };
        opens &= run[0].range().start == first;
        let own = |w: &Word| ["I'", "I’"].iter().any(|i| w.of(text).starts_with(i));
        let real = run.iter().any(|w| w.range().len() > 1 && !own(w));
        if real && (!opens || run.len() > 1) && !(statement.heading && run.len() == 1 && opens) {
            found.push(run[0].range().start..run[run.len() - 1].range().end);
        }
        at = end;
    }
    found
}

/// A little word with a capital in the middle of a sentence: where a name was read in its place, it is a wrong one.
fn stands_as_name(text: &str, words: &[Word], at: usize) -> bool {
    let word = &words[at];
    let before = at.checked_sub(1).map(|before| &words[before]);
    let runs_on = before.is_some_and(|b| &text[b.range().end..word.range().start] == " ");
    word.upper
        && word.common
        && word.range().len() > 2
        && runs_on
        && !opens_sentence(text, word.range().start)
}

fn joined(text: &str, a: &Word, b: &Word) -> bool {
    matches!(&text[a.range().end..b.range().start], " " | "-" | ". " | "." | "’" | "'" | " & ")
}

/// Whether what stands before a place closes or opens something, so that a capital there means nothing.
fn opens_sentence(text: &str, at: usize) -> bool {
    text[..at]
        .trim_end_matches([' ', '*', '_', '"', '\'', '(', '`', '“', '['])
        .ends_with(['.', '!', '?', ':', '\n', '|', '-', '•', ')'])
}

/// Words that begin sentences and are no part of the name that follows.
fn opener(text: &str, word: &Word) -> bool {
    let openers = [
        "dear", "hi", "hello", "meet", "contact", "email", "call", "send", "sent", "visit", "invited",
        "added", "read", "posted", "thank", "yes", "no",
    ];
    word.of(text).len() < 2
        || super::status::is_deed_word(word.of(text))
        || openers.iter().any(|o| word.of(text).eq_ignore_ascii_case(o))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, ClaimKind)]) {
        let found: Vec<_> =
            extract(text).claims.into_iter().map(|c| (text[c.range].to_owned(), c.kind)).collect();
        let expected: Vec<_> = expected.iter().map(|(t, k)| ((*t).to_owned(), *k)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_sentence_holds_values_and_names() {
        check(
            "You owe Emma Johnson $50 for lunch on May 3.",
            &[("Emma Johnson", ClaimKind::Name), ("$50", ClaimKind::Money), ("May 3", ClaimKind::Date)],
        );
        check(
            "The file is 'notes-1.txt' and says \"all is well\".",
            &[("notes-1.txt", ClaimKind::Id), ("all is well", ClaimKind::Quote)],
        );
    }

    #[test]
    fn what_numbers_the_answer_itself_is_no_claim() {
        check("1. In step 2 of the plan two of them agreed.", &[]);
        check("**Start Time:** 8 AM", &[("8 AM", ClaimKind::Time)]);
    }

    #[test]
    fn sides_of_a_range_are_told_apart() {
        let sides = |text: &str| extract(text).claims.iter().map(|c| c.side).collect::<Vec<_>>();
        assert_eq!(sides("Time: 10:00 AM - 11:00 AM"), [Some("start"), Some("end")]);
        assert_eq!(sides("It runs from 9:00 to 9:30."), [Some("start"), Some("end")]);
        assert_eq!(sides("It is at 9:00."), [None]);
    }
}
