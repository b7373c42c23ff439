//! An agent that lives outside and uses a sandbox as its tool: LangGraph as it is published, E2B's SDK, and a model on
//! loopback. The example is run as it stands.

use super::{Service, packages};
use cofferdam_testkit::{Mode, SEARCH_PATH, Site, finish, needs_root};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

struct Model(Child);

impl Drop for Model {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/langgraph")
}

#[test]
fn a_langgraph_agent_outside_has_a_sandbox_for_a_tool() {
    let Some(packages) = packages().filter(|packages| packages.join("langgraph").is_dir()) else { return };
    if !needs_root("a service for several users") {
        return;
    }
    let mut command = Command::new("python3");
    command.arg(example().join("model.py")).arg("0").env("PATH", SEARCH_PATH).stdout(Stdio::piped());
    let mut model = Model(command.spawn().unwrap());
    let mut port = String::new();
    BufReader::new(model.0.stdout.take().unwrap()).read_line(&mut port).unwrap();

    let site = Site::new(Mode::Root, env!("CARGO_BIN_EXE_cofferdam"));
    let service = Service::start(&site);
    let mut agent = Command::new("python3");
    agent.arg(example().join("agent.py")).arg("Add up the squares of 1 to 100.");
    agent.env_clear().env("PATH", SEARCH_PATH).env("HOME", site.home()).current_dir(site.home());
    agent.env("PYTHONPATH", &packages).env("PYTHONDONTWRITEBYTECODE", "1");
    agent
        .env("OPENAI_BASE_URL", format!("http://127.0.0.1:{}/v1", port.trim()))
        .env("OPENAI_API_KEY", "none");
    agent
        .env("E2B_API_KEY", &service.key)
        .env("E2B_API_URL", &service.url)
        .env("E2B_SANDBOX_URL", &service.url);
    let out = finish(&mut agent).exits(0).out();
    assert_eq!(out, "The squares of 1 to 100 add up to 338350; the network: no way out.\n");
    drop(service);

    // What it had done there is on record: the file, the program, and that it got nowhere.
    let events: Vec<Value> = site
        .traces()
        .iter()
        .flat_map(|id| {
            let text = std::fs::read_to_string(site.events_file(id)).unwrap_or_default();
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect::<Vec<Value>>()
        })
        .collect();
    let told = |kind: &str, text: &str| {
        events.iter().any(|event| event["kind"] == kind && event["body"].to_string().contains(text))
    };
    assert!(told("file.asked", "/home/user/squares.py"));
    assert!(told("exec.started", "python3 /home/user/squares.py"));
    assert!(!told("exec.started", "never asked for"));
}
