//! The inside of TLS: an authority of the session's own and a leaf per name. Its key is made here, lives in
//! this process's memory and is written nowhere; two sessions never share one.

use cofferdam_seal::dsse::Nonces;
use cofferdam_seal::ssh::HostKey;
use quick_cache::sync::Cache;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ServerSessionMemoryCache;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use thiserror::Error;

/// Names whose leaves are kept; a client that asks for more pays for a new leaf each time.
const LEAVES: usize = 512;
/// TLS sessions a client may resume.
const RESUMABLE: usize = 256;
/// Clients refuse leaves that are valid for longer than about 13 months.
const LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);
/// A sandbox with a clock somewhat behind ours still trusts us.
const SKEW: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Error)]
pub enum CaError {
    #[error("cannot make a certificate for `{name}` ({source}): check the name")]
    Certificate { name: String, source: rcgen::Error },
    #[error("cannot set up TLS ({0}): the crypto provider is broken; rebuild")]
    Tls(#[from] rustls::Error),
    #[error("there is no randomness on this machine: keys need some")]
    NoRandomness,
}

/// A session's certificate authority.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    leaf_key: KeyPair,
    /// What all leaves share; each gets a copy with its own certificate.
    base: ServerConfig,
    leaves: Cache<String, Arc<ServerConfig>>,
    /// What hosts that are reached over SSH prove themselves with, inside.
    host_key: Arc<HostKey>,
}

impl Ca {
    /// Makes a new one, known to its clients under `label`.
    pub fn new(label: &str) -> Result<Self, CaError> {
        let failed = |source| CaError::Certificate { name: label.to_owned(), source };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let params = ca_params(label);
        let certificate = params.self_signed(&key).map_err(failed)?;
        let leaf_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        Ok(Self {
            pem: certificate.pem(),
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
            base: base_config(&leaf_key)?,
            leaf_key,
            leaves: Cache::new(LEAVES),
            host_key: HostKey::new(&Nonces::new()).map(Arc::new).ok_or(CaError::NoRandomness)?,
        })
    }

    /// The certificate that clients inside must trust.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The key that every host has which is reached over SSH, as a file of known hosts says it.
    pub fn known_hosts(&self) -> String {
        format!("* {}\n", self.host_key.line())
    }

    pub(crate) fn host_key(&self) -> Arc<HostKey> {
        self.host_key.clone()
    }

    /// The public key that all leaves have (SubjectPublicKeyInfo): for clients that trust by key.
    pub fn leaf_key(&self) -> Vec<u8> {
        rcgen::PublicKeyData::subject_public_key_info(&self.leaf_key)
    }

    /// How to answer a client that asks for `name`, which is canonical or an address.
    pub(crate) fn server_for(&self, name: &str) -> Result<Arc<ServerConfig>, CaError> {
        self.leaves.get_or_insert_with(name, || {
            let chain = vec![self.leaf(name)?, self.certificate.clone()];
            let mut config = self.base.clone();
            let key = rustls::crypto::ring::sign::any_supported_type(&leaf_der(&self.leaf_key))?;
            config.cert_resolver = Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)));
            Ok(Arc::new(config))
        })
    }

    fn leaf(&self, name: &str) -> Result<CertificateDer<'static>, CaError> {
        let failed = |source| CaError::Certificate { name: name.to_owned(), source };
        let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(failed)?;
        params.distinguished_name = DistinguishedName::new();
        // The subject's common name holds at most 64 characters; clients read the alternative names.
        if name.len() <= 64 && name.parse::<IpAddr>().is_err() {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params);
        let leaf = params.signed_by(&self.leaf_key, &self.issuer).map_err(failed)?;
        Ok(leaf.der().clone())
    }
}

fn ca_params(label: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, label);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params);
    params
}

fn set_validity(params: &mut CertificateParams) {
    let now = SystemTime::now();
    params.not_before = (now - SKEW).into();
    params.not_after = (now + LIFETIME).into();
}

fn leaf_der(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()))
}

/// Resolves nothing: every leaf replaces it.
fn base_config(leaf_key: &KeyPair) -> Result<ServerConfig, CaError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let none =
        CertifiedKey::new(vec![], rustls::crypto::ring::sign::any_supported_type(&leaf_der(leaf_key))?);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(none)));
    config.alpn_protocols = ["h2", "http/1.1", "http/1.0"].map(Into::into).to_vec();
    config.session_storage = ServerSessionMemoryCache::new(RESUMABLE);
    // One ticket is enough: a client that opens more connections gets one with each.
    config.send_tls13_tickets = 1;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f6_authorities_are_their_own_and_leaves_are_made_once() {
        let (one, other) = (Ca::new("one").unwrap(), Ca::new("other").unwrap());
        assert_ne!(one.pem(), other.pem());
        assert!(!one.pem().contains("PRIVATE"));
        let first = one.server_for("a.example").unwrap();
        assert!(Arc::ptr_eq(&first, &one.server_for("a.example").unwrap()));
        assert!(!Arc::ptr_eq(&first, &one.server_for("b.example").unwrap()));
    }

    #[test]
    fn f6_the_leaf_cache_is_bounded() {
        let ca = Ca::new("bounded").unwrap();
        for n in 0..LEAVES + 100 {
            ca.server_for(&format!("n{n}.example")).unwrap();
        }
        assert!(ca.leaves.len() <= LEAVES);
    }
}
