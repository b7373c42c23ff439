//! DSSE envelopes: a payload with a type, and signatures over both. What other supply-chain tools read.
//!
//! Only the exact bytes of the payload are ever signed or believed; the envelope around them is transport. A
//! signature whose key is not among the given ones is worth nothing.

mod key;

pub use key::{Nonces, Signer, Verifier, VerifierError};

use base64::Engine as _;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD as BASE64;
use cofferdam_model::Digest;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

/// The largest envelope that is read: a payload of that kind names files, it does not hold them.
pub const MAX_ENVELOPE: usize = 64 << 20;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    #[error("this is not a DSSE envelope (line {line}: {problem}): give the file that ends in `.dsse.json`")]
    NotAnEnvelope { line: usize, problem: String },
    #[error("the envelope is larger than {MAX_ENVELOPE} bytes")]
    TooLarge,
    #[error("the envelope's `{field}` is not base64 in its one form: it was changed after it was written")]
    NotBase64 { field: &'static str },
    #[error("the envelope holds `{found}` and `{wanted}` was expected")]
    Type { found: String, wanted: String },
    #[error("the envelope is not signed")]
    Unsigned,
    #[error("the envelope is signed by {} and by no trusted key: if you know whose it is, give it with --key", named(.0))]
    UnknownSigner(Vec<String>),
    #[error("the signature is not that of key {0}: what it covers is not what was signed")]
    Wrong(Digest),
    #[error("the key cannot sign: {0}")]
    CannotSign(&'static str),
}

fn named(keys: &[String]) -> String {
    let name = |key: &String| if key.is_empty() { "an unnamed key".to_owned() } else { format!("key {key}") };
    keys.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// One signature, as the envelope holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// A hint: which of the trusted keys to try. Nothing vouches for it.
    #[serde(default)]
    pub keyid: String,
    pub sig: String,
}

/// The payload as bytes, with its signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    pub payload_type: String,
    pub payload: Vec<u8>,
    pub signatures: Vec<Signature>,
}

/// As it stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Written {
    payload: String,
    payload_type: String,
    signatures: Vec<Signature>,
}

/// The same text, which need not be held as a whole to be written.
impl Serialize for Envelope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Text<'a>(&'a [u8]);
        impl Serialize for Text<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&Base64Display::new(self.0, &BASE64))
            }
        }
        let mut fields = serializer.serialize_struct("Envelope", 3)?;
        fields.serialize_field("payload", &Text(&self.payload))?;
        fields.serialize_field("payloadType", &self.payload_type)?;
        fields.serialize_field("signatures", &self.signatures)?;
        fields.end()
    }
}

/// What is signed: the type and the payload with their lengths, so that no two pairs have the same bytes.
fn pre_authentication(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = before(payload_type, payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// All of that but the payload.
fn before(payload_type: &str, length: usize) -> String {
    format!("DSSEv1 {} {payload_type} {length} ", payload_type.len())
}

impl Envelope {
    /// Signs with every given key. `nonces` is what ECDSA draws from; Ed25519 needs none.
    pub fn sign(
        payload_type: &str,
        payload: Vec<u8>,
        signers: &[&Signer],
        nonces: &Nonces,
    ) -> Result<Self, EnvelopeError> {
        // In place: what a gate signs can be the largest thing that it holds.
        let before = before(payload_type, payload.len());
        let mut message = payload;
        message.splice(..0, before.bytes());
        let signature = |signer: &&Signer| {
            let sig = BASE64.encode(signer.sign(&message, nonces)?);
            Ok(Signature { keyid: signer.id().to_string(), sig })
        };
        let signatures = signers.iter().map(signature).collect::<Result<Vec<_>, EnvelopeError>>()?;
        message.drain(..before.len());
        Ok(Self { payload_type: payload_type.to_owned(), payload: message, signatures })
    }

    pub fn parse(text: &[u8]) -> Result<Self, EnvelopeError> {
        if text.len() > MAX_ENVELOPE {
            return Err(EnvelopeError::TooLarge);
        }
        let Written { payload, payload_type, signatures } =
            serde_json::from_slice(text).map_err(|error| EnvelopeError::NotAnEnvelope {
                line: error.line(),
                problem: error.to_string(),
            })?;
        let payload = BASE64.decode(payload).map_err(|_| EnvelopeError::NotBase64 { field: "payload" })?;
        Ok(Self { payload_type, payload, signatures })
    }

    /// One line, for a file of its own.
    pub fn to_json(&self) -> String {
        // Strings and lists of strings always have a text.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The payload, and which of the given keys have signed it. One is enough, and every signature that claims to
    /// be by one of them must be: a wrong one beside a right one is tampering too.
    pub fn open(&self, wanted: &str, keys: &[Verifier]) -> Result<(&[u8], Vec<Digest>), EnvelopeError> {
        if self.payload_type != wanted {
            let found = self.payload_type.chars().take(80).collect();
            return Err(EnvelopeError::Type { found, wanted: wanted.to_owned() });
        }
        if self.signatures.is_empty() {
            return Err(EnvelopeError::Unsigned);
        }
        let message = pre_authentication(&self.payload_type, &self.payload);
        let mut signers = Vec::new();
        for Signature { keyid, sig } in &self.signatures {
            let sig = BASE64.decode(sig).map_err(|_| EnvelopeError::NotBase64 { field: "sig" })?;
            // Without a hint every key is tried; with one, only the key that it names.
            let fits = |key: &&Verifier| keyid.is_empty() || key.id().to_string() == *keyid;
            let mut candidates = keys.iter().filter(fits).peekable();
            let named = (!keyid.is_empty()).then(|| candidates.peek().map(|key| key.id())).flatten();
            match (candidates.find(|key| key.has_signed(&message, &sig)), named) {
                (Some(key), _) => signers.push(key.id()),
                (None, Some(id)) => return Err(EnvelopeError::Wrong(id)),
                (None, None) => {}
            }
        }
        if signers.is_empty() {
            let ids = self.signatures.iter().map(|one| one.keyid.chars().take(80).collect()).collect();
            return Err(EnvelopeError::UnknownSigner(ids));
        }
        signers.sort_unstable();
        signers.dedup();
        Ok((&self.payload, signers))
    }
}

#[cfg(test)]
mod tests;
