//! A registry, by the protocol that the Open Container Initiative calls distribution: documents and blobs over HTTP, with
//! a token where one is asked for.
//!
//! By TLS only, but for a registry on this very host. A password goes to the registry that it is for, and to whoever that
//! one names as giver of its tokens if that is spoken to by TLS too; no redirection takes it along.

use super::{Blobs, FoundImage, LayerOf, Source, of_manifest};
use crate::error::ImageError;
use crate::oci::{self, Descriptor, Document};
use crate::reference::{Reference, is_local};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::uri::Authority;
use ureq::http::{Response, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Body};

/// For an answer to begin.
const PATIENCE: Duration = Duration::from_secs(30);
/// For all of a layer.
const LONGEST: Duration = Duration::from_secs(3600);
const KINDS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// Who asks. Never shown.
#[derive(Clone, Default)]
pub struct Access {
    /// `user:password`.
    pub login: Option<String>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.login.is_some() { "Access(login)" } else { "Access(nobody)" })
    }
}

pub(super) struct Registry {
    agent: Agent,
    reference: Reference,
    access: Access,
    /// As it is sent, once it is known.
    authorization: Option<String>,
}

impl Registry {
    pub(super) fn new(reference: Reference, access: Access) -> Result<Self, ImageError> {
        let roots = rustls_native_certs::load_native_certs().certs;
        let roots: Vec<Certificate<'static>> =
            roots.iter().map(|cert| Certificate::from_der(cert).to_owned()).collect();
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::Specific(Arc::new(roots)))
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .timeout_recv_body(Some(LONGEST))
            .max_redirects(5)
            .https_only(!reference.is_local())
            .http_status_as_error(false)
            .user_agent("cofferdam");
        Ok(Self { agent: config.build().into(), reference, access, authorization: None })
    }

    fn unreachable(&self, why: impl ToString) -> ImageError {
        ImageError::Unreachable { host: self.reference.host.clone(), why: why.to_string() }
    }

    fn get(&self, path: &str) -> Result<Response<Body>, ImageError> {
        let scheme = if self.reference.is_local() { "http" } else { "https" };
        let Reference { host, repository, .. } = &self.reference;
        let url = format!("{scheme}://{host}/v2/{repository}/{path}");
        let mut request = self.agent.get(&url).header("accept", KINDS);
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        request.call().map_err(|error| self.unreachable(error))
    }

    /// Asks, and once more with what is demanded.
    fn ask(&mut self, path: &str) -> Result<Response<Body>, ImageError> {
        let mut answer = self.get(path)?;
        if answer.status().as_u16() == 401 && self.authorization.is_none() {
            let challenge = answer.headers().get("www-authenticate").and_then(|value| value.to_str().ok());
            self.authorization = self.authorize(challenge.unwrap_or_default())?;
            answer = self.get(path)?;
        }
        let status = answer.status().as_u16();
        let hint = match status {
            200 => return Ok(answer),
            401 | 403 => "name who you are with --login-file",
            404 => "there is no such repository or tag",
            429 => "it has been asked too often: wait",
            _ => "ask whoever runs it",
        };
        let (host, what) = (self.reference.host.clone(), path.to_owned());
        Err(ImageError::Answer { host, status, what, hint })
    }

    fn basic(&self) -> Option<String> {
        let login = self.access.login.as_ref()?;
        Some(format!("Basic {}", cofferdam_seal::base64(login.as_bytes())))
    }

    fn authorize(&self, challenge: &str) -> Result<Option<String>, ImageError> {
        let (kind, rest) = challenge.split_once(' ').unwrap_or((challenge, ""));
        if kind.eq_ignore_ascii_case("basic") {
            return Ok(self.basic());
        }
        let Some(realm) = parameter(rest, "realm").filter(|_| kind.eq_ignore_ascii_case("bearer")) else {
            return Ok(None);
        };
        let giver: Uri = realm.parse().map_err(|_| ImageError::ClearText(realm.clone()))?;
        // Who it is, and nobody's name before that.
        let host = giver.authority().map(Authority::as_str).filter(|host| !host.contains('@'));
        let near = |host: &str| self.reference.is_local() && is_local(host);
        match (giver.scheme_str(), host) {
            (Some("https"), Some(_)) => {}
            (Some("http"), Some(host)) if near(host) => {}
            _ => return Err(ImageError::ClearText(realm)),
        }
        // What is wanted is ours to say.
        let scope = format!("repository:{}:pull", self.reference.repository);
        let mut request = self.agent.get(&realm).query("scope", scope);
        if let Some(service) = parameter(rest, "service") {
            request = request.query("service", service);
        }
        if let Some(basic) = self.basic() {
            request = request.header("authorization", basic);
        }
        let mut answer = request.call().map_err(|error| self.unreachable(error))?;
        let status = answer.status().as_u16();
        if status != 200 {
            let (host, what) = (self.reference.host.clone(), "a token".to_owned());
            return Err(ImageError::Answer {
                host,
                status,
                what,
                hint: "name who you are with --login-file",
            });
        }
        let text = answer.body_mut().with_config().limit(oci::DOCUMENT).read_to_vec();
        let text = text.map_err(|error| self.unreachable(error))?;
        token(&text).map(|token| Some(format!("Bearer {token}")))
    }
}

