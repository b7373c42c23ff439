//! Layers as one compressed file, and back. It is a tar archive under zstd, so that others can look into it:
//!
//! ```text
//! cofferdam-archive.json   what it is of
//! 0/…  1/…                 each layer, the upper ones first; what was deleted is a character device 0:0
//! ```
//!
//! Ids are those of the inside. What comes back was written by who knows whom: every path is reached beneath its layer
//! without following a link, nothing that exists is replaced, and what a layer cannot hold is refused.

mod duplicate;
mod pack;
mod unpack;

pub(crate) use duplicate::duplicate;
pub use pack::pack;
pub use unpack::{Most, unpack};

use cofferdam_model::{Provenance, SessionId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The first entry.
const ABOUT: &str = "cofferdam-archive.json";
const FORMAT: u32 = 1;
/// A directory that hides what lies below it, in a header of the entry.
const OPAQUE: &str = "COFFERDAM.opaque";
/// The time of the last change with its fraction.
const TIME: &str = "mtime";
/// Extended attributes, as other programs write them.
const ATTRIBUTE: &str = "SCHILY.xattr.";

/// What an archive is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    pub format: u32,
    pub session: SessionId,
    pub workdir: PathBuf,
    pub layers: usize,
    pub since: Provenance,
}

impl About {
    pub fn new(session: SessionId, workdir: PathBuf, layers: usize, since: Provenance) -> Self {
        Self { format: FORMAT, session, workdir, layers, since }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("this is no archive of a session: {0}")]
    Format(String),
    #[error("the archive's entry `{path}` is refused: {what}")]
    Entry { path: String, what: &'static str },
    #[error("the archive holds more than {0}: nothing of it was taken")]
    TooMuch(String),
    #[error("{doing}: {source}")]
    Io { doing: String, source: std::io::Error },
}

impl ArchiveError {
    fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// The host's id behind the inside's id 0, where there is a range for it.
fn base(since: &Provenance) -> Option<u32> {
    since.ids.and_then(crate::users::base)
}

#[cfg(test)]
mod tests;
