//! Patterns with `*`: over one text, and over the segments of a path. Each goes back to its last wildcard
//! only, so the work is at most the length of the pattern times that of the text.

use crate::octets::{Octets, Writing, is_well_escaped};
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    #[error("`{0}` does not begin with `/`; write the whole path, as in /v1/charges/**")]
    NotAbsolute(String),
    #[error("`{0}`: `**` stands for whole segments and so stands alone between two `/`")]
    DoubleStar(String),
    #[error(
        "`{pattern}` has the segment `{segment}`, which no request that is allowed can have; take it out"
    )]
    NeverMatches { pattern: String, segment: String },
    #[error("`{0}` has a `?` or `#`: write the path alone, and parameters in `query`")]
    Query(String),
    #[error("`{0}` has a `%` without two hexadecimal digits; write %25 for the sign itself")]
    Escape(String),
    #[error("has a control character, which nothing that is allowed can have")]
    Control,
    #[error("is empty; write `*` for any text")]
    Empty,
    #[error("is longer than {MAX_PATTERN} characters; write a shorter one")]
    Long,
}

const MAX_PATTERN: usize = 2_000;

/// A text in which `*` is any number of characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// None is the `*`.
    parts: Vec<Option<u8>>,
    /// Set where there is no `*`.
    literal: Option<Box<[u8]>>,
    text: Box<str>,
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Result<Self, GlobError> {
        match text.len() {
            0 => Err(GlobError::Empty),
            length if length > MAX_PATTERN => Err(GlobError::Long),
            _ if text.contains(char::is_control) => Err(GlobError::Control),
            _ => Ok(Self::of(text, Writing::Plain)),
        }
    }

    /// For what is compared without regard to case.
    pub(crate) fn parse_lower(text: &str) -> Result<Self, GlobError> {
        Self::parse(&text.to_ascii_lowercase())
    }

    /// A `*` that is written as an escape is the character itself.
    fn of(text: &str, writing: Writing) -> Self {
        let mut parts: Vec<Option<u8>> = Vec::new();
        for (at, piece) in text.split('*').enumerate() {
            if at > 0 && parts.last() != Some(&None) {
                parts.push(None);
            }
            parts.extend(Octets::new(piece.as_bytes(), writing).map(Some));
        }
        Self {
            literal: parts.iter().copied().collect::<Option<Vec<u8>>>().map(Into::into),
            parts,
            text: text.into(),
        }
    }

    pub(crate) fn matches(&self, mut text: Octets<'_>) -> bool {
        if let (Some(literal), Some(verbatim)) = (&self.literal, text.verbatim()) {
            return **literal == *verbatim;
        }
        let mut at = 0;
        let mut back: Option<(usize, Octets<'_>)> = None;
        loop {
            if self.parts.get(at) == Some(&None) {
                at += 1;
                if at == self.parts.len() {
                    return true;
                }
                back = Some((at, text.clone()));
                continue;
            }
            match (text.next(), self.parts.get(at), &mut back) {
                (None, part, _) => return part.is_none(),
                (Some(byte), Some(Some(part)), _) if byte == *part => at += 1,
                (_, _, Some((star, from))) => {
                    from.next();
                    (at, text) = (*star, from.clone());
                }
                _ => return false,
            }
        }
    }

    pub(crate) fn matches_str(&self, text: &str) -> bool {
        self.matches(Octets::new(text.as_bytes(), Writing::Plain))
    }

    /// Whether whatever `other` matches is surely matched by this.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.parts == [None]
            || self == other
            || other.literal.as_ref().is_some_and(|text| self.matches_bytes(text))
    }

    fn matches_bytes(&self, text: &[u8]) -> bool {
        self.matches(Octets::new(text, Writing::Plain))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    /// `**`
    AnyNumber,
    One(Pattern),
}

/// A path in which `*` stays within a segment and `**` is any number of segments, also none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathPattern {
    segments: Vec<Segment>,
    text: Box<str>,
}

impl PathPattern {
    /// A path of a URL; escapes mean what they mean there.
    pub(crate) fn parse(text: &str) -> Result<Self, GlobError> {
        let shown = || text.chars().take(80).collect::<String>();
        if text.contains(['?', '#']) {
            return Err(GlobError::Query(shown()));
        }
        if !is_well_escaped(text.as_bytes()) {
            return Err(GlobError::Escape(shown()));
        }
        Self::of(text, Writing::Percent)
    }

    /// A path of a file system.
    pub(crate) fn parse_file(text: &str) -> Result<Self, GlobError> {
        Self::of(text, Writing::Plain)
    }

