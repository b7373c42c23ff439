//! What two ends come to know together, and the keys they make of it (RFC 4253, section 7.2; RFC 5656; RFC 8731).

use super::wire::put_mpint;
use crate::dsse::Nonces;
use ring::agreement::{self, ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, X25519};
use ring::digest::{Context, SHA256};
use zeroize::Zeroizing;

/// How two ends agree; SHA-256 with all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    Curve25519,
    /// The same under the name that it had before it was a standard.
    Curve25519Libssh,
    P256,
}

impl Agreement {
    /// As we like them best.
    pub const ALL: [Self; 3] = [Self::Curve25519, Self::Curve25519Libssh, Self::P256];

    pub fn name(self) -> &'static str {
        match self {
            Self::Curve25519 => "curve25519-sha256",
            Self::Curve25519Libssh => "curve25519-sha256@libssh.org",
            Self::P256 => "ecdh-sha2-nistp256",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    fn algorithm(self) -> &'static agreement::Algorithm {
        match self {
            Self::Curve25519 | Self::Curve25519Libssh => &X25519,
            Self::P256 => &ECDH_P256,
        }
    }
}

/// Our half of one agreement, used once.
pub struct Ephemeral {
    private: EphemeralPrivateKey,
    public: Vec<u8>,
}

impl Ephemeral {
    /// None where the system gives no random bytes.
    pub fn new(agreement: Agreement, nonces: &Nonces) -> Option<Self> {
        let private = EphemeralPrivateKey::generate(agreement.algorithm(), nonces).ok()?;
        let public = private.compute_public_key().ok()?.as_ref().to_vec();
        Some(Self { private, public })
    }

    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// What both know now, written as a number; none for a half that is no point, or one that makes it known to all.
    pub fn agree(self, theirs: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let theirs = UnparsedPublicKey::new(self.private.algorithm(), theirs);
        agreement::agree_ephemeral(self.private, &theirs, |secret| {
            let mut number = Zeroizing::new(Vec::with_capacity(secret.len() + 5));
            put_mpint(&mut number, secret);
            number
        })
        .ok()
    }
}

/// A key of the letter `for_what`, as long as `key` is. `secret` is the number as it is written, `hash` that of the
/// exchange, `session` that of the first one.
pub fn derive(secret: &[u8], hash: &[u8], for_what: u8, session: &[u8], key: &mut [u8]) {
    let mut made = Zeroizing::new(Vec::with_capacity(key.len() + 32));
    while made.len() < key.len() {
        let mut context = Context::new(&SHA256);
        context.update(secret);
        context.update(hash);
        match made.is_empty() {
            true => {
                context.update(&[for_what]);
                context.update(session);
            }
            false => context.update(&made),
        }
        made.extend_from_slice(context.finish().as_ref());
    }
    let length = key.len();
    key.copy_from_slice(&made[..length]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_come_to_the_same() {
        let nonces = Nonces::new();
        for agreement in Agreement::ALL {
            let [ours, theirs] = [(), ()].map(|()| Ephemeral::new(agreement, &nonces).unwrap());
            let (our_half, their_half) = (ours.public().to_vec(), theirs.public().to_vec());
            assert_eq!(ours.agree(&their_half).unwrap(), theirs.agree(&our_half).unwrap());
            assert_eq!(Agreement::named(agreement.name()), Some(agreement));
        }
    }

    #[test]
    fn a_half_that_tells_the_secret_is_refused() {
        for bad in [vec![0; 32], vec![1; 31], Vec::new()] {
            assert!(Ephemeral::new(Agreement::Curve25519, &Nonces::new()).unwrap().agree(&bad).is_none());
        }
        let mut off_the_curve = vec![7; 65];
        off_the_curve[0] = 4;
        assert!(Ephemeral::new(Agreement::P256, &Nonces::new()).unwrap().agree(&off_the_curve).is_none());
    }

    #[test]
    fn a_long_key_begins_as_the_short_one() {
        let (mut short, mut long) = ([0; 16], [0; 64]);
        derive(b"k", b"h", b'C', b"s", &mut short);
        derive(b"k", b"h", b'C', b"s", &mut long);
        assert_eq!(short, long[..16]);
        let (first, rest) = long.split_at(32);
        assert_eq!(first, crate::Hash::Sha256.digest(b"khCs"));
        assert_eq!(rest, crate::Hash::Sha256.digest(&[b"kh", first].concat()));
    }
}
