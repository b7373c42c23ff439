//! Private keys of users, in the one form that OpenSSH has written them in for years.

use super::host::padded;
use super::wire::{Reader, put_mpint, put_string};
use crate::dsse::Nonces;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rsa::{KeyPairComponents, PublicKeyComponents};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512, RsaKeyPair,
};
use zeroize::Zeroizing;

const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
const MAGIC: &[u8] = b"openssh-key-v1\0";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshKeyError {
    #[error("it is a public key: give the private one, which lies beside it without `.pub`")]
    Public,
    #[error(
        "it is a private key in an older form: have a copy of it written anew by `ssh-keygen -p -f COPY`, and give that"
    )]
    OlderForm,
    #[error("it is no private key of OpenSSH: make one with `ssh-keygen -t ed25519`")]
    NotAKey,
    #[error(
        "it is protected by a passphrase, and nobody is there to type it: take it off a copy with `ssh-keygen -p -N '' -f COPY`, and give that"
    )]
    Encrypted,
    #[error("it is a key of the kind `{0}`, which is not used here: make one with `ssh-keygen -t ed25519`")]
    Kind(String),
    #[error("it is damaged: check that the file is whole")]
    Damaged,
}

enum Kind {
    Ed25519(Ed25519KeyPair),
    Ecdsa(EcdsaKeyPair, &'static str),
    Rsa(Box<RsaKeyPair>),
}

/// A private key of a user. It has no `Debug`, `Clone` or serde form.
pub struct SshKey {
    kind: Kind,
    public: Vec<u8>,
}

impl SshKey {
    /// The text of a file brought to one line, which is what [`Self::from_line`] reads; checked to be a key.
    pub fn line(text: &str, nonces: &Nonces) -> Result<Zeroizing<String>, SshKeyError> {
        let text = text.trim();
        let Some(inner) = text.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END)) else {
            return Err(match text {
                _ if text.starts_with("-----BEGIN") && text.contains("PRIVATE KEY-----") => {
                    SshKeyError::OlderForm
                }
                _ if text.starts_with("ssh-") || text.starts_with("ecdsa-") || text.starts_with("sk-") => {
                    SshKeyError::Public
                }
                _ => SshKeyError::NotAKey,
            });
        };
        let mut line = Zeroizing::new(String::with_capacity(inner.len()));
        line.extend(inner.chars().filter(|c| !c.is_ascii_whitespace()));
        Self::from_line(&line, nonces)?;
        Ok(line)
    }

    pub fn from_line(line: &str, nonces: &Nonces) -> Result<Self, SshKeyError> {
        let bytes = Zeroizing::new(STANDARD.decode(line).map_err(|_| SshKeyError::Damaged)?);
        let sealed = bytes.strip_prefix(MAGIC).ok_or(SshKeyError::Damaged)?;
        let mut reader = Reader::new(sealed);
        let damaged = || SshKeyError::Damaged;
        let cipher = reader.text().ok_or_else(damaged)?;
        if cipher != "none" {
            return Err(SshKeyError::Encrypted);
        }
        let (_stretched, _options) =
            (reader.string().ok_or_else(damaged)?, reader.string().ok_or_else(damaged)?);
        if reader.u32() != Some(1) {
            return Err(SshKeyError::Damaged);
        }
        let public = reader.string().ok_or_else(damaged)?;
        let kind = Reader::new(public).text().ok_or_else(damaged)?;
        if !["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ssh-rsa"].contains(&kind) {
            return Err(SshKeyError::Kind(kind.chars().filter(|c| c.is_ascii_graphic()).take(40).collect()));
        }
        let private = reader.string().ok_or_else(damaged)?;
        let key = private_part(kind, private, nonces).ok_or_else(damaged)?;
        Ok(Self { kind: key, public: public.to_vec() })
    }

    /// What is told of it.
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// The ways in which it signs, the best first.
    pub fn ways(&self) -> &'static [&'static str] {
        match &self.kind {
            Kind::Ed25519(_) => &["ssh-ed25519"],
            Kind::Ecdsa(_, "nistp256") => &["ecdsa-sha2-nistp256"],
            Kind::Ecdsa(..) => &["ecdsa-sha2-nistp384"],
            Kind::Rsa(_) => &["rsa-sha2-512", "rsa-sha2-256"],
        }
    }

    /// None where the system gives no random bytes, or the key does not sign in this way.
    pub fn sign(&self, way: &str, data: &[u8], nonces: &Nonces) -> Option<Vec<u8>> {
        if !self.ways().contains(&way) {
            return None;
        }
        let bytes = match &self.kind {
            Kind::Ed25519(key) => key.sign(data).as_ref().to_vec(),
            Kind::Ecdsa(key, _) => {
                let signature = key.sign(nonces, data).ok()?;
                let (r, s) = signature.as_ref().split_at(signature.as_ref().len() / 2);
                let mut pair = Vec::with_capacity(112);
                put_mpint(&mut pair, r);
                put_mpint(&mut pair, s);
                pair
            }
            Kind::Rsa(key) => {
                let padding = if way == "rsa-sha2-512" { &RSA_PKCS1_SHA512 } else { &RSA_PKCS1_SHA256 };
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(padding, nonces, data, &mut signature).ok()?;
                signature
            }
        };
        let mut signature = Vec::with_capacity(bytes.len() + 32);
        put_string(&mut signature, way.as_bytes());
        put_string(&mut signature, &bytes);
        Some(signature)
    }
}

