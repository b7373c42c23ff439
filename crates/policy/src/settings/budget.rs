//! `[[budget]]`: how much a session may send to a destination, all together.

use crate::host::Hosts;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    pub id: String,
    pub hosts: Hosts,
    pub requests: Option<u64>,
    /// Bytes of request bodies.
    pub bytes_up: Option<u64>,
    /// Bytes of response bodies.
    pub bytes_down: Option<u64>,
    /// Millionths of a dollar.
    pub spend: Option<u64>,
    /// Tokens that models read and write.
    pub tokens: Option<u64>,
    pub line: usize,
}

/// Dollars as people write them, to the millionth, without a float on the way.
pub fn micro_dollars(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || part.len() > 6 || !digits(whole) || !digits(part) {
        return None;
    }
    let part: u64 = format!("{part:0<6}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_exact() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(micro_dollars(text), expected, "{text}");
        check("5", Some(5_000_000));
        check("5.00", Some(5_000_000));
        check("0.000001", Some(1));
        check("0.1", Some(100_000));
        for bad in ["", ".5", "-1", "1e3", "0.0000001", "5 USD", "99999999999999999999"] {
            check(bad, None);
        }
    }
}
