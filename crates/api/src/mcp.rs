//! A sandbox as tools of the Model Context Protocol: what each is called, what it takes, what it answers. The texts here
//! are read by models, before anything is called.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Versions that begin with `initialize`, the newest first.
pub const WITH_HANDSHAKE: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// Versions in which each request says which one it is of.
pub const WITHOUT_HANDSHAKE: [&str; 1] = ["2026-07-28"];
/// The member of `_meta` that says so.
pub const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

pub const NOT_JSON: i32 = -32700;
pub const NO_REQUEST: i32 = -32600;
pub const NO_METHOD: i32 = -32601;
pub const BAD_PARAMS: i32 = -32602;
pub const BUSY: i32 = -32000;
pub const NO_VERSION: i32 = -32022;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// A line for the shell, as in `make test 2>&1 | tail -n 20`.
    #[schemars(length(min = 1))]
    pub command: String,
    /// The directory it starts in; the work dir unless said.
    pub cwd: Option<String>,
    /// Seconds; then it is ended.
    #[schemars(range(min = 1, max = 86400))]
    pub timeout: Option<u32>,
    /// What it reads; nothing unless said.
    pub stdin: Option<String>,
}

/// A command that has ended. Output that is not UTF-8 is shown with replacement characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Ran {
    /// 128 and the signal's number where one ended it; 124 if its time was over.
    pub exit_code: i32,
    pub stdout: String,
    pub stderr: String,
    /// Whether the middle of its output was left out.
    pub truncated: bool,
    /// What ended it, if it was not its own doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    #[default]
    Utf8,
    Base64,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    /// Absolute, or from the work dir.
    #[schemars(length(min = 1))]
    pub path: String,
    /// Bytes to leave out at its beginning.
    pub offset: Option<u64>,
    /// Most bytes to read.
    #[schemars(range(min = 1, max = MOST_READ))]
    pub limit: Option<u32>,
    /// `utf8` unless said; a file that is no text needs `base64`.
    #[serde(default)]
    pub encoding: Encoding,
}