fn private_part(kind: &str, private: &[u8], nonces: &Nonces) -> Option<Kind> {
    let mut reader = Reader::new(private);
    // Twice the same: that it was opened with the right passphrase, where there is one.
    if reader.u32()? != reader.u32()? || reader.text()? != kind {
        return None;
    }
    match kind {
        "ssh-ed25519" => {
            let (public, both) = (reader.string()?, reader.string()?);
            let (seed, _) = both.split_at_checked(32)?;
            Ed25519KeyPair::from_seed_and_public_key(seed, public).ok().map(Kind::Ed25519)
        }
        "ecdsa-sha2-nistp256" => ecdsa(&mut reader, nonces, "nistp256", &ECDSA_P256_SHA256_FIXED_SIGNING, 32),
        "ecdsa-sha2-nistp384" => ecdsa(&mut reader, nonces, "nistp384", &ECDSA_P384_SHA384_FIXED_SIGNING, 48),
        _ => {
            let (n, e, d) = (reader.mpint()?, reader.mpint()?, reader.mpint()?);
            let (inverse, p, q) = (reader.mpint()?, reader.mpint()?, reader.mpint()?);
            let (d_p, d_q) = (Zeroizing::new(below(d, p)?), Zeroizing::new(below(d, q)?));
            let parts = KeyPairComponents {
                public_key: PublicKeyComponents { n, e },
                d,
                p,
                q,
                dP: trimmed(&d_p),
                dQ: trimmed(&d_q),
                qInv: inverse,
            };
            RsaKeyPair::from_components(&parts).ok().map(|key| Kind::Rsa(Box::new(key)))
        }
    }
}

fn ecdsa(
    reader: &mut Reader<'_>,
    nonces: &Nonces,
    curve: &'static str,
    algorithm: &'static EcdsaSigningAlgorithm,
    length: usize,
) -> Option<Kind> {
    if reader.text()? != curve {
        return None;
    }
    let (point, scalar) = (reader.string()?, Zeroizing::new(padded(reader.mpint()?, length)?));
    let key = EcdsaKeyPair::from_private_key_and_public_key(algorithm, &scalar, point, nonces);
    key.ok().map(|key| Kind::Ecdsa(key, curve))
}

fn trimmed(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

/// `number` modulo one less than the odd number `prime`: what the form leaves out and the calculation needs. Bit by
/// bit, once for each key that is read.
fn below(number: &[u8], prime: &[u8]) -> Option<Vec<u8>> {
    let (last, before) = prime.split_last()?;
    // Longer by a byte, for what is shifted out at the top.
    let modulus = Zeroizing::new([&[0][..], before, &[last & !1][..]].concat());
    if number.len() > 2048 || prime.len() > 1024 || modulus.iter().all(|byte| *byte == 0) {
        return None;
    }
    let mut rest = vec![0_u8; modulus.len()];
    for bit in number.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)) {
        let mut carry = bit;
        for byte in rest.iter_mut().rev() {
            let shifted = u16::from(*byte) << 1 | u16::from(carry);
            *byte = shifted as u8;
            carry = (shifted >> 8) as u8;
        }
        if rest.as_slice() >= modulus.as_slice() {
            let mut borrow = false;
            for (byte, take) in rest.iter_mut().zip(modulus.iter()).rev() {
                let (first, under) = byte.overflowing_sub(*take);
                let (second, again) = first.overflowing_sub(u8::from(borrow));
                (*byte, borrow) = (second, under || again);
            }
        }
    }
    Some(rest)
}

#[cfg(test)]
mod tests;
