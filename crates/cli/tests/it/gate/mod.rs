//! Suites: recorded, run again, compared and decided, as people and CI systems do it.

mod action;
mod evidence;
mod examples;
mod faults;
mod hosts;
mod inputs;
mod modules;
mod page;
mod panel;
mod story;
mod verifiers;

use cofferdam_testkit::{Done, Site, program};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The support agent of the examples, with its world beside it.
struct Shop<'s> {
    site: &'s Site,
    world: Option<Child>,
}

impl<'s> Shop<'s> {
    /// The example as it is, but for the port of its world.
    fn open(site: &'s Site) -> Self {
        let example = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/support-agent");
        let read = |name: &str| std::fs::read_to_string(example.join(name)).unwrap();
        let mut world = Command::new(program("python3").unwrap())
            .arg(example.join("world.py"))
            .arg("0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(world.stdout.take().unwrap()).read_line(&mut port).unwrap();
        site.write("policy.toml", read("policy.toml").replace(":8787", &format!(":{}", port.trim())));
        for name in ["agent.py", "suite.toml", "inputs/refund-small.txt", "inputs/refund-large.txt"] {
            site.write(name, read(name));
        }
        Self { site, world: Some(world) }
    }

    /// Recorded, and then without its world: whatever answers from now on is the recording.
    fn recorded(site: &'s Site) -> Self {
        let mut shop = Self::open(site);
        site.call(&["record", "suite.toml", "-q"]).exits(0);
        shop.close();
        shop
    }

    fn close(&mut self) {
        if let Some(mut world) = self.world.take() {
            world.kill().unwrap();
            world.wait().unwrap();
        }
    }

    fn gate(&self, flags: &[&str]) -> Done {
        self.site.call(&["gate", "suite.toml", "-q"]).with(flags).done()
    }

    /// A change that looks harmless: customers are to get a bit more.
    fn break_agent(&self) {
        let agent = self.site.read("agent.py");
        let line = "    body = arguments if method == \"POST\" else None\n";
        assert!(agent.contains(line));
        let change = "    if name == \"refund\":\n        arguments[\"amount\"] += 50\n";
        self.site.write("agent.py", agent.replace(line, &format!("{change}{line}")));
    }

    fn result(&self) -> Value {
        result(self.site)
    }
}

impl Drop for Shop<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

fn result(site: &Site) -> Value {
    result_in(site, "gate-out")
}

fn result_in(site: &Site, dir: &str) -> Value {
    serde_json::from_str(&site.read(format!("{dir}/gate.json"))).unwrap()
}

/// A suite of small scripts, without rules or a world.
fn scripts(site: &Site, sessions: &[(&str, &str)]) {
    let mut suite = String::from("[agent]\ncommand = [\"sh\", \"-c\"]\n[limits]\ntimeout = \"60s\"\n");
    for (id, script) in sessions {
        suite.push_str(&format!("[[session]]\nid = \"{id}\"\ninput = {{ args = ['''{script}'''] }}\n"));
    }
    site.write("suite.toml", suite);
}

/// The codes of a session's reasons.
fn codes(result: &Value, id: &str) -> Vec<String> {
    let session = session(result, id);
    let reasons = session["reasons"].as_array().cloned().unwrap_or_default();
    reasons.iter().map(|reason| reason["code"].as_str().unwrap().to_owned()).collect()
}

fn session(result: &Value, id: &str) -> Value {
    let found = result["sessions"].as_array().unwrap().iter().find(|session| session["id"] == id);
    found.unwrap_or_else(|| panic!("no {id}: {result}")).clone()
}

fn add(site: &Site, table: &str) {
    let suite = site.read("suite.toml");
    site.write("suite.toml", format!("{suite}{table}"));
}

/// The suite's scorer `tone` passes two sessions, and finds the one that begins to call names. Hands back what is in the evidence.
fn judged_for_its_tone(site: &Site) -> String {
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    site.call(&["gate", "suite.toml", "-q"]).exits(0);
    assert_eq!(
        session(&result(site), "polite")["scores"],
        json!([{ "scorer": "tone", "outcome": "pass", "score": 1.0 }])
    );
    let suite = site.read("suite.toml").replacen("echo hello", "echo hello idiot", 1);
    site.write("suite.toml", &suite);
    site.call(&["gate", "suite.toml", "-q"]).exits(1);
    let found = session(&result(site), "polite");
    assert_eq!(found["reasons"][0]["text"], "the scorer `tone` says: it calls someone an idiot");
    assert_eq!(session(&result(site), "other")["outcome"], "pass");
    let bundle = "gate-out/evidence.tar.zst";
    site.call(&["verify", bundle]).exits(0);
    let tar = Command::new("tar").args(["--zstd", "-tf", bundle]).current_dir(site.work()).output().unwrap();
    String::from_utf8(tar.stdout).unwrap()
}
