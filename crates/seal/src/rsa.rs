//! RSA with SHA-256 (PKCS #1), for tokens that a service account signs itself.

use crate::dsse::Nonces;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use zeroize::Zeroizing;

/// A private key. It has no `Debug`, `Clone` or serde form.
pub struct RsaKey(RsaKeyPair);

impl RsaKey {
    /// From DER: PKCS #8, or PKCS #1 as older files have it.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)).ok().map(Self)
    }

    /// The DER within a PEM text.
    pub fn der_of(pem: &str) -> Option<Zeroizing<Vec<u8>>> {
        let parsed = pem::parse(pem).ok()?;
        ["PRIVATE KEY", "RSA PRIVATE KEY"]
            .contains(&parsed.tag())
            .then(|| Zeroizing::new(parsed.into_contents()))
    }

    /// None where the system gives no random bytes, which blind the calculation.
    pub fn sign(&self, nonces: &Nonces, text: &[u8]) -> Option<Vec<u8>> {
        let mut signature = vec![0; self.0.public().modulus_len()];
        self.0.sign(&RSA_PKCS1_SHA256, nonces, text, &mut signature).ok()?;
        Some(signature)
    }
}
