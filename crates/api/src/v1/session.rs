//! Sessions, and their files under a name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What becomes of a session whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnTimeout {
    #[default]
    Kill,
    Pause,
}

/// A volume of the tenant's, and where it stands inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mounted {
    #[schemars(regex(pattern = r"^[a-z][a-z0-9-]{0,62}$"))]
    pub volume: String,
    /// Absolute, without `..`.
    #[schemars(regex(pattern = r"^/[^\x00]+$"), length(max = 1024))]
    pub path: String,
    #[serde(default)]
    pub read_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVolume {
    #[schemars(regex(pattern = r"^[a-z][a-z0-9-]{0,62}$"))]
    pub name: String,
}

/// A directory that sessions share and that outlives them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Volume {
    pub name: String,
    pub created_at: String,
    pub bytes: u64,
    pub files: u64,
    /// Whether a session has it now.
    pub in_use: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Volumes {
    pub volumes: Vec<Volume>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewSession {
    /// `base` unless said, or a snapshot.
    pub template: Option<String>,
    /// An image of the service's, by name, to have for its root. Without `template`.
    #[schemars(length(max = 128))]
    pub image: Option<String>,
    /// Seconds; 300 unless said.
    #[schemars(range(max = 86400))]
    #[serde(deserialize_with = "super::whole")]
    pub timeout: Option<u32>,
    #[schemars(schema_with = "super::variables")]
    pub env: BTreeMap<String, String>,
    pub metadata: BTreeMap<String, String>,
    /// Hosts that may be reached: names, `*.names`, addresses, or `0.0.0.0/0` for all.
    pub allow_out: Vec<String>,
    pub on_timeout: OnTimeout,
    /// Whether a request to a paused one wakes it.
    pub auto_resume: bool,
    /// Credentials of the vault that it may use, by name. Only an administrator can lend them.
    pub secrets: Vec<String>,
    pub volumes: Vec<Mounted>,
    /// The rules for what leaves, as a policy file. Takes the place of `allow_out`.
    pub policy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    Running,
    /// Its processes stand still.
    Paused,
    /// Only its files are kept.
    Stored,
    /// Whoever held it was ended, and it with them.
    Lost,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    pub id: String,
    pub state: SessionState,
    pub tenant: String,
    pub template: String,
    pub metadata: BTreeMap<String, String>,
    /// Times are RFC 3339.
    pub started_at: String,
    /// When its time is over.
    pub ends_at: Option<String>,
    /// The trace of what runs in it now.
    pub trace: Option<String>,
    /// Open transactions, each within the one before.
    pub transactions: u32,
    /// Commands that run.
    pub running: u32,
    pub cpu_us: Option<u64>,
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sessions {
    pub sessions: Vec<Session>,
    /// Give it as `after` for the next page.
    pub next: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pause {
    /// True: keep the files and end the processes.
    pub files_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Resume {
    /// Seconds; as its maker asked unless said.
    #[schemars(range(max = 86400))]
    #[serde(deserialize_with = "super::whole")]
    pub timeout: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Extend {
    /// Seconds from now on.
    #[schemars(range(max = 86400))]
    #[serde(deserialize_with = "super::needed")]
    pub timeout: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForkAsked {
    /// 1 unless said.
    #[schemars(range(min = 1, max = 20))]
    #[serde(deserialize_with = "super::whole")]
    pub count: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Forks {
    pub sessions: Vec<Session>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotAsked {
    #[schemars(regex(pattern = r"^[A-Za-z0-9_.-]{1,64}$"))]
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// A template too.
    pub name: String,
    pub session: String,
    pub template: String,
    pub taken_at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshots {
    pub snapshots: Vec<Snapshot>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// As a policy file has it.
    pub policy: String,
}
