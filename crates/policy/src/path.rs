//! The path of a request, where servers disagree on what it means. We forward what the client wrote, so a rule
//! must hold however the server reads it.
//!
//! What has one harmless reading is read so: `%41` is `A`, one `/` at the end is nothing. What has several is
//! judged in each: `//` may be one separator or an empty segment, `%2F` a separator or a character, `;x` a
//! parameter or part of the name; an allow rule must match every reading, a deny or review rule any. What only
//! serves to confuse has none: dot segments, back-slashes, control characters, broken and double escapes.

use crate::octets::{Octets, Writing, escaped};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathProblem {
    #[error("the path does not begin with `/`")]
    NotAbsolute,
    #[error("the path has a `.` or `..` segment; ask for the path it leads to")]
    Dots,
    #[error("the path has a back-slash; write `/`")]
    BackSlash,
    #[error("the path has a control character")]
    Control,
    #[error("the path has a `%` without two hexadecimal digits; write %25 for the sign itself")]
    Escape,
    #[error("the path has a separator, dot or `%` escaped twice; escape it once")]
    Twice,
    #[error("the path is not text in UTF-8")]
    NotText,
    #[error("the path has a `//`, `%2F` or `;`, which servers read differently, and a condition looks at it")]
    Doubtful,
}

/// Which of the doubtful things a path has, or how one reading takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Doubts(u8);

const EMPTY_SEGMENTS: u8 = 1;
const ESCAPED_SLASH: u8 = 2;
const PARAMETERS: u8 = 4;

impl Doubts {
    /// Every way to read a path with these doubts: nearly always one.
    pub(crate) fn readings(self) -> impl Iterator<Item = Doubts> {
        (0..8).filter(move |reading| reading & !self.0 == 0).map(Doubts)
    }

    pub(crate) fn is_certain(self) -> bool {
        self.0 == 0
    }

    fn has(self, doubt: u8) -> bool {
        self.0 & doubt != 0
    }
}

/// Looks once at every byte; allocates nothing.
pub(crate) fn scrutinise(path: &str) -> Result<Doubts, PathProblem> {
    let bytes = path.as_bytes();
    let Some(rest) = bytes.strip_prefix(b"/") else { return Err(PathProblem::NotAbsolute) };
    let mut doubts = 0;
    let mut at = 0;
    while let Some(byte) = rest.get(at) {
        match byte {
            b'%' => match escaped(&rest[at + 1..]).ok_or(PathProblem::Escape)? {
                b'/' => doubts |= ESCAPED_SLASH,
                b'\\' => return Err(PathProblem::BackSlash),
                0..0x20 | 0x7f => return Err(PathProblem::Control),
                b'%' if is_risky(&rest[at + 3..]) => return Err(PathProblem::Twice),
                _ => {}
            },
            b'\\' => return Err(PathProblem::BackSlash),
            0..0x20 | 0x7f => return Err(PathProblem::Control),
            b';' => doubts |= PARAMETERS,
            b'/' if rest.get(at + 1) == Some(&b'/') || at == 0 => doubts |= EMPTY_SEGMENTS,
            _ => {}
        }
        at += 1;
    }
    // An escaped slash beside a real one makes an empty segment, and so does cutting all of one off.
    if doubts & (ESCAPED_SLASH | PARAMETERS) != 0 {
        doubts |= EMPTY_SEGMENTS;
    }
    let finest = Segments::new(path, Doubts(ESCAPED_SLASH | PARAMETERS));
    for segment in finest {
        let mut dots = 0;
        if segment.clone().take(3).all(|byte| {
            byte == b'.' && {
                dots += 1;
                true
            }
        }) && (1..3).contains(&dots)
        {
            return Err(PathProblem::Dots);
        }
    }
    match std::str::from_utf8(bytes).is_ok() && (!bytes.contains(&b'%') || is_text(bytes)) {
        true => Ok(Doubts(doubts)),
        false => Err(PathProblem::NotText),
    }
}

/// What a second decoding would turn into something that matters.
fn is_risky(after: &[u8]) -> bool {
    escaped(after).is_some_and(|byte| matches!(byte, b'.' | b'/' | b'\\' | b'%' | b';' | 0..0x20))
}

/// Whether the decoded bytes are UTF-8, without a copy of them.
fn is_text(bytes: &[u8]) -> bool {
    let mut held = [0; 4];
    let mut filled = 0;
    for byte in Octets::new(bytes, Writing::Percent) {
        if filled == 0 && byte < 0x80 {
            continue;
        }
        held[filled] = byte;
        filled += 1;
        match std::str::from_utf8(&held[..filled]) {
            Ok(_) => filled = 0,
            Err(error) if error.error_len().is_none() && filled < 4 => {}
            Err(_) => return false,
        }
    }
    filled == 0
}

/// The segments of a path in one reading.
#[derive(Debug, Clone)]
pub(crate) struct Segments<'a> {
    rest: Option<&'a [u8]>,
    reading: Doubts,
}

