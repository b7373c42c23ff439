//! `docker://HOST[:PORT]/REPO[:TAG|@DIGEST]`.

use crate::error::ImageError;
use crate::oci;
use cofferdam_model::Digest;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// With the port, if one is given.
    pub host: String,
    pub repository: String,
    pub tag: String,
    pub digest: Option<Digest>,
}

impl Reference {
    /// Whether it is on this host: only then may it be spoken to in the clear.
    pub fn is_local(&self) -> bool {
        is_local(&self.host)
    }

    /// What the registry calls this version.
    pub(crate) fn version(&self) -> String {
        self.digest.map_or_else(|| self.tag.clone(), |digest| format!("sha256:{digest}"))
    }
}

pub(crate) fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl FromStr for Reference {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        let wrong = || ImageError::Reference(text.chars().take(300).collect());
        let rest = text.strip_prefix("docker://").ok_or_else(wrong)?;
        let (host, path) = rest.split_once('/').ok_or_else(wrong)?;
        let (path, digest) = match path.split_once('@') {
            Some((path, digest)) => (path, Some(oci::digest(digest)?)),
            None => (path, None),
        };
        let (repository, tag) = path.split_once(':').unwrap_or((path, "latest"));
        let host_ok = !host.is_empty()
            && host.len() <= 255
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]".contains(&b));
        let part = |part: &str| {
            part.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
        };
        let tag_ok = !tag.is_empty()
            && tag.len() <= 128
            && !tag.starts_with(['.', '-'])
            && tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        match host_ok && repository.len() <= 255 && repository.split('/').all(part) && tag_ok {
            true => Ok(Self {
                host: host.to_owned(),
                repository: repository.to_owned(),
                tag: tag.to_owned(),
                digest,
            }),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.digest {
            Some(digest) => write!(f, "docker://{}/{}@sha256:{digest}", self.host, self.repository),
            None => write!(f, "docker://{}/{}:{}", self.host, self.repository, self.tag),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references() {
        for (text, host, repository, tag) in [
            ("docker://localhost:5000/app", "localhost:5000", "app", "latest"),
            ("docker://reg.example.com/team/app:1.2-rc", "reg.example.com", "team/app", "1.2-rc"),
            ("docker://[::1]:5000/a/b/c:x", "[::1]:5000", "a/b/c", "x"),
        ] {
            let read: Reference = text.parse().unwrap();
            assert_eq!((&*read.host, &*read.repository, &*read.tag), (host, repository, tag));
        }
        for bad in [
            "app",
            "docker://",
            "docker://host",
            "docker://host/",
            "docker:///x",
            "docker://h/../x",
            "docker://h/x:",
            "docker://h/X",
            "docker://h/x@sha256:0",
            "docker://h/x?y",
            "docker://a@h/x",
            "docker://h/x:..",
        ] {
            assert!(bad.parse::<Reference>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_on_this_host() {
        for local in ["localhost", "localhost:5000", "127.0.0.1:1", "127.9.9.9", "[::1]:5000"] {
            assert!(is_local(local), "{local}");
        }
        for other in ["example.com", "localhost.example.com", "10.0.0.1", "[fe80::1]:80", "127.0.0.1.nip.io"]
        {
            assert!(!is_local(other), "{other}");
        }
    }
}
