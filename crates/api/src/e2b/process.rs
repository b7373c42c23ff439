//! `process.Process` of E2B's daemon, in the JSON that its SDKs send: fields that are left out are defaults, bytes are
//! base64.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessConfig {
    pub cmd: String,
    pub args: Vec<String>,
    pub envs: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StartRequest {
    pub process: ProcessConfig,
    pub pty: Option<Pty>,
    pub tag: Option<String>,
    /// Absent: it has one.
    pub stdin: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Pty {
    pub size: Option<PtySize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct PtySize {
    pub cols: u32,
    pub rows: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct ProcessSelector {
    pub pid: Option<u32>,
    pub tag: Option<String>,
}

/// Of `Connect`, `CloseStdin`, `Update`, `SendInput` and `SendSignal`, each with what it needs of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct ProcessRequest {
    pub process: ProcessSelector,
    pub pty: Option<Pty>,
    pub input: Option<ProcessInput>,
    pub signal: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct ProcessInput {
    pub stdin: Option<String>,
    pub pty: Option<String>,
}

/// One message of `StreamInput`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct StreamInputRequest {
    pub start: Option<StreamInputStart>,
    pub data: Option<StreamInputData>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct StreamInputStart {
    pub process: ProcessSelector,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct StreamInputData {
    pub input: ProcessInput,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessList {
    pub processes: Vec<ProcessInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessInfo {
    pub pid: u32,
    pub config: ProcessConfig,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// One message of `Start` and `Connect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessMessage {
    pub event: ProcessEvent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ProcessEvent {
    Start {
        pid: u32,
    },
    Data(ProcessData),
    #[serde(rename_all = "camelCase")]
    End {
        exit_code: i32,
        exited: bool,
        status: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    Keepalive {},
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ProcessData {
    Stdout(String),
    Stderr(String),
    Pty(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_json_that_the_sdks_read() {
        let check = |event: ProcessEvent, expected: &str| {
            assert_eq!(serde_json::to_string(&ProcessMessage { event }).unwrap(), expected);
        };
        check(ProcessEvent::Start { pid: 7 }, r#"{"event":{"start":{"pid":7}}}"#);
        let data = ProcessEvent::Data(ProcessData::Stdout("aGkK".into()));
        check(data, r#"{"event":{"data":{"stdout":"aGkK"}}}"#);
        check(ProcessEvent::Keepalive {}, r#"{"event":{"keepalive":{}}}"#);
        let end =
            ProcessEvent::End { exit_code: 0, exited: true, status: "exit status 0".into(), error: None };
        check(end, r#"{"event":{"end":{"exitCode":0,"exited":true,"status":"exit status 0"}}}"#);
    }

    #[test]
    fn what_an_sdk_sends_is_read() {
        let text = r#"{"process":{"cmd":"/bin/bash","args":["-l","-c","echo hi"],"envs":{"A":"1"},"cwd":"/tmp"},"stdin":false,"newer":{}}"#;
        let start: StartRequest = serde_json::from_str(text).unwrap();
        assert_eq!((start.process.cmd.as_str(), start.stdin), ("/bin/bash", Some(false)));
        let text = r#"{"process":{"pid":5},"signal":"SIGNAL_SIGKILL"}"#;
        let signal: ProcessRequest = serde_json::from_str(text).unwrap();
        assert_eq!(signal.process.pid, Some(5));
    }
}
