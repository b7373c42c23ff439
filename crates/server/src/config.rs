//! What the operator of a service decides: one TOML file, then `COFFERDAM_…` variables, then flags. Every key is
//! documented in docs/serve.md; one that is not known is an error.

use cofferdam_engine::EngineError;
use cofferdam_model::{Bytes, Span};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {path}: {source}")]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    File(#[from] EngineError),
    #[error("`{key}`: {message}")]
    Value { key: &'static str, message: String },
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Config {
    /// Address and port; port 0 takes a free one.
    pub listen: String,
    /// Sandboxes are also found at `PORT-ID.DOMAIN`.
    pub domain: Option<String>,
    /// What clients are told to call, where that is not the address itself.
    pub public_url: Option<String>,
    pub tls: Tls,
    pub limits: Limits,
    pub e2b: E2b,
    /// How long a shutdown waits for requests under way.
    pub drain: Span,
}

/// With neither, it speaks plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Tls {
    /// The chain and its key, as PEM.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Make a certificate, by an authority of the service's own.
    pub local: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Limits {
    /// Of a request that is read whole. Files are streamed, and are not bound by it.
    pub body: Bytes,
    /// Connections at a time.
    pub connections: usize,
    /// From the first byte of a request's head to its last, and between two pieces of a body.
    pub patience: Span,
    /// A connection on which nothing is asked is kept so long.
    pub idle: Span,
    /// Requests to the control plane, per key and second; as many again at once.
    pub rate: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct E2b {
    /// Whether a sandbox that does not say may reach the internet.
    pub internet: bool,
    /// Rules that hold for every sandbox beside its own: what they deny stays denied.
    pub policy: Option<PathBuf>,
    /// Their text.
    #[serde(skip)]
    pub floor: Option<String>,
    /// The longest timeout that may be asked for.
    pub max_timeout: Span,
    /// Whether sandboxes have a `sudo`, by which any of their commands may run others as the sandbox's own root.
    pub sudo: bool,
    /// Hosts of registries that builds may take images from, each with its port if it has one.
    pub registries: Vec<String>,
    /// What images may take of the disk, unpacked, that one tenant's builds have fetched from registries.
    pub image_space: Bytes,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7300".into(),
            domain: None,
            public_url: None,
            tls: Tls::default(),
            limits: Limits::default(),
            e2b: E2b::default(),
            drain: Span(Duration::from_secs(20)),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: Bytes(8 << 20),
            connections: 16_384,
            patience: Span(Duration::from_secs(30)),
            // Longer than the SDKs keep theirs: who closes first loses a request of the other's.
            idle: Span(Duration::from_secs(660)),
            rate: 500,
        }
    }
}

impl Default for E2b {
    fn default() -> Self {
        let max_timeout = Span(Duration::from_secs(24 * 3600));
        let image_space = Bytes(16 << 30);
        Self {
            internet: false,
            policy: None,
            floor: None,
            max_timeout,
            sudo: true,
            registries: Vec::new(),
            image_space,
        }
    }
}

impl Config {
    /// From a file, if one is named, and the environment.
    pub fn load(file: Option<&Path>, env: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut config = match file {
            None => Self::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
                cofferdam_engine::parse_toml(path, &text)?
            }
        };
        if let Some(path) = &config.e2b.policy {
            let text = std::fs::read_to_string(path);
            config.e2b.floor =
                Some(text.map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?);
        }
        if let Some(listen) = env("COFFERDAM_LISTEN") {
            config.listen = listen;
        }
        if let Some(domain) = env("COFFERDAM_DOMAIN") {
            config.domain = Some(domain);
        }
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let value = |key, message: &str| Err(ConfigError::Value { key, message: message.to_owned() });
        if self.limits.connections == 0 || self.limits.rate == 0 || self.limits.body.0 == 0 {
            return value("limits", "none of them can be zero: leave a key out for its default");
        }
        let Tls { certificate, key, local } = &self.tls;
        if certificate.is_some() != key.is_some() || (*local && certificate.is_some()) {
            return value("tls", "either `certificate` and `key`, or `local = true`, or nothing of it");
        }
        let label = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        match &self.domain {
            Some(domain) if domain.is_empty() || !domain.chars().all(label) || domain.starts_with('.') => {
                value("domain", "a name like `sandboxes.example.com` is needed, without scheme or `*.`")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<Config, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("serve.toml");
        std::fs::write(&path, text).unwrap();
        Config::load(Some(&path), |name| (name == "COFFERDAM_LISTEN").then(|| "127.0.0.1:1".into()))
    }

    #[test]
    fn file_then_environment_and_nothing_unknown() {
        let config =
            with("listen = \"0.0.0.0:80\"\ndomain = \"sbx.example.com\"\n[limits]\nbody = \"1M\"").unwrap();
        assert_eq!((config.listen.as_str(), config.limits.body), ("127.0.0.1:1", Bytes(1 << 20)));
        let mistake = with("domain = \"x.example\"\nlissten = \"x\"").unwrap_err().to_string();
        assert!(mistake.contains("serve.toml:2: unknown field `lissten`"), "{mistake}");
        assert!(mistake.contains("did you mean `listen`?"), "{mistake}");
        assert!(with("domain = \"https://x\"").is_err());
        assert!(with("[limits]\nrate = 0").is_err());
    }
}
