//! The shape of a value: which of its characters are public and stay, and what the others are drawn from. A shape
//! says which kinds of character a value has, not where each stands.

use super::formats::{self, Fill, Format};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use cofferdam_seal::ByteStream;

const LOWER: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
const UPPER: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const DIGITS: &[u8] = b"0123456789";
pub(super) const BASE62: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const BASE64URL: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
const BASE32: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const HEX: &[u8] = b"0123456789abcdef";
const HEX_UPPER: &[u8] = b"0123456789ABCDEF";
/// Signs that no client has to escape.
const SIGNS: &[u8] = b"!*~";
/// What usually divides a key into parts.
const DIVIDERS: &[u8] = b"-_.:= ";
const CHECKSUM: usize = 6;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Kept(Vec<u8>),
    Drawn {
        from: Vec<u8>,
        count: usize,
    },
    /// So many random bytes, in base64.
    Coded {
        bytes: usize,
        url: bool,
    },
    /// The claims of a token, in base64: clients read them.
    Claims {
        before: String,
        count: usize,
        after: &'static str,
    },
    /// Over everything behind the first piece.
    Checksum,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape(Vec<Piece>);

impl Shape {
    /// As the value has it.
    pub(super) fn of(value: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(value) else { return generic(value) };
        let known = formats::of(text).map(|format| known(format, text));
        known
            .or_else(|| token(text))
            .or_else(|| padded(text))
            .or_else(|| uuid(text))
            .unwrap_or_else(|| generic(value))
    }

    /// For a value that is too short to be imitated.
    pub(super) fn stand_in(length: usize) -> Self {
        Self(vec![Piece::Drawn { from: BASE62.to_vec(), count: length }])
    }

    /// How much of it cannot be guessed.
    pub(super) fn bits(&self) -> u32 {
        let of = |piece: &Piece| match piece {
            Piece::Kept(_) | Piece::Checksum => 0.0,
            Piece::Drawn { from, count } => (from.len() as f64).log2() * *count as f64,
            Piece::Coded { bytes, .. } => *bytes as f64 * 8.0,
            Piece::Claims { count, .. } => (BASE62.len() as f64).log2() * *count as f64,
        };
        self.0.iter().map(of).sum::<f64>() as u32
    }

