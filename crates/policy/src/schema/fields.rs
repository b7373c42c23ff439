//! Fields that several tables have.

use crate::glob::{GlobError, PathPattern, Pattern};
use crate::host::{HostPattern, Hosts};
use crate::json::{Field, Want};
use crate::mistake::{Mistake, nearest};
use crate::read::{At, Notes, Table, to_json};
use crate::rule::{Methods, NamedText};
use cofferdam_model::Span;
use serde_json::Value as Json;
use std::time::Duration;

/// What is written, or an empty id that stands for a mistake already noted.
pub(super) fn id(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<String> {
    let Some(id) = table.string("id", notes) else {
        if !table.has("id") {
            table.missing("id", "every decision names one, as in id = \"stripe-read\"", notes);
        }
        return None;
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if id.value.is_empty() || id.value.len() > 100 || !id.value.chars().all(fits) {
        notes.wrong(id.spot, table.field("id"), Mistake::Id(id.value.chars().take(100).collect()));
        return None;
    }
    Some(id.value)
}

/// Parses each text, noting those that are wrong.
pub(super) fn each<T, E: Into<Mistake>>(
    table: &Table<'_, '_>,
    key: &'static str,
    notes: &mut Notes<'_>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Option<Vec<T>> {
    let texts = table.strings(key, notes)?;
    let mut found = Vec::with_capacity(texts.len());
    for text in texts {
        match parse(&text.value) {
            Ok(value) => found.push(value),
            Err(error) => notes.wrong(text.spot, table.field(key), error),
        }
    }
    Some(found)
}

pub(super) fn hosts(table: &Table<'_, '_>, key: &'static str, notes: &mut Notes<'_>) -> Option<Hosts> {
    each(table, key, notes, HostPattern::parse).map(Hosts)
}

pub(super) fn paths(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<Vec<PathPattern>> {
    each(table, "paths", notes, PathPattern::parse)
}

pub(super) fn patterns(
    table: &Table<'_, '_>,
    key: &'static str,
    notes: &mut Notes<'_>,
) -> Option<Vec<Pattern>> {
    each(table, key, notes, Pattern::parse)
}

pub(super) fn methods(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<Methods> {
    let mut methods = Methods::default();
    for method in each(table, "methods", notes, method)? {
        methods.add(&method);
    }
    Some(methods)
}

/// Upper case, as they are sent.
fn method(text: &str) -> Result<String, Mistake> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    match !text.is_empty() && text.len() <= 40 && text.bytes().all(fits) {
        true => Ok(text.to_ascii_uppercase()),
        false => Err(Mistake::Method(text.chars().take(40).collect())),
    }
}

pub(super) fn ports(table: &Table<'_, '_>, notes: &mut Notes<'_>) -> Option<Vec<u16>> {
    let numbers = table.integers("port", notes)?;
    let mut ports = Vec::with_capacity(numbers.len());
    for number in numbers {
        match u16::try_from(number.value).ok().filter(|port| *port > 0) {
            Some(port) => ports.push(port),
            None => notes.wrong(number.spot, table.field("port"), Mistake::Port(number.value)),
        }
    }
    Some(ports)
}

/// One of a few words.
pub(super) fn choice<T>(
    table: &Table<'_, '_>,
    key: &'static str,
    known: &'static [&'static str],
    named: fn(&str) -> Option<T>,
    notes: &mut Notes<'_>,
) -> Option<T> {
    let word = table.string(key, notes)?;
    let found = named(&word.value);
    if found.is_none() {
        notes.wrong(word.spot, table.field(key), unknown_word(&word.value, known));
    }
    found
}

pub(super) fn unknown_word(word: &str, known: &'static [&'static str]) -> Mistake {
    match nearest(word, known.iter().copied()) {
        Some(near) => Mistake::Meant { value: word.chars().take(40).collect(), near, known },
        None => Mistake::Choice { value: word.chars().take(40).collect(), known },
    }
}

/// `headers = { name = "text" }` or a list of texts.
pub(super) fn named_texts(
    table: &Table<'_, '_>,
    key: &'static str,
    notes: &mut Notes<'_>,
    name: impl Fn(&str) -> Result<String, Mistake>,
) -> Vec<NamedText> {
    let mut found = Vec::new();
    for (entry, value) in table.entries(key, notes).unwrap_or_default() {
        let field = format!("{}.{}", table.field(key), entry.value);
        let mut texts = Vec::new();
        for item in list(to_json(value.get_ref())) {
            let text = match &item {
                Json::String(text) => text.clone(),
                Json::Number(number) => number.to_string(),
                Json::Bool(flag) => flag.to_string(),
                _ => {
                    let found = value.get_ref().type_str();
                    notes.wrong(
                        entry.spot,
                        &field,
                        Mistake::Type { want: "a string or a list of strings", found },
                    );
                    continue;
                }
            };
            match Pattern::parse(&text) {
                Ok(pattern) => texts.push(pattern),
                Err(error) => notes.wrong(entry.spot, &field, error),
            }
        }
        match name(&entry.value) {
            Ok(name) if !texts.is_empty() => found.push(NamedText { name, texts }),
            Ok(_) => {}
            Err(mistake) => notes.wrong(entry.spot, &field, mistake),
        }
    }
    found
}

/// Lower case, as they are compared.
pub(super) fn header_name(text: &str) -> Result<String, Mistake> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match !text.is_empty() && text.bytes().all(fits) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(Mistake::HeaderName(text.chars().take(40).collect())),
    }
}

