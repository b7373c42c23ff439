//! The workspace as cargo itself tells it: packages, their dependencies, targets and licences.

use crate::command::{self, CommandError};
use serde::Deserialize;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkspaceError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("cargo metadata printed something unexpected: {0}; is this cargo newer than the workspace?")]
    Metadata(#[from] serde_json::Error),
    #[error("`rustc -vV` names no host; reinstall the Rust toolchain")]
    NoHost,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) target_directory: PathBuf,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    #[serde(default)]
    pub(crate) dependencies: Vec<Dependency>,
    #[serde(default)]
    pub(crate) targets: Vec<Target>,
    pub(crate) manifest_path: PathBuf,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Absent for a normal one, else `dev` or `build`.
    pub(crate) kind: Option<String>,
}

impl Dependency {
    pub(crate) fn is_dev(&self) -> bool {
        self.kind.as_deref() == Some("dev")
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

impl Metadata {
    /// Ours, in the order of their folders.
    pub(crate) fn members(&self) -> Vec<Package> {
        let ours = |p: &&Package| self.workspace_members.contains(&p.id);
        let mut members: Vec<_> = self.packages.iter().filter(ours).cloned().collect();
        members.sort_by(|a, b| a.manifest_path.cmp(&b.manifest_path));
        members
    }
}

/// The repository's root. Cargo says where we are; the path compiled in serves a binary started by hand.
pub(crate) fn root() -> PathBuf {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().map_or(xtask.clone(), Path::to_path_buf)
}

/// With every dependency that this host builds. Offline first: the sources are normally there already, and
/// asking a registry would be the slowest thing tidy does.
pub(crate) fn metadata(root: &Path) -> Result<Metadata, WorkspaceError> {
    let host = host()?;
    let ask = |more: &[&str]| {
        let mut cargo = command::cargo();
        cargo.current_dir(root).args(["metadata", "--format-version", "1", "--filter-platform", &host]);
        command::stdout(cargo.args(more))
    };
    let json = ask(&["--offline"]).or_else(|_| ask(&[]))?;
    Ok(serde_json::from_str(&json)?)
}

fn host() -> Result<String, WorkspaceError> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = command::stdout(std::process::Command::new(rustc).arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or(WorkspaceError::NoHost)
}
