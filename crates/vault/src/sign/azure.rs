//! Azure's shared key: base64 of 64 bytes, with which the text of a request is signed.

use super::DocumentError;
use crate::Plain;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cofferdam_seal::Hash;
use zeroize::Zeroizing;

/// In base64; none if the key is not.
pub fn azure_signature(key: &Plain, text: &[u8]) -> Option<String> {
    let key = Zeroizing::new(STANDARD.decode(key.reveal()).ok()?);
    Some(STANDARD.encode(&*Hash::Sha256.authenticate(&key, &[text])))
}

/// The key in a connection string, or alone.
pub(super) fn key_in(text: &str) -> Result<&str, DocumentError> {
    let part = text.split(';').find_map(|part| part.trim().strip_prefix("AccountKey="));
    let key = part.unwrap_or(text);
    match STANDARD.decode(key).map(Zeroizing::new) {
        Ok(bytes) if bytes.len() >= 16 => Ok(key),
        _ => Err(DocumentError::AzureKey),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of the emulator, which is public.
    const KEY: &str =
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

    #[test]
    fn a_key_is_found_alone_and_in_a_connection_string() {
        assert_eq!(key_in(KEY), Ok(KEY));
        let text = format!(
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={KEY};EndpointSuffix=core.windows.net"
        );
        assert_eq!(key_in(&text), Ok(KEY));
        assert!(key_in("AccountName=a").is_err() && key_in("c2hvcnQ=").is_err());
        let signed = azure_signature(&Plain::new(KEY.into()), b"text").unwrap();
        assert_eq!(signed.len(), 44);
        assert!(azure_signature(&Plain::new("no base64".into()), b"text").is_none());
    }
}
