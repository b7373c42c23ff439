//! Signature versions 4 and 4A of AWS, in a field and in a presigned URL, over bodies that are hashed, not covered, or
//! signed piece by piece; with and without fields behind them.

mod canonical;
mod chunks;
mod claim;
mod keys;
mod time;

pub(crate) use chunks::Stream;
pub(super) use claim::{pairs as claim_pairs, unescaped};

use super::frames::{FrameError, Frames};
use super::{Payload, Resign, Sending, SignError};
use crate::swap::state::{Entry, State};
use crate::swap::{At, Destination, Refusal};
use canonical::{Reading, Request, sha256};
use chunks::{Chain, Chunks, HashCheck};
use claim::Claim;
use cofferdam_vault::{Place, Role, Scope};
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, Method};
use keys::Key;

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const HASH: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const DECODED_LENGTH: &str = "x-amz-decoded-content-length";
const TRAILERS: &str = "x-amz-trailer";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// How far a clock inside may be off before ours is signed with.
const SKEW: i64 = 300;
/// How far in the future a URL may begin.
const EARLY: i64 = 900;

/// A signature taken off, and the request as its client signed it.
pub(crate) struct Taken {
    claim: Claim,
    method: Method,
    path: String,
    /// Of the query, without the signature.
    pairs: Vec<(String, String)>,
    headers: HeaderMap,
    mode: Mode,
}

/// What a signature says of the body.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mode {
    Hash(String),
    Unsigned,
    /// In pieces: whether they are signed, and whether fields follow.
    Pieces {
        literal: String,
        signed: bool,
        trailer: bool,
    },
    /// Nothing: the hash is in the signature alone.
    Untold,
}

impl Mode {
    fn of(headers: &HeaderMap, v4a: bool) -> Result<Self, SignError> {
        let mut values = headers.get_all(HASH).iter();
        let Some(value) = values.next() else { return Ok(Self::Untold) };
        let text = value.to_str().map_err(|_| SignError::Malformed("x-amz-content-sha256 is no text"))?;
        if values.next().is_some() {
            return Err(SignError::Malformed("several x-amz-content-sha256 fields"));
        }
        let algorithm = if v4a { claim::V4A } else { claim::V4 };
        let pieces = |signed, trailer| Self::Pieces { literal: text.to_owned(), signed, trailer };
        match text.strip_prefix("STREAMING-") {
            None if text == UNSIGNED => Ok(Self::Unsigned),
            None if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) => {
                Ok(Self::Hash(text.to_owned()))
            }
            None => Err(SignError::Malformed("x-amz-content-sha256 is no hash")),
            Some("UNSIGNED-PAYLOAD-TRAILER") => Ok(pieces(false, true)),
            Some(rest) => match rest.strip_prefix(algorithm) {
                Some("-PAYLOAD") => Ok(pieces(true, false)),
                Some("-PAYLOAD-TRAILER") => Ok(pieces(true, true)),
                _ => Err(SignError::Mode(text.chars().take(60).collect())),
            },
        }
    }
}

/// Takes a signature off whose key is a placeholder of ours, and says whose.
pub(super) fn take(
    state: &State,
    to: &Destination<'_>,
    head: &mut Parts,
) -> Result<Option<(usize, Taken)>, Refusal> {
    let all = claim::pairs(head.uri.query().unwrap_or_default());
    let whose = |key: &str| {
        let is_it = |entry: &Entry| entry.part(Role::KeyId).is_some_and(|part| *part.placeholder == *key);
        state.entries.iter().position(is_it)
    };
    let in_field = claim::key_in_field(&head.headers).and_then(whose);
    let in_query = claim::key_in_query(&all).and_then(|key| whose(&key));
    let old = claim::key_of_version_2(&head.headers, &all).and_then(|key| whose(&key));
    let Some(index) = in_field.or(in_query).or(old) else { return Ok(None) };
    let Some(entry) = state.entries.get(index) else { return Ok(None) };
    let at = if in_query.is_some() {
        At::Query("X-Amz-Credential".into())
    } else {
        At::Header("authorization".into())
    };
    let refuse = |why: SignError| entry.refuse(&at, why.into());
    if old.is_some() {
        return Err(refuse(SignError::Version2));
    }
    if in_query.is_some() && head.headers.contains_key(AUTHORIZATION) {
        return Err(refuse(SignError::Twice));
    }
    let claim = if in_query.is_some() { Claim::of_query(&all) } else { Claim::of_field(head) };
    let claim = claim.map_err(refuse)?;
    entry.permits(to, &at, Place::signs)?;
    allowed(entry, &claim).map_err(refuse)?;
    let mut mode = Mode::of(&head.headers, claim.v4a).map_err(refuse)?;
    if let (Mode::Untold, Some((_, hash))) = (&mode, told_in(&all)) {
        mode = Mode::Hash(hash.clone());
    }
    let (method, headers) = (head.method.clone(), head.headers.clone());
    let path = head.uri.path().to_owned();
    head.headers.remove(AUTHORIZATION);
    head.headers.remove(TOKEN);
    let mut pairs = all;
    if in_query.is_some() {
        let own = ["x-amz-credential", "x-amz-signature", "x-amz-security-token"];
        let others = pairs.iter().filter(|(name, _)| !own.iter().any(|own| name.eq_ignore_ascii_case(own)));
        head.uri = uri(&path, others).ok_or_else(|| refuse(SignError::Malformed("the query")))?;
        pairs.retain(|(name, _)| !name.eq_ignore_ascii_case("x-amz-signature"));
    }
    Ok(Some((index, Taken { claim, method, path, pairs, headers, mode })))
}

