//! Dates and times of day as people and machines write them. A part that was not written stays unknown: "May 15"
//! has no year, and agrees with every year's.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Date {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub year: Option<i16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub month: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<u8>,
    /// `03/04/2024`: day and month may be the other way round.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub either_way: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Time {
    pub minute: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<u8>,
    /// Written on a twelve-hour clock without saying which half.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub half_unknown: bool,
}

impl Date {
    /// Whether no part that both wrote differs, and enough was written by both to say so.
    pub(crate) fn agrees(&self, other: &Date) -> bool {
        let same = |a: &Date, b: &Date| {
            let parts = [same_part(a.year, b.year), same_part(a.month, b.month), same_part(a.day, b.day)];
            let shared = parts.iter().filter(|p| **p == Some(true)).count();
            let written =
                [a.year.is_some(), a.month.is_some(), a.day.is_some()].iter().filter(|w| **w).count();
            parts.iter().all(|p| *p != Some(false)) && shared >= written.min(2)
        };
        same(self, other)
            || (self.either_way && same(&self.turned(), other))
            || (other.either_way && same(self, &other.turned()))
    }

    fn turned(&self) -> Date {
        Date { month: self.day, day: self.month, ..*self }
    }

    /// Monday is 0. Nothing where a part is missing or no such day exists.
    pub(crate) fn weekday(&self) -> Option<u8> {
        let (y, m, d) = (i32::from(self.year?), i32::from(self.month?), i32::from(self.day?));
        let (y, m) = if m <= 2 { (y - 1, m + 12) } else { (y, m) };
        u8::try_from(
            (d + 13 * (m + 1) / 5 + y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + 5)
                .rem_euclid(7),
        )
        .ok()
    }
}

impl Time {
    pub(crate) fn agrees(&self, other: &Time) -> bool {
        let half = self.half_unknown || other.half_unknown;
        let close = self.minute == other.minute || (half && self.minute % 720 == other.minute % 720);
        close && same_part(self.second, other.second) != Some(false)
    }
}

fn same_part<T: PartialEq>(a: Option<T>, b: Option<T>) -> Option<bool> {
    Some(a? == b?)
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// A month by name or abbreviation.
pub(crate) fn month(word: &str) -> Option<u8> {
    let word = word.trim_end_matches('.').to_ascii_lowercase();
    let short = |m: &&&str| {
        word == **m || (word.len() == 3 && m.starts_with(&word)) || (word == "sept" && **m == "september")
    };
    MONTHS
        .iter()
        .find(short)
        .and_then(|m| MONTHS.iter().position(|n| n == m))
        .and_then(|i| u8::try_from(i + 1).ok())
}

pub(crate) fn weekday(word: &str) -> Option<u8> {
    let word = word.to_ascii_lowercase();
    DAYS.iter().position(|d| *d == word).and_then(|i| u8::try_from(i).ok())
}

pub(crate) fn weekday_name(day: u8) -> &'static str {
    DAYS.get(usize::from(day)).copied().unwrap_or("?")
}

/// `2024-05-15`, `2024/5/15`, `15.05.2024`, `05/15/2024` at the start of `text`; also how many bytes it took.
pub(crate) fn numeric_date(text: &str) -> Option<(Date, usize)> {
    let (a, one) = whole(text, 4)?;
    let sep = *text.as_bytes().get(one).filter(|b| b"-/.".contains(b))?;
    let (b, two) = whole(text.get(one + 1..)?, 2)?;
    let third = one + 1 + two;
    if text.as_bytes().get(third) != Some(&sep) {
        return None;
    }
    let (c, three) = whole(text.get(third + 1..)?, 4)?;
    let end = third + 1 + three;
    // the clock of `2024-05-15T10:00` may follow at once, another digit or letter may not
    if text.as_bytes().get(end).is_some_and(|b| b.is_ascii_alphanumeric() && *b != b'T') {
        return None;
    }
    let date = match (one, three) {
        (4, 1..=2) => calendar(Some(a), b, c, false),
        (1..=2, 4) if sep == b'.' => calendar(Some(c), b, a, false),
        (1..=2, 4) if a > 12 => calendar(Some(c), b, a, false),
        (1..=2, 4) => calendar(Some(c), a, b, b <= 12 && a != b),
        (1..=2, 2) if sep == b'/' => calendar(Some(2000 + c), a, b, b <= 12 && a != b),
        _ => None,
    }?;
    Some((date, end))
}

