//! The values of an answer, picked and swapped by rules of thumb that are the evaluation's own.

use crate::open::holds;
use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Number,
    Date,
    Time,
    Email,
    Url,
    Id,
    Name,
}

/// A value of the answer that a tool result holds as well, so that it is known to be true.
#[derive(Debug, Clone)]
pub struct Picked {
    pub kind: Kind,
    pub range: Range<usize>,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The values of a text, by rules of thumb.
pub fn pick(text: &str) -> Vec<Picked> {
    let mut found = Vec::new();
    let mut skip = 0;
    let opened = text.match_indices("<thinking>").map(|(at, _)| at);
    let thinking: Vec<Range<usize>> =
        opened.map(|at| at..text[at..].find("</thinking>").map_or(text.len(), |e| at + e)).collect();
    let tokens: Vec<Range<usize>> = tokens(text);
    for (i, range) in tokens.iter().enumerate() {
        if range.start < skip {
            continue;
        }
        let token = &text[range.clone()];
        if let Some(month) = MONTHS.iter().position(|m| *m == token)
            && let Some(day) = tokens.get(i + 1)
            && month < 12
            && text[day.clone()].starts_with(|c: char| c.is_ascii_digit())
            && text[day.clone()].len() <= 4
        {
            let year = tokens.get(i + 2).filter(|y| {
                text[(*y).clone()].len() == 4
                    && text[(*y).clone()].parse::<u16>().is_ok()
                    && y.start - day.end <= 2
            });
            let whole = range.start..year.map_or(day.end, |y| y.end);
            skip = whole.end;
            found.push(Picked { kind: Kind::Date, range: whole });
            continue;
        }
        let line = text[..range.start].rfind('\n').map_or(0, |n| n + 1);
        let opens = text[line..range.start].trim_matches(['-', '*', ' ', '#', '"', '\'', '`']).is_empty();
        let marker = opens && text[range.end..].starts_with(['.', ')']) && token.len() < 3;
        let label = text[range.end..].trim_start_matches('*').starts_with(':');
        let grouped = text[..range.start].ends_with(',')
            || text[range.end..].starts_with(',')
                && text[range.end + 1..].starts_with(|c: char| c.is_ascii_digit());
        let thought = thinking.iter().any(|t| t.contains(&range.start));
        if marker || label || grouped || thought {
            continue;
        }
        if let Some(kind) = kind_of(token, &text[..range.start]) {
            let clock = kind == Kind::Time
                && (text[range.end..].starts_with(" AM") || text[range.end..].starts_with(" PM"));
            found.push(Picked { kind, range: range.start..range.end + if clock { 3 } else { 0 } });
        }
    }
    found
}

fn tokens(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        let breaks = c.is_whitespace() || "()[]\"'`*,;|<>$€£".contains(c);
        match (start, breaks) {
            (None, false) => start = Some(at),
            (Some(from), true) => {
                let token = text[from..at].trim_end_matches(['.', ':', '!', '?']);
                if !token.is_empty() {
                    found.push(from..from + token.len());
                }
                start = None;
            }
            _ => {}
        }
    }
    found
}

fn kind_of(token: &str, before: &str) -> Option<Kind> {
    let bytes = token.as_bytes();
    let digits = bytes.iter().filter(|b| b.is_ascii_digit()).count();
    let letters = bytes.iter().filter(|b| b.is_ascii_alphabetic()).count();
    if token.contains('@') && token.contains('.') {
        return Some(Kind::Email);
    }
    if token.starts_with("http") || token.starts_with("www.") {
        return Some(Kind::Url);
    }
    if digits == 8 && bytes.len() == 10 && bytes[4] == b'-' && bytes[7] == b'-' {
        return Some(Kind::Date);
    }
    if letters == 0 && digits >= 3 && bytes.len() <= 8 && token.contains(':') {
        return Some(Kind::Time);
    }
    let plain = digits > 0 && letters == 0 && bytes.iter().all(|b| b.is_ascii_digit() || *b == b'.');
    if plain {
        return Some(Kind::Number);
    }
    let file = token.rsplit_once('.').is_some_and(|(a, b)| {
        a.len() > 2 && (3..=4).contains(&b.len()) && b.bytes().all(|c| c.is_ascii_lowercase())
    });
    if (digits > 0 && letters > 0 && token.len() >= 6 && token.bytes().all(|b| b.is_ascii_alphanumeric()))
        || file
    {
        return Some(Kind::Id);
    }
    let name = token.len() >= 3
        && token.starts_with(|c: char| c.is_ascii_uppercase())
        && token[1..].bytes().all(|b| b.is_ascii_lowercase());
    let inside = before.ends_with(' ') && before.trim_end().ends_with(|c: char| c.is_ascii_lowercase());
    (name && inside && !MONTHS.contains(&token)).then_some(Kind::Name)
}

