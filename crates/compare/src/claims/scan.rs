//! Values in a text, each with its byte range, brought to one form: the same scanner reads what a model said and
//! what it had read, so the two can be compared. It never guesses at names; those are words, not values.

use super::amount::{self, Amount, Unit};
use super::moment::{self, Date, Time};
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

/// A value that can be compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Value {
    Amount(Amount),
    Date(Date),
    Time(Time),
    /// Monday is 0.
    Weekday(u8),
    Email(String),
    Url(String),
    /// An account number, hash, ticket, file name: letters with digits or an extension.
    Id(String),
}

impl Value {
    /// Whether what was read says this.
    pub(crate) fn said_by(&self, read: &Value) -> bool {
        match (self, read) {
            (Self::Amount(said), Self::Amount(read)) => said.said_by(read),
            (Self::Date(said), Self::Date(read)) => said.agrees(read),
            (Self::Time(said), Self::Time(read)) => said.agrees(read),
            // a year alone
            (Self::Amount(said), Self::Date(read)) => {
                said.unit.is_none() && read.year.is_some_and(|y| f64::from(y) == said.value)
            }
            (Self::Date(said), Self::Amount(read)) => {
                said.month.is_none() && said.year.is_some_and(|y| f64::from(y) == read.value)
            }
            (said, read) => said == read,
        }
    }

    /// The same for equal values.
    pub(crate) fn mark(&self) -> u64 {
        // fixed keys: reports do not depend on the process
        let mut hasher = DefaultHasher::new();
        std::mem::discriminant(self).hash(&mut hasher);
        match self {
            Self::Amount(a) => (a.value.to_bits(), a.step.to_bits(), a.unit, a.loose).hash(&mut hasher),
            Self::Date(date) => date.hash(&mut hasher),
            Self::Time(time) => time.hash(&mut hasher),
            Self::Weekday(day) => day.hash(&mut hasher),
            Self::Email(text) | Self::Url(text) | Self::Id(text) => text.hash(&mut hasher),
        }
        hasher.finish()
    }

