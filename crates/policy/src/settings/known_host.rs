//! `[[known_host]]`: the operator's word on which keys a host has that is reached over SSH. A host that shows another is
//! not spoken to.

use serde::Serialize;

/// A key, or what is enough to know it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum HostClaim {
    /// `SHA256:` and base64 without padding.
    Fingerprint(String),
    /// The kind, and the whole key in base64.
    Key { kind: String, base64: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KnownHost {
    /// In its one spelling.
    pub host: String,
    pub port: u16,
    pub keys: Vec<HostClaim>,
    pub line: usize,
}

impl HostClaim {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_base64 = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
        if let Some(digest) = text.strip_prefix("SHA256:") {
            let digest = digest.trim_end_matches('=');
            return (digest.len() == 43 && is_base64(digest))
                .then(|| Self::Fingerprint(format!("SHA256:{digest}")));
        }
        // What follows is a comment.
        let mut words = text.split_whitespace();
        let (kind, base64) = (words.next()?, words.next()?);
        let is_kind = kind.bytes().all(|b| b.is_ascii_alphanumeric() || b"-@.".contains(&b));
        // Every key begins with the length of its kind's name, in four bytes of which three are zero.
        let is_key = base64.starts_with("AAAA") && base64.len() >= 40 && is_base64(base64);
        (is_kind && is_key).then(|| Self::Key { kind: kind.to_owned(), base64: base64.to_owned() })
    }
}
