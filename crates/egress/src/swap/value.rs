//! Swaps within one value of a request: a header's, a parameter's, a field's.

use super::state::{Entry, State};
use super::{At, Destination, Refusal, Used, Why};
use crate::forms::{self, Hit, Keep, Kind};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use cofferdam_vault::Place;
use std::borrow::Cow;
use zeroize::Zeroizing;

/// Bytes that hold a real value.
pub(super) type Secret = Zeroizing<Vec<u8>>;

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);
const BARE: GeneralPurposeConfig = LENIENT.with_encode_padding(false);

/// One request on its way: what it may use, and what it has used.
pub(super) struct Swapping<'a> {
    pub(super) state: &'a State,
    pub(super) to: &'a Destination<'a>,
    pub(super) used: Used,
}

impl Swapping<'_> {
    /// The text with every placeholder swapped; none if it has none. `place` tells the declared place from others.
    pub(super) fn value(
        &mut self,
        text: &[u8],
        at: &At,
        place: &dyn Fn(&Place) -> bool,
    ) -> Result<Option<Secret>, Refusal> {
        let mut out = Secret::default();
        let mut done = 0;
        while let Some((hit, mark, entry)) = self.state.find(text, done) {
            if mark.real {
                return Err(entry.refuse(at, Why::RealValue));
            }
            entry.permits(self.to, at, place)?;
            let (start, end, real) = match mark.kind {
                Kind::Base64 { url, shift } => {
                    let (start, end) = token(text, done, hit, url, shift);
                    (start, end, self.encoded(text.get(start..end).unwrap_or_default(), url, at, place)?)
                }
                // Its ends are shared with what stands beside it, and escaped: nobody sends a credential so.
                Kind::Base64Within { .. } => (hit.start, hit.end, None),
                kind => (hit.start, hit.end, forms::encode(kind, entry.plain.reveal())),
            };
            let real = real.ok_or_else(|| entry.refuse(at, Why::OtherPlace))?;
            let before = text.get(done..start).unwrap_or_default();
            out = joined(&[&out, before, &real]);
            self.spent(entry);
            done = end;
        }
        Ok((done > 0).then(|| joined(&[&out, text.get(done..).unwrap_or_default()])))
    }

    fn spent(&mut self, entry: &Entry) {
        self.used.add(&entry.name, entry.generation);
    }

    /// A base64 text whose content is swapped; none where its content turns out to be no placeholder.
    fn encoded(
        &mut self,
        token: &[u8],
        url: bool,
        at: &At,
        place: &dyn Fn(&Place) -> bool,
    ) -> Result<Option<Secret>, Refusal> {
        let Ok(content) = (if url { &URL } else { &STANDARD }).decode(token) else { return Ok(None) };
        let swapped = self.value(&content, at, place)?;
        Ok(swapped.map(|content| encode_base64(&content, url, token.len().is_multiple_of(4))))
    }

    /// `user:password`, each the placeholder of a credential or something else.
    pub(super) fn basic(&mut self, token: &[u8], at: &At) -> Result<Option<Secret>, Refusal> {
        let Ok(content) = STANDARD.decode(token) else { return Ok(None) };
        let colon = content.iter().position(|&b| b == b':').unwrap_or(content.len());
        let (user, password) = content.split_at(colon);
        let user = self.part(user, at)?;
        if user.contains(&b':') {
            let culprit = self.used.credentials.last().map_or("", |used| &used.name);
            return Err(Refusal::of(culprit, at.clone(), Why::Unsendable));
        }
        let password = match password.strip_prefix(b":") {
            Some(password) => joined(&[b":", &self.part(password, at)?]),
            None => Secret::default(),
        };
        Ok(Some(encode_base64(&joined(&[&user, &password]), false, true)))
    }

    fn part(&mut self, part: &[u8], at: &At) -> Result<Secret, Refusal> {
        let Some(entry) = self.state.whose(part) else {
            self.state.bare(part, self.to, at)?;
            return Ok(joined(&[part]));
        };
        entry.permits(self.to, at, |place| *place == Place::Basic)?;
        self.spent(entry);
        Ok(joined(&[entry.plain.reveal()]))
    }

    /// `a=1&b=2`, of a query or of a form; none if nothing was swapped. `at` and `place` say what a parameter is.
    pub(super) fn pairs(
        &mut self,
        text: &[u8],
        at: impl Fn(String) -> At,
        place: impl Fn(&Place, &str) -> bool,
    ) -> Result<Option<Secret>, Refusal> {
        if layers(text).all(|layer| self.state.find(&layer, 0).is_none()) {
            return Ok(None);
        }
        let names: Vec<String> = text.split(|&b| b == b'&').map(|pair| name_of(pair).1).collect();
        let mut out = Secret::default();
        for (index, pair) in text.split(|&b| b == b'&').enumerate() {
            let (raw_name, name) = name_of(pair);
            let here = at(name.clone());
            let rest = pair.get(raw_name.len()..).unwrap_or_default();
            for layer in layers(raw_name) {
                self.state.bare(&layer, self.to, &here)?;
            }
            let swapped = self.parameter(rest, &here, &|p| place(p, &name))?;
            if swapped.is_some() && names.iter().filter(|n| **n == name).count() > 1 {
                let culprit = self.used.credentials.last().map_or("", |used| &used.name);
                return Err(Refusal::of(culprit, here, Why::Repeated));
            }
            let between: &[u8] = if index == 0 { b"" } else { b"&" };
            out = joined(&[&out, between, raw_name, swapped.as_deref().map_or(rest, Vec::as_slice)]);
        }
        Ok(Some(out))
    }

    /// `=value`, decoded, swapped and encoded again; none if nothing of it was.
    fn parameter(
        &mut self,
        rest: &[u8],
        at: &At,
        place: &dyn Fn(&Place) -> bool,
    ) -> Result<Option<Secret>, Refusal> {
        let Some(text) = rest.strip_prefix(b"=") else { return Ok(None) };
        let content = unescaped(text, true);
        let Some(swapped) = self.value(&content, at, place)? else {
            for layer in layers(text) {
                self.state.bare(&layer, self.to, at)?;
            }
            return Ok(None);
        };
        let keep = Kind::Percent { keep: Keep::Unreserved, upper: true };
        Ok(forms::encode(keep, &swapped).map(|encoded| joined(&[b"=", &encoded])))
    }
}

