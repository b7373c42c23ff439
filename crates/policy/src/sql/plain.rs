//! Which texts divide into words in one way only, whoever reads them.

/// No comment, no escape, no dollar quote, no prefixed string, nothing but ASCII outside of quotes: quotes, words,
/// numbers and operators are all that is left.
pub(super) fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let next = bytes.get(at + 1).copied();
        match byte {
            b'\'' | b'"' => {
                // E'…', U&'…', B'…', X'…', N'…' and their like are read by rules of their own.
                let before = at.checked_sub(1).and_then(|at| bytes.get(at));
                if before.is_some_and(|b| b.is_ascii_alphanumeric() || b"_$&".contains(b)) {
                    return false;
                }
                let Some(end) = closing(bytes, at) else { return false };
                at = end;
            }
            b'\\' | b'`' | 0 => return false,
            b'-' if next == Some(b'-') => return false,
            b'/' if next == Some(b'*') => return false,
            // A parameter is a dollar and digits; any other may open a quote.
            b'$' if !next.is_some_and(|b| b.is_ascii_digit()) => return false,
            _ if !byte.is_ascii() || (byte.is_ascii_control() && !b"\n\r\t".contains(&byte)) => return false,
            _ => {}
        }
        at += 1;
    }
    true
}

/// Where the quote at `start` ends; none if it does not, or has a backslash in it.
fn closing(bytes: &[u8], start: usize) -> Option<usize> {
    let quote = *bytes.get(start)?;
    let mut at = start + 1;
    loop {
        match *bytes.get(at)? {
            b'\\' | 0 => return None,
            byte if byte == quote && bytes.get(at + 1) == Some(&quote) => at += 2,
            byte if byte == quote => return Some(at),
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn what_could_be_read_in_two_ways_is_not_plain() {
        for plain in ["SELECT 1", "SELECT 'it''s ü' FROM \"T\"\"x\" WHERE a = $1 AND b <> -2", "a\n\tb"] {
            assert!(is_plain(plain), "{plain}");
        }
        for other in [
            "SELECT 1 -- x",
            "SELECT /* x */ 1",
            "SELECT $$x$$",
            "SELECT $a$x$a$",
            "SELECT E'x'",
            "SELECT u&'x'",
            "SELECT 'a\\'",
            "SELECT 'open",
            "SELECT ü",
            "SELECT U&\"x\"",
            "SELECT \u{b}1",
            "SELECT `x`",
            "a$b$c",
        ] {
            assert!(!is_plain(other), "{other}");
        }
    }
}
