//! The service as programs use it: over its sockets, with the published SDKs, and when it is treated badly.

mod faults;
mod gates;
mod hostile;
mod keys;
mod network;
mod rest;
mod routing;
mod schema;
mod sdk;
mod tenants;
mod tools;

use crate::site;
use cofferdam_testkit::{Done, PATIENCE, Server, Site, eventually};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::Mutex;

/// A service in a place of its own. Ends with the test.
struct Service {
    site: Site,
    child: Mutex<Child>,
    url: String,
    api_key: String,
    admin_key: String,
}

/// An answer: its status, and its body where that is JSON.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}\n{}", self.head, self.text))
    }

    #[track_caller]
    fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}\n{}", self.head, self.text);
        self
    }
}

/// Starts it; the line that it tells when it serves.
fn start(site: &Site, config: Option<&str>) -> (Child, Value) {
    let mut command = site.command(site.binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--json"]);
    if let Some(text) = config {
        command.arg("--config").arg(site.write("serve.toml", text));
    }
    let log = std::fs::File::create(site.state().with_extension("log")).unwrap();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said = || std::fs::read_to_string(site.state().with_extension("log")).unwrap_or_default();
    let told = serde_json::from_str(&line).unwrap_or_else(|_| panic!("it does not serve: {line}{}", said()));
    (child, told)
}

impl Service {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(config: Option<&str>) -> Self {
        let site = site();
        let (child, told) = start(&site, config);
        let text = |name: &str| told[name].as_str().unwrap_or_else(|| panic!("{name} in {told}")).to_owned();
        let (url, api_key, admin_key) = (text("url"), text("api_key"), text("admin_key"));
        Self { site, child: Mutex::new(child), url, api_key, admin_key }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child.lock().unwrap())
    }

    /// Ends it by this signal and starts another in the same place.
    fn restart(&mut self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
        self.child.get_mut().unwrap().wait().unwrap();
        let (child, told) = start(&self.site, None);
        assert_eq!(told.get("api_key"), None, "keys are told once");
        self.url = told["url"].as_str().unwrap().to_owned();
        self.child = Mutex::new(child);
    }

    fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// One request, with these lines of a head besides.
    fn send(&self, method: &str, path: &str, head: &str, body: &[u8]) -> Answer {
        // One that is not there has no status.
        let Ok(mut stream) = TcpStream::connect(self.address()) else {
            return Answer { status: 0, head: "nobody listens".into(), text: String::new() };
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let host = self.address();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n{head}\r\n"
        );
        // One that refuses early may close before it has read all.
        let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.write_all(body));
        answer(&mut stream)
    }

    fn ask(&self, method: &str, path: &str, key: &str, body: Option<Value>) -> Answer {
        let head = format!("authorization: Bearer {key}\r\ncontent-type: application/json\r\n");
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        self.send(method, path, &head, body.as_bytes())
    }

    /// As the tenant.
    fn api(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.ask(method, path, &self.api_key, body)
    }

    fn session(&self) -> String {
        let made = self.api("POST", "/v1/sessions", Some(json!({ "timeout": 600 }))).is(201);
        made.json()["id"].as_str().unwrap().to_owned()
    }

    /// A program with the SDKs at hand. Nothing where they are not, and nobody insists.
    fn program(&self, program: &str, script: &str) -> Option<Done> {
        let packages = Server::shared()?.packages();
        let file = self.site.write(if program == "node" { "client.mjs" } else { "client.py" }, script);
        let mut command = self.site.command(program);
        command.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
        command
            .env("E2B_API_KEY", &self.api_key)
            .env("E2B_API_URL", &self.url)
            .env("E2B_SANDBOX_URL", &self.url);
        if program == "node" {
            // Modules are looked for beside the file, not on a path.
            let modules = self.site.work().join("node_modules");
            let _ = std::os::unix::fs::symlink(packages.join("node_modules"), modules);
        } else {
            command.args(["-c", crate::sdk::TO_ITS_END]);
        }
        Some(cofferdam_testkit::finish(command.arg(file)))
    }
}

/// To the end of the connection.
fn answer(stream: &mut impl Read) -> Answer {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    let all = String::from_utf8_lossy(&all).into_owned();
    let (head, text) = all.split_once("\r\n\r\n").unwrap_or((&all, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_owned(), text: text.to_owned() }
}

impl Drop for Service {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap();
        let _ = rustix::process::kill_process(Pid::from_child(child), Signal::TERM);
        eventually("the service goes", || child.try_wait().ok().flatten());
    }
}
