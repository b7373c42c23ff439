//! Models on this machine that speak otherwise than by one request: responses over a WebSocket, Ollama's lines of JSON,
//! and embeddings. They are told in the same form, and budgets act before.

use crate::site;
use cofferdam_testkit::{Call, Server, Site};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

const MODELS: &str = r#"
import http.server, json, threading
from websockets.sync.server import serve

def talk(line):
    for message in line:
        asked = json.loads(message)
        with open("asked", "a") as file: file.write(asked["type"] + "\n")
        if asked["type"] != "response.create": continue
        def say(kind, **fields): line.send(json.dumps({"type": kind, **fields}))
        say("response.created", response={"model": asked["model"]})
        for part in ["po", "ng"]: say("response.output_text.delta", delta=part)
        output = [{"type": "message", "content": [{"type": "output_text", "text": "pong"}]}]
        usage = {"input_tokens": 20, "output_tokens": 9}
        say("response.completed", response={"model": asked["model"], "status": "completed", "output": output, "usage": usage})

class Ollama(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson"); self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        lines = [{"model": body["model"], "embeddings": [[0.5, 0.25]], "prompt_eval_count": 3}]
        if self.path == "/api/chat":
            said = lambda text, **more: {"model": body["model"], "message": {"role": "assistant", "content": text}, "done": False, **more}
            lines = [said("po"), said("ng"), said("", done=True, done_reason="stop", prompt_eval_count=20, eval_count=9)]
        for line in lines:
            data = json.dumps(line).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data)); self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

socket = serve(talk, "127.0.0.1", 0)
ollama = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ollama)
threading.Thread(target=ollama.serve_forever, daemon=True).start()
print(socket.socket.getsockname()[1], ollama.server_address[1], flush=True)
socket.serve_forever()
"#;

const SOCKET: &str = r#"
import json
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
with connect("ws://models.corp.example/v1/responses", proxy=None) as line:
    for text in ["ping", "ping again"]:
        asked = [{"role": "user", "content": [{"type": "input_text", "text": text}]}]
        line.send(json.dumps({"type": "response.create", "model": "gpt-4o", "input": asked, "max_output_tokens": 20}))
        said = ""
        try:
            for message in line:
                event = json.loads(message)
                said += event.get("delta", "")
                if event["type"] == "response.completed": break
            print(said)
        except ConnectionClosed:
            print("closed")
            break
"#;

const OLLAMA: &str = r#"
import json, urllib.request
def post(path, body):
    request = urllib.request.Request("http://ollama.corp.example" + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return [json.loads(line) for line in urllib.request.urlopen(request)]
said = post("/api/chat", {"model": "llama3.2:1b", "messages": [{"role": "user", "content": "ping"}]})
print("".join(line["message"]["content"] for line in said))
print(len(post("/api/embed", {"model": "all-minilm", "input": ["a", "b"]})[0]["embeddings"][0]))
"#;

const RULES: &str = r#"
[[rule]]
id = "models"
reason = "they are our own"
effect = "allow"
host = ["models.corp.example", "ollama.corp.example"]
"#;

struct Models {
    site: Site,
    packages: String,
    policy: String,
    child: Child,
}

impl Drop for Models {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

impl Models {
    fn start() -> Option<Self> {
        let packages = Server::shared()?.packages().to_str().unwrap().to_owned();
        let site = site();
        let mut command = site.command("/usr/bin/python3");
        command.env("PYTHONPATH", &packages).args(["-c", MODELS]).current_dir(site.home());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ports = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ports).unwrap();
        let (socket, ollama) = ports.trim().split_once(' ').unwrap();
        let upstream = |host: &str, port: &str| {
            format!("[[upstream]]\nhost = \"{host}\"\nconnect = \"127.0.0.1:{port}\"\n")
        };
        let upstreams = upstream("models.corp.example", socket) + &upstream("ollama.corp.example", ollama);
        Some(Self { site, packages, policy: format!("{upstreams}{RULES}"), child })
    }

    fn run(&self, program: &str, more: &str) -> Call<'_> {
        let policy = self.site.root().join("policy.toml");
        fs::write(&policy, format!("{}{more}", self.policy)).unwrap();
        let (mount, path) = (format!("{0}:{0}:ro", self.packages), format!("PYTHONPATH={}", self.packages));
        let flags = ["--policy", policy.to_str().unwrap(), "--mount", &mount, "--env", &path];
        self.site.run(&["python3", "-c", program]).with(&flags)
    }

    fn asked(&self) -> usize {
        fs::read_to_string(self.site.home().join("asked")).unwrap_or_default().lines().count()
    }
}