    /// Whether the two are of one kind, so that one could stand in the other's place.
    pub(crate) fn like(&self, other: &Value) -> bool {
        match (self, other) {
            (Self::Id(a), Self::Id(b)) => {
                let files = a.contains('.') && b.contains('.');
                files || a.contains('.') == b.contains('.') && a.len() < 2 * b.len() && b.len() < 2 * a.len()
            }
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    pub(crate) range: Range<usize>,
    pub(crate) value: Value,
}

/// Every value of `text`, in order and without overlap.
pub(crate) fn scan(text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = next_token(text, at) {
        let token = token_at(text, start);
        match read(text, start, token) {
            Some((value, end)) => {
                found.push(Found { range: start..end, value });
                at = end;
            }
            None => at = start + plain_run(token),
        }
    }
    found
}

/// The next place a value could begin: a letter, digit or currency sign that no letter or digit precedes.
fn next_token(text: &str, from: usize) -> Option<usize> {
    text.get(from..)?
        .char_indices()
        .find(|(_, c)| c.is_alphanumeric() || "$€£¥₹".contains(*c))
        .map(|(at, _)| from + at)
}

/// From `start` to the next white space, without the punctuation that closes a sentence or a quote.
fn token_at(text: &str, start: usize) -> &str {
    let rest = &text[start..];
    let end =
        rest.find(|c: char| c.is_whitespace() || "\"'`<>|{}()[]*,;’”“".contains(c)).unwrap_or(rest.len());
    rest[..end].trim_end_matches(['.', ':', '!', '?', '_', '~', '-', '/'])
}

/// How far to go on when a token is no value: past its first run of letters and digits.
fn plain_run(token: &str) -> usize {
    let run = token.find(|c: char| !c.is_alphanumeric()).unwrap_or(token.len());
    run.max(token.chars().next().map_or(1, char::len_utf8))
}

fn read(text: &str, start: usize, token: &str) -> Option<(Value, usize)> {
    let first = token.chars().next().or_else(|| text[start..].chars().next())?;
    if let Some(sign) = amount::currency(first.encode_utf8(&mut [0; 4])).filter(|_| !first.is_alphabetic()) {
        return money_after(text, start + first.len_utf8(), sign);
    }
    if let Some(web) = address(token) {
        // only the part before a Markdown link's closing bracket was taken, so the whole token is the address
        return Some((web, start + token.len()));
    }
    if first.is_ascii_digit() {
        return timed(text, start)
            .or_else(|| identifier(token).map(|(id, n)| (id, start + n)))
            .or_else(|| number(text, start));
    }
    named_date(text, start)
        .or_else(|| identifier(token).map(|(id, n)| (id, start + n)))
        .or_else(|| coded_money(text, start))
        .or_else(|| spelled(text, start))
}

fn address(token: &str) -> Option<Value> {
    let lower = || token.to_ascii_lowercase();
    if let Some((user, host)) = token.split_once('@') {
        return (!user.is_empty() && host.contains('.') && !host.contains('@'))
            .then(|| Value::Email(lower()));
    }
    let bare = token.strip_prefix("https://").or_else(|| token.strip_prefix("http://"));
    let url =
        |rest: &str| Value::Url(rest.trim_start_matches("www.").trim_end_matches('/').to_ascii_lowercase());
    match bare {
        Some(rest) if rest.contains('.') || rest.starts_with("localhost") => Some(url(rest)),
        None if token.starts_with("www.") => Some(url(token)),
        None => {
            let host = token.split('/').next()?;
            let (_, top) = host.rsplit_once('.')?;
            ["com", "org", "net", "io", "dev", "gov", "edu"].contains(&top).then(|| url(token))
        }
        Some(_) => None,
    }
}

/// Letters and digits in one word, or a file name. Returns how much of the token it is.
fn identifier(token: &str) -> Option<(Value, usize)> {
    let run =
        token.find(|c: char| !(c.is_ascii_alphanumeric() || "-_./#".contains(c))).unwrap_or(token.len());
    let word = token[..run].trim_end_matches(['.', '-', '_', '/', '#']);
    let has = |f: fn(&u8) -> bool| word.as_bytes().iter().any(f);
    let (digit, letter) = (has(u8::is_ascii_digit), has(u8::is_ascii_alphabetic));
    let file = word.rsplit_once('.').is_some_and(|(stem, ext)| {
        stem.len() > 1
            && (2..=5).contains(&ext.len())
            && ext.bytes().all(|b| b.is_ascii_alphanumeric())
            && ext.bytes().any(|b| b.is_ascii_lowercase())
            && has(u8::is_ascii_alphabetic)
            && !ext.bytes().next().is_some_and(|b| b.is_ascii_uppercase())
    });
    let padded = word.len() > 1 && word.starts_with('0') && word.bytes().all(|b| b.is_ascii_digit());
    let code = padded || digit && letter && word.len() >= 3 && !measured(word) && !ordinal(word);
    let long_digits = digit
        && !letter
        && word.len() >= 9
        && word.bytes().filter(u8::is_ascii_digit).count() >= 9
        && !word.contains('.');
    (file || code || long_digits).then(|| (Value::Id(word.to_ascii_lowercase()), word.len()))
}

/// `10kg`, `5min`, `3x`, `7.2%`: a number with its unit, not a code.
fn measured(word: &str) -> bool {
    amount::digits(word).is_some_and(|(_, _, n)| {
        let tail = word[n..].to_ascii_lowercase();
        amount::unit_of(&tail).is_some()
            || amount::scale_of(&tail).is_some()
            || ["am", "pm", "x", "m", "b"].contains(&tail.as_str())
            || tail.starts_with('-')
    })
}

pub(crate) fn ordinal(word: &str) -> bool {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    (1..=2).contains(&digits) && ["st", "nd", "rd", "th"].contains(&&*word[digits..].to_ascii_lowercase())
}

fn timed(text: &str, start: usize) -> Option<(Value, usize)> {
    let rest = &text[start..];
    if let Some((date, took)) = moment::numeric_date(rest) {
        return Some((Value::Date(date), start + took));
    }
    if let Some((time, took)) = moment::clock(rest) {
        return Some((Value::Time(time), start + took));
    }
    day_first(text, start)
}

/// `15 May 2024`, `15th of May`, and `18th` alone after a weekday.
fn day_first(text: &str, start: usize) -> Option<(Value, usize)> {
    let rest = &text[start..];
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let day = rest[..digits].parse::<u32>().ok().filter(|d| digits <= 2 && (1..=31).contains(d))?;
    let mut at = digits;
    let suffixed =
        rest.get(at..at + 2).is_some_and(|s| ["st", "nd", "rd", "th"].contains(&&*s.to_ascii_lowercase()));
    at += if suffixed { 2 } else { 0 };
    let after = rest[at..].trim_start_matches(' ');
    let after = after.strip_prefix("of ").unwrap_or(after);
    let word: &str = leading_word(after);
    if let Some(month) = moment::month(word).filter(|_| after.starts_with(char::is_uppercase)) {
        let mut end = start + rest.len() - after.len() + word.len();
        let year = year_after(text, end);
        end = year.map_or(end, |(_, e)| e);
        return moment::calendar(year.map(|(y, _)| y), u32::from(month), day, false)
            .map(|d| (Value::Date(d), end));
    }
    let alone = Date { year: None, month: None, day: u8::try_from(day).ok(), either_way: false };
    // "the 3rd" is a day of a month only if something says so; a weekday just before does
    (suffixed && weekday_before(text, start)).then_some((Value::Date(alone), start + at))
}

fn weekday_before(text: &str, start: usize) -> bool {
    let before = text[..start].trim_end_matches([' ', ',']);
    let before = before.strip_suffix(" the").unwrap_or(before);
    before.rsplit(|c: char| !c.is_alphabetic()).next().is_some_and(|w| moment::weekday(w).is_some())
}

fn leading_word(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_alphabetic()).unwrap_or(text.len())]
}

