//! What is told of a session's traffic. Paths and queries stand here as they came from inside, so that they
//! hold placeholders and never a credential's real value.

use crate::BlobRef;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a request came to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// The client speaks to a proxy and knows it.
    Proxy,
    /// The client spoke to an address, and we took the stream.
    Transparent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Allow,
    Deny,
    /// Waits for a person; the answer is an `approval.answered` of its own.
    Review,
}

/// What a session's traffic is judged by and what it may spend, as it was when the session began. With this a
/// session can be repeated where neither the policy's file nor the vault is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressOpened {
    /// The text of the policy.
    pub policy: BlobRef,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialBound>,
}

/// A credential without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialBound {
    pub name: String,
    /// The variable in which the placeholder stands inside.
    pub env: String,
    pub hosts: Vec<String>,
    pub places: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
    /// Opens nothing, and is of no use in any other session.
    pub placeholder: String,
    /// The same for what else belongs to it: variables and placeholders.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, String>,
}

/// One request (or one pass-through connection), and what became of it before its first byte went out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressDecided {
    pub via: Via,
    /// `tls` for a pass-through connection, of which nothing more than the name is seen.
    pub scheme: String,
    pub host: String,
    pub port: u16,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub method: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    pub effect: Verdict,
    /// The rule that fired; none where nothing matched, which is deny.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Names of the credentials that were put in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<String>,
}

/// One statement for a database, and what became of it before it was sent there; its parent is the decision on the
/// session with the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlDecided {
    /// What it does: `read public.orders`, `insert public.orders`, `call my_function`…
    pub acts: Vec<String>,
    pub effect: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// As it came from inside, up to a bound and without secrets; parameters are not in it.
    pub statement: String,
    /// It was sent earlier and is executed again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub again: bool,
}

/// What came of a statement; its parent is the decision on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlEnded {
    /// As the database says it: `SELECT 5`, `INSERT 0 1`; empty where it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tag: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows: u64,
    /// The code of the error, where it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// How an exchange came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    Complete,
    /// The client went away first.
    ClientGone,
    /// The upstream could not be reached, or broke off.
    UpstreamFailed,
    /// A credential it used was revoked or replaced.
    Revoked,
    /// Egress was paused.
    Paused,
    /// The policy that is in force now refuses it.
    PolicyChanged,
    /// A limit on bytes was reached.
    OverBudget,
    /// Something in the body must not pass.
    Refused,
    /// The session ended.
    SessionEnded,
}

/// How an exchange ended; its parent is the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressEnded {
    pub ending: Ending,
    /// The answer's status, where one came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Bytes of bodies or of the stream, as the sandbox sent and got them.
    pub sent: u64,
    pub received: u64,
    /// From the request's head to the answer's head, and to the end.
    pub first_us: u64,
    pub total_us: u64,
    /// How many values were put back to their placeholders in the answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub scrubbed: u64,
    /// What was noticed on the way and did not stop it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// Something that no policy was asked about, because no policy could allow it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressRefused {
    /// A short word that stays the same: `not-http-or-tls`, `name-mismatch`, `forbidden-address`…
    pub cause: String,
    pub via: Via,
    /// As far as it was known: a name or an address, with the port.
    pub destination: String,
    /// The method and path where there was a request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request: String,
    pub detail: String,
    /// It looks like an attempt to get something out, not like a mistake.
    pub alarm: bool,
    /// How many like it were folded into this event.
    pub times: u64,
}

/// A credential's real value was put into a request; its parent is the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialUsed {
    pub name: String,
    pub generation: u64,
    pub host: String,
    pub port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Allowed,
    Denied,
    TimedOut,
    /// Whoever asked is gone.
    Withdrawn,
}

/// A held request got its answer; its parent is the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalAnswered {
    pub answer: Answer,
    /// Who answered; empty where nobody did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    pub waited_us: u64,
}

/// Someone outside changed what a running session may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlChanged {
    /// `policy`, `pause`, `resume`, `revoke`, `rotate`, `cap`.
    pub what: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    pub by: String,
    /// Exchanges that were cut by it.
    pub cut: u64,
}

/// A name was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NameAsked {
    pub name: String,
    /// `A`, `AAAA`, `TXT`…
    pub record: String,
    /// The address that stands for the name inside; none where the question was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How many like it were folded into this event.
    pub times: u64,
}

/// Traffic that is neither TCP nor a question to our DNS: refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StrayPacket {
    /// `udp`, `icmp`, `raw`.
    pub protocol: String,
    pub destination: String,
    pub bytes: u64,
    pub reason: String,
    pub times: u64,
}

/// Someone outside was told, or could not be; its parent is the event that it was first about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertSent {
    /// The `[[alert]]` of the policy.
    pub alert: String,
    /// Where to, without what lets one post there: `webhook hooks.example:443`, `syslog /dev/log`.
    pub to: String,
    /// `held`, `refused` or the name of an alarm.
    pub about: String,
    /// How many were folded into it.
    pub times: u64,
    pub attempts: u32,
    /// Why it was not delivered; empty where it was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}
