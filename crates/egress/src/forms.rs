//! The usual encodings of a value, and for each the text that takes its place.
//!
//! A form and its cover have the same length, so that covering a secret never moves a byte: lengths, frames and
//! chunks of what carries it stay right. Forms are finite and literal: what an encoder of good faith writes
//! (raw, base64 at any alignment, percent, hex, JSON, HTML, UTF-16); what is broken into lines is joined first. It
//! refuses values under eight bytes, which no scanner can tell from ordinary text. Not covered: transformations
//! nobody uses by accident (reversal, ciphers).

mod digits;
mod finder;
mod wrapped;

pub(crate) use digits::{Edge, skipped};
pub(crate) use finder::{Finder, Hit};
pub(crate) use wrapped::{Run, runs};

use zeroize::Zeroizing;

/// Under this, a value occurs in ordinary text by chance.
pub(crate) const SHORTEST: usize = 8;
/// Over this, it is no credential, and its forms would dwarf what they are looked for in.
pub(crate) const LONGEST: usize = 16 * 1024;
/// Values over this are looked for in every form but those that escape each byte: three to six times the size.
const ESCAPED_LONGEST: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Raw,
    Base64 {
        url: bool,
        /// How many bytes stand before the value in its group of three.
        shift: u8,
    },
    /// Base64 of which `/` and `+` are escaped once more: percent, or `\/` of JSON.
    Base64Within {
        percent: bool,
        shift: u8,
    },
    Percent {
        keep: Keep,
        upper: bool,
    },
    Hex {
        upper: bool,
    },
    /// Quotes, backslashes and controls escaped; `/` too where it says so.
    Json {
        slash: bool,
    },
    /// Every character as `\uXXXX`.
    JsonAll {
        upper: bool,
    },
    Html {
        decimal: bool,
    },
    Utf16 {
        big: bool,
    },
}

/// Which bytes a percent-encoder leaves alone, besides letters and digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// RFC 3986: `-._~`.
    Unreserved,
    /// The same and `/`: a path.
    Path,
    /// `encodeURIComponent`: `-._~!*'()`.
    Script,
    /// `application/x-www-form-urlencoded`: `*-._`, and a space is `+`.
    Form,
    Nothing,
}

#[rustfmt::skip]
const KINDS: &[Kind] = &[
    Kind::Raw,
    Kind::Base64 { url: false, shift: 0 }, Kind::Base64 { url: false, shift: 1 }, Kind::Base64 { url: false, shift: 2 },
    Kind::Base64 { url: true, shift: 0 }, Kind::Base64 { url: true, shift: 1 }, Kind::Base64 { url: true, shift: 2 },
    Kind::Base64Within { percent: true, shift: 0 }, Kind::Base64Within { percent: true, shift: 1 }, Kind::Base64Within { percent: true, shift: 2 },
    Kind::Base64Within { percent: false, shift: 0 }, Kind::Base64Within { percent: false, shift: 1 }, Kind::Base64Within { percent: false, shift: 2 },
    Kind::Percent { keep: Keep::Unreserved, upper: true }, Kind::Percent { keep: Keep::Unreserved, upper: false },
    Kind::Percent { keep: Keep::Path, upper: true }, Kind::Percent { keep: Keep::Path, upper: false },
    Kind::Percent { keep: Keep::Script, upper: true }, Kind::Percent { keep: Keep::Script, upper: false },
    Kind::Percent { keep: Keep::Form, upper: true }, Kind::Percent { keep: Keep::Form, upper: false },
    Kind::Percent { keep: Keep::Nothing, upper: true }, Kind::Percent { keep: Keep::Nothing, upper: false },
    Kind::Hex { upper: false }, Kind::Hex { upper: true },
    Kind::Json { slash: false }, Kind::Json { slash: true },
    Kind::JsonAll { upper: false }, Kind::JsonAll { upper: true },
    Kind::Html { decimal: true }, Kind::Html { decimal: false },
    Kind::Utf16 { big: false }, Kind::Utf16 { big: true },
];

pub(crate) struct Form {
    pub(crate) kind: Kind,
    pub(crate) text: Zeroizing<Vec<u8>>,
    /// As long as `text`.
    pub(crate) cover: Vec<u8>,
    /// The base64 digits at both ends, which the value shares with what stands beside it.
    pub(crate) before: Option<Edge>,
    pub(crate) after: Option<Edge>,
}

/// All forms of `value`, each text once, with covers made of `placeholder`.
pub(crate) fn forms(value: &[u8], placeholder: &[u8]) -> Vec<Form> {
    let cover = fit(placeholder, value.len());
    let mut forms: Vec<Form> = Vec::new();
    for &kind in KINDS {
        let Some(text) = encode(kind, value) else { continue };
        if !forms.iter().any(|f| f.text == text) {
            let (before, after) = match kind {
                Kind::Base64 { url, shift } => digits::edges(url, shift, value, &cover),
                _ => (None, None),
            };
            let cover = covering(kind, &cover, text.len());
            forms.push(Form { kind, text, cover, before, after });
        }
    }
    forms
}

