//! What a server's tools were when they were first seen. A tool is its whole definition, since that is what a
//! model reads: another description is another tool. One that comes later or has changed is withheld, from the
//! listing too, until a person pins it.

use cofferdam_model::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// More tools than any server has.
const MOST: usize = 10_000;

/// The tools of one server by name, each with the digest of its definition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pins {
    /// Whether a first listing has been seen to its end.
    #[serde(default)]
    pub complete: bool,
    #[serde(default)]
    pub tools: BTreeMap<String, Digest>,
}

/// How a tool stands to its pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// As it was pinned.
    Same,
    /// Pinned just now, with the first listing.
    First,
    /// There was a whole listing before, without it.
    Late,
    Changed(Digest),
}

impl Pins {
    pub(super) fn see(&mut self, name: &str, schema: Digest) -> Standing {
        match self.tools.get(name) {
            Some(pinned) if *pinned == schema => Standing::Same,
            Some(pinned) => Standing::Changed(*pinned),
            None if self.complete || self.tools.len() >= MOST => Standing::Late,
            None => {
                self.tools.insert(name.to_owned(), schema);
                Standing::First
            }
        }
    }
}
