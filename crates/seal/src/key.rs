//! Ed25519 keys and the two texts they are kept in: PKCS#8 for the private key, SubjectPublicKeyInfo for the
//! public one, both in PEM as other tools read and write them.
//!
//! A private key has no `Debug`, `Clone` or serde form, and is never handed out again.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cofferdam_model::{Checkpoint, Digest};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::fmt;
use zeroize::Zeroizing;

use crate::{Statement, digest};

const PRIVATE_LABEL: &str = "PRIVATE KEY";
const PUBLIC_LABEL: &str = "PUBLIC KEY";

/// What stands before the 32 bytes in the DER form of each: both are of fixed size for Ed25519.
const PRIVATE_PREFIX: &[u8] =
    &[0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
const PUBLIC_PREFIX: &[u8] = &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("this is not a PEM file: it should hold a block `-----BEGIN {expected}-----`")]
    NotPem { expected: &'static str },
    #[error("this PEM file holds `{found}`: give one that holds `{expected}`")]
    Label { found: String, expected: &'static str },
    #[error("this is not an Ed25519 key: make one with `openssl genpkey -algorithm ed25519`")]
    NotEd25519,
}

/// The key that vouches for traces.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl SigningKey {
    pub fn from_seed(seed: &[u8; 32]) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| KeyError::NotEd25519)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| KeyError::NotEd25519)?;
        Ok(Self { pair, public: PublicKey::from_bytes(public) })
    }

    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let der = Zeroizing::new(pem_block(text, PRIVATE_LABEL)?);
        let seed = der.strip_prefix(PRIVATE_PREFIX).and_then(|seed| <&[u8; 32]>::try_from(seed).ok());
        Self::from_seed(seed.ok_or(KeyError::NotEd25519)?)
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut signature = [0u8; 64];
        signature.copy_from_slice(self.pair.sign(message).as_ref());
        signature
    }

    /// The body of the event that carries this statement.
    pub fn attest(&self, statement: &Statement) -> Checkpoint {
        let key = self.public.id();
        let signature = BASE64.encode(self.sign(statement.message(&key).as_bytes()));
        Checkpoint { count: statement.count, covers: statement.covers, key, signature }
    }
}

/// The text to keep a new key in. The seed is 32 random bytes of the caller's.
pub fn seed_to_pem(seed: &[u8; 32]) -> Zeroizing<String> {
    let der = Zeroizing::new([PRIVATE_PREFIX, seed].concat());
    let base64 = Zeroizing::new(BASE64.encode(&*der));
    Zeroizing::new(format!("-----BEGIN {PRIVATE_LABEL}-----\n{}\n-----END {PRIVATE_LABEL}-----\n", *base64))
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey {
    bytes: [u8; 32],
    id: Digest,
}

impl PublicKey {
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self { bytes, id: digest(&bytes) }
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// The name of the key: the digest of its raw bytes.
    pub fn id(&self) -> Digest {
        self.id
    }

    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let der = pem_block(text, PUBLIC_LABEL)?;
        let raw = der.strip_prefix(PUBLIC_PREFIX).and_then(|raw| raw.try_into().ok());
        raw.map(Self::from_bytes).ok_or(KeyError::NotEd25519)
    }

    pub fn to_pem(&self) -> String {
        let base64 = BASE64.encode([PUBLIC_PREFIX, &self.bytes].concat());
        format!("-----BEGIN {PUBLIC_LABEL}-----\n{base64}\n-----END {PUBLIC_LABEL}-----\n")
    }

    /// Whether `signature`, in base64, is this key's over the statement.
    pub(crate) fn has_signed(&self, statement: &Statement, signature: &str) -> bool {
        // The decoder accepts one text per signature, so that a changed text is never "the same" one.
        let Ok(signature) = BASE64.decode(signature) else { return false };
        self.verifies(statement.message(&self.id).as_bytes(), &signature)
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.bytes).verify(message, signature).is_ok()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id)
    }
}

fn pem_block(text: &str, expected: &'static str) -> Result<Vec<u8>, KeyError> {
    let block = pem::parse(text).map_err(|_| KeyError::NotPem { expected })?;
    if block.tag() != expected {
        return Err(KeyError::Label { found: block.tag().chars().take(40).collect(), expected });
    }
    Ok(block.into_contents())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mark;
    use proptest::prelude::*;

    // RFC 8032, section 7.1, test 1.
    const SEED: [u8; 32] = [
        0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4, 0x44,
        0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60,
    ];
    const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

    #[test]
    fn the_standard_vector() {
        let key = SigningKey::from_seed(&SEED).unwrap();
        assert_eq!(Digest::from_bytes(*key.public().as_bytes()).to_string(), PUBLIC);
        assert_eq!(key.public().id(), digest(key.public().as_bytes()));
    }

    #[test]
    fn keys_read_back_from_pem_also_among_comments_and_with_other_line_ends() {
        let key = SigningKey::from_seed(&SEED).unwrap();
        let private = seed_to_pem(&SEED);
        assert_eq!(SigningKey::from_pem(&private).unwrap().public(), key.public());
        let public = key.public().to_pem();
        for text in [public.clone(), format!("# a comment\n\n{public}"), public.replace('\n', "\r\n")] {
            assert_eq!(PublicKey::from_pem(&text), Ok(*key.public()), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_such_key_is_refused_in_words() {
        let private = seed_to_pem(&SEED);
        let check = |text: &str, expected: KeyError| assert_eq!(PublicKey::from_pem(text), Err(expected));
        check("", KeyError::NotPem { expected: PUBLIC_LABEL });
        check("hello", KeyError::NotPem { expected: PUBLIC_LABEL });
        check(&private, KeyError::Label { found: PRIVATE_LABEL.into(), expected: PUBLIC_LABEL });
        let rsa =
            format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64.encode([7; 44]));
        check(&rsa, KeyError::NotEd25519);
    }

    #[test]
    fn a_signature_is_over_one_statement_in_one_text() {
        let key = SigningKey::from_seed(&SEED).unwrap();
        let statement = Statement { mark: Mark::Checkpoint, count: 7, covers: Digest::ZERO, time: 5 };
        let signature = key.attest(&statement).signature;
        let check = |statement: Statement, signature: &str, expected: bool| {
            assert_eq!(key.public().has_signed(&statement, signature), expected, "{statement:?} {signature}");
        };
        check(statement, &signature, true);
        check(Statement { mark: Mark::Head, ..statement }, &signature, false);
        check(Statement { count: 8, ..statement }, &signature, false);
        check(Statement { covers: Digest::from_bytes([1; 32]), ..statement }, &signature, false);
        check(Statement { time: 6, ..statement }, &signature, false);
        check(statement, "", false);
        check(statement, signature.trim_end_matches('='), false);
        // 64 bytes leave four unused bits in the last character: a lax decoder would take all of these.
        let last = signature.len() - 3;
        for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".chars() {
            let mut other = signature.clone();
            other.replace_range(last..=last, &c.to_string());
            check(statement, &other, other == signature);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_key_or_an_error(text in ".*", body in "[A-Za-z0-9+/=\n]*") {
            let _ = PublicKey::from_pem(&text);
            let block = format!("-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n");
            let _ = PublicKey::from_pem(&block);
            let _ = SigningKey::from_pem(&block);
        }
    }
}