/// Whether a result holds the value, as a word of its own, in this or the machine's form.
pub fn known(kind: Kind, said: &str, read: &str) -> bool {
    forms(kind, said).iter().any(|form| holds(read, form))
}

/// As it is said, and as a machine writes it.
pub fn forms(kind: Kind, said: &str) -> Vec<String> {
    let machine = match kind {
        Kind::Date => iso_date(said),
        Kind::Time => clock(said).map(|(h, m)| format!("{h:02}:{m:02}:00")),
        Kind::Number if !said.contains('.') => Some(format!("{said}.0")),
        Kind::Number => said.strip_suffix(".00").map(|whole| format!("{whole}.0")),
        _ => None,
    };
    std::iter::once(said.to_owned()).chain(machine).collect()
}

fn iso_date(said: &str) -> Option<String> {
    let mut parts = said.split([' ', ',']).filter(|p| !p.is_empty());
    let month = MONTHS.iter().position(|m| Some(*m) == parts.clone().next())? + 1;
    let day: u32 = parts.nth(1)?.trim_end_matches(|c: char| c.is_alphabetic()).parse().ok()?;
    let year = parts.next()?;
    Some(format!("{year}-{month:02}-{day:02}"))
}

fn clock(said: &str) -> Option<(u32, u32)> {
    let (time, half) = said.split_once(' ').unwrap_or((said, ""));
    let (h, m) = time.split_once(':')?;
    let (h, m): (u32, u32) = (h.parse().ok()?, m.get(..2)?.parse().ok()?);
    let h = match half {
        "AM" => h % 12,
        "PM" => h % 12 + 12,
        _ => h,
    };
    (h < 24 && m < 60).then_some((h, m))
}

/// A value of the same shape that the run does not hold.
pub fn fresh(kind: Kind, said: &str, told: &str, rng: &mut fastrand::Rng) -> Option<String> {
    const NAMES: [&str; 12] = [
        "Gareth",
        "Ingrid",
        "Tobias",
        "Yusuf",
        "Priya",
        "Marguerite",
        "Dmitri",
        "Akiko",
        "Leopold",
        "Saoirse",
        "Baltimore",
        "Nairobi",
    ];
    (0..40).find_map(|_| {
        let new = match kind {
            Kind::Name => NAMES[rng.usize(..NAMES.len())].to_owned(),
            Kind::Email => format!(
                "{}.{}@{}",
                NAMES[rng.usize(..10)].to_lowercase(),
                NAMES[rng.usize(..10)].to_lowercase(),
                said.split_once('@')?.1
            ),
            Kind::Url => {
                said.replacen('.', &format!("-{}.", NAMES[rng.usize(..NAMES.len())].to_lowercase()), 1)
            }
            Kind::Time => {
                let (h, m) = clock(said)?;
                let later = (h * 60 + m + 15 * rng.u32(1..24)) % 1440;
                in_clock_form(said, later)
            }
            Kind::Date => turn_digits(said, rng, true)?,
            Kind::Number | Kind::Id => turn_digits(said, rng, false)?,
        };
        let absent = match kind {
            Kind::Date => !known(kind, &new, told) && plausible(&new),
            _ => !known(kind, &new, told) && !told.contains(&new),
        };
        (new != said && absent).then_some(new)
    })
}