/// A hash of the body that stands in the query.
fn told_in(pairs: &[(String, String)]) -> Option<&(String, String)> {
    let is_hash = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    pairs.iter().find(|(name, value)| name.eq_ignore_ascii_case(HASH.as_str()) && is_hash(value))
}

/// Whether the credential may sign this.
fn allowed(entry: &Entry, claim: &Claim) -> Result<(), SignError> {
    let (place, name) = if claim.v4a { (Place::SigV4a, "sigv4a") } else { (Place::SigV4, "sigv4") };
    if !entry.credential.places.contains(&place) {
        return Err(SignError::Undeclared(name));
    }
    let scopes = &entry.credential.scopes;
    let refused = claim.regions().find(|region| !Scope::allow(scopes, &claim.service, region));
    match refused {
        None => Ok(()),
        Some(_) if scopes.is_empty() => Err(SignError::Mints(claim.service.clone())),
        Some(region) => Err(SignError::Scope { service: claim.service.clone(), region: region.to_owned() }),
    }
}

fn uri<'p>(path: &str, pairs: impl Iterator<Item = &'p (String, String)>) -> Option<Uri> {
    let parts: Vec<String> = pairs
        .map(|(name, value)| if value.is_empty() { name.clone() } else { format!("{name}={value}") })
        .collect();
    let text = if parts.is_empty() { path.to_owned() } else { format!("{path}?{}", parts.join("&")) };
    text.parse::<PathAndQuery>().ok().map(Uri::from)
}

impl Taken {
    pub(super) fn at(&self) -> At {
        match self.claim.expires {
            Some(_) => At::Query("X-Amz-Signature".into()),
            None => At::Header("authorization".into()),
        }
    }

    pub(super) fn needs_whole(&self) -> bool {
        let is_url_of_s3 = self.claim.expires.is_some() && self.claim.is_s3();
        self.mode == Mode::Untold && !is_url_of_s3
    }

    pub(super) fn sign(
        &self,
        entry: &Entry,
        sending: &Sending<'_>,
        head: &mut Parts,
        payload: Payload<'_>,
    ) -> Result<Option<Resign>, SignError> {
        let covered = self.covered(payload)?;
        let time = self.time(sending.now)?;
        let theirs = Key::theirs(entry, &self.claim).ok_or(SignError::NoKey)?;
        let (reading, covered, is_beside) = self.reading(&theirs, sending, &covered)?;
        let key_id = keys::sent(entry, Role::KeyId).ok_or(SignError::NoKey)?;
        let token = keys::sent(entry, Role::Token);
        let day = time.get(..8).unwrap_or_default().to_owned();
        let key = Key::ours(entry, &key_id, &day, &self.claim).ok_or(SignError::NoKey)?;
        let signer = Signer { claim: &self.claim, key: &key, key_id, token, is_beside, time, day };
        let signature = match self.claim.expires {
            None => signer.in_field(head, sending.authority, reading, &covered, &self.headers)?,
            Some(_) => signer.in_query(head, sending.authority, reading, &covered)?,
        };
        let Signer { time, day, .. } = signer;
        let ours =
            Chain { key, last: signature, scope: self.scope(&day), time, algorithm: self.claim.algorithm() };
        let stream = self.stream(theirs, ours, payload)?;
        Ok(stream.map(|stream| Resign { name: entry.name.clone(), stream }))
    }

