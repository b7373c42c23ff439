//! What makes a trace provable: one canonical text per value, digests, the hash chain over events, and
//! Ed25519 signatures over points of that chain; envelopes for what leaves the host. And what keeps a secret at rest: authenticated encryption.
//!
//! This crate does no I/O and reads neither a clock nor a source of randomness: times and seeds come from
//! the caller. It holds the only use of a cryptographic library outside TLS.

mod canonical;
mod chain;
mod checkpoint;
mod cipher;
mod curve;
mod digest;
pub mod dsse;
mod foreign;
mod key;
mod keyring;
mod mac;
mod rsa;
pub mod ssh;

pub use canonical::{CanonicalError, MAX_DEPTH, MAX_INTEGER, Problem, Scratch, append_canonical, canonical};
pub use chain::{Encoder, Link, event_hash};
pub use checkpoint::{Mark, Statement};
pub use cipher::{
    ByteStream, CipherError, CipherKey, KEY_LEN, SALT_LEN, Stretch, TAG_LEN, authenticate, mark, same,
};
pub use curve::P256Key;
pub use digest::{Hasher, base64, digest};
pub use foreign::sha1;
pub use key::{KeyError, PublicKey, SigningKey, seed_to_pem};
pub use keyring::{Keyring, SignatureError};
pub use mac::{Hash, UnknownHash};
pub use rsa::RsaKey;