    fn of(text: &str, writing: Writing) -> Result<Self, GlobError> {
        let shown = || text.chars().take(80).collect::<String>();
        let Some(rest) = text.strip_prefix('/') else { return Err(GlobError::NotAbsolute(shown())) };
        if text.len() > MAX_PATTERN {
            return Err(GlobError::Long);
        }
        if text.contains(char::is_control) {
            return Err(GlobError::Control);
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let mut segments = Vec::new();
        for segment in rest.split('/').filter(|_| !rest.is_empty()) {
            if matches!(segment, "" | "." | "..") {
                return Err(GlobError::NeverMatches { pattern: shown(), segment: segment.to_owned() });
            }
            match segment {
                "**" if segments.last() == Some(&Segment::AnyNumber) => {}
                "**" => segments.push(Segment::AnyNumber),
                _ if segment.contains("**") => return Err(GlobError::DoubleStar(shown())),
                _ => segments.push(Segment::One(Pattern::of(segment, writing))),
            }
        }
        Ok(Self { segments, text: text.into() })
    }

    /// Over words instead of segments: `git push **`.
    pub(crate) fn parse_words(text: &str) -> Result<Self, GlobError> {
        let segment = |word: &str| match word {
            "**" => Segment::AnyNumber,
            _ => Segment::One(Pattern::of(word, Writing::Plain)),
        };
        let segments: Vec<_> = text.split_whitespace().map(segment).collect();
        match text.len() {
            _ if segments.is_empty() => Err(GlobError::Empty),
            length if length > MAX_PATTERN => Err(GlobError::Long),
            _ if text.contains(char::is_control) => Err(GlobError::Control),
            _ => Ok(Self { segments, text: text.into() }),
        }
    }

    pub(crate) fn matches<'a>(&self, mut path: impl Iterator<Item = Octets<'a>> + Clone) -> bool {
        let mut at = 0;
        let mut back: Option<(usize, _)> = None;
        loop {
            if let Some(Segment::AnyNumber) = self.segments.get(at) {
                at += 1;
                if at == self.segments.len() {
                    return true;
                }
                back = Some((at, path.clone()));
                continue;
            }
            match (path.next(), self.segments.get(at), &mut back) {
                (None, segment, _) => return segment.is_none(),
                (Some(text), Some(Segment::One(pattern)), _) if pattern.matches(text.clone()) => at += 1,
                (_, _, Some((star, from))) => {
                    from.next();
                    (at, path) = (*star, from.clone());
                }
                _ => return false,
            }
        }
    }

    /// Whether whatever `other` matches is surely matched by this.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        covers(&self.segments, &other.segments)
    }
}

fn covers(a: &[Segment], b: &[Segment]) -> bool {
    match (a, b) {
        ([], []) => true,
        ([Segment::AnyNumber], _) => true,
        ([Segment::AnyNumber, rest @ ..], [_, other @ ..]) => covers(rest, b) || covers(a, other),
        ([Segment::AnyNumber, rest @ ..], []) => covers(rest, b),
        ([Segment::One(x), rest @ ..], [Segment::One(y), other @ ..]) => x.covers(y) && covers(rest, other),
        _ => false,
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, written as simply as it can be.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
            [byte, rest @ ..] => text.first() == Some(byte) && naive(rest, &text[1..]),
        }
    }

    fn naive_path(pattern: &[&str], path: &[&str]) -> bool {
        match pattern {
            [] => path.is_empty(),
            ["**", rest @ ..] => (0..=path.len()).any(|skip| naive_path(rest, &path[skip..])),
            [segment, rest @ ..] => {
                path.first().is_some_and(|first| naive(segment.as_bytes(), first.as_bytes()))
                    && naive_path(rest, &path[1..])
            }
        }
    }

    fn segments<'a>(path: &'a [&'a str]) -> impl Iterator<Item = Octets<'a>> + Clone {
        path.iter().map(|segment| Octets::new(segment.as_bytes(), Writing::Plain))
    }

    proptest! {
        #[test]
        fn a_pattern_equals_its_definition(pattern in "[ab*]{1,8}", text in "[ab]{0,10}") {
            let parsed = Pattern::parse(&pattern).unwrap();
            prop_assert_eq!(parsed.matches_str(&text), naive(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn a_path_pattern_equals_its_definition(
            pattern in prop::collection::vec("[ab]|\\*|\\*\\*|a\\*", 1..6),
            path in prop::collection::vec("[ab]{1,2}", 0..7),
        ) {
            let pattern: Vec<&str> = pattern.iter().map(String::as_str).collect();
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let parsed = PathPattern::parse(&format!("/{}", pattern.join("/"))).unwrap();
            prop_assert_eq!(parsed.matches(segments(&path)), naive_path(&pattern, &path));
        }

        #[test]
        fn what_covers_also_matches(
            a in prop::collection::vec("[ab]|\\*|\\*\\*|a\\*", 1..5),
            b in prop::collection::vec("[ab]|\\*|\\*\\*|a\\*", 1..5),
            path in prop::collection::vec("[ab]{1,2}", 0..7),
        ) {
            let a = PathPattern::parse(&format!("/{}", a.join("/"))).unwrap();
            let b = PathPattern::parse(&format!("/{}", b.join("/"))).unwrap();
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            if a.covers(&b) && b.matches(segments(&path)) {
                prop_assert!(a.matches(segments(&path)), "{} {} {:?}", a, b, path);
            }
        }

        #[test]
        fn no_text_makes_it_fail(text in ".*", path in ".*") {
            let _ = Pattern::parse(&text).map(|pattern| pattern.matches_str(&path));
            let _ = PathPattern::parse(&text);
        }
    }

    #[test]
    fn a_hostile_text_costs_no_more_than_the_product() {
        let pattern = Pattern::parse(&"a*".repeat(900)).unwrap();
        assert!(!pattern.matches_str(&format!("{}b", "a".repeat(850))));
    }
}