fn year_after(text: &str, at: usize) -> Option<(u32, usize)> {
    let rest = &text[at..];
    let skip = rest.len() - rest.trim_start_matches(['.', ',', ' ']).len();
    let (year, took) =
        moment::whole(&rest[skip..], 4).filter(|(y, n)| *n == 4 && (1500..2200).contains(y))?;
    (skip <= 2 && !rest[skip + took..].starts_with(':')).then_some((year, at + skip + took))
}

/// `May 15th, 2024`, `May 2024`, `Saturday`.
fn named_date(text: &str, start: usize) -> Option<(Value, usize)> {
    let word = leading_word(&text[start..]);
    if !word.starts_with(char::is_uppercase) || word.len() < 3 || word.len() > 9 {
        return None;
    }
    let mut end = start + word.len();
    if let Some(day) = moment::weekday(word) {
        return Some((Value::Weekday(day), end));
    }
    let month = moment::month(word)?;
    if let Some((year, end)) = year_after(text, end) {
        let date = Date { year: i16::try_from(year).ok(), month: Some(month), day: None, either_way: false };
        return Some((Value::Date(date), end));
    }
    let rest = text[end..].trim_start_matches(['.', ' ']);
    end = text.len() - rest.len();
    let (day, took) = moment::whole(rest, 2)?;
    end += took;
    if text.get(end..end + 2).is_some_and(|s| ["st", "nd", "rd", "th"].contains(&&*s.to_ascii_lowercase())) {
        end += 2;
    }
    if text[end..].starts_with(char::is_alphanumeric) {
        return None;
    }
    let year = year_after(text, end);
    let date = moment::calendar(year.map(|(y, _)| y), u32::from(month), day, false)?;
    Some((Value::Date(date), year.map_or(end, |(_, e)| e)))
}

fn money_after(text: &str, at: usize, code: [u8; 3]) -> Option<(Value, usize)> {
    let skip = usize::from(text[at..].starts_with(' '));
    let (value, end) = number(text, at + skip)?;
    let Value::Amount(mut amount) = value else { return None };
    amount.unit = Some(Unit::Money(code));
    Some((Value::Amount(amount), end))
}

