//! Digits that were broken into lines: base64 as mail and PEM write it, in the clear or within a text of JSON.

use super::SHORTEST;
use zeroize::Zeroizing;

/// One run of digits without the line ends between them.
pub(crate) struct Run {
    pub(crate) digits: Zeroizing<Vec<u8>>,
    /// Where each stands in the text.
    pub(crate) at: Vec<usize>,
    /// It reaches the end of the text, so it may go on.
    pub(crate) is_open: bool,
}

/// Every run that a line end breaks and that is long enough to hold something, in order.
pub(crate) fn runs(text: &[u8]) -> Vec<Run> {
    let (mut runs, mut from) = (Vec::new(), 0);
    while let Some(found) = text.get(from..).and_then(|rest| memchr::memchr3(b'\n', b'\r', b'\\', rest)) {
        let end_of_line = from + found;
        let before = text.get(from..end_of_line).unwrap_or_default();
        let start = end_of_line - before.iter().rev().take_while(|b| is_digit(**b)).count();
        let (run, end) = run(text, start);
        from = end.max(end_of_line + 1);
        if run.digits.len() >= SHORTEST || (run.is_open && !run.digits.is_empty()) {
            runs.push(run);
        }
    }
    runs
}

/// The run from `start` on, and where it ends.
fn run(text: &[u8], start: usize) -> (Run, usize) {
    let count =
        |from: usize| text.get(from..).unwrap_or_default().iter().take_while(|b| is_digit(**b)).count();
    let mut run = Run { digits: Zeroizing::new(Vec::new()), at: Vec::new(), is_open: false };
    let mut end = start;
    loop {
        let line = count(end);
        let needed = run.digits.len() + line;
        if needed > run.digits.capacity() {
            // Grown by hand, so that what is left behind is wiped; and to twice of it, so that many short lines
            // are not copied once for each.
            let mut digits = Zeroizing::new(Vec::with_capacity(2 * needed));
            digits.extend_from_slice(&run.digits);
            run.digits = digits;
        }
        run.digits.extend_from_slice(text.get(end..end + line).unwrap_or_default());
        run.at.extend(end..end + line);
        end += line;
        let next = line_end(text, end);
        // An empty line ends a run, unless it is only empty so far.
        run.is_open = if line == 0 { end == text.len() } else { next == text.len() };
        if line == 0 || next == end || run.is_open {
            return (run, next);
        }
        end = next;
    }
}

/// Where what follows a line end begins, indented or not; `at` where there is none. One that the text cuts in two
/// reaches to the text's end. An empty line is the end of what stands before it.
fn line_end(text: &[u8], at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    for end in [&b"\r\n"[..], b"\n", b"\\r\\n", b"\\n"] {
        if let Some(after) = rest.strip_prefix(end) {
            return text.len() - after.len() + after.iter().take_while(|b| b" \t".contains(b)).count();
        }
        if end.starts_with(rest) {
            return text.len();
        }
    }
    at
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_joined() {
        let joined = |text: &str| {
            let shown = |run: &Run| {
                format!("{}{}", String::from_utf8_lossy(&run.digits), if run.is_open { "…" } else { "" })
            };
            runs(text.as_bytes()).iter().map(shown).collect::<Vec<_>>()
        };
        assert_eq!(joined("a: AAAA\nBBBBCC\r\nDD. x"), ["AAAABBBBCCDD"]);
        assert_eq!(joined("\"AAAA\\nBBBB\\r\\nCC\""), ["AAAABBBBCC"]);
        assert_eq!(joined("key: |\n  AAAAAA\n  BBBBBB\n\nother: x"), ["AAAAAABBBBBB"]);
        assert_eq!(joined("AAAA\n"), ["AAAA…"]);
        assert_eq!(joined("AAAA\r"), ["AAAA…"]);
        assert!(joined("data: AAAA\n\n").is_empty());
        assert_eq!(joined("AAAA\\r\\"), ["AAAA…"]);
        assert_eq!(joined("short\nend."), ["shortend"]);
        assert!(joined("one line, AAAAAAAAAAAAAAAAAAA").is_empty());
        assert!(joined("no. \n. digits \\x \\").is_empty());
    }

    proptest! {
        #[test]
        fn every_digit_is_where_it_says(text in "[ab+. \\r\\n\\\\]{0,60}") {
            let mut last = 0;
            for run in runs(text.as_bytes()) {
                prop_assert_eq!(run.digits.len(), run.at.len());
                for (digit, at) in run.digits.iter().zip(&run.at) {
                    prop_assert!(*at >= last && text.as_bytes()[*at] == *digit);
                    last = *at + 1;
                }
            }
        }
    }
}