/// A parameter's name as it stands, and decoded.
fn name_of(pair: &[u8]) -> (&[u8], String) {
    let raw = pair.split(|&b| b == b'=').next().unwrap_or_default();
    (raw, String::from_utf8_lossy(&unescaped(raw, true)).into_owned())
}

/// In one allocation of the right size, so that no copy of a secret is left behind in growing.
pub(super) fn joined(parts: &[&[u8]]) -> Secret {
    let mut out = Secret::new(Vec::with_capacity(parts.iter().map(|p| p.len()).sum()));
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

fn encode_base64(content: &[u8], url: bool, padded: bool) -> Secret {
    let alphabet = if url { alphabet::URL_SAFE } else { alphabet::STANDARD };
    let engine = GeneralPurpose::new(&alphabet, if padded { LENIENT } else { BARE });
    Secret::new(engine.encode(content).into_bytes())
}

/// The base64 text around a hit, from a digit that starts a group of four.
fn token(text: &[u8], from: usize, hit: Hit, url: bool, shift: u8) -> (usize, usize) {
    let other: &[u8] = if url { b"-_" } else { b"+/" };
    let digit = |b: &&u8| b.is_ascii_alphanumeric() || other.contains(b);
    let before = text.get(from..hit.start).unwrap_or_default();
    let run = hit.start - before.iter().rev().take_while(digit).count();
    let first = hit.start.saturating_sub(forms::skipped(shift)).max(run);
    let after = text.get(hit.end..).unwrap_or_default();
    let digits = after.iter().take_while(digit).count();
    let padding = after.iter().skip(digits).take(2).take_while(|b| **b == b'=').count();
    (run + (first - run) % 4, hit.end + digits + padding)
}

/// A text as it stands and as it reads when its percent escapes are undone, once and twice.
pub(super) fn layers(text: &[u8]) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let undone = |last: &Cow<'_, [u8]>| last.contains(&b'%').then(|| Cow::Owned(unescaped(last, false)));
    std::iter::successors(Some(Cow::Borrowed(text)), undone).take(3)
}

/// All that a text of a head can be taken for: its [`layers`], and the user and password of basic authorization.
pub(crate) fn readings(text: &[u8]) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let (scheme, token) = text.split_at(text.iter().position(|&b| b == b' ').unwrap_or(0));
    let basic =
        scheme.eq_ignore_ascii_case(b"basic").then(|| STANDARD.decode(token.trim_ascii()).ok()).flatten();
    layers(text).chain(basic.map(Cow::Owned))
}

fn unescaped(text: &[u8], plus: bool) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|&b| char::from(b).to_digit(16));
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) if plus => out.push(b' '),
            _ => out.push(byte),
        }
        at += 1;
    }
    out
}