fn plausible(date: &str) -> bool {
    let iso = iso_date(date).unwrap_or_else(|| date.to_owned());
    let mut parts = iso.split('-').skip(1).map_while(|p| p.parse::<u32>().ok());
    let named = parts.next().zip(parts.next()).map(|(m, d)| (1..=12).contains(&m) && (1..=28).contains(&d));
    named.unwrap_or_else(|| {
        date.split(' ')
            .nth(1)
            .and_then(|d| d.trim_end_matches(|c: char| c.is_alphabetic()).parse::<u32>().ok())
            .is_some_and(|d| (1..=28).contains(&d))
    })
}

fn in_clock_form(said: &str, minutes: u32) -> String {
    let (h, m) = (minutes / 60, minutes % 60);
    match said.split_once(' ') {
        Some(_) => {
            format!("{}:{m:02} {}", if h % 12 == 0 { 12 } else { h % 12 }, if h < 12 { "AM" } else { "PM" })
        }
        None if said.len() == 8 => format!("{h:02}:{m:02}:00"),
        None => format!("{h:02}:{m:02}"),
    }
}

/// One digit made another; the last ones of a date, any of a number, a letter where there is no digit.
fn turn_digits(said: &str, rng: &mut fastrand::Rng, tail: bool) -> Option<String> {
    let mut bytes = said.as_bytes().to_vec();
    let day = said.find(' ').map(|s| s + 1);
    let places: Vec<usize> = (0..bytes.len())
        .filter(|i| bytes[*i].is_ascii_digit() && (!tail || day.map_or(*i >= 5, |d| (d..d + 2).contains(i))))
        .collect();
    if places.is_empty() {
        let letters: Vec<usize> = (0..bytes.len()).filter(|i| bytes[*i].is_ascii_lowercase()).collect();
        let at = *letters.get(rng.usize(..letters.len().max(1)))?;
        bytes[at] = b'a' + (bytes[at] - b'a' + rng.u8(1..25)) % 26;
    } else {
        let at = places[rng.usize(..places.len())];
        let low = u8::from(at == 0 || !bytes[at - 1].is_ascii_digit());
        bytes[at] = b'0' + rng.u8(low..10);
    }
    String::from_utf8(bytes).ok()
}

/// Another value of the kind from the run's results, in the form of the one it replaces.
pub fn elsewhere(kind: Kind, said: &str, read: &str, rng: &mut fastrand::Rng) -> Option<String> {
    let mut others: Vec<String> = tokens(read)
        .into_iter()
        .filter(|r| {
            kind_of(&read[r.clone()], &read[..r.start]) == Some(kind)
                || (kind == Kind::Date && kind_of(&read[r.clone()], "") == Some(kind))
        })
        .filter_map(|r| in_form(kind, said, &read[r]))
        .filter(|new| !same(kind, new, said))
        .collect();
    others.sort();
    others.dedup();
    (!others.is_empty()).then(|| others.swap_remove(rng.usize(..others.len())))
}

/// The same value, perhaps in another dress.
pub fn same(kind: Kind, a: &str, b: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    let date = |text: &str| iso_date(text).unwrap_or_else(|| text.to_owned());
    a.eq_ignore_ascii_case(b)
        || match kind {
            Kind::Number => number(a).is_some() && number(a) == number(b),
            Kind::Date => date(a) == date(b),
            Kind::Time => clock(a).is_some() && clock(a) == clock(b),
            _ => false,
        }
}

fn in_form(kind: Kind, said: &str, other: &str) -> Option<String> {
    match kind {
        Kind::Date if said.contains(' ') => {
            let mut parts = other.split('-');
            let year = parts.next()?;
            let month: usize = parts.next()?.parse().ok()?;
            let day: u32 = parts.next()?.parse().ok()?;
            let name = MONTHS.get(month.checked_sub(1)?)?;
            let tail = if said.rsplit(' ').next()?.len() == 4 && said.len() > 9 {
                format!(", {year}")
            } else {
                String::new()
            };
            Some(format!("{name} {day}{tail}"))
        }
        Kind::Time => clock(other).map(|(h, m)| in_clock_form(said, h * 60 + m)),
        _ => Some(other.to_owned()),
    }
}
