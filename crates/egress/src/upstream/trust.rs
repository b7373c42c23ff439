//! Whom we believe outside: the system's roots, or the anchor an operator gave for one host. Verification is
//! never off; there is no setting for it.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::sync::{Arc, OnceLock};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum TrustError {
    #[error(
        "`{host}`: the trust anchor is no PEM certificate ({reason}): give a file with CERTIFICATE blocks"
    )]
    Anchor { host: String, reason: String },
    #[error("cannot set up TLS ({0}): the crypto provider is broken; rebuild")]
    Tls(#[from] rustls::Error),
}

/// The same trust for the two ways we speak.
#[derive(Clone)]
pub(crate) struct Trust {
    /// Only HTTP/1.1.
    pub(crate) h1: Arc<ClientConfig>,
    /// No protocol is named.
    pub(crate) bare: Arc<ClientConfig>,
    /// HTTP/2 where the server has it.
    pub(crate) h2: Arc<ClientConfig>,
}

impl Trust {
    fn new(roots: RootCertStore) -> Result<Self, TrustError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut h1 = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (mut h2, bare) = (h1.clone(), h1.clone());
        h1.alpn_protocols = vec![b"http/1.1".to_vec()];
        h2.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // A session resumed under the other protocol list would be refused by the server.
        h2.resumption = rustls::client::Resumption::in_memory_sessions(64);
        h1.resumption = rustls::client::Resumption::in_memory_sessions(64);
        Ok(Self { h1: Arc::new(h1), h2: Arc::new(h2), bare: Arc::new(bare) })
    }

    /// These anchors and no others.
    pub(crate) fn anchored(host: &str, pem: &[u8]) -> Result<Self, TrustError> {
        let bad = |reason: String| TrustError::Anchor { host: host.to_owned(), reason };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|e| bad(e.to_string()))?;
            roots.add(certificate).map_err(|e| bad(e.to_string()))?;
        }
        if roots.is_empty() {
            return Err(bad("it holds none".to_owned()));
        }
        Self::new(roots)
    }

    /// The system's roots, or the built-in ones where the system has none.
    fn system() -> Result<Self, TrustError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        Self::new(roots)
    }
}

/// Read from disk when they are first needed: most sessions speak to few hosts, some to none.
#[derive(Default)]
pub(crate) struct SystemTrust(OnceLock<Trust>);

impl SystemTrust {
    pub(crate) fn get(&self) -> Result<&Trust, TrustError> {
        if let Some(trust) = self.0.get() {
            return Ok(trust);
        }
        let trust = Trust::system()?;
        Ok(self.0.get_or_init(|| trust))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_must_be_one() {
        let ca = crate::Ca::new("test").unwrap();
        assert!(Trust::anchored("a.example", ca.pem().as_bytes()).is_ok());
        for bad in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(matches!(
                Trust::anchored("a.example", bad.as_bytes()),
                Err(TrustError::Anchor { host, .. }) if host == "a.example"
            ));
        }
    }
}
