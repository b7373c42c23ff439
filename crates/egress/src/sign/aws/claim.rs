//! What a client's signature says of itself: in the `authorization` field, or in the query of a presigned URL.

use super::super::SignError;
use http::HeaderMap;
use http::request::Parts;

pub(super) const V4: &str = "AWS4-HMAC-SHA256";
pub(super) const V4A: &str = "AWS4-ECDSA-P256-SHA256";
const LONGEST_URL_LIFE: u64 = 7 * 24 * 3600;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) v4a: bool,
    pub(super) key_id: String,
    /// As `20150830`.
    pub(super) day: String,
    /// Several, with commas between, in version 4A.
    pub(super) region: String,
    pub(super) service: String,
    /// Lower case, in order.
    pub(super) signed: Vec<String>,
    pub(super) signature: String,
    /// As `20150830T123600Z`.
    pub(super) time: String,
    /// How many seconds a presigned URL is valid; none for a signature in a field.
    pub(super) expires: Option<u64>,
}

/// The key that a signature in the `authorization` field names.
pub(super) fn key_in_field(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let rest = value.trim_start().strip_prefix("AWS4-")?;
    let at = rest.find("Credential=")?;
    rest.get(at + "Credential=".len()..)?.split('/').next().map(str::trim)
}

/// The key that a signature of the version before names.
pub(super) fn key_of_version_2(headers: &HeaderMap, pairs: &[(String, String)]) -> Option<String> {
    let in_query = pairs.iter().find(|(name, _)| name == "AWSAccessKeyId").map(|(_, value)| unescaped(value));
    let in_field = || {
        let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
        value.strip_prefix("AWS ")?.split(':').next().map(str::to_owned)
    };
    in_query.or_else(in_field)
}

/// The parameters of a query, as they stand.
pub(in crate::sign) fn pairs(query: &str) -> Vec<(String, String)> {
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (name.to_owned(), value.to_owned())
    };
    query.split('&').filter(|part| !part.is_empty()).map(pair).collect()
}

/// The key that a presigned URL names.
pub(super) fn key_in_query(pairs: &[(String, String)]) -> Option<String> {
    let (_, value) = pairs.iter().find(|(name, _)| name.eq_ignore_ascii_case("x-amz-credential"))?;
    unescaped(value).split('/').next().map(str::to_owned)
}

pub(in crate::sign) fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|&b| char::from(b).to_digit(16));
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn field<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then(|| value.trim())
}

impl Claim {
    pub(super) fn of_field(head: &Parts) -> Result<Self, SignError> {
        let bad = SignError::Malformed;
        let value = field(&head.headers, "authorization").ok_or(bad("several authorization fields"))?;
        let (algorithm, rest) = value.split_once(' ').ok_or(bad("no parameters"))?;
        let v4a = is_v4a(algorithm)?;
        let (mut credential, mut signed, mut signature) = (None, None, None);
        for part in rest.split(',') {
            let (name, value) = part.trim().split_once('=').ok_or(bad("a parameter without a value"))?;
            let place = match name {
                "Credential" => &mut credential,
                "SignedHeaders" => &mut signed,
                "Signature" => &mut signature,
                _ => return Err(bad("an unknown parameter")),
            };
            if place.replace(value).is_some() {
                return Err(bad("a parameter that stands twice"));
            }
        }
        let all = credential.zip(signed).zip(signature).ok_or(bad("a parameter is missing"))?;
        let ((credential, signed), signature) = all;
        let time = field(&head.headers, "x-amz-date").ok_or(SignError::Unsigned("x-amz-date"))?;
        let regions = if v4a { field(&head.headers, "x-amz-region-set").unwrap_or_default() } else { "" };
        Self { time: time.to_owned(), ..Self::read(v4a, credential, signed, signature, regions)? }.checked()
    }

