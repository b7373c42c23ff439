//! Card numbers: fifteen or sixteen digits of a known issuer that pass Luhn's check, alone or in groups.

use std::ops::Range;

const FEWEST: usize = 15;
/// Sixteen digits and a separator between any two.
const WIDEST: usize = 31;

/// The next number at or after `from`.
pub(crate) fn find(text: &[u8], from: usize) -> Option<Range<usize>> {
    let mut at = from;
    loop {
        // A number spans at least `FEWEST` bytes, so one of every that many lies in it.
        let probe = (at + FEWEST - 1..text.len()).step_by(FEWEST).find(|&probe| in_run(text, probe))?;
        let start = run_start(text, probe, at);
        let end = run_end(text, probe);
        if let Some(number) = number(text, start..end) {
            return Some(number);
        }
        at = end.max(probe + 1);
    }
}

/// Where a number may be under way at the end of the text.
pub(crate) fn pending(text: &[u8]) -> usize {
    let tail = text.len().saturating_sub(WIDEST + 1);
    match text.len().checked_sub(1) {
        Some(last) if in_run(text, last) => run_start(text, last, tail),
        _ => text.len(),
    }
}

/// How much of the text goes on with what stood before it, and so is no number of its own.
pub(crate) fn lead(before: &[u8], text: &[u8]) -> usize {
    let Some(last) = before.len().checked_sub(1) else { return 0 };
    let digit = before.get(last).is_some_and(u8::is_ascii_digit);
    let start = usize::from(digit && separates(text, 0));
    let goes_on = in_run(before, last) || before.get(last).is_some_and(joins);
    if goes_on && (start > 0 || in_run(text, start)) { run_end(text, start) } else { 0 }
}

/// Bytes that make what stands beside them part of something else.
fn joins(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._".contains(byte)
}

fn in_run(text: &[u8], at: usize) -> bool {
    let digit = |at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
    digit(at) || (separates(text, at) && at > 0 && digit(at - 1))
}

fn separates(text: &[u8], at: usize) -> bool {
    matches!(text.get(at), Some(b' ' | b'-'))
}

fn run_start(text: &[u8], from: usize, floor: usize) -> usize {
    (floor..=from).rev().take_while(|&at| in_run(text, at)).last().unwrap_or(from)
}

fn run_end(text: &[u8], from: usize) -> usize {
    (from..text.len()).find(|&at| !in_run(text, at)).unwrap_or(text.len())
}

/// The run without separators at its ends, if it is a number and nothing goes on beside it.
fn number(text: &[u8], run: Range<usize>) -> Option<Range<usize>> {
    let trimmed = text.get(run.clone())?.trim_ascii_end();
    let length = trimmed.iter().rposition(u8::is_ascii_digit)? + 1;
    let range = run.start..run.start + length;
    let goes_on = |at: Option<usize>| at.and_then(|at| text.get(at)).is_some_and(joins);
    if length > WIDEST || goes_on(range.start.checked_sub(1)) || goes_on(Some(range.end)) {
        return None;
    }
    let digits: Vec<u8> =
        text.get(range.clone())?.iter().filter(|b| b.is_ascii_digit()).map(|b| b - b'0').collect();
    (issued(&digits) && luhn(&digits)).then_some(range)
}

fn issued(digits: &[u8]) -> bool {
    match (digits, digits.len()) {
        // Visa, Mastercard, Discover; American Express.
        ([4, ..] | [5, 1..=5, ..] | [2, 2..=7, ..] | [6, 0, 1, 1, ..] | [6, 5, ..], 16) => true,
        ([3, 4 | 7, ..], 15) => true,
        _ => false,
    }
}

fn luhn(digits: &[u8]) -> bool {
    let doubled = |digit: u8| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let parts = digits.iter().rev().enumerate();
    let sum: u32 =
        parts.map(|(at, &digit)| u32::from(if at % 2 == 1 { doubled(digit) } else { digit })).sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(find(text.as_bytes(), 0).map(|range| &text[range]), expected, "{text}");
    }

    #[test]
    fn numbers_of_cards_and_others() {
        check("card=4242424242424242&cvc", Some("4242424242424242"));
        check("4242 4242 4242 4242", Some("4242 4242 4242 4242"));
        check("a 5555-5555-5555-4444 b", Some("5555-5555-5555-4444"));
        check("{\"n\":\"378282246310005\"}", Some("378282246310005"));
        check("4242424242424241", None);
        check("x4242424242424242", None);
        check("4242424242424242.5", None);
        check("1763250000000000", None);
        check("42424242424242424242", None);
        check("2026-11-16 02:11:46 1234", None);
        check("no digits at all, but long enough to be probed", None);
        check("", None);
    }

    proptest! {
        #[test]
        fn a_number_is_found_wherever_it_stands(before in "[a-z ,:]{0,60}", after in "[a-z,:]{0,40}") {
            let text = format!("{before},4242424242424242,{after}");
            prop_assert_eq!(find(text.as_bytes(), 0), Some(before.len() + 1..before.len() + 17));
            let cut = before.len() + 9;
            prop_assert!(pending(&text.as_bytes()[..cut]) <= before.len() + 1);
        }

        #[test]
        fn any_bytes_are_survived(text in "[0-9 a.-]{0,80}", from in 0usize..90) {
            find(text.as_bytes(), from);
            pending(text.as_bytes());
        }
    }
}