/// The cover in the value's own encoding, or, where that has another length, letters that break no syntax.
fn covering(kind: Kind, cover: &[u8], length: usize) -> Vec<u8> {
    match encode(kind, cover) {
        Some(text) if text.len() == length => text.to_vec(),
        _ => {
            let letters: Vec<u8> = cover.iter().copied().filter(u8::is_ascii_alphanumeric).collect();
            fit(if letters.is_empty() { b"x" } else { &letters }, length)
        }
    }
}

/// Cut, or begun again, to this length.
fn fit(text: &[u8], length: usize) -> Vec<u8> {
    text.iter().copied().cycle().take(length).collect()
}

/// The value as this kind of encoder writes it; none where that encoder does not take it.
pub(crate) fn encode(kind: Kind, value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    // Six bytes for each of the value is the most that any form takes, so nothing is left behind in growing.
    let mut out = Zeroizing::new(Vec::with_capacity(6 * value.len() + 8));
    match kind {
        Kind::Raw => out.extend_from_slice(value),
        Kind::Base64 { url, shift } => digits::core(url, shift, value, &mut out),
        Kind::Base64Within { percent, shift } => {
            let mut plain = Zeroizing::new(Vec::with_capacity(2 * value.len() + 8));
            digits::core(false, shift, value, &mut plain);
            plain.iter().for_each(|&digit| digits::within(percent, digit, &mut out));
        }
        Kind::Percent { keep: Keep::Nothing, .. } | Kind::JsonAll { .. } if value.len() > ESCAPED_LONGEST => {
            return None;
        }
        Kind::Percent { keep, upper } => value.iter().for_each(|&b| percent(keep, upper, b, &mut out)),
        Kind::Hex { upper } => value.iter().for_each(|&b| hex(upper, b, &mut out)),
        Kind::Json { slash } => {
            std::str::from_utf8(value).ok()?.chars().for_each(|c| json(slash, c, &mut out))
        }
        Kind::JsonAll { upper } => utf16(value)?.for_each(|unit| escape_u(upper, unit, &mut out)),
        Kind::Html { decimal } => value.iter().for_each(|&b| html(decimal, b, &mut out)),
        Kind::Utf16 { big } => utf16(value)?.for_each(|unit| {
            out.extend_from_slice(&if big { unit.to_be_bytes() } else { unit.to_le_bytes() })
        }),
    }
    Some(out)
}

fn utf16(value: &[u8]) -> Option<impl Iterator<Item = u16> + '_> {
    std::str::from_utf8(value).ok().map(str::encode_utf16)
}

fn hex(upper: bool, byte: u8, out: &mut Vec<u8>) {
    let digits = if upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    for nibble in [byte >> 4, byte & 15] {
        out.push(digits.get(usize::from(nibble)).copied().unwrap_or_default());
    }
}

fn percent(keep: Keep, upper: bool, byte: u8, out: &mut Vec<u8>) {
    let kept: &[u8] = match keep {
        Keep::Unreserved => b"-._~",
        Keep::Path => b"-._~/",
        Keep::Script => b"-._~!*'()",
        Keep::Form => b"*-._",
        Keep::Nothing => b"",
    };
    if kept.contains(&byte) || (keep != Keep::Nothing && byte.is_ascii_alphanumeric()) {
        out.push(byte);
    } else if keep == Keep::Form && byte == b' ' {
        out.push(b'+');
    } else {
        out.push(b'%');
        hex(upper, byte, out);
    }
}

fn json(slash: bool, c: char, out: &mut Vec<u8>) {
    match c {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '/' if slash => out.extend_from_slice(b"\\/"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\t' => out.extend_from_slice(b"\\t"),
        '\u{8}' => out.extend_from_slice(b"\\b"),
        '\u{c}' => out.extend_from_slice(b"\\f"),
        // Writers that escape slashes are those that escape all but ASCII.
        c if c < ' ' || (slash && !c.is_ascii()) => {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|&unit| escape_u(false, unit, out));
        }
        c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

fn escape_u(upper: bool, unit: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\\u");
    unit.to_be_bytes().iter().for_each(|&b| hex(upper, b, out));
}

fn html(decimal: bool, byte: u8, out: &mut Vec<u8>) {
    let text: &[u8] = match (byte, decimal) {
        (b'&', _) => b"&amp;",
        (b'<', _) => b"&lt;",
        (b'>', _) => b"&gt;",
        (b'"', true) => b"&#34;",
        (b'"', false) => b"&quot;",
        (b'\'', true) => b"&#39;",
        (b'\'', false) => b"&#x27;",
        _ => return out.push(byte),
    };
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests;
