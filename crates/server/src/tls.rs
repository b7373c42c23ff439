//! TLS at the service's own address: the operator's certificate, or one of an authority that is made here, whose
//! public half clients are told to trust. Its key never leaves the state directory.

use crate::config::Tls;
use crate::disk;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("tls: {path}: {reason}")]
    File { path: PathBuf, reason: String },
    #[error("tls: the certificate and the key do not fit: {0}")]
    Fit(#[from] rustls::Error),
    #[error("tls: no certificate can be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error("tls: {0}")]
    Io(#[from] io::Error),
}

/// What speaks TLS, and where its authority is, if that is ours.
pub(crate) struct Speaks {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) authority: Option<PathBuf>,
}

pub(crate) fn open(tls: &Tls, domain: Option<&str>, home: &Path) -> Result<Option<Speaks>, TlsError> {
    let (certificate, key, authority) = match (&tls.certificate, &tls.key, tls.local) {
        (Some(certificate), Some(key), false) => (certificate.clone(), key.clone(), None),
        (None, None, true) => {
            let dir = home.join("service").join("tls");
            make(&dir, domain)?;
            (dir.join("server.pem"), dir.join("server.key"), Some(dir.join("ca.pem")))
        }
        _ => return Ok(None),
    };
    let bad = |path: &Path| {
        let path = path.to_owned();
        move |error: rustls::pki_types::pem::Error| TlsError::File { path, reason: error.to_string() }
    };
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(&certificate).map_err(bad(&certificate))?.collect();
    let chain = chain.map_err(bad(&certificate))?;
    let secret = PrivateKeyDer::from_pem_file(&key).map_err(bad(&key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, secret)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(Speaks { acceptor: TlsAcceptor::from(Arc::new(config)), authority }))
}

/// The authority, once; the certificate, at every start.
fn make(dir: &Path, domain: Option<&str>) -> Result<(), TlsError> {
    disk::make_dir(dir)?;
    let (authority, secret) = (dir.join("ca.pem"), dir.join("ca.key"));
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Cofferdam local authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = match std::fs::read_to_string(&secret) {
        Ok(text) if authority.exists() => KeyPair::from_pem(&text)?,
        _ => {
            let key = KeyPair::generate()?;
            disk::write_text(&secret, &key.serialize_pem())?;
            disk::write_text(&authority, &params.self_signed(&key)?.pem())?;
            key
        }
    };
    let host = domain.map(|domain| domain.split(':').next().unwrap_or(domain));
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    names.extend(host.into_iter().flat_map(|host| [host.to_owned(), format!("*.{host}")]));
    let mut leaf = CertificateParams::new(names)?;
    leaf.distinguished_name = DistinguishedName::new();
    leaf.distinguished_name.push(DnType::CommonName, host.unwrap_or("localhost"));
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    let leaf_key = KeyPair::generate()?;
    let signed = leaf.signed_by(&leaf_key, &Issuer::new(params, key))?;
    disk::write_text(&dir.join("server.key"), &leaf_key.serialize_pem())?;
    disk::write_text(&dir.join("server.pem"), &signed.pem())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_made_once_and_a_certificate_for_every_start() {
        let dir = tempfile::tempdir().unwrap();
        let tls = Tls { local: true, ..Tls::default() };
        let one = open(&tls, Some("sbx.test:8443"), dir.path()).unwrap().unwrap();
        let authority = std::fs::read(one.authority.unwrap()).unwrap();
        let leaf = std::fs::read(dir.path().join("service/tls/server.pem")).unwrap();
        let two = open(&tls, Some("sbx.test:8443"), dir.path()).unwrap().unwrap();
        assert_eq!(std::fs::read(two.authority.unwrap()).unwrap(), authority);
        assert_ne!(std::fs::read(dir.path().join("service/tls/server.pem")).unwrap(), leaf);
        assert!(open(&Tls::default(), None, dir.path()).unwrap().is_none());
        let missing =
            Tls { certificate: Some("/nowhere".into()), key: Some("/nowhere".into()), local: false };
        assert!(open(&missing, None, dir.path()).is_err());
    }
}
