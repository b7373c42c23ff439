//! `filesystem.Filesystem` of E2B's daemon, and what its plain routes answer.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Of every call; each uses what it needs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileRequest {
    pub path: String,
    pub source: String,
    pub destination: String,
    pub depth: u32,
    pub recursive: bool,
    pub include_entry: bool,
    pub watcher_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntryAnswer {
    pub entry: EntryInfo,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntriesAnswer {
    pub entries: Vec<EntryInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryInfo {
    pub name: String,
    pub r#type: &'static str,
    pub path: String,
    /// A string, as 64-bit numbers are.
    pub size: String,
    pub mode: u32,
    pub permissions: String,
    pub owner: String,
    pub group: String,
    pub modified_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symlink_target: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum WatchMessage {
    Start {},
    Filesystem(Box<FileEvent>),
    Keepalive {},
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileEvent {
    pub name: String,
    pub r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatcherAnswer {
    pub watcher_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventsAnswer {
    pub events: Vec<FileEvent>,
}

/// One of those that were written by `POST /files`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Uploaded {
    pub path: String,
    pub name: String,
    pub r#type: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// `GET /metrics`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EnvdMetrics {
    pub ts: u64,
    pub cpu_count: usize,
    pub cpu_used_pct: f64,
    pub mem_total: u64,
    pub mem_used: u64,
    pub mem_cache: u64,
    pub disk_used: u64,
    pub disk_total: u64,
}
