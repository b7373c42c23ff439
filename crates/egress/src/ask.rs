//! One question of our own to a server, and its answer: how judges and scorers are asked. A credential goes with it only
//! to a host that it is for and only where it may stand, as with any request from inside. No redirection is followed, no
//! proxy is used, and without TLS only this machine is spoken to.

use cofferdam_vault::{Bound, Place};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};
use zeroize::Zeroizing;

pub struct Question<'a> {
    pub url: &'a str,
    /// Besides the credential's own.
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
    pub credential: Option<&'a Bound>,
    pub timeout: Duration,
    /// More of an answer is not read.
    pub most: u64,
    /// Authorities besides the system's, in PEM.
    pub ca: Option<&'a [u8]>,
}

#[derive(Debug, Error)]
pub enum AskError {
    #[error("`{0}` is not the address of a server: write it as in `https://judge.example.com/v1`")]
    Address(String),
    #[error("`{0}` would be asked in clear text: use https")]
    ClearText(String),
    #[error("the secret `{secret}` is not for `{host}`: add it with `--for {host}`")]
    OtherHost { secret: String, host: String },
    #[error("the secret `{0}` stands in no header: add it with `--as bearer` or `--as header:NAME`")]
    NoHeader(String),
    #[error("the secret `{0}` is not one line of text, as a header has to be")]
    Value(String),
    #[error("the file of authorities holds no certificate in PEM")]
    NoCertificate,
    #[error("no answer in time")]
    Late,
    #[error("{0}: is it up, and may we reach it?")]
    Unreachable(String),
    #[error("the answer is longer than {0} bytes")]
    TooLong(u64),
    #[error("it answers {status}: {body}")]
    Status { status: u16, body: String },
}

impl Question<'_> {
    /// The body of a good answer.
    pub fn ask(&self) -> Result<Vec<u8>, AskError> {
        let host = self.host()?;
        let mut request =
            agent(self.timeout, self.ca)?.post(self.url).header("content-type", "application/json");
        for (name, value) in self.headers {
            request = request.header(*name, *value);
        }
        if let Some(bound) = self.credential {
            let (name, value) = standing(bound, &host)?;
            request = request.header(name, value.as_str());
        }
        let mut answer = request.send(self.body).map_err(failed)?;
        let status = answer.status().as_u16();
        let read = answer.body_mut().with_config().limit(self.most).read_to_vec();
        let body = read.map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(_) => AskError::TooLong(self.most),
            other => failed(other),
        })?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        let told: String = String::from_utf8_lossy(&body).chars().take(200).collect();
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let mut body: String = told.chars().map(plain).collect();
        // A server that repeats what it was sent must not put it into a record.
        if let Some(secret) = self.credential.and_then(|b| std::str::from_utf8(b.plain.reveal()).ok()) {
            body = body.replace(secret, "…");
        }
        Err(AskError::Status { status, body })
    }

    fn host(&self) -> Result<String, AskError> {
        let shown = || self.url.chars().filter(|c| !c.is_control()).take(120).collect::<String>();
        let uri: Uri = self.url.parse().map_err(|_| AskError::Address(shown()))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
        let user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        let here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        match uri.scheme_str() {
            _ if host.is_empty() || user => Err(AskError::Address(shown())),
            Some("https") => Ok(host),
            Some("http") if here => Ok(host),
            Some("http") => Err(AskError::ClearText(shown())),
            _ => Err(AskError::Address(shown())),
        }
    }
}

/// The header in which a credential stands, with its value.
fn standing(bound: &Bound, host: &str) -> Result<(String, Zeroizing<String>), AskError> {
    let secret = || bound.credential.name.clone();
    if !crate::swap::goes_to(&bound.credential.hosts, host) {
        return Err(AskError::OtherHost { secret: secret(), host: host.to_owned() });
    }
    let value = std::str::from_utf8(bound.plain.reveal()).ok();
    let value = value.filter(|value| value.bytes().all(|b| b.is_ascii_graphic() || b == b' '));
    let value = value.ok_or_else(|| AskError::Value(secret()))?;
    let place = bound.credential.places.iter().find_map(|place| match place {
        Place::Bearer => Some(("authorization".to_owned(), Zeroizing::new(format!("Bearer {value}")))),
        Place::Header(name) => Some((name.clone(), Zeroizing::new(value.to_owned()))),
        _ => None,
    });
    place.ok_or_else(|| AskError::NoHeader(secret()))
}

