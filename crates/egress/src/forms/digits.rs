//! Base64 at any alignment: the digits that are a value's alone, and those it shares with what stands beside it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Some bits of one base64 digit: those of the value, and those of its cover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Edge {
    url: bool,
    mask: u8,
    value: u8,
    cover: u8,
}

impl Edge {
    /// The digit with the value's bits covered; none where it is no digit of this value.
    pub(crate) fn covered(&self, digit: u8) -> Option<u8> {
        let alphabet = if self.url { URL } else { STANDARD };
        let index = alphabet.iter().position(|&d| d == digit)? as u8;
        let covered = (index & !self.mask) | self.cover;
        (index & self.mask == self.value).then(|| alphabet.get(usize::from(covered)).copied()).flatten()
    }
}

/// How many digits of a base64 text are not the value's alone, by the bytes before it in its group of three.
pub(crate) const fn skipped(shift: u8) -> usize {
    match shift {
        0 => 0,
        1 => 2,
        _ => 3,
    }
}

/// The digits that any base64 text with the value at this alignment has in common.
pub(super) fn core(url: bool, shift: u8, value: &[u8], out: &mut Vec<u8>) {
    let all = digits(url, shift, value);
    let whole = (usize::from(shift) + value.len()) * 8 / 6;
    out.extend_from_slice(all.get(skipped(shift)..whole).unwrap_or_default());
}

fn digits(url: bool, shift: u8, value: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut padded = Zeroizing::new(vec![0; usize::from(shift)]);
    padded.reserve_exact(value.len());
    padded.extend_from_slice(value);
    let engine = if url { &URL_SAFE_NO_PAD } else { &STANDARD_NO_PAD };
    Zeroizing::new(engine.encode(padded.as_slice()).into_bytes())
}

/// The digits before and after the value's own, where value and cover differ in them.
pub(super) fn edges(url: bool, shift: u8, value: &[u8], cover: &[u8]) -> (Option<Edge>, Option<Edge>) {
    let alphabet = if url { URL } else { STANDARD };
    let (values, covers) = (digits(url, shift, value), digits(url, shift, cover));
    let edge = |at: usize, mask: u8| {
        let bits = |digits: &[u8]| {
            let digit = digits.get(at)?;
            Some(alphabet.iter().position(|d| d == digit)? as u8 & mask)
        };
        let (value, cover) = (bits(&values)?, bits(&covers)?);
        (value != cover).then_some(Edge { url, mask, value, cover })
    };
    let before = match shift {
        0 => None,
        1 => edge(1, 0b00_1111),
        _ => edge(2, 0b00_0011),
    };
    let whole = (usize::from(shift) + value.len()) * 8 / 6;
    let after = match (usize::from(shift) + value.len()) % 3 {
        0 => None,
        1 => edge(whole, 0b11_0000),
        _ => edge(whole, 0b11_1100),
    };
    (before, after)
}

/// A digit as an encoder around base64 writes it: percent, or `\/` of JSON.
pub(super) fn within(percent: bool, digit: u8, out: &mut Vec<u8>) {
    match (percent, digit) {
        (true, b'+') => out.extend_from_slice(b"%2B"),
        (true, b'/') => out.extend_from_slice(b"%2F"),
        (false, b'/') => out.extend_from_slice(b"\\/"),
        _ => out.push(digit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_covers_its_bits_only() {
        let edge = Edge { url: false, mask: 0b00_1111, value: 0b0110, cover: 0b0001 };
        assert_eq!(edge.covered(b'W'), Some(b'R'));
        assert_eq!(edge.covered(b'X'), None);
        assert_eq!(edge.covered(b'!'), None);
    }
}
