//! What an attempt is told: where the things stand that it tries to get at. Nothing of it helps to get there.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// The planted word, written backwards: who looks for it must not find himself.
    pub(crate) backwards: String,
    /// A directory of the host's that is not shown inside, with a `secret` and a `writable` file.
    pub(crate) outside: PathBuf,
    /// The caller's home, with keys in the usual places.
    pub(crate) home: PathBuf,
    /// Our state directory, with the signing key.
    pub(crate) state: PathBuf,
    /// A file of the host's that is shown inside, read-only.
    pub(crate) shown: PathBuf,
    /// A process of the host's with the word in its environment and, at an address, in its memory.
    pub(crate) keeper: u32,
    pub(crate) keeper_address: u64,
    /// Sockets of the host's; whoever reaches one is answered with the word.
    pub(crate) socket: PathBuf,
    pub(crate) abstract_socket: String,
    pub(crate) tcp: u16,
    pub(crate) tcp6: Option<u16>,
    pub(crate) udp: u16,
    /// The variable in which a credential's placeholder stands.
    pub(crate) credential: String,
}

impl Facts {
    /// The word, forwards.
    pub(crate) fn word(&self) -> Vec<u8> {
        self.backwards.bytes().rev().collect()
    }

    /// Whether the planted word is in there.
    pub(crate) fn finds(&self, bytes: &[u8]) -> bool {
        let word = self.word();
        !word.is_empty() && bytes.windows(word.len()).any(|window| window == word)
    }
}
