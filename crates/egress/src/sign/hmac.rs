//! Signatures by declaration. What is ours is told by its signature: one that fits under the placeholder.

use super::aws::claim_pairs as pairs;
use super::{Payload, Sending, SignError, signature_fits, unescaped};
use crate::swap::state::{Entry, State};
use crate::swap::{At, Destination, Refusal};
use cofferdam_seal::Hash;
use cofferdam_vault::{Piece, Place, Plain, Scheme, Stands};
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;

/// A signature that may be ours, taken off; the body tells.
pub(crate) struct Taken {
    scheme: Scheme,
    signature: String,
    /// As its client sent it.
    head: Parts,
}

pub(super) fn take(
    state: &State,
    to: &Destination<'_>,
    head: &mut Parts,
) -> Result<Option<(usize, Taken)>, Refusal> {
    let declared = |entry: &Entry| {
        let is_here = entry.credential.places.contains(&Place::Hmac) && entry.goes_to(to.host);
        entry.credential.hmac.as_ref().filter(|_| is_here).and_then(|declared| declared.scheme().ok())
    };
    for (index, entry) in state.entries.iter().enumerate() {
        let Some(scheme) = declared(entry) else { continue };
        let Some(signature) = signature(&scheme.stands, head) else { continue };
        entry.permits(to, &at(&scheme.stands), Place::signs)?;
        let taken = Taken { scheme, signature, head: head.clone() };
        return Ok(Some((index, taken)));
    }
    Ok(None)
}

fn signature(stands: &Stands, head: &Parts) -> Option<String> {
    match stands {
        Stands::Header(name) => {
            let mut values = head.headers.get_all(name.as_str()).iter();
            let value = values.next()?.to_str().ok()?.to_owned();
            values.next().is_none().then_some(value)
        }
        Stands::Query(name) => {
            let all = pairs(head.uri.query().unwrap_or_default());
            let mut found = all.into_iter().filter(|(found, _)| found == name);
            let value = found.next().map(|(_, value)| unescaped(&value))?;
            found.next().is_none().then_some(value)
        }
    }
}

fn at(stands: &Stands) -> At {
    match stands {
        Stands::Header(name) => At::Header(name.clone()),
        Stands::Query(name) => At::Query(name.clone()),
    }
}

impl Taken {
    pub(super) fn at(&self) -> At {
        at(&self.scheme.stands)
    }

    pub(super) fn needs_whole(&self) -> bool {
        self.scheme.needs_body()
    }

    pub(super) fn sign(
        &self,
        entry: &Entry,
        sending: &Sending<'_>,
        head: &mut Parts,
        payload: Payload<'_>,
    ) -> Result<(), SignError> {
        let body = if let Payload::Whole(bytes) = payload { bytes } else { b"" };
        let inside = Plain::new(entry.placeholder.as_bytes().to_vec());
        let theirs = self.made(&inside, &self.head, sending, body).ok_or(SignError::NoKey)?;
        if !sending.rewritten && !signature_fits(&theirs, &self.signature) {
            return Err(SignError::Mismatch);
        }
        let ours = self.made(&entry.plain, head, sending, body).ok_or(SignError::NoKey)?;
        match &self.scheme.stands {
            Stands::Header(name) => {
                let bad = || SignError::Malformed("the field");
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
                head.headers.insert(name, HeaderValue::from_str(&ours).map_err(|_| bad())?);
            }
            Stands::Query(name) => {
                let put = |(found, value): (String, String)| match found == *name {
                    true => format!("{found}={}", percent(&ours)),
                    false if value.is_empty() => found,
                    false => format!("{found}={value}"),
                };
                let query: Vec<String> =
                    pairs(head.uri.query().unwrap_or_default()).into_iter().map(put).collect();
                let target = format!("{}?{}", head.uri.path(), query.join("&"));
                let bad = |_| SignError::Malformed("the query");
                head.uri = target.parse::<PathAndQuery>().map_err(bad)?.into();
            }
        }
        Ok(())
    }

    fn made(&self, key: &Plain, head: &Parts, sending: &Sending<'_>, body: &[u8]) -> Option<String> {
        let parts: Vec<Vec<u8>> =
            self.scheme.pieces.iter().map(|piece| self.piece(piece, head, sending, body)).collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        self.scheme.sign(key, &parts)
    }

