//! Every operation of our REST, in one table: the document is made from it, and a test holds the server to it.

use crate::v1;
use schemars::{JsonSchema, Schema, SchemaGenerator};

/// What comes back when it goes well.
#[derive(Clone, Copy)]
pub enum Reply {
    Nothing,
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// JSON, or server-sent events for who accepts them.
    JsonOrEvents(fn(&mut SchemaGenerator) -> Schema, fn(&mut SchemaGenerator) -> Schema),
    Events(fn(&mut SchemaGenerator) -> Schema),
    /// Of this type.
    Bytes(&'static str),
}

/// What may stand in a query.
#[derive(Clone, Copy)]
pub enum Value {
    Text,
    /// Not empty, and no NUL in it.
    Word,
    /// One of these.
    One(&'static [&'static str]),
    /// At least and at most.
    Number(u64, u64),
}

pub struct Parameter {
    pub name: &'static str,
    pub needed: bool,
    pub value: Value,
    pub about: &'static str,
}

pub struct Operation {
    pub method: &'static str,
    pub path: &'static str,
    pub id: &'static str,
    pub summary: &'static str,
    pub query: &'static [Parameter],
    pub body: Option<fn(&mut SchemaGenerator) -> Schema>,
    /// A body of bytes instead.
    pub bytes: bool,
    pub status: u16,
    pub reply: Reply,
    /// Only for the administrator's key.
    pub admin: bool,
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const PLAIN: Operation = Operation {
    method: "get",
    path: "",
    id: "",
    summary: "",
    query: &[],
    body: None,
    bytes: false,
    status: 200,
    reply: Reply::Nothing,
    admin: false,
};

const FILE: Parameter = Parameter {
    name: "path",
    needed: true,
    value: Value::Word,
    about: "absolute, or in the user's home; at most 4096 bytes",
};
const USER: Parameter = text("user", Value::Word, "a user inside; `user` unless said");

/// One that may be left out.
const fn text(name: &'static str, value: Value, about: &'static str) -> Parameter {
    Parameter { name, needed: false, value, about }
}

#[rustfmt::skip]
pub const ROUTES: &[Operation] = &[
    Operation { method: "post", path: "/v1/sessions", id: "createSession", summary: "Make a session", body: Some(of::<v1::NewSession>), status: 201, reply: Reply::Json(of::<v1::Session>), ..PLAIN },
    Operation { path: "/v1/sessions", id: "listSessions", summary: "All sessions of the tenant, the newest first", query: &[text("limit", Value::Number(1, 1000), "100 unless said"), text("after", Value::Text, "`next` of the page before")], reply: Reply::Json(of::<v1::Sessions>), ..PLAIN },
    Operation { path: "/v1/sessions/{id}", id: "getSession", summary: "One session as it is now", reply: Reply::Json(of::<v1::Session>), ..PLAIN },
    Operation { method: "delete", path: "/v1/sessions/{id}", id: "killSession", summary: "End a session and drop what is kept of it", status: 204, ..PLAIN },
    Operation { method: "post", path: "/v1/sessions/{id}/pause", id: "pauseSession", summary: "Stop everything in it where it stands", body: Some(of::<v1::Pause>), reply: Reply::Json(of::<v1::Session>), ..PLAIN },
    Operation { method: "post", path: "/v1/sessions/{id}/resume", id: "resumeSession", summary: "Let it go on", body: Some(of::<v1::Resume>), reply: Reply::Json(of::<v1::Session>), ..PLAIN },
    Operation { method: "post", path: "/v1/sessions/{id}/extend", id: "extendSession", summary: "Give it so long from now on", body: Some(of::<v1::Extend>), reply: Reply::Json(of::<v1::Session>), ..PLAIN },
    Operation { method: "post", path: "/v1/sessions/{id}/fork", id: "forkSession", summary: "Make sessions that begin with its files", body: Some(of::<v1::ForkAsked>), status: 201, reply: Reply::Json(of::<v1::Forks>), ..PLAIN },
    Operation { method: "post", path: "/v1/sessions/{id}/snapshots", id: "takeSnapshot", summary: "Name its files as they are now", body: Some(of::<v1::SnapshotAsked>), status: 201, reply: Reply::Json(of::<v1::Snapshot>), ..PLAIN },
    Operation { method: "post", path: "/v1/sessions/{id}/restore", id: "restoreSession", summary: "Go back to the files of a snapshot of it", body: Some(of::<v1::SnapshotAsked>), reply: Reply::Json(of::<v1::Session>), ..PLAIN },
    Operation { path: "/v1/snapshots", id: "listSnapshots", summary: "Snapshots of the tenant", reply: Reply::Json(of::<v1::Snapshots>), ..PLAIN },
    Operation { method: "delete", path: "/v1/snapshots/{name}", id: "removeSnapshot", summary: "Remove a snapshot", status: 204, ..PLAIN },
    Operation { path: "/v1/volumes", id: "listVolumes", summary: "Volumes of the tenant", reply: Reply::Json(of::<v1::Volumes>), ..PLAIN },
    Operation { method: "post", path: "/v1/volumes", id: "createVolume", summary: "Make an empty volume", body: Some(of::<v1::NewVolume>), status: 201, reply: Reply::Json(of::<v1::Volume>), ..PLAIN },
    Operation { path: "/v1/volumes/{name}", id: "getVolume", summary: "One volume as it is now", reply: Reply::Json(of::<v1::Volume>), ..PLAIN },
    Operation { method: "delete", path: "/v1/volumes/{name}", id: "removeVolume", summary: "Remove a volume that no session has", status: 204, ..PLAIN },
    Operation { method: "post", path: "/v1/sessions/{id}/execs", id: "exec", summary: "Run a command to its end; with `Accept: text/event-stream` its output as it comes", body: Some(of::<v1::ExecAsked>), reply: Reply::JsonOrEvents(of::<v1::ExecResult>, of::<v1::ExecEvent>), ..PLAIN },
    Operation { path: "/v1/sessions/{id}/execs", id: "listExecs", summary: "Its last commands", reply: Reply::Json(of::<v1::Execs>), ..PLAIN },
    Operation { path: "/v1/sessions/{id}/files", id: "readFile", summary: "A file's bytes", query: &[FILE, USER], reply: Reply::Bytes("application/octet-stream"), ..PLAIN },
    Operation { method: "put", path: "/v1/sessions/{id}/files", id: "writeFile", summary: "Write a file, with the directories that it lies in", query: &[FILE, USER], bytes: true, reply: Reply::Json(of::<v1::FileEntry>), ..PLAIN },
    Operation { method: "delete", path: "/v1/sessions/{id}/files", id: "removeFile", summary: "Remove a file, or a directory with all in it", query: &[FILE, USER], status: 204, ..PLAIN },
    Operation { path: "/v1/sessions/{id}/files/list", id: "listFiles", summary: "What is in a directory", query: &[FILE, USER, text("depth", Value::Number(1, 64), "1 unless said")], reply: Reply::Json(of::<v1::Files>), ..PLAIN },
    Operation { method: "post", path: "/v1/sessions/{id}/transactions", id: "beginTransaction", summary: "Open a transaction, within the one that is open", status: 201, reply: Reply::Json(of::<v1::Transaction>), ..PLAIN },
    Operation { path: "/v1/sessions/{id}/transactions/diff", id: "diffTransaction", summary: "What was done in the innermost one", reply: Reply::Json(of::<v1::Difference>), ..PLAIN },
    Operation { method: "post", path: "/v1/sessions/{id}/transactions/commit", id: "commitTransaction", summary: "Keep the innermost one", body: Some(of::<v1::Settle>), reply: Reply::Json(of::<v1::SettledTransaction>), ..PLAIN },
    Operation { method: "post", path: "/v1/sessions/{id}/transactions/rollback", id: "rollbackTransaction", summary: "Drop the innermost one", body: Some(of::<v1::Settle>), reply: Reply::Json(of::<v1::SettledTransaction>), ..PLAIN },
    Operation { path: "/v1/sessions/{id}/policy", id: "getPolicy", summary: "The rules for what leaves it", reply: Reply::Json(of::<v1::Policy>), ..PLAIN },
    Operation { method: "put", path: "/v1/sessions/{id}/policy", id: "setPolicy", summary: "Put other rules in force, at once", body: Some(of::<v1::Policy>), reply: Reply::Json(of::<v1::Policy>), ..PLAIN },
    Operation { path: "/v1/sessions/{id}/usage", id: "getUsage", summary: "What it has used", reply: Reply::Json(of::<v1::Usage>), ..PLAIN },
    Operation { path: "/v1/usage", id: "listUsage", summary: "What the tenant's sessions have used", reply: Reply::Json(of::<v1::UsageList>), ..PLAIN },
    Operation { path: "/v1/approvals", id: "listApprovals", summary: "Requests that wait for a person", reply: Reply::Json(of::<v1::Approvals>), ..PLAIN },
    Operation { method: "post", path: "/v1/approvals/{session}/{id}", id: "answerApproval", summary: "Let a request go, or not", body: Some(of::<v1::ApprovalAnswer>), status: 204, ..PLAIN },
    Operation { path: "/v1/secrets", id: "listSecrets", summary: "Credentials of the vault, never their values", reply: Reply::Json(of::<v1::Secrets>), admin: true, ..PLAIN },
    Operation { method: "post", path: "/v1/secrets", id: "addSecret", summary: "Keep a credential; its value never comes out again", body: Some(of::<v1::NewSecret>), status: 201, reply: Reply::Json(of::<v1::Secret>), admin: true, ..PLAIN },
    Operation { method: "delete", path: "/v1/secrets/{name}", id: "removeSecret", summary: "Remove a credential, also from sessions that use it now", status: 204, admin: true, ..PLAIN },
    Operation { path: "/v1/traces", id: "listTraces", summary: "Traces of the tenant, the newest first", query: &[text("limit", Value::Number(1, 1000), "100 unless said")], reply: Reply::Json(of::<v1::Traces>), ..PLAIN },
    Operation { path: "/v1/traces/{id}", id: "getTrace", summary: "What a trace is", reply: Reply::Json(of::<v1::Trace>), ..PLAIN },
    Operation { path: "/v1/traces/{id}/events", id: "queryTrace", summary: "Events of a trace, those that fit", query: &[text("kind", Value::Text, "the beginning of a kind: `egress`"), text("host", Value::Text, "a host"), text("tool", Value::Text, "a tool"), text("decision", Value::One(&["allow", "deny", "review"]), "what was decided"), text("text", Value::Text, "anywhere in the event"), text("limit", Value::Number(1, 10_000), "1000 unless said")], reply: Reply::Json(of::<v1::TraceEvents>), ..PLAIN },
    Operation { path: "/v1/traces/{id}/export", id: "exportTrace", summary: "All of a trace: `jsonl`, `otlp` or `bundle`", query: &[text("format", Value::One(&["jsonl", "otlp", "bundle"]), "`jsonl` unless said")], reply: Reply::Bytes("application/octet-stream"), ..PLAIN },
    Operation { path: "/v1/traces/{id}/stream", id: "streamTrace", summary: "Events from the first on, then as they come, to the end of the session", reply: Reply::Events(of::<v1::TraceEvent>), ..PLAIN },
    Operation { method: "post", path: "/v1/gates", id: "runGate", summary: "Run a suite and say pass, fail or review", body: Some(of::<v1::GateAsked>), status: 202, reply: Reply::Json(of::<v1::Gate>), admin: true, ..PLAIN },
    Operation { path: "/v1/gates", id: "listGates", summary: "Gates since the service was started", reply: Reply::Json(of::<v1::Gates>), admin: true, ..PLAIN },
    Operation { path: "/v1/gates/{id}", id: "getGate", summary: "A gate and its verdict", reply: Reply::Json(of::<v1::Gate>), admin: true, ..PLAIN },
];
