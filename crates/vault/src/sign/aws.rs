//! Signature versions 4 and 4A of AWS: the keys that are derived from a secret access key, and what they sign.

use crate::Plain;
use cofferdam_seal::{Hash, P256Key};
use zeroize::Zeroizing;

const V4A: &[u8] = b"AWS4-ECDSA-P256-SHA256";
/// The order of the group, less two.
const ORDER_LESS_TWO: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc,
    0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x4f,
];

/// Signs for one day, one region and one service.
pub struct AwsV4Key(Zeroizing<Vec<u8>>);

impl AwsV4Key {
    /// `day` as `20150830`.
    pub fn derive(secret: &Plain, day: &str, region: &str, service: &str) -> Self {
        let secret = secret.reveal();
        let mut key = Zeroizing::new(Vec::with_capacity(secret.len() + 4));
        key.extend_from_slice(b"AWS4");
        key.extend_from_slice(secret);
        for part in [day, region, service, "aws4_request"] {
            key = Hash::Sha256.authenticate(&key, &[part.as_bytes()]);
        }
        Self(key)
    }

    /// In hexadecimal digits.
    pub fn sign(&self, text: &[u8]) -> String {
        hex(&Hash::Sha256.authenticate(&self.0, &[text]))
    }
}

/// Signs for any day, region and service.
pub struct AwsV4aKey(P256Key);

impl AwsV4aKey {
    /// None if no key can be derived, which does not happen in the life of a universe.
    pub fn derive(secret: &Plain, key_id: &str) -> Option<Self> {
        let secret = secret.reveal();
        let mut key = Zeroizing::new(Vec::with_capacity(secret.len() + 5));
        key.extend_from_slice(b"AWS4A");
        key.extend_from_slice(secret);
        (1u8..=254).find_map(|counter| {
            let parts: [&[u8]; 6] = [&[0, 0, 0, 1], V4A, &[0], key_id.as_bytes(), &[counter], &[0, 0, 1, 0]];
            let candidate = Hash::Sha256.authenticate(&key, &parts);
            let scalar = plus_one(&candidate)?;
            P256Key::from_scalar(&scalar).map(Self)
        })
    }

    /// In hexadecimal digits.
    pub fn sign(&self, text: &[u8]) -> String {
        hex(&self.0.sign(text))
    }

    pub fn verifies(&self, text: &[u8], signature: &str) -> bool {
        unhex(signature).is_some_and(|der| self.0.verifies(text, &der))
    }

    /// The coordinates of the public key.
    pub fn public(&self) -> ([u8; 32], [u8; 32]) {
        self.0.public()
    }
}

/// None for a candidate over the order less two: then the next one is tried.
fn plus_one(candidate: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    let mut scalar = Zeroizing::new(<[u8; 32]>::try_from(candidate).ok()?);
    if *scalar > ORDER_LESS_TWO {
        return None;
    }
    for byte in scalar.iter_mut().rev() {
        let (sum, carries) = byte.overflowing_add(1);
        *byte = sum;
        if !carries {
            break;
        }
    }
    Some(scalar)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Plain {
        Plain::new(b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_vec())
    }

    /// `get-vanilla` of the published test suite.
    #[test]
    fn the_published_signature() {
        let key = AwsV4Key::derive(&secret(), "20150830", "us-east-1", "service");
        let text = "AWS4-HMAC-SHA256\n20150830T123600Z\n20150830/us-east-1/service/aws4_request\n\
            bb579772317eb040ac9ed261061d46c1f17a8133879d6129b6e1c25292927e63";
        assert_eq!(
            key.sign(text.as_bytes()),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
        );
    }

    #[test]
    fn the_published_public_key() {
        let key = AwsV4aKey::derive(&secret(), "AKIDEXAMPLE").unwrap();
        let (x, y) = key.public();
        assert_eq!(hex(&x), "b6618f6a65740a99e650b33b6b4b5bd0d43b176d721a3edfea7e7d2d56d936b1");
        assert_eq!(hex(&y), "865ed22a7eadc9c5cb9d2cbaca1b3699139fedc5043dc6661864218330c8e518");
        let text = b"AWS4-ECDSA-P256-SHA256\n20150830T123600Z\n20150830/service/aws4_request\n\
            cf59db423e841c8b7e3444158185aa261b724a5c27cbe762676f3eed19f4dc02";
        let theirs = "3045022018b4e277d0281864beb51d3600e23f88510ea5031d68ddfbb68614b82a5eb7d2022100effb9c5f22ed9ef3ae0ab243d21f06bce82365bbb79529a07b6888c343ae5f8c";
        assert!(key.verifies(text, theirs) && key.verifies(text, &key.sign(text)));
        assert!(!key.verifies(b"another text", theirs) && !key.verifies(text, "3045zz"));
    }

    #[test]
    fn a_candidate_that_is_too_large_is_passed_over() {
        let mut most = ORDER_LESS_TWO;
        assert_eq!(plus_one(&most).unwrap()[31], 0x50);
        most[31] = 0x50;
        assert!(plus_one(&most).is_none() && plus_one(&[0xff; 32]).is_none());
        let mut carries = [0u8; 32];
        carries[31] = 0xff;
        assert_eq!(plus_one(&carries).unwrap()[30..], [1, 0]);
    }
}
