//! Keyed and plain digests as other people's protocols want them, by the name of the hash. Ours are SHA-256.

use ring::{digest, hmac, pbkdf2};
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use zeroize::Zeroizing;

/// A hash that a protocol names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hash {
    /// Only where an old protocol is made of it: HMAC stands though the hash alone does not.
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    pub const ALL: [Self; 4] = [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    pub fn digest(self, bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, bytes).as_ref().to_vec()
    }

    /// PBKDF2 over HMAC of this hash: what a password is made into before it proves anything.
    pub fn stretch(self, password: &[u8], salt: &[u8], rounds: NonZeroU32) -> Zeroizing<Vec<u8>> {
        let algorithm = match self {
            Self::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha384 => pbkdf2::PBKDF2_HMAC_SHA384,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let length = self.digest(b"").len();
        let mut key = Zeroizing::new(vec![0; length]);
        pbkdf2::derive(algorithm, rounds, salt, password, &mut key);
        key
    }

    /// HMAC over the parts, one after the other.
    pub fn authenticate(self, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        let algorithm = match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        };
        let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
        parts.iter().for_each(|part| context.update(part));
        Zeroizing::new(context.sign().as_ref().to_vec())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a hash that is known here: use sha1, sha256, sha384 or sha512")]
pub struct UnknownHash(pub String);

impl FromStr for Hash {
    type Err = UnknownHash;

    fn from_str(text: &str) -> Result<Self, UnknownHash> {
        let found = Self::ALL.into_iter().find(|hash| hash.name() == text);
        found.ok_or_else(|| UnknownHash(text.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 2202 and RFC 4231, test case 2.
    #[test]
    fn the_published_vectors() {
        for (hash, expected) in [
            (Hash::Sha1, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
            (Hash::Sha256, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
            (
                Hash::Sha384,
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
            ),
            (
                Hash::Sha512,
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ),
        ] {
            let found = hash.authenticate(b"Jefe", &[b"what do ya ", b"want for nothing?"]);
            assert_eq!(hex(&found), expected, "{hash}");
            assert_eq!(hash.name().parse(), Ok(hash));
        }
        assert_eq!(hex(&Hash::Sha1.digest(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert!("md5".parse::<Hash>().is_err());
    }
}
