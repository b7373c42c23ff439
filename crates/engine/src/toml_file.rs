//! Files that people write, in TOML: what is wrong is told with its line, its field, and the word that was probably
//! meant.

use crate::error::EngineError;
use serde::de::DeserializeOwned;
use std::path::Path;

pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, EngineError> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let message = named(field(text, at, '='), plain(&meant(error.message())));
        mistake(path, line_of(text, at), message)
    })
}

/// Whose value is wrong: a parser of values knows the word, and not the field that it stands in.
pub(crate) fn named(field: Option<&str>, message: String) -> String {
    match field {
        Some(field) if !message.contains(&format!("`{field}`")) => format!("`{field}`: {message}"),
        _ => message,
    }
}

/// The name before the value at `offset`, where it stands on the same line.
pub(crate) fn field(text: &str, offset: usize, sign: char) -> Option<&str> {
    let before = text.get(..offset)?;
    let line = before.rsplit('\n').next()?;
    let name = line.rsplit_once(sign)?.0.trim_end();
    if let Some(quoted) = name.strip_suffix('"') {
        return quoted.rsplit('"').next();
    }
    let start = name.rfind(|c: char| !(c.is_alphanumeric() || "_-.".contains(c))).map_or(0, |at| at + 1);
    name.get(start..).filter(|name| !name.is_empty())
}

/// Types as people know them.
fn plain(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        other => other,
    };
    format!("{found}, expected {expected}")
}

pub(crate) fn mistake(path: &Path, line: usize, message: impl Into<String>) -> EngineError {
    EngineError::SpecFile { path: path.to_owned(), line, message: message.into() }
}

/// From one.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Adds the nearest of the words that were expected, where serde names what it found and what it expected.
pub(crate) fn meant(message: &str) -> String {
    let message: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let Some((found, expected)) = message.split_once(", expected") else { return message };
    let mut words = expected.split('`').skip(1).step_by(2);
    let Some(found) = found.split('`').nth(1) else { return message };
    match nearest(found, &mut words) {
        Some(near) => format!("{message}; did you mean `{near}`?"),
        None => message,
    }
}

pub(crate) fn nearest<'a>(word: &str, known: &mut dyn Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let scored = known.map(|known| (strsim::jaro_winkler(&word, &known.to_ascii_lowercase()), known));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 >= 0.8).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_told_with_its_field_and_what_belongs_there() {
        #[derive(serde::Deserialize, Debug)]
        #[expect(dead_code, reason = "only what is wrong with it matters")]
        struct File {
            count: usize,
            table: std::collections::BTreeMap<String, bool>,
        }
        let check = |text: &str, expected: &str| {
            let error = parse::<File>(Path::new("f.toml"), text).unwrap_err().to_string();
            assert_eq!(error, expected);
        };
        let belongs = "expected a whole number from 0 on";
        check("count = \"x\"\n", &format!("f.toml:1: `count`: invalid type: string \"x\", {belongs}"));
        check("\ncount=-1\n", &format!("f.toml:2: `count`: invalid value: integer `-1`, {belongs}"));
        let nested = "f.toml:2: `on`: invalid type: integer `3`, expected true or false";
        check("count = 1\ntable = { off = true, on = 3 }\n", nested);
        check("count = 1\n", "f.toml:1: missing field `table`");
    }

    #[test]
    fn the_word_that_was_meant_is_named() {
        let check = |message: &str, expected: &str| assert_eq!(meant(message), expected);
        check(
            "unknown field `comand`, expected one of `command`, `env`",
            "unknown field `comand`, expected one of `command`, `env`; did you mean `command`?",
        );
        check("unknown field `zzz`, expected `command`", "unknown field `zzz`, expected `command`");
        check("invalid type: integer `7`, expected a string", "invalid type: integer `7`, expected a string");
        check("something\nelse", "something else");
    }

    #[test]
    fn the_field_of_a_value_is_named() {
        let check = |text: &str, expected: Option<&str>| {
            let at = text.find('^').unwrap();
            assert_eq!(field(&text.replacen('^', "", 1), at, '='), expected, "{text}");
        };
        check("[limits]\nmemory = ^\"5X\"\n", Some("memory"));
        check("input = { file = ^7 }\n", Some("file"));
        check("\"odd name\" = ^7\n", Some("odd name"));
        check("^memry = 7\n", None);
        check("command = [\n  ^7\n]\n", None);
        assert_eq!(field("{\"cpu\": \"x\"}", 11, ':'), Some("cpu"));
        assert_eq!(named(Some("cpu"), "unknown field `cpu`".into()), "unknown field `cpu`");
        assert_eq!(named(Some("cpu"), "no number".into()), "`cpu`: no number");
    }
}