    pub(super) fn of_query(pairs: &[(String, String)]) -> Result<Self, SignError> {
        let bad = SignError::Malformed;
        let one = |name: &'static str| -> Result<Option<String>, SignError> {
            let mut found = pairs.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name));
            let first = found.next().map(|(_, value)| unescaped(value));
            if found.next().is_some() { Err(bad("a parameter that stands twice")) } else { Ok(first) }
        };
        let needed = |name| one(name)?.ok_or(bad("a parameter is missing"));
        let v4a = is_v4a(&needed("x-amz-algorithm")?)?;
        let regions = if v4a { one("x-amz-region-set")?.unwrap_or_default() } else { String::new() };
        let expires: u64 = match one("x-amz-expires")? {
            Some(text) => text.parse().map_err(|_| bad("x-amz-expires is no number"))?,
            // What some services take for a day, as their clients do not say.
            None => 24 * 3600,
        };
        if expires == 0 || expires > LONGEST_URL_LIFE {
            return Err(bad("x-amz-expires is over a week, or nothing"));
        }
        let (credential, signed) = (needed("x-amz-credential")?, needed("x-amz-signedheaders")?);
        let claim = Self::read(v4a, &credential, &signed, &needed("x-amz-signature")?, &regions)?;
        Self { time: needed("x-amz-date")?, expires: Some(expires), ..claim }.checked()
    }

    fn read(
        v4a: bool,
        credential: &str,
        signed: &str,
        signature: &str,
        regions: &str,
    ) -> Result<Self, SignError> {
        let parts: Vec<&str> = credential.trim().split('/').collect();
        let (key_id, day, region, service) = match (v4a, parts.as_slice()) {
            (false, [key, day, region, service, "aws4_request"]) => (*key, *day, *region, *service),
            (true, [key, day, service, "aws4_request"]) => (*key, *day, regions, *service),
            _ => {
                return Err(SignError::Malformed(
                    "the credential is not KEY/DAY/REGION/SERVICE/aws4_request",
                ));
            }
        };
        let mut signed: Vec<String> = signed.trim().split(';').map(str::to_ascii_lowercase).collect();
        signed.sort_unstable();
        Ok(Self {
            v4a,
            key_id: key_id.to_owned(),
            day: day.to_owned(),
            region: region.to_owned(),
            service: service.to_owned(),
            signed,
            signature: signature.trim().to_owned(),
            time: String::new(),
            expires: None,
        })
    }

    fn checked(self) -> Result<Self, SignError> {
        let bad = |why| Err(SignError::Malformed(why));
        let name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b);
        let regions = |b: u8| name(b) || (self.v4a && b",* ".contains(&b));
        if self.service.is_empty() || !self.service.bytes().all(name) {
            return bad("the service has no name");
        }
        if self.region.is_empty() || !self.region.bytes().all(regions) {
            return bad("the region has no name");
        }
        if super::time::seconds(&self.time).is_none() || self.time.get(..8) != Some(&self.day) {
            return bad("the time is not of the day that is signed");
        }
        let length = if self.v4a { 2..=160 } else { 64..=64 };
        if !length.contains(&self.signature.len()) || !self.signature.bytes().all(|b| b.is_ascii_hexdigit()) {
            return bad("the signature has no hexadecimal digits");
        }
        if self.signed.windows(2).any(|pair| pair[0] == pair[1]) {
            return bad("a field that is signed twice");
        }
        if !self.signed.iter().any(|name| name == "host") {
            return Err(SignError::Unsigned("host"));
        }
        if self.expires.is_none() && !self.signed.iter().any(|name| name == "x-amz-date") {
            return Err(SignError::Unsigned("x-amz-date"));
        }
        Ok(self)
    }

    /// Each region it is for.
    pub(super) fn regions(&self) -> impl Iterator<Item = &str> {
        self.region.split(',').map(str::trim)
    }

    pub(super) fn is_s3(&self) -> bool {
        matches!(self.service.as_str(), "s3" | "s3-outposts" | "s3express" | "s3-object-lambda")
    }

    pub(super) fn algorithm(&self) -> &'static str {
        if self.v4a { V4A } else { V4 }
    }
}

fn is_v4a(algorithm: &str) -> Result<bool, SignError> {
    match algorithm {
        V4 => Ok(false),
        V4A => Ok(true),
        _ => Err(SignError::Malformed("an algorithm that is not known here")),
    }
}