    /// What the signature may cover of the body, the likeliest first.
    fn covered(&self, payload: Payload<'_>) -> Result<Vec<String>, SignError> {
        let whole = |bytes: &[u8]| sha256(bytes);
        match (&self.mode, payload) {
            (Mode::Hash(hash), Payload::Whole(bytes)) if !whole(bytes).eq_ignore_ascii_case(hash) => {
                Err(SignError::OtherBody)
            }
            (Mode::Hash(hash), _) => Ok(vec![hash.clone()]),
            (Mode::Unsigned, _) => Ok(vec![UNSIGNED.to_owned()]),
            (Mode::Pieces { literal, .. }, _) => Ok(vec![literal.clone()]),
            (Mode::Untold, Payload::Whole(bytes)) => match (self.claim.expires, self.claim.is_s3()) {
                (Some(_), true) => Ok(vec![UNSIGNED.to_owned(), whole(bytes)]),
                (Some(_), false) => Ok(vec![whole(bytes), UNSIGNED.to_owned(), sha256(b"")]),
                (None, _) => Ok(vec![whole(bytes), UNSIGNED.to_owned()]),
            },
            (Mode::Untold, Payload::Live) => Ok(vec![UNSIGNED.to_owned()]),
        }
    }

    /// The time to sign with: the client's, or ours where a field says it and the client's clock is off.
    fn time(&self, now: i64) -> Result<String, SignError> {
        let theirs = time::seconds(&self.claim.time).ok_or(SignError::Malformed("the time"))?;
        let Some(expires) = self.claim.expires else {
            let is_near = (theirs - now).abs() <= SKEW;
            return Ok(if is_near { self.claim.time.clone() } else { time::text(now) });
        };
        let until = theirs + i64::try_from(expires).unwrap_or(i64::MAX / 2);
        if now > until {
            return Err(SignError::Expired { until: time::text(until), now: time::text(now) });
        }
        if theirs > now + EARLY {
            return Err(SignError::Early { from: self.claim.time.clone(), now: time::text(now) });
        }
        Ok(self.claim.time.clone())
    }

    fn scope(&self, day: &str) -> String {
        scope(&self.claim, day)
    }

    /// How the client reads its own request, what it covers of the body, and whether the token of a URL stands beside
    /// what is signed: all told by its signature.
    fn reading(
        &self,
        theirs: &Key,
        sending: &Sending<'_>,
        covered: &[String],
    ) -> Result<(Reading, String, bool), SignError> {
        let readings = Reading::all(self.claim.is_s3());
        let (fields, whole) = canonical::fields(&self.headers, &self.claim.signed, sending.authority);
        if sending.rewritten || !whole {
            let first = readings.first().copied().zip(covered.first().cloned());
            return first.map(|(reading, payload)| (reading, payload, false)).ok_or(SignError::Mismatch);
        }
        let signed = self.claim.signed.join(";");
        let without: Vec<(String, String)> = self
            .pairs
            .iter()
            .filter(|(name, _)| !name.eq_ignore_ascii_case("x-amz-security-token"))
            .cloned()
            .collect();
        let both = [self.pairs.as_slice(), without.as_slice()];
        let tried = if without.len() == self.pairs.len() { &both[..1] } else { &both[..] };
        for pairs in tried {
            for payload in covered {
                for &reading in &readings {
                    let (method, path) = (self.method.as_str(), self.path.as_str());
                    let request = Request { method, path, pairs, fields: &fields, signed: &signed, payload };
                    let text =
                        to_sign(&self.claim, &self.claim.time, &self.claim.day, &request.hash(reading));
                    if theirs.fits(text.as_bytes(), &self.claim.signature) {
                        return Ok((reading, payload.clone(), pairs.len() < self.pairs.len()));
                    }
                }
            }
        }
        Err(SignError::Mismatch)
    }

    fn stream(&self, theirs: Key, ours: Chain, payload: Payload<'_>) -> Result<Option<Stream>, SignError> {
        let Mode::Pieces { signed, trailer, .. } = self.mode else {
            return Ok(match (&self.mode, payload) {
                (Mode::Hash(hash), Payload::Live) => {
                    Some(Stream::Hash(Box::new(HashCheck::new(hash.clone()))))
                }
                _ => None,
            });
        };
        let text = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok());
        let length = text(DECODED_LENGTH).and_then(|text| text.trim().parse().ok());
        let length: u64 = length.ok_or(SignError::Frames(FrameError::Length))?;
        let announced: Vec<String> =
            text(TRAILERS).unwrap_or_default().split(',').map(|name| name.trim().to_owned()).collect();
        if !signed {
            return Ok(Some(Stream::Frames(Box::new(Frames::unsigned(length, announced)))));
        }
        let theirs = Chain {
            key: theirs,
            last: self.claim.signature.clone(),
            time: self.claim.time.clone(),
            scope: self.scope(&self.claim.day),
            algorithm: self.claim.algorithm(),
        };
        let chunks = Chunks::new(theirs, ours, length, trailer.then_some(announced));
        Ok(Some(Stream::Chunks(Box::new(chunks))))
    }
}

