//! What is told of a session's browser: what was asked of it, by whose leave, what came of it, and what its pages
//! did by themselves. Values that are typed into fields for secrets are not in it.

use crate::{Content, Digest, Verdict};
use serde::{Deserialize, Serialize};

/// It came up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrowserStarted {
    pub product: String,
    /// Of the protocol it is driven by.
    pub protocol: String,
    /// Whether it was started with the sandbox of its own that keeps pages from it; the session's is around it anyhow.
    pub own_sandbox: bool,
}

/// Something asked of the browser, on record before it hears of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrowserActed {
    /// Counts from one within the session.
    pub client: u64,
    /// `navigate`, `click`, `fill`, `press`, `type`, `select`, `evaluate`, `read`…; what is not known by a name of ours, by
    /// the protocol's.
    pub action: String,
    /// The protocol's own name for it.
    pub command: String,
    /// Where the page was.
    pub page: String,
    /// JSON: `url` (where to, or else the page), the element's `role`, `name` and `selector`, and what it is done with.
    pub args: Content,
    pub effect: Verdict,
    /// The rule that fired; none where nothing matched or nothing was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BrowserOutcome {
    Ok,
    /// The browser says that it failed.
    Failed,
    /// It was never carried out: a policy or a person said no.
    Refused,
    /// The browser, the page or the client went away before.
    Gone,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrowserDone {
    pub outcome: BrowserOutcome,
    /// Where the page was then.
    pub page: String,
    /// What came back, where that is data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Content>,
    /// Of a picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<Digest>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    pub total_us: u64,
}

/// What a page did, whoever was the cause of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sight {
    Opened,
    Navigated,
    Closed,
    Crashed,
    /// It asks its user something.
    Dialog,
    Download,
    /// A choice, a tick or a text in one of its fields became another.
    Changed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrowserSeen {
    pub what: Sight,
    /// Where the page was before.
    pub page: String,
    /// Where it is now, or what it loads.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// A dialog's words, a file's name, an element and its value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Nothing where no rule was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Verdict>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// It is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrowserEnded {
    pub reason: String,
}

/// What was not passed on, and whose it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrowserFault {
    /// Zero is the browser.
    pub client: u64,
    pub cause: String,
    pub detail: String,
}