    fn piece(&self, piece: &Piece, head: &Parts, sending: &Sending<'_>, body: &[u8]) -> Vec<u8> {
        match piece {
            Piece::Text(text) => text.clone().into_bytes(),
            Piece::Method => head.method.as_str().into(),
            Piece::Path => head.uri.path().into(),
            Piece::Query => self.query(head).into_bytes(),
            Piece::Target => {
                let query = self.query(head);
                let mark = if query.is_empty() { "" } else { "?" };
                format!("{}{mark}{query}", head.uri.path()).into_bytes()
            }
            Piece::Host => sending.authority.into(),
            Piece::Body => body.to_vec(),
            Piece::BodyHash(hash) => hex(*hash, body).into_bytes(),
            Piece::Header(name) => {
                head.headers.get(name.as_str()).map(|value| value.as_bytes().to_vec()).unwrap_or_default()
            }
            Piece::Parameter(name) => {
                let all = pairs(head.uri.query().unwrap_or_default());
                let found = all.into_iter().find(|(found, _)| found == name);
                found.map(|(_, value)| unescaped(&value).into_bytes()).unwrap_or_default()
            }
        }
    }

    /// As it stands, without the signature.
    fn query(&self, head: &Parts) -> String {
        let is_signature = |part: &str| match &self.scheme.stands {
            Stands::Query(name) => part.split('=').next() == Some(name),
            Stands::Header(_) => false,
        };
        let query = head.uri.query().unwrap_or_default();
        let parts: Vec<&str> = query.split('&').filter(|part| !is_signature(part)).collect();
        parts.join("&")
    }
}

fn hex(hash: Hash, body: &[u8]) -> String {
    hash.digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn percent(text: &str) -> String {
    super::aws::percent(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_vault::{Credential, Declaration};
    use std::sync::Arc;

    const INSIDE: &str = "placeholder-key-0123456789";
    const REAL: &str = "the-real-key-of-the-account";

    fn state(declaration: &str) -> Arc<State> {
        let credential = Credential {
            name: "exchange".into(),
            env: "KEY".into(),
            hosts: vec!["api.exchange.test".into()],
            places: vec![Place::Hmac],
            hmac: Some(Declaration::parse(declaration).unwrap()),
            ..Credential::default()
        };
        Arc::new(State::new(vec![Entry {
            name: "exchange".into(),
            credential: Arc::new(credential),
            placeholder: INSIDE.into(),
            plain: Arc::new(Plain::new(REAL.into())),
            parts: Vec::new(),
            earlier: Vec::new(),
            generation: 1,
            revoked: false,
            until: None,
        }]))
    }

    fn request(uri: &str, fields: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().method("POST").uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn mac(key: &str, text: &str) -> String {
        Hash::Sha256
            .authenticate(key.as_bytes(), &[text.as_bytes()])
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect()
    }

    fn sign(state: &Arc<State>, head: &mut Parts, body: &[u8]) -> Result<(), String> {
        let to = Destination { host: "api.exchange.test", port: 443, program: None };
        let taken = super::super::take(state, &to, head).map_err(|e| e.to_string())?.ok_or("not ours")?;
        let sending = Sending { authority: "api.exchange.test", now: 0, rewritten: false };
        taken.sign(&sending, head, Payload::Whole(body)).map_err(|e| e.to_string()).map(drop)
    }

    /// As exchanges have it: the query is signed, and the signature is its last parameter.
    #[test]
    fn a_signature_in_the_query() {
        let state = state("in = \"query:signature\"\ntext = \"{query}{body}\"");
        let query = "symbol=BTCUSDT&timestamp=1499827319559";
        let mut head = request(&format!("/api/v3/order?{query}&signature={}", mac(INSIDE, query)), &[]);
        sign(&state, &mut head, b"").unwrap();
        assert_eq!(head.uri.query().unwrap(), format!("{query}&signature={}", mac(REAL, query)));
        let mut other = request(&format!("/api/v3/order?{query}1&signature={}", mac(INSIDE, query)), &[]);
        assert!(sign(&state, &mut other, b"").unwrap_err().contains("does not fit"));
    }

    /// As payment services have it: time, method, path and body, in fields of their own.
    #[test]
    fn a_signature_in_a_field() {
        let state = state(
            "in = \"header:X-Sign\"\nprefix = \"v1=\"\ntext = \"{header:X-Time}\\n{method}\\n{target}\\n{body_sha256}\"",
        );
        let hash = hex(Hash::Sha256, b"{}");
        let text = format!("170000\nPOST\n/pay?a=1\n{hash}");
        let signature = format!("v1={}", mac(INSIDE, &text));
        let fields = [("x-time", "170000"), ("x-sign", signature.as_str())];
        let mut head = request("/pay?a=1", &fields);
        sign(&state, &mut head, b"{}").unwrap();
        assert_eq!(head.headers["x-sign"], format!("v1={}", mac(REAL, &text)));
        assert!(
            sign(&state, &mut request("/pay?a=1", &fields), b"{1}").unwrap_err().contains("does not fit")
        );
        assert!(sign(&state, &mut request("/pay?a=1", &[]), b"{}").unwrap_err().contains("not ours"));
    }
}
