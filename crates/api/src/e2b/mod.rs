//! E2B's control plane: the bodies that its SDKs send and parse. Names are E2B's own, with their one snake_case key;
//! what an SDK leaves out was not asked for, which is not the same as false. Unknown fields are let pass, as E2B
//! does: newer SDKs send more.

mod filesystem;
mod network;
mod process;
mod sandbox;
mod template;

pub use filesystem::{
    EntriesAnswer, EntryAnswer, EntryInfo, EnvdMetrics, EventsAnswer, FileEvent, FileRequest, Uploaded,
    WatchMessage, WatcherAnswer,
};
pub use network::{HeaderRule, Network, NetworkUpdate, Transform};
pub use process::{
    ProcessConfig, ProcessData, ProcessEvent, ProcessInfo, ProcessInput, ProcessList, ProcessMessage,
    ProcessRequest, ProcessSelector, Pty, PtySize, StartRequest, StreamInputRequest,
};
pub use sandbox::{
    AutoResume, Connect, Created, Detail, Fork, Forked, Lifecycle, Listed, Metric, NewSandbox, Pause,
    Refresh, Snapshot, SnapshotTaken, State, Timeout, VolumeMount,
};
pub use template::{
    BuildAsked, BuildLog, BuildReason, BuildRequest, BuildStatus, BuildStep, ImageRegistry, NewBuild, Tag,
    Tagged, TagsAssigned, TagsRemoved, UploadLink,
};

use serde::{Deserialize, Serialize};

/// The version of E2B's daemon that we speak as: SDKs turn features on by it.
pub const ENVD_VERSION: &str = "0.6.13";

/// Every error of the control plane. The SDKs read `code`, not only the status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    pub code: u16,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
}

/// What the proxy in front of a sandbox says when it cannot reach it. The SDKs look for its very words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyError {
    #[serde(rename = "sandboxId")]
    pub sandbox_id: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    pub code: u16,
}

impl ProxyError {
    pub fn not_found(sandbox: &str) -> Self {
        let (sandbox_id, message) = (sandbox.to_owned(), "The sandbox was not found".to_owned());
        Self { sandbox_id, message, port: None, code: 502 }
    }

    pub fn port_closed(sandbox: &str, port: u16) -> Self {
        let message = "The sandbox is running but port is not open".to_owned();
        Self { sandbox_id: sandbox.to_owned(), message, port: Some(port), code: 502 }
    }
}
