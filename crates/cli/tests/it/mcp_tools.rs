//! A sandbox as tools: `cofferdam mcp` as clients use it that nobody here wrote (the official Python SDK, in both ways it
//! has of saying hello), and as those do who do not keep to the protocol.

use crate::crash::mark;
use crate::live::Hall;
use crate::{BINARY, each, site};
use cofferdam_testkit::{Call, Mode};
use cofferdam_testkit::{Running, Server, Site, eventually, is_root, processes_with};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// Makes the calls it is told, each in words: `run {"command": "ls"}`; prints what each came to, a line of JSON each.
const CLIENT: &str = r#"
import asyncio, json, os, sys
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
at = sys.argv.index("--calls")
words, calls = sys.argv[1:at], sys.argv[at + 1:]
async def main():
    server = StdioServerParameters(command=words[0], args=words[1:], env=dict(os.environ))
    async with Client(stdio_client(server), mode=os.environ["MCP_MODE"]) as client:
        print(json.dumps(sorted(tool.name for tool in (await client.list_tools()).tools)))
        for call in calls:
            name, _, arguments = call.partition(" ")
            answer = await client.call_tool(name, json.loads(arguments or "{}"))
            print(json.dumps({"error": answer.is_error, "text": answer.content[0].text, "data": answer.structured_content}))
asyncio.run(main())
"#;

fn serving<'s>(site: &'s Site, flags: &[&str]) -> Call<'s> {
    site.call(&["mcp"]).with(site.mode.flags()).with(flags)
}

/// One who speaks line by line.
struct Talk {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

impl Talk {
    fn with(site: &Site, flags: &[&str]) -> Self {
        let mut command = serving(site, flags).command();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn say(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn call(&mut self, id: u32, tool: &str, arguments: &Value) {
        let params = json!({ "name": tool, "arguments": arguments });
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string());
    }

    #[track_caller]
    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: `{line}`"))
    }

    #[track_caller]
    fn run(&mut self, command: &str) -> Value {
        self.call(1, "run", &json!({ "command": command }));
        self.hear()["result"]["structuredContent"].take()
    }

