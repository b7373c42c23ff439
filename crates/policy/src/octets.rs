//! The bytes of a text as a server will see them, decoded on the way and never copied: matching must not
//! allocate, and going back for a wildcard is cloning two words.

/// How a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    /// As it stands.
    Plain,
    /// As it stands, letters in any case.
    AnyCase,
    /// `%41` is `A`.
    Percent,
    /// `%41` is `A` and `+` is a space.
    Form,
}

#[derive(Debug, Clone)]
pub(crate) struct Octets<'a> {
    rest: &'a [u8],
    writing: Writing,
}

impl<'a> Octets<'a> {
    pub(crate) fn new(rest: &'a [u8], writing: Writing) -> Self {
        Self { rest, writing }
    }

    /// The bytes themselves, if they need no decoding.
    pub(crate) fn verbatim(&self) -> Option<&'a [u8]> {
        let coded = |byte: &u8| match self.writing {
            Writing::Plain => false,
            Writing::AnyCase => byte.is_ascii_uppercase(),
            Writing::Percent => *byte == b'%',
            Writing::Form => matches!(byte, b'%' | b'+'),
        };
        (!self.rest.iter().any(coded)).then_some(self.rest)
    }

    /// As text; none if it is not.
    pub(crate) fn text(self) -> Option<String> {
        String::from_utf8(self.collect()).ok()
    }
}

impl Iterator for Octets<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        match (self.writing, first) {
            (Writing::AnyCase, byte) => Some(byte.to_ascii_lowercase()),
            (Writing::Form, b'+') => Some(b' '),
            (Writing::Percent | Writing::Form, b'%') => match escaped(rest) {
                Some(byte) => {
                    self.rest = &rest[2..];
                    Some(byte)
                }
                None => Some(b'%'),
            },
            (_, byte) => Some(byte),
        }
    }
}

/// The byte that two hexadecimal digits after a `%` stand for.
pub(crate) fn escaped(after: &[u8]) -> Option<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    match after {
        [high, low, ..] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
}

/// Whether every `%` begins an escape.
pub(crate) fn is_well_escaped(text: &[u8]) -> bool {
    text.iter().zip(0..).all(|(byte, at)| *byte != b'%' || escaped(&text[at + 1..]).is_some())
}
