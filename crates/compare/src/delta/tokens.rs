//! Texts in the pieces of which an id, a time or a name would be one, and what such a piece looks like.

use serde::{Deserialize, Serialize};

/// Kinds of values that come out differently each time something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Shape {
    /// UUIDs, digests and long random names: whoever makes them, they mean nothing but themselves.
    Random,
    /// A time, a date, seconds since the epoch.
    Time,
    /// An address on this machine with a port.
    Port,
    /// Letters with digits, or six digits and more.
    Id,
}

/// Separators are whatever does not belong into any of the shapes.
pub(super) fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let split =
        text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | ':' | '.' | '+' | '@' | '#')));
    split.map(|token| token.trim_matches(['.', ':', '-', '+', '#'])).filter(|token| !token.is_empty())
}

/// Whether it is worth a closer look: every shape has digits.
pub(super) fn may_have_shape(token: &str) -> bool {
    token.len() >= 3 && token.bytes().any(|b| b.is_ascii_digit())
}

pub(super) fn shape(token: &str) -> Option<Shape> {
    if !may_have_shape(token) {
        return None;
    }
    let digits = token.bytes().filter(u8::is_ascii_digit).count();
    if is_time(token) {
        Some(Shape::Time)
    } else if is_port(token) {
        Some(Shape::Port)
    } else if is_random(token, digits) {
        Some(Shape::Random)
    } else if token.contains(['.', ':', '@', '+']) {
        // An amount, a version, a mail address: these mean something.
        None
    } else {
        let letters = token.chars().any(char::is_alphabetic);
        (letters || digits >= 6).then_some(Shape::Id)
    }
}

fn is_random(token: &str, digits: usize) -> bool {
    let bare: Vec<u8> = token.bytes().filter(|b| *b != b'-').collect();
    let hex = bare.iter().all(u8::is_ascii_hexdigit);
    if hex && bare.len() >= 16 && digits < bare.len() {
        return true;
    }
    // Twenty letters and digits without a word in them: no run of seven letters of one case.
    let mixed =
        token.bytes().any(|b| b.is_ascii_uppercase()) && token.bytes().any(|b| b.is_ascii_lowercase());
    let plain = token.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    plain && bare.len() >= 20 && (mixed || digits * 4 >= bare.len()) && longest_word(token) < 7
}

fn longest_word(token: &str) -> usize {
    token.split(|c: char| !c.is_ascii_lowercase()).map(str::len).max().unwrap_or(0)
}

/// `2024-05-20`, `2024-05-20T10:00:00Z`, `10:00`, `10:00:00.5`, seconds or milliseconds since the epoch.
fn is_time(token: &str) -> bool {
    let (date, time) = match token.split_once('T') {
        Some((date, time)) => (Some(date), Some(time)),
        None if token.contains(':') => (None, Some(token)),
        None => (Some(token), None),
    };
    if token.bytes().all(|b| b.is_ascii_digit()) {
        return matches!(token.len(), 10 | 13) && token.starts_with("1");
    }
    date.is_none_or(is_date) && time.is_none_or(is_clock)
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let digits = |part: &&str, len: usize| part.len() == len && part.bytes().all(|b| b.is_ascii_digit());
    matches!(parts.as_slice(), [y, m, d] if digits(y, 4) && digits(m, 2) && digits(d, 2))
}

fn is_clock(text: &str) -> bool {
    let text = text.trim_end_matches('Z');
    let text = text.split(['+', '-']).next().unwrap_or(text);
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<&str> = clock.split(':').collect();
    let small = |part: &&str| matches!(part.len(), 1 | 2) && part.bytes().all(|b| b.is_ascii_digit());
    (2..=3).contains(&parts.len()) && parts.iter().all(small) && fraction.bytes().all(|b| b.is_ascii_digit())
}

fn is_port(token: &str) -> bool {
    let Some((host, port)) = token.rsplit_once(':') else { return false };
    matches!(host, "localhost" | "127.0.0.1" | "0.0.0.0")
        && port.parse::<u16>().is_ok_and(|port| port >= 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(token: &str, expected: Option<Shape>) {
        assert_eq!(shape(token), expected, "{token}");
    }

    #[test]
    fn values_have_shapes() {
        check("3f2504e0-4f89-11d3-9a0c-0305e82c3301", Some(Shape::Random));
        check("da39a3ee5e6b4b0d3255bfef95601890afd80709", Some(Shape::Random));
        check("req_7Hk2Lm9QpZ3vXw8RtB", Some(Shape::Random));
        check("2024-05-20", Some(Shape::Time));
        check("2024-05-20T10:00:00.123Z", Some(Shape::Time));
        check("10:30", Some(Shape::Time));
        check("1715961600", Some(Shape::Time));
        check("localhost:43121", Some(Shape::Port));
        check("HAT136", Some(Shape::Id));
        check("1000234", Some(Shape::Id));
    }

    #[test]
    fn what_means_something_has_none() {
        for token in ["", "12", "250", "1810.0", "hello", "emma@example.com", "v1.2.3", "example.com:443"] {
            check(token, None);
        }
    }

    #[test]
    fn texts_fall_into_values() {
        let found: Vec<_> =
            tokens("id: 'A1', at 2024-05-20 10:00. (see http://localhost:80/x?y=z)").collect();
        let expected =
            ["id", "A1", "at", "2024-05-20", "10:00", "see", "http", "localhost:80", "x", "y", "z"];
        assert_eq!(found, expected);
    }
}
