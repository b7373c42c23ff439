//! ECDSA on P-256 with SHA-256, for a protocol that derives its private key from a secret (AWS signature version
//! 4A). Signatures are deterministic (RFC 6979), so no chance is needed. `ring` has no way to give it such a key.

use p256::ecdsa::signature::{Signer, Verifier};
use p256::ecdsa::{Signature, SigningKey};

/// A private key. Wiped when dropped; it has no `Debug`, `Clone` or serde form.
pub struct P256Key(SigningKey);

impl P256Key {
    /// None for what is no scalar of the group: zero, or too large.
    pub fn from_scalar(bytes: &[u8; 32]) -> Option<Self> {
        SigningKey::from_slice(bytes).ok().map(Self)
    }

    /// In DER, 70 to 72 bytes.
    pub fn sign(&self, text: &[u8]) -> Vec<u8> {
        let signature: Signature = self.0.sign(text);
        signature.to_der().as_bytes().to_vec()
    }

    pub fn verifies(&self, text: &[u8], der: &[u8]) -> bool {
        let signature = Signature::from_der(der);
        signature.is_ok_and(|signature| self.0.verifying_key().verify(text, &signature).is_ok())
    }

    /// The coordinates of the public key.
    pub fn public(&self) -> ([u8; 32], [u8; 32]) {
        let point = self.0.verifying_key().to_encoded_point(false);
        let part = |bytes: Option<&p256::FieldBytes>| bytes.map_or([0; 32], |bytes| (*bytes).into());
        (part(point.x()), part(point.y()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6979, A.2.5: P-256 with SHA-256 over "sample".
    #[test]
    fn the_published_vector() {
        let bytes = |hex: &str| -> Vec<u8> {
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
        };
        let scalar = bytes("c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721");
        let key = P256Key::from_scalar(&scalar.try_into().unwrap()).unwrap();
        let der = key.sign(b"sample");
        let r = bytes("efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716");
        let s = bytes("f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8");
        assert_eq!(der, [&[0x30, 0x46, 0x02, 0x21, 0][..], &r, &[0x02, 0x21, 0], &s].concat());
        assert!(key.verifies(b"sample", &der) && !key.verifies(b"simple", &der));
        let x = bytes("60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6");
        assert_eq!(key.public().0.to_vec(), x);
        assert!(P256Key::from_scalar(&[0; 32]).is_none() && P256Key::from_scalar(&[0xff; 32]).is_none());
    }
}
