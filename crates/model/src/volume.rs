//! Directories that sessions share and that outlive them, by name.

use crate::is_name;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Component, PathBuf};
use std::str::FromStr;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    #[error(
        "`{0}` is no name of a volume: NAME or OWNER/NAME, each of up to 63 of a-z, 0-9 and `-`, a letter first"
    )]
    Name(String),
    #[error("volume `{0}`: write NAME:TARGET, NAME:TARGET:rw or NAME:TARGET:ro")]
    Shape(String),
    #[error("volume `{0}`: the target must be an absolute path without `..`")]
    Target(String),
}

/// `NAME`, or `OWNER/NAME` for a tenant's or a user's own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeName {
    pub owner: Option<String>,
    pub name: String,
}

impl FromStr for VolumeName {
    type Err = VolumeError;

    fn from_str(text: &str) -> Result<Self, VolumeError> {
        let (owner, name) = match text.split_once('/') {
            Some((owner, name)) => (Some(owner), name),
            None => (None, text),
        };
        match is_name(name) && owner.is_none_or(is_name) {
            true => Ok(Self { owner: owner.map(str::to_owned), name: name.to_owned() }),
            false => Err(VolumeError::Name(text.to_owned())),
        }
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Some(owner) => write!(f, "{owner}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Serialize for VolumeName {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VolumeName {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Where a volume stands inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeMount {
    pub volume: VolumeName,
    pub target: PathBuf,
    #[serde(default)]
    pub read_only: bool,
}

/// `NAME:TARGET[:rw|ro]`, as on the command line; writable unless it says otherwise.
impl FromStr for VolumeMount {
    type Err = VolumeError;

    fn from_str(text: &str) -> Result<Self, VolumeError> {
        let parts: Vec<&str> = text.split(':').collect();
        let (name, target, read_only) = match parts.as_slice() {
            [name, target] | [name, target, "rw"] => (name, target, false),
            [name, target, "ro"] => (name, target, true),
            _ => return Err(VolumeError::Shape(text.to_owned())),
        };
        let volume = name.parse()?;
        let target = PathBuf::from(target);
        if !target.is_absolute() || target.components().any(|part| part == Component::ParentDir) {
            return Err(VolumeError::Target(text.to_owned()));
        }
        Ok(Self { volume, target, read_only })
    }
}

/// A volume as it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeInfo {
    pub name: VolumeName,
    pub created_us: u64,
    /// What its files take, and how many there are; of a very large one at least.
    pub bytes: u64,
    pub files: u64,
    /// Whether a session has it now.
    pub in_use: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_places_are_read_and_what_is_none_is_refused() {
        let mount: VolumeMount = "acme/cache:/root/.cache:ro".parse().unwrap();
        assert_eq!((mount.volume.to_string().as_str(), mount.read_only), ("acme/cache", true));
        assert!(!"cache:/tmp".parse::<VolumeMount>().unwrap().read_only);
        for bad in [
            "",
            "cache",
            "cache:tmp",
            "../x:/tmp",
            "a/b/c:/tmp",
            "A:/tmp",
            "c:/../x",
            "c:/x:rx",
            "c:/x:ro:y",
            ".:/x",
        ] {
            assert!(bad.parse::<VolumeMount>().is_err(), "{bad}");
        }
        let name: VolumeName = serde_json::from_str("\"acme/cache\"").unwrap();
        assert_eq!(serde_json::to_string(&name).unwrap(), "\"acme/cache\"");
    }
}
