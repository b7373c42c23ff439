//! The peer that does least: hudsucker as its own example sets it up, with no handler and nothing written.
//! It differs from the example only in whom it trusts, which is the bench's upstream.

use hudsucker::Proxy;
use hudsucker::certificate_authority::RcgenAuthority;
use hudsucker::rcgen::{Issuer, KeyPair};
use hudsucker::rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("give the directory of the certificates")?);
    let read = |name: &str| std::fs::read_to_string(dir.join(name));
    let issuer =
        Issuer::from_ca_cert_pem(&read("proxy-ca.pem")?, KeyPair::from_pem(&read("proxy-ca.key")?)?)?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(dir.join("upstream-ca.pem"))?)?;
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_http1()
        .build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let proxy = Proxy::builder()
        .with_listener(listener)
        .with_ca(RcgenAuthority::new(issuer, 1_000, aws_lc_rs::default_provider()))
        .with_http_connector(connector)
        .build()?;
    Ok(proxy.start().await?)
}
