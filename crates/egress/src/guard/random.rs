//! Whether a text looks drawn at random, in whole numbers: the same verdict on every machine.

/// In 1/256 of a bit per character. English stays under 3.3 bits at these lengths, random letters and digits over 4.
const ENOUGH: u32 = 3 * 256 + 128;

/// Letters and digits in a mix that nobody types. Digests, commit names and UUIDs are random too and no secret, so
/// hexadecimal never counts.
pub(crate) fn looks_drawn(text: &[u8]) -> bool {
    let hexadecimal = text.iter().all(|b| b.is_ascii_hexdigit() || *b == b'-');
    let digits = text.iter().any(u8::is_ascii_digit);
    let letters = text.iter().any(u8::is_ascii_alphabetic);
    !hexadecimal && digits && letters && entropy(text) >= ENOUGH
}

/// Shannon's, per character, in 1/256 of a bit.
fn entropy(text: &[u8]) -> u32 {
    let mut counts = [0u32; 256];
    for &byte in text {
        counts[usize::from(byte)] += 1;
    }
    let length = text.len().max(1) as u32;
    let repeated: u32 = counts.iter().map(|&count| count * log2(count)).sum();
    log2(length).saturating_sub(repeated / length)
}

/// The binary logarithm in 1/256, digit by digit: squaring doubles it.
fn log2(n: u32) -> u32 {
    let Some(whole) = n.checked_ilog2() else { return 0 };
    let mut rest = (u64::from(n) << 16) >> whole;
    let mut bits = whole;
    for _ in 0..8 {
        rest = (rest * rest) >> 16;
        bits <<= 1;
        if rest >= 2 << 16 {
            rest >>= 1;
            bits |= 1;
        }
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_right_to_a_digit() {
        for (n, expected) in
            [(1, 0), (2, 256), (3, 405), (10, 850), (20, 1106), (200, 1956), (1 << 31, 31 * 256)]
        {
            assert_eq!(log2(n), expected, "{n}");
        }
    }

    #[test]
    fn what_was_drawn_and_what_was_not() {
        for (text, expected) in [
            ("q7Xz0PmK3vLw9TtR5yBn1cHd", true),
            ("Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA==", true),
            ("da39a3ee5e6b4b0d3255bfef95601890afd80709", false),
            ("550e8400-e29b-41d4-a716-446655440000", false),
            ("aaaaaaaaaaaaaaaaaaaa1", false),
            ("the_name_of_the_other_key", false),
            ("11111111111111111111", false),
            ("", false),
        ] {
            assert_eq!(looks_drawn(text.as_bytes()), expected, "{text} {}", entropy(text.as_bytes()));
        }
    }
}
