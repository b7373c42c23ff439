//! Which values are taken in: those that can stand in a request, and that nothing else is likely to equal.

use crate::Plain;
use std::io::{self, Read};
use zeroize::Zeroizing;

/// Longer than any key that is sent in a request.
pub(crate) const LONGEST: usize = 64 << 10;
/// A shorter value would turn up in traffic by chance, and no text could be scrubbed of it.
pub(crate) const SHORTEST: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("the value is empty: check its source")]
    Empty,
    #[error(
        "the value has {0} bytes, and shorter than {SHORTEST} it would be found in harmless text: use a longer secret"
    )]
    TooShort(usize),
    #[error("the value is longer than {LONGEST} bytes: check its source")]
    TooLong,
    #[error(
        "the value holds a line break or control character, which cannot stand in a request: store one line"
    )]
    Control,
    #[error("the value is not UTF-8 text: store it as the text that is sent, such as its base64")]
    NotText,
}

/// Reads a value to its end, at most one byte further than is accepted.
pub(crate) fn read(from: &mut dyn Read) -> io::Result<Zeroizing<Vec<u8>>> {
    // Room for all of it at once: a buffer that grows leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST + 2));
    from.take(LONGEST as u64 + 2).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A value that came with a line end, as files and programs give it, or without.
pub(crate) fn line(bytes: &[u8]) -> Result<Plain, ValueError> {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    exact(line.strip_suffix(b"\r").unwrap_or(line))
}

pub(crate) fn exact(bytes: &[u8]) -> Result<Plain, ValueError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ValueError::NotText)?;
    match bytes.len() {
        0 => Err(ValueError::Empty),
        length if length > LONGEST => Err(ValueError::TooLong),
        _ if text.chars().any(char::is_control) => Err(ValueError::Control),
        length if length < SHORTEST => Err(ValueError::TooShort(length)),
        _ => Ok(Plain::new(bytes.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: Result<&str, ValueError>) {
        let found = line(bytes);
        assert_eq!(
            found.as_ref().map(|plain| plain.reveal()).map_err(Clone::clone),
            expected.map(str::as_bytes)
        );
    }

    #[test]
    fn one_line_end_is_not_part_of_a_value() {
        check(b"12345678", Ok("12345678"));
        check(b"12345678\n", Ok("12345678"));
        check(b"12345678\r\n", Ok("12345678"));
        check(b"12345678 \n", Ok("12345678 "));
        check("schlüssel\n".as_bytes(), Ok("schlüssel"));
    }

    #[test]
    fn what_cannot_stand_in_a_request_is_refused() {
        check(b"", Err(ValueError::Empty));
        check(b"\n", Err(ValueError::Empty));
        check(b"1234567\n", Err(ValueError::TooShort(7)));
        check(b"12345678\n\n", Err(ValueError::Control));
        check(b"1234\r\nX: 5678", Err(ValueError::Control));
        check(b"12345678\0", Err(ValueError::Control));
        check(b"\xff1234567", Err(ValueError::NotText));
        check(&[b'x'; LONGEST], Ok(&"x".repeat(LONGEST)));
        check(&[b'x'; LONGEST + 1], Err(ValueError::TooLong));
    }

    #[test]
    fn an_endless_source_ends() {
        let bytes = read(&mut io::repeat(b'x')).unwrap();
        assert!(matches!(line(&bytes), Err(ValueError::TooLong)));
    }
}