    pub(super) fn draw(&self, chance: &mut ByteStream) -> String {
        let mut text = Vec::new();
        let mut public = 0;
        for (at, piece) in self.0.iter().enumerate() {
            match piece {
                Piece::Kept(bytes) => text.extend_from_slice(bytes),
                Piece::Drawn { from, count } => text.extend((0..*count).map(|_| pick(from, chance))),
                Piece::Coded { bytes, url } => {
                    let raw: Vec<u8> = (0..*bytes).map(|_| chance.byte()).collect();
                    let coded = if *url { URL_SAFE_NO_PAD.encode(raw) } else { STANDARD.encode(raw) };
                    text.extend_from_slice(coded.as_bytes());
                }
                Piece::Claims { before, count, after } => {
                    let drawn: String = (0..*count).map(|_| char::from(pick(BASE62, chance))).collect();
                    text.extend_from_slice(
                        URL_SAFE_NO_PAD.encode(format!("{before}{drawn}{after}")).as_bytes(),
                    );
                }
                Piece::Checksum => {
                    let sum = checksum(&text[public..]);
                    text.extend_from_slice(&sum);
                }
            }
            if at == 0 {
                public = text.len();
            }
        }
        // Pieces that are kept came from a text in UTF-8, all others are ASCII.
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// One of the characters, each as likely as the others.
fn pick(from: &[u8], chance: &mut ByteStream) -> u8 {
    let fair = 256 - 256 % from.len().max(1);
    loop {
        let byte = usize::from(chance.byte());
        if byte < fair {
            return from.get(byte % from.len().max(1)).copied().unwrap_or(b'x');
        }
    }
}

/// The CRC-32 of a text in six characters of base 62, as tokens of GitHub and npm carry it.
pub(super) fn checksum(text: &[u8]) -> [u8; CHECKSUM] {
    let mut rest = crc32fast::hash(text);
    let mut digits = [b'0'; CHECKSUM];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    digits
}

fn known(format: &Format, text: &str) -> Shape {
    let rest = &text.as_bytes()[format.prefix.len()..];
    let mut pieces = vec![Piece::Kept(format.prefix.as_bytes().to_vec())];
    let ends = format.checked
        && rest.len() > CHECKSUM
        && rest.iter().rev().take(CHECKSUM).all(u8::is_ascii_alphanumeric);
    let rest = if ends { &rest[..rest.len() - CHECKSUM] } else { rest };
    let mark = Some(format.mark).filter(|mark| !mark.is_empty()).and_then(|mark| mark_in(rest, mark));
    match mark {
        Some(at) => {
            let (left, right) = (&rest[..at], &rest[at + format.mark.len()..]);
            pieces.extend(filled(left, format.fill));
            pieces.push(Piece::Kept(format.mark.as_bytes().to_vec()));
            pieces.extend(filled(right, format.fill));
        }
        None => pieces.extend(filled(rest, format.fill)),
    }
    if ends {
        pieces.push(Piece::Checksum);
    }
    Shape(pieces)
}

/// Where a format's constant stands: a long one anywhere, a short one at the end.
fn mark_in(rest: &[u8], mark: &str) -> Option<usize> {
    if mark.len() < 4 {
        return rest.ends_with(mark.as_bytes()).then(|| rest.len() - mark.len());
    }
    rest.windows(mark.len()).position(|window| window == mark.as_bytes())
}

fn filled(rest: &[u8], fill: Fill) -> Vec<Piece> {
    let from: &[u8] = match fill {
        Fill::Base62 => BASE62,
        Fill::Base64Url => BASE64URL,
        Fill::Base32 => BASE32,
        Fill::Hex if rest.iter().any(u8::is_ascii_uppercase) => HEX_UPPER,
        Fill::Hex => HEX,
        // Group by group: digits stay digits.
        Fill::Seen => {
            let groups = rest.split_inclusive(|b| DIVIDERS.contains(b));
            return groups.flat_map(|group| runs(group, &alphabet(group))).collect();
        }
    };
    runs(rest, from)
}

/// Drawn where the value has a character of the alphabet or one that tells something; kept where it is divided.
fn runs(value: &[u8], from: &[u8]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for &byte in value {
        let kept = DIVIDERS.contains(&byte) && !from.contains(&byte);
        match (pieces.last_mut(), kept) {
            (Some(Piece::Kept(bytes)), true) => bytes.push(byte),
            (Some(Piece::Drawn { count, .. }), false) => *count += 1,
            (_, true) => pieces.push(Piece::Kept(vec![byte])),
            (_, false) => pieces.push(Piece::Drawn { from: from.to_vec(), count: 1 }),
        }
    }
    pieces
}

/// The kinds of character that a value has, each kind whole.
fn alphabet(value: &[u8]) -> Vec<u8> {
    let has = |fits: &dyn Fn(&u8) -> bool| value.iter().any(fits);
    let told: Vec<u8> = value.iter().copied().filter(|b| !DIVIDERS.contains(b)).collect();
    let within = |set: &[u8]| told.iter().all(|b| set.contains(b));
    if !has(&u8::is_ascii_digit) || has(&|b| b.is_ascii_alphabetic()) {
        for hex in [HEX, HEX_UPPER] {
            if told.len() >= 16 && within(hex) {
                return hex.to_vec();
            }
        }
    }
    let sign = |b: &u8| b.is_ascii_punctuation() && !b"+/".contains(b) && !DIVIDERS.contains(b);
    let mut from = Vec::new();
    for (present, kind) in [
        (has(&u8::is_ascii_lowercase), LOWER),
        (has(&u8::is_ascii_uppercase), UPPER),
        (has(&u8::is_ascii_digit), DIGITS),
        (has(&|b| *b == b'+'), b"+"),
        (has(&|b| *b == b'/'), b"/"),
        (has(&sign), SIGNS),
    ] {
        from.extend_from_slice(if present { kind } else { b"" });
    }
    if from.is_empty() || !value.is_ascii() {
        from.retain(|b| !LOWER.contains(b));
        from.extend_from_slice(LOWER);
    }
    from
}

fn generic(value: &[u8]) -> Shape {
    Shape(runs(value, &alphabet(value)))
}

fn uuid(text: &str) -> Option<Shape> {
    let dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let fits = |(at, b): (usize, u8)| if dash(at) { b == b'-' } else { b.is_ascii_hexdigit() };
    if text.len() != 36 || !text.bytes().enumerate().all(fits) {
        return None;
    }
    let hex = if text.bytes().any(|b| b.is_ascii_uppercase()) { HEX_UPPER } else { HEX };
    let drawn = |count| Piece::Drawn { from: hex.to_vec(), count };
    let kept = |range: std::ops::Range<usize>| Piece::Kept(text.as_bytes()[range].to_vec());
    // The version and the variant are public, and checked by libraries.
    Some(Shape(vec![
        drawn(8),
        kept(8..9),
        drawn(4),
        kept(13..15),
        drawn(3),
        kept(18..20),
        drawn(3),
        kept(23..24),
        drawn(12),
    ]))
}

/// Base64 that ends in padding is decoded by whoever uses it, so it must stay decodable.
fn padded(text: &str) -> Option<Shape> {
    let bytes = STANDARD.decode(text).ok().filter(|_| text.ends_with('='))?.len();
    Some(Shape(vec![Piece::Coded { bytes, url: false }]))
}

/// A signed token: the header stays, of the claims only the end of validity, which clients look at.
fn token(text: &str) -> Option<Shape> {
    let parts: Vec<&str> = text.split('.').collect();
    let [header, claims, signature] = parts.as_slice() else { return None };
    let read = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
    let head: serde_json::Value = serde_json::from_slice(&read(header)?).ok()?;
    head.get("alg")?;
    let (claims, signature) = (zeroize::Zeroizing::new(read(claims)?), read(signature)?.len());
    let exp = serde_json::from_slice::<Validity>(&claims).ok()?.exp;
    let before = exp.map_or(String::from("{\"jti\":\""), |exp| format!("{{\"exp\":{exp},\"jti\":\""));
    let after = "\"}";
    let count = claims.len().checked_sub(before.len() + after.len())?;
    Some(Shape(vec![
        Piece::Kept(format!("{header}.").into_bytes()),
        Piece::Claims { before, count, after },
        Piece::Kept(vec![b'.']),
        Piece::Coded { bytes: signature, url: true },
    ]))
}

#[derive(serde::Deserialize)]
struct Validity {
    exp: Option<u64>,
}
