//! What is done in a session: commands, files, transactions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecAsked {
    #[schemars(length(min = 1), inner(regex(pattern = r"^[^\x00]*$")))]
    #[schemars(extend("prefixItems" = [{ "type": "string", "pattern": super::WORD }]))]
    pub argv: Vec<String>,
    /// On top of the session's own.
    #[serde(default)]
    #[schemars(schema_with = "super::variables")]
    pub env: BTreeMap<String, String>,
    /// The home unless said.
    #[schemars(regex(pattern = r"^[^\x00]+$"), length(max = 1024))]
    pub cwd: Option<String>,
    /// A user inside; `user` unless said.
    #[schemars(regex(pattern = r"^[^\x00]+$"))]
    pub user: Option<String>,
    /// Seconds; then it is ended.
    #[schemars(range(min = 1, max = 86400))]
    #[serde(default, deserialize_with = "super::whole")]
    pub timeout: Option<u32>,
    /// What it reads; nothing unless said.
    pub stdin: Option<String>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExecExit {
    /// 128 and the signal's number where one ended it.
    pub exit_code: i32,
    /// What ended it, if it was not its own doing.
    pub reason: Option<String>,
}

/// A command that has ended. Output that is not UTF-8 is shown with replacement characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExecResult {
    pub stdout: String,
    pub stderr: String,
    /// Whether there was more than is shown here.
    pub truncated: bool,
    #[serde(flatten)]
    pub exit: ExecExit,
}

/// One server-sent event of a command: its name is the tag here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum ExecEvent {
    Started {
        pid: u32,
    },
    /// Base64.
    Stdout {
        data: String,
    },
    Stderr {
        data: String,
    },
    Exit(ExecExit),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exec {
    pub id: u32,
    pub argv: Vec<String>,
    pub started_at: String,
    /// Nothing while it runs.
    pub exit_code: Option<i32>,
    pub output_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Execs {
    pub execs: Vec<Exec>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileEntry {
    pub path: String,
    pub kind: FileKind,
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    pub owner: String,
    pub group: String,
    pub modified_at: String,
    /// Where a link leads.
    pub target: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Files {
    pub files: Vec<FileEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Transaction {
    /// How many are open now.
    pub depth: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settle {
    /// End whatever runs first.
    pub force: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettledTransaction {
    pub kept: bool,
    /// How many are still open around it.
    pub depth: u32,
    /// What it did outside, which no rollback takes back.
    pub effects: Vec<String>,
}

/// What was changed in the innermost transaction: a file each, with a text difference where there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    pub changes: Vec<serde_json::Map<String, serde_json::Value>>,
}
