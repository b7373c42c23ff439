//! What a session may use from a moment on, whatever its policy says.

use serde::{Deserialize, Serialize};
use std::fmt;

/// None is no bound. It counts from when it is set, and takes the place of the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cap {
    pub requests: Option<u64>,
    /// Bytes of request bodies.
    pub bytes_up: Option<u64>,
    /// Bytes of response bodies.
    pub bytes_down: Option<u64>,
    /// What calls of models cost, in millionths of a dollar.
    pub spend: Option<u64>,
    /// Tokens that models read and write.
    pub tokens: Option<u64>,
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.requests, "requests"),
            (self.bytes_up, "bytes up"),
            (self.bytes_down, "bytes down"),
            (self.spend, "millionths of a dollar"),
            (self.tokens, "tokens"),
        ];
        let mut told = false;
        for (most, what) in parts.into_iter().filter_map(|(most, what)| Some((most?, what))) {
            let comma = if told { ", " } else { "" };
            write!(f, "{comma}{most} {what}")?;
            told = true;
        }
        if told { Ok(()) } else { f.write_str("none") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_says_what_it_bounds() {
        let check = |cap: Cap, expected: &str| assert_eq!(cap.to_string(), expected);
        check(Cap::default(), "none");
        check(Cap { requests: Some(3), tokens: Some(900), ..Cap::default() }, "3 requests, 900 tokens");
    }
}
