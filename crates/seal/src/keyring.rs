//! Who is believed. A signature by anyone else is worth nothing, however sound.

use crate::{PublicKey, Statement};
use cofferdam_model::{Checkpoint, Digest};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("signed by the unknown key {0}: if you know whose it is, pass it or add it to the trusted keys")]
    UnknownSigner(Digest),
    #[error("the signature is not that of key {0}: what it covers is not what was signed")]
    Wrong(Digest),
}

#[derive(Debug, Clone, Default)]
pub struct Keyring {
    keys: BTreeMap<Digest, PublicKey>,
}

impl Keyring {
    pub fn add(&mut self, key: PublicKey) {
        self.keys.insert(key.id(), key);
    }

    pub fn get(&self, id: &Digest) -> Option<&PublicKey> {
        self.keys.get(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = &PublicKey> {
        self.keys.values()
    }

    /// Whether a trusted key has signed this statement, as `checkpoint` claims. That the statement is true of
    /// a given chain is the caller's to check.
    pub fn check(&self, statement: &Statement, checkpoint: &Checkpoint) -> Result<(), SignatureError> {
        let id = checkpoint.key;
        let key = self.get(&id).ok_or(SignatureError::UnknownSigner(id))?;
        if key.has_signed(statement, &checkpoint.signature) { Ok(()) } else { Err(SignatureError::Wrong(id)) }
    }
}

impl FromIterator<PublicKey> for Keyring {
    fn from_iter<I: IntoIterator<Item = PublicKey>>(keys: I) -> Self {
        let mut ring = Self::default();
        keys.into_iter().for_each(|key| ring.add(key));
        ring
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mark, SigningKey};

    #[test]
    fn only_a_known_key_is_believed() {
        let [ours, theirs] = [[1; 32], [2; 32]].map(|seed| SigningKey::from_seed(&seed).unwrap());
        let ring: Keyring = [*ours.public()].into_iter().collect();
        let statement = Statement { mark: Mark::Head, count: 1, covers: Digest::ZERO, time: 1 };
        assert_eq!(ring.check(&statement, &ours.attest(&statement)), Ok(()));

        let (id, stranger) = (ours.public().id(), theirs.attest(&statement));
        assert_eq!(ring.check(&statement, &stranger), Err(SignatureError::UnknownSigner(stranger.key)));
        let posing = Checkpoint { key: id, ..stranger };
        assert_eq!(ring.check(&statement, &posing), Err(SignatureError::Wrong(id)));
    }
}
