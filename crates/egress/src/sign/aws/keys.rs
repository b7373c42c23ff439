//! The keys that sign: the real one, and the one that the inside has, by which a client's signature is checked.

use super::claim::Claim;
use crate::swap::state::Entry;
use cofferdam_vault::{AwsV4Key, AwsV4aKey, Plain, Role};

pub(super) enum Key {
    V4(AwsV4Key),
    V4a(Box<AwsV4aKey>),
}

impl Key {
    fn derive(secret: &Plain, key_id: &str, day: &str, claim: &Claim) -> Option<Self> {
        match claim.v4a {
            false => Some(Self::V4(AwsV4Key::derive(secret, day, &claim.region, &claim.service))),
            true => AwsV4aKey::derive(secret, key_id).map(|key| Self::V4a(Box::new(key))),
        }
    }

    /// The key of the inside.
    pub(super) fn theirs(entry: &Entry, claim: &Claim) -> Option<Self> {
        let secret = Plain::new(entry.placeholder.as_bytes().to_vec());
        Self::derive(&secret, &claim.key_id, &claim.day, claim)
    }

    /// The real one.
    pub(super) fn ours(entry: &Entry, key_id: &str, day: &str, claim: &Claim) -> Option<Self> {
        Self::derive(&entry.plain, key_id, day, claim)
    }

    pub(super) fn sign(&self, text: &[u8]) -> String {
        match self {
            Self::V4(key) => key.sign(text),
            Self::V4a(key) => key.sign(text),
        }
    }

    pub(super) fn fits(&self, text: &[u8], signature: &str) -> bool {
        match self {
            Self::V4(key) => cofferdam_seal::same(key.sign(text).as_bytes(), signature.as_bytes()),
            Self::V4a(key) => key.verifies(text, signature),
        }
    }
}

/// A real value that goes along with requests.
pub(super) fn sent(entry: &Entry, role: Role) -> Option<String> {
    let part = entry.parts.iter().find(|part| part.role == role)?;
    std::str::from_utf8(part.plain.reveal()).ok().map(str::to_owned)
}
