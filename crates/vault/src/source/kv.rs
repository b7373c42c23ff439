//! One read from the KV version 2 store of a HashiCorp Vault, found by the variables its own client uses:
//! `VAULT_ADDR`, `VAULT_TOKEN` (else `~/.vault-token`), `VAULT_NAMESPACE`, `VAULT_CACERT`.
//!
//! It follows no redirection and uses no proxy, since the token goes with the request, and speaks without TLS to
//! loopback only.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};
use zeroize::{Zeroize, Zeroizing};

const PATIENCE: Duration = Duration::from_secs(20);
const MAX_ANSWER: u64 = 4 << 20;
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

#[derive(Debug, thiserror::Error)]
pub enum KvError {
    #[error("no HashiCorp Vault is named: set VAULT_ADDR, as in `https://vault.example.com:8200`")]
    NoAddress,
    #[error(
        "VAULT_ADDR `{0}` is not the address of a server: write it as in `https://vault.example.com:8200`"
    )]
    Address(String),
    #[error("VAULT_ADDR `{0}` would send the token in clear text: use https")]
    ClearText(String),
    #[error("there is no token for the HashiCorp Vault: set VAULT_TOKEN, or run `vault login`")]
    NoToken,
    #[error("the token for the HashiCorp Vault is not one line of ASCII: set VAULT_TOKEN anew")]
    Token,
    #[error("cannot read `{path}`: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("`{0}` holds no certificate in PEM: correct VAULT_CACERT")]
    NoCertificate(PathBuf),
    #[error("cannot ask {address}: {source}")]
    Unreachable { address: String, source: Box<ureq::Error> },
    #[error("{address} answered {status} for `{path}`: {hint}")]
    Status { address: String, status: u16, path: String, hint: &'static str },
    #[error("{0} did not answer as a KV version 2 store does: give the path as `vault kv get` takes it")]
    Answer(String),
    #[error("`{path}` has no field `{field}`: it has {present}")]
    NoField { path: String, field: String, present: String },
    #[error("the field `{field}` of `{path}` is not a text: name one that is")]
    NotText { path: String, field: String },
}

/// A mount and a path below it, as in `secret/stripe`.
pub(super) fn is_path(text: &str) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(char::is_control);
    text.contains('/') && text.split('/').all(plain)
}

pub(super) fn get(path: &str, field: &str, env: Env<'_>) -> Result<Zeroizing<Vec<u8>>, KvError> {
    let address = address(env)?;
    let body = ask(&address, path, env)?;
    let unexpected = || KvError::Answer(address.clone());
    let mut answer: Value = serde_json::from_slice(&body).map_err(|_| unexpected())?;
    let fields = answer.get_mut("data").and_then(|data| data.get_mut("data")).and_then(Value::as_object_mut);
    let found = match fields {
        None => Err(unexpected()),
        Some(fields) => match fields.get_mut(field) {
            Some(Value::String(text)) => Ok(Zeroizing::new(std::mem::take(text).into_bytes())),
            Some(_) => Err(KvError::NotText { path: path.to_owned(), field: field.to_owned() }),
            None => {
                let present = fields.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                let present = if present.is_empty() { "none".to_owned() } else { present };
                Err(KvError::NoField { path: path.to_owned(), field: field.to_owned(), present })
            }
        },
    };
    wipe(&mut answer);
    found
}

/// The other fields are secrets too.
fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(wipe),
        Value::Object(fields) => fields.values_mut().for_each(wipe),
        _ => {}
    }
}

fn address(env: Env<'_>) -> Result<String, KvError> {
    let text = env("VAULT_ADDR").filter(|value| !value.is_empty()).ok_or(KvError::NoAddress)?;
    let text = text.to_string_lossy().trim_end_matches('/').to_owned();
    let uri: Uri = text.parse().map_err(|_| KvError::Address(text.clone()))?;
    let host = uri.host().unwrap_or_default();
    let loopback = host == "localhost"
        || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    match uri.scheme_str() {
        _ if host.is_empty() || uri.query().is_some() => Err(KvError::Address(text)),
        Some("https") => Ok(text),
        Some("http") if loopback => Ok(text),
        Some("http") => Err(KvError::ClearText(text)),
        _ => Err(KvError::Address(text)),
    }
}

fn token(env: Env<'_>) -> Result<Zeroizing<String>, KvError> {
    let from_file = || {
        let path = PathBuf::from(env("HOME")?).join(".vault-token");
        std::fs::read_to_string(path).ok()
    };
    let set = env("VAULT_TOKEN").map(|value| value.to_string_lossy().into_owned());
    let token =
        Zeroizing::new(set.filter(|token| !token.is_empty()).or_else(from_file).ok_or(KvError::NoToken)?);
    let trimmed = Zeroizing::new(token.trim().to_owned());
    let plain = !trimmed.is_empty() && trimmed.bytes().all(|b| b.is_ascii_graphic());
    if plain { Ok(trimmed) } else { Err(KvError::Token) }
}

fn ask(address: &str, path: &str, env: Env<'_>) -> Result<Zeroizing<Vec<u8>>, KvError> {
    let token = token(env)?;
    let (mount, below) = path.split_once('/').unwrap_or((path, ""));
    let encoded = |part: &str| utf8_percent_encode(part, KEPT).to_string();
    let below: Vec<String> = below.split('/').map(encoded).collect();
    let url = format!("{address}/v1/{}/data/{}", encoded(mount), below.join("/"));
    let mut request = agent(env)?.get(&url).header("x-vault-token", token.as_str());
    if let Some(namespace) = env("VAULT_NAMESPACE").filter(|value| !value.is_empty()) {
        request = request.header("x-vault-namespace", namespace.to_string_lossy().as_ref());
    }
    let failed = |source| KvError::Unreachable { address: address.to_owned(), source: Box::new(source) };
    let mut answer = request.header("x-vault-request", "true").call().map_err(failed)?;
    let status = answer.status().as_u16();
    if status != 200 {
        let hint = match status {
            301..=308 => "set VAULT_ADDR to the active server itself",
            403 => "the token may not read it, or the store is not version 2",
            404 => "give the path as `vault kv get` takes it, without `data/`",
            503 => "the server is sealed: unseal it",
            _ => "ask whoever runs it",
        };
        return Err(KvError::Status { address: address.to_owned(), status, path: path.to_owned(), hint });
    }
    answer.body_mut().with_config().limit(MAX_ANSWER).read_to_vec().map(Zeroizing::new).map_err(failed)
}

fn agent(env: Env<'_>) -> Result<Agent, KvError> {
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(roots(env)?)
        .build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .timeout_global(Some(PATIENCE))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .proxy(None)
        .user_agent("cofferdam");
    Ok(config.build().into())
}

/// Those of VAULT_CACERT, else the system's.
fn roots(env: Env<'_>) -> Result<RootCerts, KvError> {
    let certificates: Vec<Certificate<'static>> = match env("VAULT_CACERT").filter(|value| !value.is_empty())
    {
        Some(path) => {
            let path = Path::new(&path);
            let text =
                std::fs::read(path).map_err(|source| KvError::File { path: path.to_owned(), source })?;
            let found: Vec<_> = parse_pem(&text)
                .filter_map(|item| match item {
                    Ok(PemItem::Certificate(certificate)) => Some(certificate.to_owned()),
                    _ => None,
                })
                .collect();
            if found.is_empty() {
                return Err(KvError::NoCertificate(path.to_owned()));
            }
            found
        }
        None => {
            let found = rustls_native_certs::load_native_certs().certs;
            found.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect()
        }
    };
    Ok(RootCerts::Specific(Arc::new(certificates)))
}
