//! A sandbox as tools of the Model Context Protocol, for any client that starts servers by a command line: lines of
//! JSON-RPC in, lines out. Calls run beside each other; the client is believed in nothing but what it asks for.

pub(crate) mod files;
pub(crate) mod output;
mod stop;
pub(crate) mod told;
mod work;

pub use work::ToolSandbox;

use cofferdam_api::mcp::{
    BAD_PARAMS, BUSY, Call, NO_METHOD, NO_REQUEST, NO_VERSION, NOT_JSON, NoCall, VERSION_KEY, WITH_HANDSHAKE,
    WITHOUT_HANDSHAKE, tools,
};
use cofferdam_engine::rpc::{self, Id, LONGEST, Malformed, Message};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::io::{self, BufRead, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};
use stop::Stop;
use told::Fault;

/// So many calls run at a time.
const AT_ONCE: usize = 16;
/// What is said of a work dir that is the host's, …
const OF_THE_HOST: &str = "A sandbox of its own for commands and files. What is done to the work dir stays inside until \
    `commit`, or until this connection ends, if changes are kept at all; `diff` shows it, `begin` and `rollback` try \
    something out.";
/// … and of files that are nobody else's.
pub(crate) const OF_ITS_OWN: &str = "A sandbox of its own for commands and files, which are its alone and end with it. `diff` shows \
    what was done; `begin` opens a transaction, `commit` keeps it and `rollback` drops it.";
const OF_ALL: &str = "What may be reached over the network is decided by a policy: without one, nothing is. Credentials in \
    variables are placeholders that only work towards the hosts they are for. Everything is recorded.";

/// Speaks with one client until its input ends. What still runs then is ended.
pub fn serve_tools(
    sandbox: &ToolSandbox<'_>,
    mut input: impl BufRead,
    output: impl Write + Send,
) -> io::Result<()> {
    let desk = Desk { sandbox, output: Mutex::new(output), open: Mutex::default() };
    std::thread::scope(|scope| {
        let heard = loop {
            match line(&mut input) {
                Ok(Some(line)) => desk.hear(scope, &line),
                Ok(None) => break Ok(()),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    // Where the next message begins is not known any more.
                    desk.say(&rpc::error(None, NO_REQUEST, &Malformed::TooLong.to_string()));
                    break Ok(());
                }
                Err(error) => break Err(error),
            }
        };
        desk.open().values().for_each(|stop| stop.now());
        heard
    })
}

/// Nothing at the end of the input; half a line is none.
fn line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let most = LONGEST as u64 + 1;
    let count = input.by_ref().take(most).read_until(b'\n', &mut line)?;
    match line.last() {
        Some(b'\n') => Ok(Some(line)),
        _ if count as u64 == most => Err(io::ErrorKind::InvalidData.into()),
        _ => Ok(None),
    }
}

struct Desk<'s, 'e, W> {
    sandbox: &'s ToolSandbox<'e>,
    output: Mutex<W>,
    /// Calls that have no answer yet.
    open: Mutex<HashMap<Id, Arc<Stop>>>,
}

impl<W: Write + Send> Desk<'_, '_, W> {
    fn open(&self) -> MutexGuard<'_, HashMap<Id, Arc<Stop>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client that is gone hears nothing: its input has ended, or is about to.
    fn say(&self, message: &[u8]) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = output.write_all(&[message, b"\n"].concat()).and_then(|()| output.flush());
    }

    fn hear<'t>(&'t self, scope: &'t Scope<'t, '_>, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        match Message::read(line) {
            Ok(Message::Request { id, method, params }) if method == "tools/call" => {
                self.call(scope, id, params);
            }
            Ok(Message::Request { id, method, params }) => match answer(OF_THE_HOST, &method, &params) {
                Ok(result) => self.say(&rpc::result(&id, &result)),
                Err(error) => self.say(&rpc::error_value(&id, &error)),
            },
            Ok(Message::Notification { method, params }) if method == "notifications/cancelled" => {
                let about = Id::member(&params, "requestId");
                about.and_then(|id| self.open().remove(&id)).iter().for_each(|stop| stop.now());
            }
            // We ask nothing, and have no use for what else there is to tell.
            Ok(Message::Notification { .. } | Message::Answer { .. }) => {}
            Err(malformed) => {
                let code = if matches!(malformed, Malformed::NotJson(_)) { NOT_JSON } else { NO_REQUEST };
                self.say(&rpc::error(None, code, &malformed.to_string()));
            }
        }
    }

    fn call<'t>(&'t self, scope: &'t Scope<'t, '_>, id: Id, params: Value) {
        let refused = |error: Value| self.say(&rpc::error_value(&id, &error));
        let call = match named_call(params) {
            Ok(call) => call,
            Err(Refused::Protocol(error)) => return refused(error),
            Err(Refused::Arguments(why)) => return self.say(&rpc::result(&id, &failed(&why))),
        };
        let stop = Arc::new(Stop::default());
        {
            let mut open = self.open();
            if open.contains_key(&id) {
                return refused(problem(NO_REQUEST, "a request with this id has no answer yet"));
            }
            if open.len() >= AT_ONCE {
                return refused(problem(BUSY, &format!("{AT_ONCE} calls run already: wait for one")));
            }
            open.insert(id.clone(), stop.clone());
        }
        let waits = id.clone();
        let begun = Builder::new().name("tool call".into()).spawn_scoped(scope, move || {
            let result = match self.sandbox.perform(call, &stop) {
                Ok(done) => done.told(),
                Err(Fault(why)) => failed(&why),
            };
            // One that was taken back gets no answer.
            if self.open().remove(&waits).is_some() {
                self.say(&rpc::result(&waits, &result));
            }
        });
        if let Err(error) = begun {
            self.open().remove(&id);
            refused(problem(BUSY, &format!("no thread for it: {error}")));
        }
    }
}