/// So much of a file comes in one answer.
pub const MOST_READ: u32 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileRead {
    pub content: String,
    pub encoding: Encoding,
    /// Where to go on reading; nothing once all was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    /// Absolute, or from the work dir. Directories on the way are made.
    #[schemars(length(min = 1))]
    pub path: String,
    /// All of the file: what it held before is gone.
    pub content: String,
    /// `utf8` unless said.
    #[serde(default)]
    pub encoding: Encoding,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileWritten {
    pub path: String,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Diff {
    /// Only which files, not what changed in them.
    #[serde(default)]
    pub brief: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Differences {
    pub changes: Vec<Map<String, Value>>,
    /// Whether there were more than are told here.
    pub truncated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Begin {}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settle {
    /// End whatever still runs. Without it that is a reason to refuse.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Depth {
    /// How many transactions are open now.
    pub depth: u64,
    /// What went outside meanwhile, and cannot be taken back.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub effects: Vec<String>,
    /// Paths that were changed outside as well, and were left as they are there.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub conflicts: Vec<String>,
}

/// What a call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Run(Run),
    ReadFile(ReadFile),
    WriteFile(WriteFile),
    Diff(Diff),
    Begin(Begin),
    Commit(Settle),
    Rollback(Settle),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoCall {
    /// There is no such tool.
    Unknown,
    /// It is there, and takes something else.
    Arguments(String),
}

impl Call {
    pub fn read(name: &str, arguments: Value) -> Result<Self, NoCall> {
        fn as_<T: for<'de> Deserialize<'de>>(arguments: Value) -> Result<T, NoCall> {
            serde_json::from_value(arguments).map_err(|error| NoCall::Arguments(error.to_string()))
        }
        let arguments = if arguments.is_null() { json!({}) } else { arguments };
        match name {
            "run" => as_(arguments).map(Self::Run),
            "read_file" => as_(arguments).map(Self::ReadFile),
            "write_file" => as_(arguments).map(Self::WriteFile),
            "diff" => as_(arguments).map(Self::Diff),
            "begin" => as_(arguments).map(Self::Begin),
            "commit" => as_(arguments).map(Self::Commit),
            "rollback" => as_(arguments).map(Self::Rollback),
            _ => Err(NoCall::Unknown),
        }
    }
}

struct Tool {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    reads_only: bool,
    destructive: bool,
    takes: fn() -> Schema,
    answers: fn() -> Schema,
}

fn schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>()
}

const TOOLS: [Tool; 7] = [
    Tool {
        name: "run",
        title: "Run a command",
        description: "Runs a shell command in the sandbox and waits for it. Files stay between calls, variables and the \
            current directory do not. Of long output the beginning and the end are shown.",
        reads_only: false,
        destructive: true,
        takes: schema::<Run>,
        answers: schema::<Ran>,
    },
    Tool {
        name: "read_file",
        title: "Read a file",
        description: "Reads a file of the sandbox, at most 1 MiB at a time.",
        reads_only: true,
        destructive: false,
        takes: schema::<ReadFile>,
        answers: schema::<FileRead>,
    },
    Tool {
        name: "write_file",
        title: "Write a file",
        description: "Writes a whole file in the sandbox; it appears as a whole or not at all.",
        reads_only: false,
        destructive: true,
        takes: schema::<WriteFile>,
        answers: schema::<FileWritten>,
    },
    Tool {
        name: "diff",
        title: "Show changes",
        description: "Shows what was changed in the work dir: in the innermost transaction, or else since the sandbox began.",
        reads_only: true,
        destructive: false,
        takes: schema::<Diff>,
        answers: schema::<Differences>,
    },
    Tool {
        name: "begin",
        title: "Begin a transaction",
        description: "Opens a transaction over the work dir, within the innermost one if there is one: what is done from \
            here on can be dropped by `rollback`.",
        reads_only: false,
        destructive: false,
        takes: schema::<Begin>,
        answers: schema::<Depth>,
    },
    Tool {
        name: "commit",
        title: "Keep changes",
        description: "Keeps what was done in the innermost transaction. Without one it carries all changes to the work \
            dir of the host, where that is allowed.",
        reads_only: false,
        destructive: true,
        takes: schema::<Settle>,
        answers: schema::<Depth>,
    },
    Tool {
        name: "rollback",
        title: "Drop changes",
        description: "Drops what was done in the innermost transaction; without one, everything since the sandbox began \
            or was last committed.",
        reads_only: false,
        destructive: true,
        takes: schema::<Settle>,
        answers: schema::<Depth>,
    },
];

/// The answer to `tools/list`.
pub fn tools() -> Value {
    let tool = |tool: &Tool| {
        json!({
            "name": tool.name,
            "title": tool.title,
            "description": tool.description,
            "inputSchema": (tool.takes)(),
            "outputSchema": (tool.answers)(),
            "annotations": {
                "readOnlyHint": tool.reads_only,
                "destructiveHint": tool.destructive,
                "openWorldHint": tool.name == "run",
            },
        })
    };
    json!({ "tools": TOOLS.iter().map(tool).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_that_is_listed_can_be_called_and_no_other() {
        for tool in &TOOLS {
            assert_ne!(Call::read(tool.name, json!({})), Err(NoCall::Unknown), "{}", tool.name);
        }
        assert_eq!(Call::read("sudo", json!({})), Err(NoCall::Unknown));
        assert!(
            matches!(Call::read("run", json!({"cmd": "ls"})), Err(NoCall::Arguments(why)) if why.contains("cmd"))
        );
        assert_eq!(Call::read("begin", Value::Null), Ok(Call::Begin(Begin {})));
    }

    #[test]
    fn schemas_stand_alone_and_close_their_objects() {
        for tool in tools()["tools"].as_array().unwrap() {
            let takes = &tool["inputSchema"];
            assert_eq!((&takes["type"], &takes["additionalProperties"]), (&json!("object"), &json!(false)));
            assert!(!tool.to_string().contains("$ref"), "{tool}");
            assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
        }
    }
}
