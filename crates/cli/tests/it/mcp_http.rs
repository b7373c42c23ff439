//! MCP servers outside, which an agent inside reaches by HTTP with the official Python SDK: their calls are judged
//! on the way out.

use crate::BINARY;
use cofferdam_testkit::{Call, Mode, Server, Site, is_root};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

const SERVER: &str = r#"
import socket, uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
app = MCPServer("desk")

@app.tool()
def lookup(charge: str) -> str:
    """Looks a charge up."""
    return f"{charge} is 4200"

@app.tool()
def refund(amount: int) -> str:
    """Gives money back."""
    return f"refunded {amount}"

@app.tool()
def wipe() -> str:
    """Removes everything."""
    open("wiped", "w").close()
    return "gone"

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
uvicorn.Server(uvicorn.Config(app.streamable_http_app(transport_security=security), log_level="error")).run([listener])
"#;

const CLIENT: &str = r#"
import asyncio, json, os, sys
from mcp import Client
async def main():
    async with Client("http://mcp.corp.example/mcp", mode=os.environ["MCP_MODE"]) as client:
        print(*sorted(tool.name for tool in (await client.list_tools()).tools))
        for call in sys.argv[1:]:
            name, _, args = call.partition(" ")
            answer = await client.call_tool(name, json.loads(args or "{}"))
            print("error" if answer.is_error else "ok", answer.content[0].text)
asyncio.run(main())
"#;

const RULES: &str = r#"
[[rule]]
id = "desk"
reason = "the desk's server"
effect = "allow"
host = "mcp.corp.example"

[[rule]]
id = "reads"
reason = "looking is free"
effect = "allow"
tool = "lookup"

[[rule]]
id = "refunds"
reason = "money leaves"
effect = "review"
tool = "refund"
"#;

/// A server outside, for as long as this lives.
struct Desk(Child);

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

struct Stage<'s> {
    site: &'s Site,
    packages: String,
    _desk: Desk,
}