fn scope(claim: &Claim, day: &str) -> String {
    match claim.v4a {
        false => format!("{day}/{}/{}/aws4_request", claim.region, claim.service),
        true => format!("{day}/{}/aws4_request", claim.service),
    }
}

fn to_sign(claim: &Claim, time: &str, day: &str, hash: &str) -> String {
    format!("{}\n{time}\n{}\n{hash}", claim.algorithm(), scope(claim, day))
}

/// Makes the real signature.
struct Signer<'a> {
    claim: &'a Claim,
    key: &'a Key,
    key_id: String,
    token: Option<String>,
    /// The token of a URL is sent and not signed, as some services want it.
    is_beside: bool,
    time: String,
    day: String,
}

impl Signer<'_> {
    fn in_field(
        &self,
        head: &mut Parts,
        authority: &str,
        reading: Reading,
        payload: &str,
        theirs: &HeaderMap,
    ) -> Result<String, SignError> {
        let mut signed = self.claim.signed.clone();
        head.headers.insert(DATE, value(&self.time)?);
        match &self.token {
            Some(token) => {
                head.headers.insert(TOKEN, value(token)?);
                let is_beside =
                    theirs.contains_key(TOKEN) && !signed.iter().any(|name| name == TOKEN.as_str());
                if !is_beside {
                    signed.push(TOKEN.as_str().to_owned());
                }
            }
            None => signed.retain(|name| name != TOKEN.as_str()),
        }
        // What concerned the connection alone is gone, and what is not sent cannot be signed.
        signed.retain(|name| name == "host" || head.headers.contains_key(name.as_str()));
        signed.sort_unstable();
        signed.dedup();
        let pairs = claim::pairs(head.uri.query().unwrap_or_default());
        let signature = self.signature(head, authority, reading, payload, &signed, &pairs);
        let text = format!(
            "{} Credential={}/{}, SignedHeaders={}, Signature={signature}",
            self.claim.algorithm(),
            self.key_id,
            scope(self.claim, &self.day),
            signed.join(";"),
        );
        head.headers.insert(AUTHORIZATION, value(&text)?);
        Ok(signature)
    }

    fn in_query(
        &self,
        head: &mut Parts,
        authority: &str,
        reading: Reading,
        payload: &str,
    ) -> Result<String, SignError> {
        let mut pairs = claim::pairs(head.uri.query().unwrap_or_default());
        let credential = format!("{}/{}", self.key_id, scope(self.claim, &self.day));
        pairs.push(("X-Amz-Credential".into(), percent(&credential)));
        let token = self.token.iter().map(|token| ("X-Amz-Security-Token".to_owned(), percent(token)));
        let (beside, signed): (Vec<_>, Vec<_>) = token.partition(|_| self.is_beside);
        pairs.extend(signed);
        let signature = self.signature(head, authority, reading, payload, &self.claim.signed, &pairs);
        pairs.extend(beside);
        pairs.push(("X-Amz-Signature".into(), signature.clone()));
        head.uri = uri(head.uri.path(), pairs.iter()).ok_or(SignError::Malformed("the query"))?;
        Ok(signature)
    }

    fn signature(
        &self,
        head: &Parts,
        authority: &str,
        reading: Reading,
        payload: &str,
        signed: &[String],
        pairs: &[(String, String)],
    ) -> String {
        let (fields, _) = canonical::fields(&head.headers, signed, authority);
        let (method, path) = (head.method.as_str(), head.uri.path());
        let request = Request { method, path, pairs, fields: &fields, signed: &signed.join(";"), payload };
        let text = to_sign(self.claim, &self.time, &self.day, &request.hash(reading));
        self.key.sign(text.as_bytes())
    }
}

fn value(text: &str) -> Result<HeaderValue, SignError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| SignError::Malformed("a field"))?;
    // Kept out of HPACK's tables, and out of what prints headers.
    value.set_sensitive(true);
    Ok(value)
}

pub(super) fn percent(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len() + 32), |mut out, byte| {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

#[cfg(test)]
mod tests;