fn failed(error: ureq::Error) -> AskError {
    match error {
        ureq::Error::Timeout(_) => AskError::Late,
        other => AskError::Unreachable(other.to_string()),
    }
}

fn agent(timeout: Duration, ca: Option<&[u8]>) -> Result<Agent, AskError> {
    let mut roots: Vec<Certificate<'static>> = rustls_native_certs::load_native_certs()
        .certs
        .iter()
        .map(|certificate| Certificate::from_der(certificate).to_owned())
        .collect();
    if let Some(text) = ca {
        let before = roots.len();
        roots.extend(parse_pem(text).filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate.to_owned()),
            _ => None,
        }));
        if roots.len() == before {
            return Err(AskError::NoCertificate);
        }
    }
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .timeout_global(Some(timeout))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .proxy(None)
        .user_agent("cofferdam");
    Ok(config.build().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_vault::Credential;

    fn question(url: &str) -> Question<'_> {
        let timeout = Duration::from_millis(200);
        Question { url, headers: &[], body: b"{}", credential: None, timeout, most: 100, ca: None }
    }

    fn bound(hosts: &[&str], places: Vec<Place>) -> Bound {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        let credential = Credential {
            name: "key".into(),
            env: "KEY".into(),
            hosts,
            places,
            programs: Vec::new(),
            scopes: Vec::new(),
            hmac: None,
        };
        Bound::hollow(credential, "placeholder".into(), Vec::new())
    }

    #[test]
    fn only_servers_are_asked_and_only_this_machine_in_clear_text() {
        let check = |url: &str, expected: &str| {
            let found = question(url).host().err().map(|error| error.to_string()).unwrap_or_default();
            assert!(found.contains(expected), "{url}: {found}");
        };
        check("ftp://a.example/", "not the address");
        check("/v1", "not the address");
        check("https://me@a.example/", "not the address");
        check("http://a.example/", "clear text");
        check("http://10.0.0.1/", "clear text");
        for good in ["https://a.example/v1", "http://127.0.0.1:9/", "http://[::1]:9/", "http://localhost/"] {
            assert!(question(good).host().is_ok(), "{good}");
        }
    }

    #[test]
    fn a_credential_goes_to_its_own_hosts_and_in_its_own_header() {
        let of =
            |bound: &Bound, host: &str| standing(bound, host).map(|(name, value)| (name, value.to_string()));
        let bearer = bound(&["a.example", "*.b.example"], vec![Place::Bearer]);
        assert_eq!(of(&bearer, "a.example").unwrap().0, "authorization");
        assert!(of(&bearer, "x.b.example").unwrap().1.starts_with("Bearer "));
        for other in ["evil.example", "b.example", "a.example.evil.example"] {
            assert!(matches!(of(&bearer, other), Err(AskError::OtherHost { .. })), "{other}");
        }
        let header = bound(&["a.example"], vec![Place::Query("k".into()), Place::Header("x-api-key".into())]);
        assert_eq!(of(&header, "a.example").unwrap().0, "x-api-key");
        let query = bound(&["a.example"], vec![Place::Query("k".into())]);
        assert!(matches!(of(&query, "a.example"), Err(AskError::NoHeader(_))));
    }

    #[test]
    fn a_server_that_is_not_there_is_told() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let error = question(&format!("http://127.0.0.1:{port}/")).ask().unwrap_err();
        assert!(matches!(error, AskError::Unreachable(_) | AskError::Late), "{error}");
    }
}
