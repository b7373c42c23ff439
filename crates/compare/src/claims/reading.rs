//! A result as its reader sees it. Printers write a line break as `\n` and wrap long lines wherever they are full; whoever
//! looks for words, lines and keys has to undo both. Every byte keeps its place, so that what is found can be shown
//! where it stands.

/// Lines that are about as long as printers and mail programs make them when they wrap.
const FULL: std::ops::RangeInclusive<usize> = 50..=100;
/// A line that could have held the next word was not wrapped.
const WIDTH: usize = 72;

/// The same text, byte for byte as long, with escapes and wrapped lines undone.
pub(crate) fn plain(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    if text.contains('\\') {
        unescape(&mut bytes);
    }
    unwrap_lines(&mut bytes);
    // only ASCII was put in the place of ASCII
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// `\n` in double quotes is a line break, and a backslash at the end of a line is none.
fn unescape(bytes: &mut [u8]) {
    let (mut quoted, mut at, mut last) = (false, 0, b'\n');
    while at < bytes.len() {
        let byte = bytes[at];
        if byte == b'"' {
            quoted = !quoted && b":[{,-=(\n".contains(&last);
        } else if byte == b'\\'
            && quoted
            && let Some(next) = bytes.get(at + 1).copied()
        {
            match next {
                b'n' | b'r' => (bytes[at], bytes[at + 1]) = (b' ', b'\n'),
                b't' | b' ' | b'\n' => (bytes[at], bytes[at + 1]) = (b' ', b' '),
                b'"' | b'\'' | b'/' => bytes[at] = b' ',
                _ => {}
            }
            at += 1;
        }
        if !bytes[at].is_ascii_whitespace() || bytes[at] == b'\n' {
            last = bytes[at];
        }
        at += 1;
    }
}

fn unwrap_lines(bytes: &mut [u8]) {
    let mut start = 0;
    while let Some(long) = bytes[start..].iter().position(|b| *b == b'\n') {
        let end = start + long;
        if FULL.contains(&long) && goes_on(&bytes[end + 1..], long) {
            bytes[end] = b' ';
        }
        start = end + 1;
    }
}

/// Whether a line after one of this length is the rest of it: indented, no item, no key, and its first word had no room.
fn goes_on(rest: &[u8], before: usize) -> bool {
    let line = &rest[..rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())];
    let body = line.trim_ascii_start();
    let word = body.iter().position(|b| b.is_ascii_whitespace()).unwrap_or(body.len());
    let first = body.first().copied().unwrap_or(b'-');
    let marker = b"-*|#>".contains(&first) || body[..word].ends_with(b".") && body[..word].len() <= 3;
    line.len() > body.len() && !marker && !body[..word].ends_with(b":") && before + 1 + word > WIDTH
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(plain(text), expected);
    }

    #[test]
    fn what_a_printer_did_is_undone() {
        check(
            "content: \"Plans\\nEmma's\\n\\\n  \\  - June 11\"",
            "content: \"Plans \nEmma's \n       - June 11\"",
        );
        check(r#"{"a": "x\ny", "b": "C\"d"}"#, "{\"a\": \"x \ny\", \"b\": \"C \"d\"}");
        check(r"a path of no string: C:\new", r"a path of no string: C:\new");
        let wrapped = "  body: We received a request to reset your password. If you did not make\n    this request, ignore it.\n  read: true\n";
        check(wrapped, &wrapped.replacen('\n', " ", 1));
        let list =
            "  body: A line that is about as long as lines are when they are wrapped up\n    - an item\n";
        check(list, list);
        check("short\n  line\n", "short\n  line\n");
    }

    proptest! {
        #[test]
        fn any_text_keeps_its_length_and_its_characters(text in "(?s).{0,80}|(\"|\\\\|n|\n| |: |é|[a-z ]{60}){0,16}") {
            let read = plain(&text);
            prop_assert_eq!(read.len(), text.len());
            for (a, b) in text.char_indices().zip(read.char_indices()) {
                prop_assert_eq!(a.0, b.0);
                prop_assert!(a.1 == b.1 || b.1.is_ascii_whitespace());
            }
        }
    }
}
