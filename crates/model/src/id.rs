//! Session ids: twenty lower-case characters that sort by time and fit in a DNS label.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LEN: usize = 20;
const TIME_BITS: u32 = 40;

/// The name of one agent run. Forty bits of milliseconds, then sixty random bits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a session id: expected {LEN} characters of 0-9 and a-z without i, l, o, u")]
pub struct IdError(String);

impl SessionId {
    /// Makes an id from a clock reading and random bits; both are the caller's, so that this stays pure.
    pub fn new(unix_millis: u64, random: u64) -> Self {
        let time = u128::from(unix_millis & ((1 << TIME_BITS) - 1));
        let mut bits = (time << 60) | u128::from(random & ((1 << 60) - 1));
        let mut text = [0u8; LEN];
        for slot in text.iter_mut().rev() {
            *slot = ALPHABET[(bits & 31) as usize];
            bits >>= 5;
        }
        Self(text.iter().map(|&b| char::from(b)).collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SessionId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let ok = text.len() == LEN && text.bytes().all(|b| ALPHABET.contains(&b));
        if ok { Ok(Self(text.to_owned())) } else { Err(IdError(text.chars().take(40).collect())) }
    }
}

impl TryFrom<String> for SessionId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> Self {
        id.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_read_back() {
        let early = SessionId::new(1_700_000_000_000, u64::MAX);
        let late = SessionId::new(1_700_000_000_001, 0);
        assert!(early < late);
        assert_eq!(early.as_str().parse::<SessionId>(), Ok(early));
    }

    #[test]
    fn a_path_is_not_an_id() {
        for bad in ["", "../../etc/passwd", "0123456789abcdefghjl", "0123456789ABCDEFGHJK"] {
            assert!(bad.parse::<SessionId>().is_err(), "{bad}");
        }
    }
}
