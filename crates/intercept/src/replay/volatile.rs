//! Words that differ from run to run: ids, dates, names of temporary files. A word counts as volatile only if the
//! agent made it up: one that stands in a recorded answer or in what the agent was given means something, and two of
//! those that differ are two different things.

use regex_automata::meta::Regex;
use serde::Deserialize;
use std::collections::HashSet;
use std::sync::LazyLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// With dashes, or 32 hexadecimal digits.
    Uuid,
    /// Dates and times as text.
    Date,
    /// `call_…`, `msg-…`: a word, a divider, and sixteen or more letters and digits.
    Id,
    /// `/tmp/…`, to the next slash.
    Tmp,
    /// Seconds since 1970 of our days, also with a fraction, in milliseconds or in finer ones.
    Epoch,
}

/// In the order in which they are tried at a place.
const PATTERNS: &[(Class, &str)] = &[
    (Class::Uuid, r"(?-u:\b)[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?-u:\b)"),
    (Class::Uuid, r"(?-u:\b)[0-9a-f]{32}(?-u:\b)"),
    (
        Class::Date,
        r"(?-u:\b)[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?",
    ),
    (
        Class::Date,
        r"(?-u:\b)(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-9]{2} (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} (?:GMT|UTC|[+-][0-9]{4})",
    ),
    (Class::Date, r"(?-u:\b)[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?-u:\b)"),
    (Class::Id, r"(?-u:\b)[a-z][a-z0-9]{1,15}[_-][A-Za-z0-9]{16,64}(?-u:\b)"),
    (Class::Tmp, r"/tmp/[A-Za-z0-9._-]{4,64}"),
    (Class::Epoch, r"(?-u:\b)1[6-9][0-9]{8}(?:\.[0-9]{1,9}|[0-9]{3}|[0-9]{6}|[0-9]{9})?(?-u:\b)"),
];

static FINDER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let patterns: Vec<&str> = PATTERNS.iter().map(|(_, pattern)| *pattern).collect();
    Regex::new_many(&patterns).ok()
});

/// A volatile word, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) class: Class,
    pub(super) text: String,
}

/// Splits a text at its volatile words: calls back with what stands between them and with each of them.
pub(super) fn split<'t>(text: &'t str, classes: &[Class], mut each: impl FnMut(&'t str, Option<Word>)) {
    let mut done = 0;
    if let Some(finder) = FINDER.as_ref().filter(|_| !classes.is_empty()) {
        for found in finder.find_iter(text) {
            let Some((class, _)) = PATTERNS.get(found.pattern().as_usize()) else { continue };
            let (before, word) = (text.get(done..found.start()), text.get(found.range()));
            let (Some(before), Some(word)) = (before, word) else { continue };
            if classes.contains(class) && is_made(*class, word) {
                each(before, Some(Word { class: *class, text: word.to_owned() }));
                done = found.end();
            }
        }
    }
    each(text.get(done..).unwrap_or_default(), None);
}

/// A long word of letters only is a word, and not every file in `/tmp` has a name that was drawn.
fn is_made(class: Class, word: &str) -> bool {
    let drawn = word.bytes().any(|byte| byte.is_ascii_digit());
    match class {
        Class::Id => drawn,
        Class::Tmp => drawn || word.starts_with("/tmp/tmp"),
        Class::Uuid | Class::Date | Class::Epoch => true,
    }
}

/// All volatile words of a text, of any class.
pub(super) fn note(text: &str, known: &mut HashSet<String>) {
    const ALL: &[Class] = &[Class::Uuid, Class::Date, Class::Id, Class::Tmp, Class::Epoch];
    split(text, ALL, |_, word| {
        known.extend(word.map(|word| word.text));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(Class, &str)]) {
        let all = [Class::Uuid, Class::Date, Class::Id, Class::Tmp, Class::Epoch];
        let (mut found, mut whole) = (Vec::new(), String::new());
        split(text, &all, |before, word| {
            whole.push_str(before);
            if let Some(word) = word {
                whole.push_str(&word.text);
                found.push((word.class, word.text));
            }
        });
        assert_eq!(whole, text);
        let expected: Vec<_> = expected.iter().map(|(class, text)| (*class, (*text).to_owned())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn words_are_found_and_nothing_is_lost() {
        check("nothing here", &[]);
        let uuid = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0";
        check(&format!("id={uuid}!"), &[(Class::Uuid, uuid)]);
        check("at 2026-01-02T03:04:05.678Z.", &[(Class::Date, "2026-01-02T03:04:05.678Z")]);
        check("Thu, 01 Jan 2026 00:00:00 GMT", &[(Class::Date, "Thu, 01 Jan 2026 00:00:00 GMT")]);
        check("12:30:00 and 7:30", &[(Class::Date, "12:30:00")]);
        check("call_9fK2mQ7xLw3Zb8Nc and msg_short", &[(Class::Id, "call_9fK2mQ7xLw3Zb8Nc")]);
        check("an-internationalisationword", &[]);
        check("in /tmp/tmpab12cd/x.py", &[(Class::Tmp, "/tmp/tmpab12cd")]);
        check("1767225600 17672256001", &[(Class::Epoch, "1767225600")]);
        check("1767225600123", &[(Class::Epoch, "1767225600123")]);
    }
}