#[test]
fn responses_over_a_websocket_are_calls_of_a_model() {
    let Some(models) = Models::start() else { return };
    assert_eq!(models.run(SOCKET, "").exits(0).out(), "pong\npong\n");
    let calls = models.site.bodies("model.called");
    assert_eq!(calls.len(), 2);
    for (call, text) in calls.iter().zip(["ping", "ping again"]) {
        assert_eq!((&call["api"], &call["provider"]), (&json!("responses"), &json!("openai-compatible")));
        assert_eq!(
            (&call["model"], &call["streamed"], &call["stop"]),
            (&json!("gpt-4o"), &json!(true), &json!("completed"))
        );
        assert_eq!(call["messages"][0]["text"]["text"], text);
        assert_eq!(call["answer"]["text"]["text"], "pong");
        assert_eq!(call["tokens"], json!({ "input": 20, "output": 9 }));
        assert!(call["problems"].is_null() && call["cost_micros"].is_u64(), "{call}");
    }
    // Each has its bytes, and so has the opening.
    let exchanges = models.site.bodies("exchange.recorded");
    assert_eq!(exchanges.iter().filter(|body| !body["body"].is_null()).count(), 2);
    assert_eq!(exchanges.len(), 3);
    models.site.call(&["trace", "verify", "latest"]).exits(0);
}

#[test]
fn a_budget_stops_the_next_call_of_a_websocket_before_it_leaves() {
    let Some(models) = Models::start() else { return };
    let budget = "[[budget]]\nid = \"few\"\nhost = \"models.corp.example\"\ntokens = 110\n";
    assert_eq!(models.run(SOCKET, budget).exits(0).out(), "pong\nclosed\n");
    assert_eq!(models.asked(), 1, "the second never left");
    assert_eq!(models.site.bodies("model.called").len(), 1);
    let refused = models.site.bodies("egress.refused");
    assert!(refused.iter().any(|body| body.to_string().contains("spend-cap")), "{refused:?}");
}

#[test]
fn ollama_and_embeddings_are_calls_of_a_model() {
    let Some(models) = Models::start() else { return };
    assert_eq!(models.run(OLLAMA, "").exits(0).out(), "pong\n2\n");
    let calls: Vec<Value> = models.site.bodies("model.called");
    let told = |at: usize| (&calls[at]["api"], &calls[at]["provider"], &calls[at]["tokens"]["input"]);
    assert_eq!(told(0), (&json!("ollama"), &json!("ollama"), &json!(20)));
    assert_eq!((&calls[0]["answer"]["text"]["text"], &calls[0]["stop"]), (&json!("pong"), &json!("stop")));
    assert_eq!(told(1), (&json!("embeddings"), &json!("openai-compatible"), &json!(3)));
    assert_eq!(calls[1]["messages"].as_array().unwrap().len(), 2);
}

/// Twenty turns of a conversation that is sent again with each, and a tool after each.
const TURNS: &str = r#"
import json, urllib.request
def post(path, body):
    request = urllib.request.Request("http://ollama.corp.example" + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request).read()
tools = [{"type": "function", "function": {"name": f"tool_{n}", "description": "does a thing " * 20}} for n in range(20)]
messages = [{"role": "system", "content": "be kind, and thorough. " * 100}]
for n in range(20):
    messages.append({"role": "user", "content": f"turn {n}: " + " ".join(str(n * k) for k in range(300))})
    post("/api/chat", {"model": "llama3.2:1b", "messages": messages, "tools": tools})
    messages.append({"role": "tool", "content": post("/api/embed", {"model": "m", "input": f"call {n}"}).decode()})
"#;

/// The bound for a session of twenty tools, as one compressed file.
const MOST: u64 = 300 << 10;

#[test]
fn a_session_of_twenty_tools_is_a_small_trace() {
    let Some(models) = Models::start() else { return };
    let tool = "[[tool]]\nname = \"embed\"\nhost = \"ollama.corp.example\"\nmethods = [\"POST\"]\npaths = [\"/api/embed\"]\n\
        [[rule]]\nid = \"embed\"\nreason = \"a tool\"\neffect = \"allow\"\ntool = \"embed\"\n";
    let file = models.site.work().join("trace.tar.zst");
    models.run(TURNS, tool).with(&["--trace-out", file.to_str().unwrap()]).exits(0);
    assert_eq!(models.site.bodies("tool.called").len(), 20);
    assert_eq!(models.site.bodies("model.called").len(), 40);
    let size = fs::metadata(&file).unwrap().len();
    eprintln!("a session of 20 tools and 40 calls of models: {size} bytes");
    assert!(size < MOST, "{size} bytes");
}
