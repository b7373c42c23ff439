//! What is told of tools: what a server offers, what was called with what, by whose leave, and what came back.
//! Arguments and results stand here as they were written; what is long is kept by its digest.

use crate::{BlobRef, Digest, Verdict};
use serde::{Deserialize, Serialize};

/// Where a tool was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolVia {
    /// An MCP server on stdio, in a sandbox of its own.
    McpStdio,
    /// An MCP server that the sandbox reaches by HTTP.
    McpHttp,
    /// Requests that the policy declares to be calls of a tool.
    Http,
}

/// What was said: here if it is short text, else by its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    Text(String),
    Kept(BlobRef),
}

/// One tool of a listing, as whoever asked got it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolOffered {
    pub name: String,
    /// Of its whole definition: description, schemas, annotations.
    pub schema: Digest,
    /// Why it was left out of the listing, where it was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hidden: String,
}

/// A server told its tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolListed {
    pub via: ToolVia,
    pub server: String,
    pub tools: Vec<ToolOffered>,
}

/// A tool that this server was never seen to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolRegistered {
    pub via: ToolVia,
    pub server: String,
    pub name: String,
    pub schema: Digest,
    pub definition: Content,
    /// Whether it came with the first listing ever; one that comes later is withheld.
    pub first: bool,
}

/// A tool whose definition is no longer the one that was pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolChanged {
    pub via: ToolVia,
    pub server: String,
    pub name: String,
    pub was: Digest,
    pub now: Digest,
    pub definition: Content,
}

/// A call, on record before the tool hears of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCalled {
    pub via: ToolVia,
    pub server: String,
    /// The tool; for what a server offers besides tools, the method: `resources/read`, `sampling/createMessage`.
    pub tool: String,
    /// The caller's own id for it, as JSON.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call: String,
    /// JSON, as it was written.
    pub arguments: Content,
    pub effect: Verdict,
    /// The rule that fired; none where nothing matched or nothing was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Credentials that the call can spend, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolOutcome {
    Ok,
    /// The tool says that it failed.
    Failed,
    /// The server says that there was nothing to call, or called wrongly.
    Error,
    /// It was never carried out: a policy or a person said no.
    Refused,
    /// The caller took it back.
    Cancelled,
    /// The server ended, or went away without an answer.
    ServerGone,
}

/// What came back; its parent is the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolReturned {
    pub outcome: ToolOutcome,
    /// JSON, as the caller got it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Content>,
    pub total_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolSide {
    Client,
    Server,
}

/// Something that the protocol does not allow; it was not passed on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolFault {
    pub via: ToolVia,
    pub server: String,
    pub from: ToolSide,
    /// A short word that stays the same: `not-json`, `batch`, `unknown-id`, `too-long`…
    pub cause: String,
    pub detail: String,
}
