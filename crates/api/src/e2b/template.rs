//! Templates that are built: asked for, fed with files, begun, looked at.

use serde::{Deserialize, Serialize};

/// `POST /v3/templates`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NewBuild {
    /// `name` or `name:tag`.
    pub name: String,
    /// What older SDKs call it.
    pub alias: Option<String>,
    pub tags: Option<Vec<String>>,
}

/// `POST /templates/tags`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TagsAssigned {
    /// `name:tag` of what is there.
    pub target: String,
    pub tags: Vec<String>,
}

/// `DELETE /templates/tags`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TagsRemoved {
    pub name: String,
    pub tags: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tagged {
    #[serde(rename = "buildID")]
    pub build_id: String,
    pub tags: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tag {
    pub tag: String,
    #[serde(rename = "buildID")]
    pub build_id: String,
    pub created_at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildAsked {
    #[serde(rename = "templateID")]
    pub template_id: String,
    #[serde(rename = "buildID")]
    pub build_id: String,
    pub public: bool,
    pub names: Vec<String>,
    pub tags: Vec<String>,
    pub aliases: Vec<String>,
}

/// Whether files of this hash are there, and where to put them if not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UploadLink {
    pub present: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// `POST /v2/templates/{id}/builds/{build}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BuildRequest {
    pub from_image: Option<String>,
    pub from_image_registry: Option<ImageRegistry>,
    pub from_template: Option<String>,
    pub steps: Vec<BuildStep>,
    pub start_cmd: Option<String>,
    pub ready_cmd: Option<String>,
}

/// Who asks a registry. Never shown.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageRegistry {
    /// `registry`, `aws` or `gcp`.
    pub r#type: String,
    pub username: String,
    pub password: String,
}

impl std::fmt::Debug for ImageRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageRegistry").field("type", &self.r#type).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BuildStep {
    pub r#type: String,
    pub args: Vec<String>,
    pub files_hash: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildStatus {
    #[serde(rename = "templateID")]
    pub template_id: String,
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// `building`, `waiting`, `ready` or `error`.
    pub status: &'static str,
    pub logs: Vec<String>,
    pub log_entries: Vec<BuildLog>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<BuildReason>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BuildLog {
    pub timestamp: String,
    pub level: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildReason {
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    pub log_entries: Vec<BuildLog>,
}