/// `body = { model = ["a", "b*"], "user.id" = 7 }`.
pub(super) fn json_fields(table: &Table<'_, '_>, key: &'static str, notes: &mut Notes<'_>) -> Vec<Field> {
    let mut found = Vec::new();
    for (entry, value) in table.entries(key, notes).unwrap_or_default() {
        let field = format!("{}.{}", table.field(key), entry.value);
        let Some(path) = Field::path(&entry.value) else {
            notes.wrong(entry.spot, &field, Mistake::FieldPath(entry.value.chars().take(40).collect()));
            continue;
        };
        let mut wants = Vec::new();
        for item in list(to_json(value.get_ref())) {
            match Want::parse(&item) {
                Some(Ok(want)) => wants.push(want),
                Some(Err(error)) => notes.wrong(entry.spot, &field, error),
                None => {
                    let found = value.get_ref().type_str();
                    let want = "a string, number, true, false, or a list of them";
                    notes.wrong(entry.spot, &field, Mistake::Type { want, found });
                }
            }
        }
        if wants.is_empty() {
            notes.wrong(entry.spot, &field, Mistake::Empty);
        }
        found.push(Field { path, wants });
    }
    found
}

fn list(value: Json) -> Vec<Json> {
    match value {
        Json::Array(items) => items,
        other => vec![other],
    }
}

/// A path of a file system, in a list.
pub(super) fn file_paths(
    table: &Table<'_, '_>,
    key: &'static str,
    notes: &mut Notes<'_>,
) -> Option<Vec<PathPattern>> {
    each(table, key, notes, |text| -> Result<PathPattern, GlobError> { PathPattern::parse_file(text) })
}

/// A text that must not be empty, and is told to people: only a condition may have lines.
pub(super) fn words(table: &Table<'_, '_>, key: &'static str, notes: &mut Notes<'_>) -> Option<At<String>> {
    let text = table.string(key, notes)?;
    let mistake = if text.value.trim().is_empty() {
        Mistake::Empty
    } else if text.value.contains(char::is_control) && key != "when" {
        Mistake::Control
    } else {
        return Some(text);
    };
    notes.wrong(text.spot, table.field(key), mistake);
    None
}

/// A length of time within bounds.
pub(super) fn span(
    table: &Table<'_, '_>,
    key: &'static str,
    (least, most): (Duration, Duration),
    notes: &mut Notes<'_>,
) -> Option<Duration> {
    let text = table.string(key, notes)?;
    match text.value.parse::<Span>() {
        Ok(Span(span)) if (least..=most).contains(&span) => return Some(span),
        Ok(_) => notes.wrong(text.spot, table.field(key), Mistake::Every(text.value)),
        Err(error) => notes.wrong(text.spot, table.field(key), error),
    }
    None
}
