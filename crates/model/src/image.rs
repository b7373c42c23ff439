//! Images that sandboxes can have for their root, by name.

use crate::Digest;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no name of an image: up to 128 of a-z, 0-9, `.`, `_`, `-` and `/`, a letter or digit first, with a `:TAG` if you like"
)]
pub struct ImageNameError(String);

/// `NAME` or `NAME:TAG`, as `python:3.12`; without a tag it is `latest`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageName(String);

impl ImageName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ImageName {
    type Err = ImageNameError;

    fn from_str(text: &str) -> Result<Self, ImageNameError> {
        let (name, tag) = text.split_once(':').unwrap_or((text, "latest"));
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let part = |part: &str| {
            part.bytes().next().is_some_and(plain)
                && part.bytes().all(|b| plain(b) || b"._-".contains(&b))
                && !part.contains("..")
        };
        let tagged = !tag.is_empty()
            && !tag.starts_with(['.', '-'])
            && tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        // Nobody is called by what another one is known by.
        let digest = name.parse::<Digest>().is_ok();
        match text.len() <= 128 && tagged && !digest && name.split('/').all(part) {
            true => Ok(Self(format!("{name}:{tag}"))),
            false => Err(ImageNameError(text.chars().take(200).collect())),
        }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for ImageName {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ImageName {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// How whoever made an image meant it to be run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// `NAME=value`.
    pub env: Vec<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub workdir: Option<String>,
    pub user: Option<String>,
}

/// An image that is unpacked here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageInfo {
    pub names: Vec<ImageName>,
    /// Of its config.
    pub digest: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Digest>,
    /// Where it was taken from.
    pub source: String,
    pub architecture: String,
    pub created_us: u64,
    pub layers: usize,
    pub files: u64,
    pub bytes: u64,
    pub config: ImageConfig,
    /// Whether its files have the owners that it says: not where a plain user unpacked it.
    pub owners: bool,
    /// Who commands are by default.
    pub user: String,
    pub home: PathBuf,
    /// Who it says its own command is, where that is somebody else than root, by its accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_as: Option<ImageAccount>,
    /// What is otherwise than in the image: devices left out, files without their set-id bits, attributes dropped,
    /// owners that no sandbox has.
    pub notes: ImageNotes,
    pub in_use: bool,
    /// When a session had it last, or somebody took it in.
    #[serde(default)]
    pub used_us: u64,
}

/// Somebody of an image's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageAccount {
    /// Its number, where it has no name.
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: PathBuf,
    /// Whether it has an account, and so can be asked for by its name.
    pub named: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageNotes {
    pub devices: u64,
    pub set_id: Vec<String>,
    pub attributes: u64,
    pub owners: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (text, full) in
            [("python", "python:latest"), ("python:3.12", "python:3.12"), ("a/b-c:X_1", "a/b-c:X_1")]
        {
            assert_eq!(text.parse::<ImageName>().unwrap().as_str(), full);
        }
        let long = "a".repeat(200);
        let digest = "0a".repeat(32);
        for bad in
            [&digest, "", ":", "a:", "A", "../x", "a//b", "a/..", "-a", "a:..", "a b", "a:b:c", "a\0", &long]
        {
            assert!(bad.parse::<ImageName>().is_err(), "{bad}");
        }
    }
}