/// Older givers call it one, newer ones the other, and some both.
fn token(text: &[u8]) -> Result<String, ImageError> {
    #[derive(serde::Deserialize)]
    struct Given {
        token: Option<String>,
        access_token: Option<String>,
    }
    let given: Given = serde_json::from_slice(text).map_err(ImageError::format("token"))?;
    let is_one = |token: &String| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let nothing = || ImageError::Format { part: "token", what: "it has no token in it".into() };
    given.token.or(given.access_token).filter(is_one).ok_or_else(nothing)
}

/// `name="value"`, among others.
fn parameter(text: &str, name: &str) -> Option<String> {
    let mut rest = text;
    while let Some((key, after)) = rest.split_once('=') {
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_once(',').unwrap_or((after, "")),
        };
        if key.trim_matches([' ', ',']).eq_ignore_ascii_case(name) {
            return Some(value.to_owned());
        }
        rest = next;
    }
    None
}

impl Blobs for Registry {
    fn blob(&mut self, of: &Descriptor) -> Result<Box<dyn Read + '_>, ImageError> {
        let digest = of.digest()?;
        // Documents that name others are had by another path than what they name.
        let kind = ["manifest", "index"].iter().any(|word| of.media_type.contains(word));
        let path = format!("{}/sha256:{digest}", if kind { "manifests" } else { "blobs" });
        let body = self.ask(&path)?.into_body();
        Ok(Box::new(body.into_with_config().limit(u64::MAX).reader()))
    }
}

impl Source for Registry {
    /// The registry has chosen by the tag.
    fn find(&mut self, _: Option<&str>) -> Result<FoundImage, ImageError> {
        let path = format!("manifests/{}", self.reference.version());
        let mut answer = self.ask(&path)?;
        let text = answer.body_mut().with_config().limit(oci::DOCUMENT).read_to_vec();
        let mut text = text.map_err(|error| self.unreachable(error))?;
        let mut digest = cofferdam_seal::digest(&text);
        if let Some(expected) = self.reference.digest.filter(|expected| *expected != digest) {
            return Err(ImageError::Digest { part: "the manifest".into(), expected, found: digest });
        }
        for _ in 0..4 {
            match serde_json::from_slice(&text).map_err(ImageError::format("manifest"))? {
                Document::Manifest(manifest) => return of_manifest(self, manifest, digest).map(FoundImage),
                Document::Index(index) => {
                    let mut chosen = index.choose(None)?.clone();
                    chosen.media_type = "manifest".into();
                    text = self.document(&chosen)?;
                    digest = chosen.digest()?;
                }
            }
        }
        Err(ImageError::Format { part: "index", what: "indexes lie too deep within each other".into() })
    }

    fn layer(&mut self, layer: &LayerOf) -> Result<Box<dyn Read + '_>, ImageError> {
        match &layer.0.descriptor {
            Some(descriptor) => {
                // Whatever it is said to be, it is a blob.
                let blob = Descriptor::of(&descriptor.digest()?, descriptor.size);
                self.blob(&blob)
            }
            None => Err(ImageError::Format { part: "manifest", what: "a layer has no digest".into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let text = r#"realm="https://auth.example.com/token",service="reg",scope="repository:a/b:pull,push""#;
        assert_eq!(parameter(text, "realm").as_deref(), Some("https://auth.example.com/token"));
        assert_eq!(parameter(text, "service").as_deref(), Some("reg"));
        assert_eq!(parameter(text, "scope").as_deref(), Some("repository:a/b:pull,push"));
        assert_eq!(parameter(text, "error"), None);
        assert_eq!(parameter("realm=x, service=y", "service").as_deref(), Some("y"));
        assert_eq!(parameter("realm=\"open", "realm"), None);
    }

    #[test]
    fn a_password_goes_to_nobody_in_the_clear() {
        let reference = "docker://reg.example.com/app".parse().unwrap();
        let access = Access { login: Some("u:p".into()) };
        assert!(!format!("{access:?}").contains("u:p"));
        let registry = Registry::new(reference, access).unwrap();
        let said = registry.authorize(r#"Bearer realm="http://127.0.0.1:1/token""#).unwrap_err();
        assert!(matches!(said, ImageError::ClearText(_)), "{said}");
        // Nor by a realm that only looks as if it were on this host.
        let near = "docker://localhost:1/app".parse().unwrap();
        let registry = Registry::new(near, Access { login: Some("u:p".into()) }).unwrap();
        for realm in
            ["http://localhost:x@evil.example/t", "http://127.0.0.1@evil.example/", "ftp://localhost/", ""]
        {
            let said = registry.authorize(&format!("Bearer realm=\"{realm}\"")).unwrap_err();
            assert!(matches!(said, ImageError::ClearText(_)), "{realm}: {said}");
        }
    }

    #[test]
    fn tokens_by_either_name() {
        for text in [
            r#"{"token":"a"}"#,
            r#"{"access_token":"a"}"#,
            r#"{"token":"a","access_token":"a","expires_in":9}"#,
        ] {
            assert_eq!(token(text.as_bytes()).unwrap(), "a", "{text}");
        }
        for text in ["{}", r#"{"token":""}"#, r#"{"token":"a b"}"#, r#"{"token":"a\r\nx: y"}"#, "[]"] {
            assert!(token(text.as_bytes()).is_err(), "{text}");
        }
    }
}
