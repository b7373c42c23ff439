//! Keys by which hosts prove who they are, and what is proven by them.

use super::wire::{Reader, put_string};
use crate::dsse::Nonces;
use crate::{Hash, base64};
use ring::signature::{
    self, ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents, UnparsedPublicKey,
};

/// The ways in which hosts may prove themselves, with the kind of key that each is made by; as we like them best.
pub const HOST_KEYS: &[(&str, &str)] = &[
    ("ssh-ed25519", "ssh-ed25519"),
    ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp256"),
    ("ecdsa-sha2-nistp384", "ecdsa-sha2-nistp384"),
    ("rsa-sha2-512", "ssh-rsa"),
    ("rsa-sha2-256", "ssh-rsa"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the signature is not one of this key")]
pub struct BadSignature;

/// As OpenSSH shows it: `SHA256:` and base64 without its padding.
pub fn fingerprint(key: &[u8]) -> String {
    let text = base64(&Hash::Sha256.digest(key));
    format!("SHA256:{}", text.trim_end_matches('='))
}

/// What kind of key a public key says it is.
pub fn key_kind(key: &[u8]) -> Option<&str> {
    Reader::new(key).text()
}

/// Whether `signature` was made by the owner of `key` over `data`, in this way and no other.
pub fn verify(way: &str, key: &[u8], data: &[u8], signature: &[u8]) -> Result<(), BadSignature> {
    checked(way, key, data, signature).ok_or(BadSignature)
}

fn checked(way: &str, key: &[u8], data: &[u8], signature: &[u8]) -> Option<()> {
    let (_, kind) = HOST_KEYS.iter().find(|(known, _)| *known == way)?;
    let (mut key, mut signed) = (Reader::new(key), Reader::new(signature));
    if key.text()? != *kind || signed.text()? != way {
        return None;
    }
    let bytes = signed.string()?;
    let done = match way {
        "ssh-ed25519" => UnparsedPublicKey::new(&ED25519, key.string()?).verify(data, bytes),
        "ecdsa-sha2-nistp256" => {
            let point = point(&mut key, "nistp256")?;
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(data, &pair(bytes, 32)?)
        }
        "ecdsa-sha2-nistp384" => {
            let point = point(&mut key, "nistp384")?;
            UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point).verify(data, &pair(bytes, 48)?)
        }
        _ => {
            let (e, n) = (key.mpint()?, key.mpint()?);
            let way: &signature::RsaParameters =
                if way == "rsa-sha2-512" { &RSA_PKCS1_2048_8192_SHA512 } else { &RSA_PKCS1_2048_8192_SHA256 };
            // Some leave out leading zeros, which are part of it.
            let padded = padded(bytes, n.len())?;
            RsaPublicKeyComponents { n, e }.verify(way, data, &padded)
        }
    };
    (done.is_ok() && key.rest().is_empty() && signed.rest().is_empty()).then_some(())
}

fn point<'a>(key: &mut Reader<'a>, curve: &str) -> Option<&'a [u8]> {
    (key.text()? == curve).then(|| key.string())?
}

/// Two numbers as one text of fixed length.
fn pair(bytes: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut reader = Reader::new(bytes);
    let (r, s) = (reader.mpint()?, reader.mpint()?);
    let fixed = [padded(r, length)?, padded(s, length)?].concat();
    reader.rest().is_empty().then_some(fixed)
}

/// With leading zeros.
pub(super) fn padded(number: &[u8], length: usize) -> Option<Vec<u8>> {
    let zeros = length.checked_sub(number.len())?;
    Some([&vec![0; zeros][..], number].concat())
}

/// A key by which we prove who we are, to clients that were told of it.
pub struct HostKey {
    pair: Ed25519KeyPair,
    public: Vec<u8>,
}

impl HostKey {
    pub const KIND: &'static str = "ssh-ed25519";

    pub fn new(nonces: &Nonces) -> Option<Self> {
        let document = Ed25519KeyPair::generate_pkcs8(nonces).ok()?;
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).ok()?;
        let mut public = Vec::with_capacity(64);
        put_string(&mut public, Self::KIND.as_bytes());
        put_string(&mut public, pair.public_key().as_ref());
        Some(Self { pair, public })
    }

    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// As files of known hosts have it, without a name.
    pub fn line(&self) -> String {
        format!("{} {}", Self::KIND, base64(&self.public))
    }

    pub fn sign(&self, data: &[u8]) -> Vec<u8> {
        let mut signature = Vec::with_capacity(96);
        put_string(&mut signature, Self::KIND.as_bytes());
        put_string(&mut signature, self.pair.sign(data).as_ref());
        signature
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_key_proves_what_it_signed() {
        let key = HostKey::new(&Nonces::new()).unwrap();
        let signature = key.sign(b"the exchange");
        assert_eq!(verify("ssh-ed25519", key.public(), b"the exchange", &signature), Ok(()));
        assert_eq!(verify("ssh-ed25519", key.public(), b"another", &signature), Err(BadSignature));
        assert_eq!(verify("rsa-sha2-256", key.public(), b"the exchange", &signature), Err(BadSignature));
        let longer = [&signature[..], b"x"].concat();
        assert_eq!(verify("ssh-ed25519", key.public(), b"the exchange", &longer), Err(BadSignature));
        assert_eq!(verify("ssh-ed25519", b"", b"", b""), Err(BadSignature));
        assert_eq!(key_kind(key.public()), Some("ssh-ed25519"));
        assert!(key.line().starts_with("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"));
    }
}