/// `USD 50`.
fn coded_money(text: &str, start: usize) -> Option<(Value, usize)> {
    let word = leading_word(&text[start..]);
    let code = (word.len() == 3).then(|| amount::currency(&word.to_ascii_lowercase()))??;
    text[start + 3..].starts_with(' ').then(|| money_after(text, start + 4, code))?
}

/// Digits, then perhaps a scale and a unit.
fn number(text: &str, start: usize) -> Option<(Value, usize)> {
    let (value, step, took) = amount::digits(&text[start..])?;
    let end = start + took;
    if text[end..].starts_with(char::is_alphabetic) && !measured(token_at(text, start)) {
        return None;
    }
    let sign = if below_zero(text, start) { -1.0 } else { 1.0 };
    let mut amount = Amount { value: value * sign, step, unit: None, loose: hedged_before(text, start) };
    let mut end = with_unit(text, end, &mut amount);
    // 1 hour and 30 minutes are one stretch of time
    while amount.unit == Some(Unit::Seconds)
        && let Some((more, to)) = finer_part(text, end, &amount)
    {
        (amount.value, amount.step, end) = (amount.value + more.value, more.step, to);
    }
    Some((Value::Amount(amount), end))
}

/// The next part of a stretch of time, which counts in a smaller unit.
fn finer_part(text: &str, end: usize, so_far: &Amount) -> Option<(Amount, usize)> {
    let rest = &text[end..];
    let joint = [", and ", " and ", ", ", " "].iter().find(|joint| rest.starts_with(**joint))?;
    let start = end + joint.len();
    let (value, step, took) = amount::digits(text.get(start..)?)?;
    let mut more = Amount { value, step, unit: None, loose: false };
    let to = with_unit(text, start + took, &mut more);
    (more.unit == so_far.unit && more.value < so_far.step).then_some((more, to))
}

/// A minus sign before it, unless that is a dash: `10-20`, `May 3 - 5`, `- 5 items`.
fn below_zero(text: &str, start: usize) -> bool {
    let before = &text[..start];
    let Some(rest) = before.strip_suffix('-').or_else(|| before.strip_suffix('−')) else { return false };
    rest.is_empty() || rest.ends_with([' ', '(', ':', '"', '[', ',', '=', '$', '\n'])
}

fn with_unit(text: &str, mut end: usize, amount: &mut Amount) -> usize {
    for _ in 0..2 {
        let rest = &text[end..];
        let skip = usize::from(rest.starts_with([' ', '-']));
        let word = unit_word(&rest[skip..]);
        if word.is_empty() || word.len() > 12 {
            break;
        }
        let lower = word.to_lowercase();
        if let Some(scale) = amount::scale_of(&lower) {
            amount.value *= scale;
            amount.step *= scale;
        } else if let Some((unit, factor)) =
            amount::unit_of(&lower).filter(|_| skip == 0 || word.len() > 1 || word == "%")
        {
            amount.value *= factor;
            amount.step *= factor;
            amount.unit = Some(unit);
            return end + skip + word.len();
        } else {
            break;
        }
        end += skip + word.len();
    }
    end
}

fn unit_word(text: &str) -> &str {
    let first = text.chars().next().filter(|c| "%$€£¥₹".contains(*c));
    match first {
        Some(sign) => &text[..sign.len_utf8()],
        None => {
            let run = text.find(|c: char| !(c.is_alphabetic() || c == '°')).unwrap_or(text.len());
            &text[..run]
        }
    }
}

fn hedged_before(text: &str, start: usize) -> bool {
    let before = text[..start].trim_end_matches([' ', '$', '€', '£']);
    let word = before.rsplit(|c: char| c.is_whitespace()).next().unwrap_or_default().to_ascii_lowercase();
    before.ends_with(['~', '≈'])
        || ["about", "around", "approximately", "roughly", "nearly", "almost", "approx.", "over", "some"]
            .contains(&&*word)
}