impl<'a> Segments<'a> {
    pub(crate) fn new(path: &'a str, reading: Doubts) -> Self {
        let rest = path.strip_prefix('/').unwrap_or(path);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        Self { rest: (!rest.is_empty()).then_some(rest.as_bytes()), reading }
    }

    fn cut(&self, rest: &'a [u8]) -> (&'a [u8], Option<&'a [u8]>) {
        let is_slash = |at: usize| self.reading.has(ESCAPED_SLASH) && escaped(&rest[at + 1..]) == Some(b'/');
        for (at, byte) in rest.iter().enumerate() {
            match byte {
                b'/' => return (&rest[..at], Some(&rest[at + 1..])),
                b'%' if is_slash(at) => return (&rest[..at], Some(&rest[at + 3..])),
                _ => {}
            }
        }
        (rest, None)
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Octets<'a>;

    fn next(&mut self) -> Option<Octets<'a>> {
        loop {
            let (mut segment, rest) = self.cut(self.rest?);
            self.rest = rest;
            if self.reading.has(PARAMETERS) {
                let end = segment.iter().position(|byte| *byte == b';').unwrap_or(segment.len());
                segment = &segment[..end];
            }
            if !(segment.is_empty() && self.reading.has(EMPTY_SEGMENTS)) {
                return Some(Octets::new(segment, Writing::Percent));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glob::PathPattern;
    use proptest::prelude::*;

    fn readings(path: &str, pattern: &str) -> Result<Vec<bool>, PathProblem> {
        let pattern = PathPattern::parse(pattern).unwrap();
        Ok(scrutinise(path)?
            .readings()
            .map(|reading| pattern.matches(Segments::new(path, reading)))
            .collect())
    }

    #[test]
    fn one_reading() {
        let check = |path: &str, pattern: &str, expected: bool| {
            assert_eq!(readings(path, pattern), Ok(vec![expected]), "{path} {pattern}");
        };
        check("/v1/charges", "/v1/charges/**", true);
        check("/v1/charges/", "/v1/charges/**", true);
        check("/v1/charges/a/b", "/v1/charges/**", true);
        check("/v1/chargesx", "/v1/charges/**", false);
        check("/v1/charges/a", "/v1/charges/*", true);
        check("/v1/charges/a/b", "/v1/charges/*", false);
        check("/v1/ch%61rges", "/v1/charges", true);
        check("/", "/", true);
        check("/", "/**", true);
        check("/a", "/", false);
        check("/%C3%BC", "/ü", true);
        check("/a*b", "/a%2Ab", true);
        check("/axb", "/a%2Ab", false);
        check("/100%25", "/100%25", true);
        check("/a...b/...", "/a...b/...", true);
    }

    #[test]
    fn several_readings() {
        let check = |path: &str, pattern: &str, expected: &[bool]| {
            let mut found = readings(path, pattern).unwrap();
            found.sort_unstable();
            found.dedup();
            assert_eq!(found, expected, "{path} {pattern}");
        };
        check("/a//b", "/a/b", &[false, true]);
        check("/a//b", "/a/**", &[true]);
        check("//a", "/a", &[false, true]);
        check("/a%2fb", "/a/b", &[false, true]);
        check("/@scope%2fname", "/@scope*/**", &[true]);
        check("/a;x=1/b", "/a/b", &[false, true]);
        check("/a/%2f/b", "/a/b", &[false, true]);
    }

    #[test]
    fn no_reading() {
        let check =
            |path: &str, expected: PathProblem| assert_eq!(scrutinise(path).err(), Some(expected), "{path}");
        check("", PathProblem::NotAbsolute);
        check("a", PathProblem::NotAbsolute);
        check("*", PathProblem::NotAbsolute);
        for dots in [
            "/..",
            "/a/../b",
            "/a/./b",
            "/%2e%2e/a",
            "/a/.%2E",
            "/a%2f..%2fb",
            "/..;x/a",
            "/a/..%2f",
            "/.;/a",
            "/../",
        ] {
            check(dots, PathProblem::Dots);
        }
        check("/a\\b", PathProblem::BackSlash);
        check("/a%5cb", PathProblem::BackSlash);
        check("/a%00", PathProblem::Control);
        check("/a%", PathProblem::Escape);
        check("/a%zz", PathProblem::Escape);
        check("/%252e%252e/a", PathProblem::Twice);
        check("/a%252fb", PathProblem::Twice);
        check("/a%ff", PathProblem::NotText);
    }

    proptest! {
        #[test]
        fn looking_never_fails_and_resolving_never_leaves(path in "/[a/.%25ef;\\\\]{0,14}") {
            // What passes has no dot segment left for a server that decodes everything once.
            if scrutinise(&path).is_ok() {
                let decoded = Octets::new(path.as_bytes(), Writing::Percent).text().unwrap();
                prop_assert!(decoded.split('/').all(|segment| !matches!(segment, "." | "..")), "{}", decoded);
            }
        }

        #[test]
        fn any_text_is_looked_at(path in ".{0,40}") {
            let _ = scrutinise(&path).map(|doubts| doubts.readings().map(|r| Segments::new(&path, r).count()).sum::<usize>());
        }
    }
}
