//! Keys of either kind: Ed25519, the house's own, and ECDSA on P-256, which is what key services and hardware give.

use crate::dsse::EnvelopeError;
use crate::{KeyError, PublicKey, SigningKey, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cofferdam_model::Digest;
/// Where ECDSA draws its nonces from. Whoever signs makes one and hands it in: nothing here draws by itself.
pub use ring::rand::SystemRandom as Nonces;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use std::fmt;
use zeroize::Zeroizing;

/// What stands before the 65 bytes of an uncompressed point in the DER form of a P-256 public key.
const P256_PREFIX: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
const POINT_LEN: usize = 65;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifierError {
    #[error(transparent)]
    Pem(#[from] KeyError),
    #[error(
        "this is neither an Ed25519 nor a P-256 key in PKCS#8: make one with `openssl genpkey -algorithm ed25519`, or `-algorithm EC -pkeyopt ec_paramgen_curve:P-256`"
    )]
    Kind,
}

/// A key that signs envelopes. Like [`SigningKey`], it has no text of its own and is never handed out.
pub enum Signer {
    Ed25519(SigningKey),
    P256 { pair: Box<EcdsaKeyPair>, public: Verifier },
}

impl Signer {
    /// From PKCS#8 in PEM, of either kind.
    pub fn from_pem(text: &str, nonces: &Nonces) -> Result<Self, VerifierError> {
        match SigningKey::from_pem(text) {
            Ok(key) => return Ok(Self::Ed25519(key)),
            Err(KeyError::NotEd25519) => {}
            Err(error) => return Err(error.into()),
        }
        let der = Zeroizing::new(pem_contents(text)?);
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der, nonces)
            .map_err(|_| VerifierError::Kind)?;
        let point = pair.public_key().as_ref().try_into().map_err(|_| VerifierError::Kind)?;
        Ok(Self::P256 { pair: Box::new(pair), public: Verifier::P256(point) })
    }

    pub fn public(&self) -> Verifier {
        match self {
            Self::Ed25519(key) => Verifier::Ed25519(*key.public()),
            Self::P256 { public, .. } => *public,
        }
    }

    pub fn id(&self) -> Digest {
        self.public().id()
    }

    pub(super) fn sign(&self, message: &[u8], nonces: &Nonces) -> Result<Vec<u8>, EnvelopeError> {
        match self {
            Self::Ed25519(key) => Ok(key.sign(message).to_vec()),
            Self::P256 { pair, .. } => pair
                .sign(nonces, message)
                .map(|signature| signature.as_ref().to_vec())
                .map_err(|_| EnvelopeError::CannotSign("the system gives no random bytes")),
        }
    }
}

/// A key that is believed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verifier {
    Ed25519(PublicKey),
    /// An uncompressed point.
    P256([u8; POINT_LEN]),
}

impl Verifier {
    /// From SubjectPublicKeyInfo in PEM, of either kind.
    pub fn from_pem(text: &str) -> Result<Self, VerifierError> {
        match PublicKey::from_pem(text) {
            Ok(key) => return Ok(Self::Ed25519(key)),
            Err(KeyError::NotEd25519) => {}
            Err(error) => return Err(error.into()),
        }
        let der = pem_contents(text)?;
        let point = der.strip_prefix(P256_PREFIX).and_then(|point| point.try_into().ok());
        point.map(Self::P256).ok_or(VerifierError::Kind)
    }

    pub fn to_pem(&self) -> String {
        match self {
            Self::Ed25519(key) => key.to_pem(),
            Self::P256(point) => {
                let base64 = BASE64.encode([P256_PREFIX, point].concat());
                let (first, rest) = base64.split_at(64);
                format!("-----BEGIN PUBLIC KEY-----\n{first}\n{rest}\n-----END PUBLIC KEY-----\n")
            }
        }
    }

    /// The name of the key: the digest of its raw bytes.
    pub fn id(&self) -> Digest {
        match self {
            Self::Ed25519(key) => key.id(),
            Self::P256(point) => digest(point),
        }
    }

    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Ed25519(key) => key.verifies(message, signature),
            Self::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(message, signature).is_ok()
            }
        }
    }
}

impl From<PublicKey> for Verifier {
    fn from(key: PublicKey) -> Self {
        Self::Ed25519(key)
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verifier({})", self.id())
    }
}

fn pem_contents(text: &str) -> Result<Vec<u8>, VerifierError> {
    pem::parse(text).map(pem::Pem::into_contents).map_err(|_| VerifierError::Kind)
}