/// `three`, `twenty-three`, `two hundred and five`; "one" alone is more often a pronoun than a number.
fn spelled(text: &str, start: usize) -> Option<(Value, usize)> {
    let first = leading_word(&text[start..]);
    if first.len() > 9 || first.len() < 3 || !first.is_ascii() {
        return None;
    }
    amount::spelled(&[&first.to_ascii_lowercase()])?;
    let mut words: Vec<(String, usize)> = Vec::new();
    let mut at = start;
    while words.len() < 8 {
        let word = leading_word(&text[at..]);
        if word.is_empty() {
            break;
        }
        at += word.len();
        words.push((word.to_ascii_lowercase(), at));
        if !text[at..].starts_with([' ', '-']) {
            break;
        }
        at += 1;
    }
    let plain: Vec<&str> = words.iter().map(|(w, _)| w.as_str()).collect();
    let (value, took) = amount::spelled(&plain)?;
    if took == 1 && plain[0] == "one" {
        return None;
    }
    let mut amount = Amount { loose: hedged_before(text, start), ..Amount::plain(value) };
    let end = with_unit(text, words[took - 1].1, &mut amount);
    Some((Value::Amount(amount), end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let found: Vec<(String, String)> =
            scan(text).into_iter().map(|f| (text[f.range].to_owned(), say(&f.value))).collect();
        let expected: Vec<(String, String)> =
            expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(found, expected, "{text}");
    }

    fn say(value: &Value) -> String {
        match value {
            Value::Amount(a) => format!("{}{}", a.value, a.unit.map_or(String::new(), |u| format!(" {u:?}"))),
            Value::Date(d) => format!("{}-{}-{}", part(d.year), part(d.month), part(d.day)),
            Value::Time(t) => format!("{:02}:{:02}", t.minute / 60, t.minute % 60),
            Value::Weekday(d) => moment::weekday_name(*d).into(),
            Value::Email(s) | Value::Url(s) | Value::Id(s) => s.clone(),
        }
    }

    fn part<T: ToString>(part: Option<T>) -> String {
        part.map_or("?".into(), |p| p.to_string())
    }

    #[test]
    fn dates_and_times_are_read_in_any_dress() {
        check("on May 15th, 2024 at 10:00 AM", &[("May 15th, 2024", "2024-5-15"), ("10:00 AM", "10:00")]);
        check("start: 2024-05-15 10:00:00", &[("2024-05-15", "2024-5-15"), ("10:00:00", "10:00")]);
        check("Saturday 18th, 3 June", &[("Saturday", "saturday"), ("18th", "?-?-18"), ("3 June", "?-6-3")]);
        check("You may go in May 2024.", &[("May 2024", "2024-5-?")]);
    }

    #[test]
    fn amounts_have_units() {
        check("$1,810.00 and 7.2%", &[("$1,810.00", "1810 Money([117, 115, 100])"), ("7.2%", "7.2 Percent")]);
        check(
            "about 1.2 million of 5 km, three files",
            &[("1.2 million", "1200000"), ("5 km", "5000 Metres"), ("three", "3")],
        );
        check("twenty-three of them, one more", &[("twenty-three", "23")]);
        check("-5, 10-20", &[("5", "-5"), ("10", "10"), ("20", "20")]);
    }

    #[test]
    fn addresses_and_ids_stay_whole() {
        check("Mail emma.j@example.com.", &[("emma.j@example.com", "emma.j@example.com")]);
        check("[x](https://Example.com/a?b=1)", &[("https://Example.com/a?b=1", "example.com/a?b=1")]);
        check(
            "IBAN US133000000121212121212, key 1a7b3d, 'notes-1.txt'",
            &[
                ("US133000000121212121212", "us133000000121212121212"),
                ("1a7b3d", "1a7b3d"),
                ("notes-1.txt", "notes-1.txt"),
            ],
        );
    }

    proptest! {
        #[test]
        fn any_text_is_scanned_on_character_boundaries(text in "(?s).{0,60}|[0-9$%:./ -]{0,24}|(May|1[0-9]:|€|th|,|\\.|é| |5){0,12}") {
            let mut last = 0;
            for found in scan(&text) {
                prop_assert!(found.range.start >= last && text.get(found.range.clone()).is_some_and(|t| !t.is_empty()));
                last = found.range.end;
            }
        }
    }
}