pub(crate) enum Refused {
    Protocol(Value),
    /// What a model can mend: it is told as the result of its call.
    Arguments(String),
}

pub(crate) fn named_call(params: Value) -> Result<Call, Refused> {
    right_version(&params).map_err(Refused::Protocol)?;
    let Value::Object(mut params) = params else {
        return Err(Refused::Protocol(problem(BAD_PARAMS, "`params` has to be an object")));
    };
    let Some(Value::String(name)) = params.remove("name") else {
        return Err(Refused::Protocol(problem(BAD_PARAMS, "`name` of a tool is needed")));
    };
    Call::read(&name, params.remove("arguments").unwrap_or_default()).map_err(|no| match no {
        NoCall::Unknown => {
            let text = format!("there is no tool `{name}`: `tools/list` names those there are");
            Refused::Protocol(problem(BAD_PARAMS, &text))
        }
        NoCall::Arguments(why) => Refused::Arguments(format!("{name}: {why}")),
    })
}

pub(crate) fn failed(why: &str) -> Value {
    json!({
        "content": [{ "type": "text", "text": why }],
        "isError": true,
        "resultType": "complete",
    })
}

pub(crate) fn problem(code: i32, message: &str) -> Value {
    json!({ "code": code, "message": message })
}

/// A request that says which version it is of is of one that we speak.
fn right_version(params: &Value) -> Result<(), Value> {
    match params.get("_meta").and_then(|meta| meta.get(VERSION_KEY)) {
        None => Ok(()),
        Some(Value::String(version)) if WITHOUT_HANDSHAKE.contains(&version.as_str()) => Ok(()),
        Some(other) => Err(json!({
            "code": NO_VERSION,
            "message": "this version of the protocol is not spoken here",
            "data": { "supported": WITHOUT_HANDSHAKE, "requested": other },
        })),
    }
}

pub(crate) fn answer(about: &str, method: &str, params: &Value) -> Result<Value, Value> {
    right_version(params)?;
    let instructions = format!("{about} {OF_ALL}");
    let mut result = match method {
        "initialize" => {
            let asked = params.get("protocolVersion").and_then(Value::as_str);
            let spoken = WITH_HANDSHAKE.iter().find(|version| asked == Some(version));
            json!({
                "protocolVersion": spoken.unwrap_or(&WITH_HANDSHAKE[0]),
                "capabilities": capabilities(),
                "serverInfo": info(),
                "instructions": instructions,
            })
        }
        "server/discover" => json!({
            "supportedVersions": WITHOUT_HANDSHAKE,
            "capabilities": capabilities(),
            "instructions": instructions,
            "_meta": { "io.modelcontextprotocol/serverInfo": info() },
        }),
        "tools/list" => tools(),
        "ping" => json!({}),
        _ => return Err(problem(NO_METHOD, &format!("`{method}` is nothing that is done here"))),
    };
    if let Some(result) = result.as_object_mut() {
        freshness(result);
    }
    Ok(result)
}

/// What the newest version wants to know of every answer, and older ones do not mind.
fn freshness(result: &mut Map<String, Value>) {
    result.insert("resultType".into(), json!("complete"));
    result.insert("ttlMs".into(), json!(0));
    result.insert("cacheScope".into(), json!("private"));
}

fn capabilities() -> Value {
    json!({ "tools": { "listChanged": false } })
}

fn info() -> Value {
    json!({ "name": "cofferdam", "title": "Cofferdam sandbox", "version": env!("CARGO_PKG_VERSION") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_bounded() {
        let mut input = io::Cursor::new(b"{}\nhalf".to_vec());
        assert_eq!(line(&mut input).unwrap(), Some(b"{}\n".to_vec()));
        assert_eq!(line(&mut input).unwrap(), None);
        let mut endless = io::BufReader::new(io::repeat(b'x'));
        assert_eq!(line(&mut endless).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn versions_are_met_or_named() {
        let told = |params: Value| answer("", "initialize", &params).unwrap()["protocolVersion"].clone();
        assert_eq!(told(json!({"protocolVersion": "2024-11-05"})), "2024-11-05");
        assert_eq!(told(json!({"protocolVersion": "1999-01-01"})), WITH_HANDSHAKE[0]);
        assert_eq!(told(Value::Null), WITH_HANDSHAKE[0]);
        let of = |version: &str| json!({ "_meta": { VERSION_KEY: version } });
        assert!(answer("", "server/discover", &of("2026-07-28")).is_ok());
        assert_eq!(answer("", "tools/list", &of("2031-01-01")).unwrap_err()["code"], NO_VERSION);
        assert_eq!(answer("", "resources/list", &json!({})).unwrap_err()["code"], NO_METHOD);
    }

    #[test]
    fn a_call_names_a_tool_and_fitting_arguments() {
        let code = |params: Value| match named_call(params) {
            Ok(_) => 0,
            Err(Refused::Arguments(_)) => 1,
            Err(Refused::Protocol(error)) => error["code"].as_i64().unwrap(),
        };
        assert_eq!(code(json!({"name": "run", "arguments": {"command": "ls"}})), 0);
        assert_eq!(code(json!({"name": "run", "arguments": {"command": 3}})), 1);
        assert_eq!(code(json!({"name": "format_disk"})), i64::from(BAD_PARAMS));
        assert_eq!(code(json!([])), i64::from(BAD_PARAMS));
    }
}
