//! The cryptography of SSH, and how its keys and numbers are written: what two ends agree on, what seals their packets,
//! keys of hosts and of users. What is said over it, and to whom, is others' business.
//!
//! One of each kind is enough where both ends can be expected to have it: agreement on curve 25519 or P-256 with
//! SHA-256, packets sealed whole (AES-GCM, ChaCha20-Poly1305). Nothing here speaks SHA-1, CBC or a MAC of its own.

mod agree;
mod host;
mod key;
mod packet;
mod wire;

pub use agree::{Agreement, Ephemeral, derive};
pub use host::{BadSignature, HOST_KEYS, HostKey, fingerprint, key_kind, verify};
pub use key::{SshKey, SshKeyError};
pub use packet::{Forged, Opening, PacketCipher, Sealing, TAG};
pub use wire::{Reader, put_mpint, put_string, put_u32};