/// `10:00`, `9:30 pm`, `08:00:00`, `8 AM` at the start of `text`; also how many bytes it took.
pub(crate) fn clock(text: &str) -> Option<(Time, usize)> {
    let (hour, mut at) = whole(text, 2)?;
    let (mut minute, mut second, mut coloned) = (0, None, false);
    if text.as_bytes().get(at) == Some(&b':')
        && let Some((m, took)) = whole(text.get(at + 1..)?, 2)
    {
        if took != 2 || m > 59 {
            return None;
        }
        (minute, at, coloned) = (m, at + 3, true);
        if text.as_bytes().get(at) == Some(&b':')
            && let Some((s, 2)) = whole(text.get(at + 1..)?, 2)
        {
            if s > 59 {
                return None;
            }
            (second, at) = (u8::try_from(s).ok(), at + 3);
            let fraction = text
                .get(at..)?
                .strip_prefix('.')
                .map_or(0, |f| f.bytes().take_while(u8::is_ascii_digit).count());
            at += if fraction > 0 { fraction + 1 } else { 0 };
        }
    }
    let half = half_of_day(text.get(at..)?);
    if !coloned && half.is_none() || hour > 23 || (half.is_some() && !(1..=12).contains(&hour)) {
        return None;
    }
    let hour = half.map_or(hour, |(pm, _)| hour % 12 + if pm { 12 } else { 0 });
    at += half.map_or(0, |(_, took)| took);
    if text.as_bytes().get(at).is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let minute = u16::try_from(hour * 60 + minute).ok()?;
    Some((
        Time { minute, second, half_unknown: half.is_none() && second.is_none() && (1..=12).contains(&hour) },
        at,
    ))
}

fn half_of_day(text: &str) -> Option<(bool, usize)> {
    let gap = usize::from(text.starts_with(' '))
        + if text.starts_with('\u{202f}') || text.starts_with('\u{a0}') {
            text.chars().next()?.len_utf8()
        } else {
            0
        };
    let rest = text.get(gap..)?;
    for (mark, pm) in [("a.m.", false), ("p.m.", true), ("am", false), ("pm", true)] {
        let Some(start) = rest.get(..mark.len()) else { continue };
        if start.eq_ignore_ascii_case(mark) && !rest[mark.len()..].starts_with(char::is_alphanumeric) {
            return Some((pm, gap + mark.len()));
        }
    }
    None
}

/// A date from its parts, if there is such a day.
pub(crate) fn calendar(year: Option<u32>, month: u32, day: u32, either_way: bool) -> Option<Date> {
    if !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || year.is_some_and(|y| !(1000..=2999).contains(&y))
    {
        return None;
    }
    Some(Date {
        year: year.and_then(|y| i16::try_from(y).ok()),
        month: u8::try_from(month).ok(),
        day: u8::try_from(day).ok(),
        either_way,
    })
}

/// Up to `most` digits that no further digit follows.
pub(crate) fn whole(text: &str, most: usize) -> Option<(u32, usize)> {
    let took = text.bytes().take_while(u8::is_ascii_digit).count();
    (1..=most).contains(&took).then(|| text[..took].parse().ok().map(|n| (n, took)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(y: i16, m: u8, d: u8) -> Date {
        Date { year: Some(y), month: Some(m), day: Some(d), either_way: false }
    }

    #[test]
    fn dates_are_read_as_written() {
        let check = |text, expected| assert_eq!(numeric_date(text), expected, "{text}");
        check("2024-05-15 10:00", Some((day(2024, 5, 15), 10)));
        check("2024-05-15T10:00Z", Some((day(2024, 5, 15), 10)));
        check("15.05.2024", Some((day(2024, 5, 15), 10)));
        check("3/4/2024", Some((Date { either_way: true, ..day(2024, 3, 4) }, 8)));
        check("2024-13-15", None);
        check("192.168.10.1", None);
        check("1.2.3", None);
    }

    #[test]
    fn clocks_have_halves() {
        let check = |text, minute: u16, half_unknown, took| {
            let (time, n) = clock(text).unwrap();
            assert_eq!((time.minute, time.half_unknown, n), (minute, half_unknown, took), "{text}");
        };
        check("9:30 PM.", 21 * 60 + 30, false, 7);
        check("8 AM", 480, false, 4);
        check("12 a.m.", 0, false, 7);
        check("10:00:00.123", 600, false, 12);
        check("9:30", 570, true, 4);
        assert!(clock("25:00").is_none() && clock("8").is_none() && clock("10:5").is_none());
        assert!(clock("9:30").unwrap().0.agrees(&clock("21:30:00").unwrap().0));
        assert!(!clock("9:30 am").unwrap().0.agrees(&clock("21:30").unwrap().0));
    }

    #[test]
    fn what_is_not_written_is_not_disagreed_with() {
        let no_year = Date { year: None, ..day(0, 5, 15) };
        assert!(no_year.agrees(&day(2024, 5, 15)));
        assert!(!no_year.agrees(&day(2024, 5, 16)));
        assert!(!day(2025, 5, 15).agrees(&day(2024, 5, 15)));
    }

    #[test]
    fn a_date_has_its_weekday() {
        assert_eq!(day(2024, 5, 18).weekday().map(weekday_name), Some("saturday"));
        assert_eq!(day(2000, 2, 29).weekday().map(weekday_name), Some("tuesday"));
        assert_eq!(month("Sept."), Some(9));
    }
}