fn staged(test: impl Fn(&Stage<'_>)) {
    let modes: &[Mode] = if is_root() { &[Mode::Root, Mode::Single] } else { &[Mode::Single] };
    let Some(server) = Server::shared() else { return };
    let packages = server.packages().to_str().unwrap().to_owned();
    for &mode in modes {
        eprintln!("mode {mode:?}");
        let site = Site::new(mode, BINARY);
        let mut command = site.command("/usr/bin/python3");
        command.env("PYTHONPATH", &packages).args(["-c", SERVER]).current_dir(site.home());
        let mut desk = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(desk.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let upstream =
            format!("[[upstream]]\nhost = \"mcp.corp.example\"\nconnect = \"127.0.0.1:{}\"\n", port.trim());
        fs::write(site.root().join("policy.toml"), format!("{upstream}{RULES}")).unwrap();
        test(&Stage { site: &site, packages: packages.clone(), _desk: Desk(desk) });
    }
}

impl<'s> Stage<'s> {
    fn client(&self, mode: &str, calls: &[&str]) -> Call<'s> {
        self.site.write("client.py", CLIENT);
        let policy = self.site.root().join("policy.toml").to_str().unwrap().to_owned();
        let mount = format!("{0}:{0}:ro", self.packages);
        let (path, mode) = (format!("PYTHONPATH={}", self.packages), format!("MCP_MODE={mode}"));
        let command: Vec<&str> = ["python3", "client.py"].iter().chain(calls).copied().collect();
        let flags = ["--policy", &policy, "--mount", &mount, "--env", &path, "--env", &mode];
        self.site.run(&command).with(&flags)
    }
}

#[test]
fn calls_by_http_are_judged_before_they_leave() {
    staged(|stage| {
        for mode in ["auto", "legacy"] {
            let out = stage.client(mode, &[r#"lookup {"charge": "ch_1"}"#, "wipe"]).exits(0).out();
            let denied = "error cofferdam: denied: no rule allows it. Nothing was done.";
            // What no rule names is not even seen.
            assert_eq!(out, format!("lookup refund\nok ch_1 is 4200\n{denied}\n"), "{mode}");
            assert!(!stage.site.home().join("wiped").exists());
            let called = stage.site.bodies("tool.called");
            let told = |at: usize| (&called[at]["tool"], &called[at]["effect"], &called[at]["via"]);
            assert_eq!(told(0), (&json!("lookup"), &json!("allow"), &json!("mcp-http")));
            assert_eq!(told(1), (&json!("wipe"), &json!("deny"), &json!("mcp-http")));
            let outcomes: Vec<_> =
                stage.site.bodies("tool.returned").iter().map(|body| body["outcome"].clone()).collect();
            assert_eq!(outcomes, ["ok", "refused"]);
            let listed = stage.site.bodies("tool.listed");
            let hidden = |at: usize| listed[0]["tools"][at]["hidden"].as_str().unwrap_or_default();
            assert_eq!((hidden(0), hidden(1), hidden(2)), ("", "", "no rule names it"), "{listed:?}");
            assert!(stage.site.bodies("tool.fault").is_empty());
            // A call belongs to the request that carried it.
            let events = stage.site.events();
            for event in events.iter().filter(|event| event["kind"] == "tool.called") {
                assert_eq!(events[event["parent"].as_u64().unwrap() as usize]["kind"], "egress.decided");
            }
            stage.site.call(&["trace", "verify", "latest"]).exits(0);
        }
    });
}

#[test]
fn a_call_by_http_waits_for_a_person() {
    staged(|stage| {
        for (word, expected) in [("allow", "ok refunded 7"), ("deny", "error cofferdam: a person said no")] {
            let mut client = stage.client("auto", &[r#"refund {"amount": 7}"#]).start();
            let waiting = stage.site.held(&mut client);
            assert_eq!(waiting["request"]["url"], r#"refund {"amount":7}"#);
            stage.site.call(&["approve", word, waiting["id"].as_str().unwrap()]).exits(0);
            let out = client.finish().exits(0).out();
            assert!(out.contains(expected), "{out}");
        }
    });
}

const DECLARED: &str = r#"
[[tool]]
name = "charge"
host = "api.corp.example"
methods = ["POST"]
paths = ["/v1/charges"]

[[rule]]
id = "corp"
reason = "our own service"
effect = "allow"
host = "api.corp.example"

[[rule]]
id = "small"
reason = "small money"
effect = "allow"
tool = "charge"
when = "args.amount <= 100"
"#;

#[test]
fn a_plain_request_that_the_policy_declares_is_a_tool_call() {
    let Some(server) = Server::shared() else { return };
    let site = crate::site();
    let policy = site.root().join("policy.toml");
    fs::write(&policy, format!("{}{DECLARED}", server.upstreams())).unwrap();
    let script = r#"
        post() { curl -s -o answer -w '%{http_code}\n' -H 'content-type: application/json' -d "$2" "https://api.corp.example$1"; }
        post '/v1/charges?customer=7' '{"amount": 5}'
        post /v1/charges '{"amount": 500}'; cat answer; echo
        post /v1/%63harges '{"amount": 500}'
        post '/v1/charges?amount=5' '{"amount": 500}'
        post /elsewhere '{"amount": 500}'
    "#;
    let out = site.sh(script).with(&["--policy", policy.to_str().unwrap()]).exits(0).out();
    let codes: Vec<&str> = out.lines().filter(|line| line.len() == 3).collect();
    assert_eq!(codes.len(), 5, "{out}");
    assert!(codes[0] != "403" && codes[1..4] == ["403"; 3] && codes[4] != "403", "{out}");
    assert!(out.contains("tool charge: denied"), "{out}");
    let called = site.bodies("tool.called");
    let effects: Vec<&Value> = called.iter().map(|body| &body["effect"]).collect();
    assert_eq!(effects, ["allow", "deny", "deny", "deny"]);
    assert_eq!(called[0]["arguments"], json!({ "text": r#"{"amount":5,"customer":"7"}"# }));
    assert_eq!((&called[0]["via"], &called[0]["rule"]), (&json!("http"), &json!("small")));
    // What was denied did not leave.
    assert_eq!(site.bodies("tool.returned").iter().filter(|body| body["outcome"] == "refused").count(), 3);
    assert!(server.seen(|seen| seen["path"] == "/v1/%63harges").is_empty());
}
