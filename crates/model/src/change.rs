//! What a session did to the files of its work dir.

use crate::{Digest, RawPath};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeOp {
    Created,
    Modified,
    /// A file that was there under another name, with the same content.
    Renamed,
    Deleted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Dir,
    Symlink,
    Fifo,
    Socket,
    Device,
}

/// In which respect something that was modified differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aspect {
    /// Of a symlink: its target.
    Content,
    Mode,
    Owner,
    /// Extended attributes.
    Attributes,
    /// It is one file with another name.
    Links,
}

impl Aspect {
    pub fn word(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Mode => "mode",
            Self::Owner => "owner",
            Self::Attributes => "attributes",
            Self::Links => "links",
        }
    }
}

/// One path of the work dir that differs from what the session began with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    pub op: ChangeOp,
    pub kind: FileKind,
    /// Relative to the work dir.
    pub path: RawPath,
    /// What a renamed file was called before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<RawPath>,
    /// Only of what was modified.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Aspect>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::wide::maybe")]
    pub size: Option<u64>,
    /// Of the content after the change; only for files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// A path that a commit left out, of which the inside's version is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsidePath {
    /// Relative to the work dir.
    pub path: RawPath,
    pub kind: FileKind,
    /// What it gets when it is taken.
    pub mode: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Why it was left out.
    pub reason: String,
}

/// What one commit left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The session's id; of its later commits with a number after it.
    pub name: String,
    pub session: String,
    pub workdir: RawPath,
    pub kept_us: u64,
    /// Where the versions lie.
    pub files: RawPath,
    pub paths: Vec<AsidePath>,
}

/// What someone outside had done to a file inside, through the session's own door.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAsked {
    pub op: FileOp,
    /// As the inside sees it.
    pub path: RawPath,
    /// Where it was moved to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<RawPath>,
    /// Who asked.
    pub by: String,
    /// Whose it is to be.
    pub user: String,
    /// Of the new content.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::wide::maybe")]
    pub size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileOp {
    Write,
    MakeDir,
    Move,
    Remove,
}

/// Renames are rare: a trace says nothing of them where there are none.
pub(crate) fn is_none(count: &u64) -> bool {
    *count == 0
}