    /// Says goodbye as clients do, and waits.
    #[track_caller]
    fn leave(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn a_client_works_in_a_sandbox_of_its_own() {
    let modes: &[Mode] = if is_root() { &[Mode::Root, Mode::Single] } else { &[Mode::Single] };
    let Some(server) = Server::shared() else { return };
    for (&mode, greeting) in modes.iter().flat_map(|mode| [(mode, "auto"), (mode, "legacy")]) {
        eprintln!("mode {mode:?}, {greeting}");
        let site = Site::new(mode, BINARY);
        let _hall = Hall(&site);
        site.write("notes", "one\n");
        let mut command = site.command("/usr/bin/python3");
        command.env("PYTHONPATH", server.packages()).env("MCP_MODE", greeting).args(["-c", CLIENT]);
        command.args(serving(&site, &[]).words()).arg("--calls").args([
            r#"run {"command": "cat notes; echo oops >&2; exit 3"}"#,
            r#"write_file {"path": "made/file", "content": "hello\n"}"#,
            r#"run {"command": "cat made/file -; pwd", "stdin": "in", "cwd": "."}"#,
            r"begin",
            r#"run {"command": "rm -r notes made"}"#,
            r#"diff {"brief": true}"#,
            r"rollback",
            r#"read_file {"path": "notes"}"#,
            r#"read_file {"path": "missing"}"#,
            r#"run {"cmd": "ls"}"#,
            r#"run {"command": "sleep 100", "timeout": 1}"#,
            r"commit",
            r#"run {"command": "echo late >> notes"}"#,
        ]);
        let done = Running::start(&mut command, None).finish().exits(0);
        let out = done.out();
        let mut said = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let tools = json!(["begin", "commit", "diff", "read_file", "rollback", "run", "write_file"]);
        assert_eq!(said.next().unwrap(), tools);
        let mut next = || said.next().unwrap();
        let ran = next();
        let told = json!({"exit_code": 3, "stdout": "one\n", "stderr": "oops\n", "truncated": false});
        assert_eq!((&ran["data"], &ran["error"]), (&told, &json!(false)));
        assert_eq!(ran["text"], "one\noops\n[exit code 3]");
        assert_eq!(next()["data"]["bytes"], 6);
        let stdout = next()["data"]["stdout"].as_str().unwrap().to_owned();
        assert_eq!(stdout, format!("hello\nin{}\n", site.work().display()));
        assert_eq!(next()["data"]["depth"], 1);
        assert_eq!(next()["data"]["exit_code"], 0);
        let changes = next()["data"]["changes"].take();
        let paths: Vec<_> = changes.as_array().unwrap().iter().map(|c| (&c["op"], &c["path"])).collect();
        assert_eq!(paths, [(&json!("deleted"), &json!("made")), (&json!("deleted"), &json!("notes"))]);
        assert_eq!(next()["data"]["depth"], 0);
        assert_eq!(next()["data"]["content"], "one\n");
        let (missing, wrong, slow) = (next(), next(), next());
        assert_eq!((&missing["error"], &wrong["error"]), (&json!(true), &json!(true)));
        assert!(missing["text"].as_str().unwrap().contains("no such file"), "{missing}");
        assert!(wrong["text"].as_str().unwrap().contains("`cmd`"), "{wrong}");
        assert_eq!(slow["data"]["exit_code"], 124);
        assert!(next()["text"].as_str().unwrap().contains("2 created"));
        // What was committed is there, and so is what was done since: the end of the connection keeps it.
        assert_eq!((site.read("made/file"), site.read("notes")), ("hello\n".into(), "one\nlate\n".into()));
        let [id] = site.traces().try_into().unwrap();
        site.call(&["trace", "verify", &id]).exits(0);
        assert_eq!(site.bodies("exec.started").len(), 5);
        assert_eq!(site.call(&["session", "ls", "--json"]).exits(0).out().trim(), "[]");
    }
}

#[test]
fn what_is_not_to_be_kept_is_not_kept_by_asking() {
    each(|site| {
        let _hall = Hall(site);
        site.write("file", "before\n");
        let mut talk = Talk::with(site, &["--changes", "discard"]);
        assert_eq!(talk.run("echo after > file")["exit_code"], 0);
        talk.call(2, "commit", &json!({}));
        let refused = talk.hear();
        assert_eq!(refused["result"]["isError"], true, "{refused}");
        assert!(refused.to_string().contains("--changes discard"), "{refused}");
        // Within the sandbox there is something to keep all the same, where there can be transactions.
        for (id, tool) in [(3, "begin"), (4, "commit")] {
            talk.call(id, tool, &json!({}));
            assert_eq!(talk.hear()["result"]["isError"], site.mode == Mode::Range);
        }
        assert_eq!(talk.run("cat file")["stdout"], "after\n");
        talk.leave();
        assert_eq!(site.read("file"), "before\n");
    });
}

#[test]
fn the_sandbox_ends_with_its_client() {
    each(|site| {
        let (_hall, mark) = (Hall(site), mark(site));
        let mut talk = Talk::with(site, &[]);
        assert_eq!(
            talk.run(&format!("echo kept > file; setsid sh -c ': {mark}; sleep 1000; :' &"))["exit_code"],
            0
        );
        // It may be between two programs just now, when it has no command line.
        eventually("what it left", || (!processes_with(&mark).is_empty()).then_some(()));
        kill_process(Pid::from_child(&talk.child), Signal::KILL).unwrap();
        eventually("the session to end", || {
            (site.call(&["session", "ls", "--json"]).exits(0).out().trim() == "[]").then_some(())
        });
        assert_eq!(processes_with(&mark), Vec::<String>::new());
        let [id] = site.traces().try_into().unwrap();
        site.call(&["trace", "verify", &id]).exits(0);
        assert_eq!(site.read("file"), "kept\n", "its changes are decided as it was made");
    });
}

#[test]
fn a_call_that_is_taken_back_ends_its_command() {
    let (site, mark) = (site(), "taken-back-call");
    let _hall = Hall(&site);
    let mut talk = Talk::with(&site, &[]);
    talk.call(7, "run", &json!({ "command": format!(": {mark}; sleep 1000; :") }));
    eventually("the command to run", || (!processes_with(mark).is_empty()).then_some(()));
    talk.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#);
    eventually("the command to be gone", || processes_with(mark).is_empty().then_some(()));
    // No answer to it: the next one that is heard is to the next call.
    assert_eq!(talk.run("echo here")["stdout"], "here\n");
    talk.leave();
}

#[test]
fn calls_run_beside_each_other_and_not_without_end() {
    let site = site();
    let _hall = Hall(&site);
    let mut talk = Talk::with(&site, &[]);
    for id in 0..16 {
        talk.call(id, "run", &json!({ "command": "until [ -e go ]; do sleep 0.02; done" }));
    }
    talk.call(3, "run", &json!({ "command": "true" }));
    assert_eq!(talk.hear()["error"]["code"], -32600, "an id that is in use");
    talk.call(16, "run", &json!({ "command": "true" }));
    let busy = talk.hear();
    assert_eq!((&busy["id"], &busy["error"]["code"]), (&json!(16), &json!(-32000)));
    talk.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":15}}"#);
    talk.call(17, "write_file", &json!({ "path": "go", "content": "" }));
    let mut ids: Vec<u64> = (0..16).map(|_| talk.hear()["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..15).chain([17]).collect::<Vec<_>>());
    talk.leave();
}

#[test]
fn what_is_no_request_is_told_so_and_the_rest_goes_on() {
    let site = site();
    let _hall = Hall(&site);
    let mut talk = Talk::with(&site, &[]);
    for (line, code) in [
        ("nonsense", -32700),
        ("[]", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"resources/list"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sudo"}}"#, -32602),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1"}}}"#,
            -32022,
        ),
    ] {
        talk.say(line);
        assert_eq!(talk.hear()["error"]["code"], code, "{line}");
    }
    // Neither is answered.
    talk.say("");
    talk.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    talk.say(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#);
    for (arguments, part) in [
        (json!({"command": "a\0b"}), "NUL"),
        (json!({"command": "true", "timeout": 0}), "`timeout`"),
        (json!({"command": "true", "cwd": "/nowhere"}), "nowhere"),
    ] {
        talk.call(5, "run", &arguments);
        let told = talk.hear();
        assert!(told["result"].to_string().contains(part), "{told}");
    }
    let long = "x".repeat(100_000);
    let ran = talk.run(&format!("printf %s {long}"));
    assert_eq!(ran["truncated"], true);
    assert!(ran["stdout"].as_str().unwrap().contains("bytes left out"));
    talk.leave();
}

#[test]
fn what_cannot_be_had_is_told_before_anything_is_said() {
    let site = site();
    let _hall = Hall(&site);
    for (flags, code, part) in [
        (&["--policy", "missing.toml"][..], 2, "missing.toml"),
        (&["--changes", "ask"], 2, "keep or discard"),
        (&["--workdir", "/nowhere"], 2, "/nowhere"),
        (&["--isolation", "gvisor"], 4, "gvisor"),
    ] {
        let done = serving(&site, flags).exits(code);
        assert!(done.err().contains(part), "{}", done.err());
        assert_eq!(done.out(), "");
    }
    assert_eq!(site.call(&["session", "ls", "--json"]).exits(0).out().trim(), "[]");
}
