//! The example agents with their committed recordings: a fresh machine believes them by the key that each suite names, and
//! replays them with nothing outside; an agent that was changed does not pass.

use super::result;
use crate::site;
use cofferdam_testkit::{Site, program};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// The example as it is in the repository.
fn open(site: &Site, name: &str) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    copy(site, &root, Path::new(""));
}

fn copy(site: &Site, root: &Path, at: &Path) {
    for entry in fs::read_dir(root.join(at)).unwrap() {
        let path = at.join(entry.unwrap().file_name());
        match root.join(&path).is_dir() {
            true if path.ends_with("__pycache__") || path.ends_with("gate-out") => {}
            true => copy(site, root, &path),
            false => drop(site.write(&path, fs::read(root.join(&path)).unwrap())),
        }
    }
}

/// Passes as it is, and fails once `line` of its agent is `change`.
fn check(name: &str, sessions: usize, line: &str, change: &str) {
    let site = site();
    open(&site, name);
    let done = site.call(&["gate", "suite.toml", "-q"]).done();
    assert_eq!(done.code(), 0, "{}{:#}", done.err(), result(&site));
    assert_eq!(result(&site)["why"], json!([format!("all {sessions} sessions pass")]));
    let agent = site.read("agent.py");
    assert!(agent.contains(line), "{name}: {line}");
    site.write("agent.py", agent.replace(line, change));
    site.call(&["gate", "suite.toml", "-q"]).exits(1);
    assert_eq!(result(&site)["outcome"], "fail");
    // Without the key that the suite names, nobody believes the recording.
    let suite = site.read("suite.toml");
    site.write("agent.py", agent);
    site.write("suite.toml", suite.replace("keys = [\"baseline/signer.pem\"]", ""));
    site.call(&["gate", "suite.toml", "-q"]).exits(3);
}

#[test]
fn the_support_agent() {
    let line = "    body = arguments if method == \"POST\" else None\n";
    let change = format!("    if name == \"refund\":\n        arguments[\"amount\"] += 50\n{line}");
    check("support-agent", 6, line, &change);
}

#[test]
fn the_coding_agent() {
    check(
        "coding-agent",
        3,
        "write_text(arguments['text'])",
        "write_text(arguments['text'].replace('len', 'max'))",
    );
}

#[test]
fn the_mcp_user() {
    let line = "            result = server.ask(\"tools/call\"";
    let change = format!("            arguments.update(amount=arguments.get(\"amount\", 0) + 50)\n{line}");
    check("mcp", 4, line, &change);
}

#[test]
fn the_browser_agent() {
    if program("chromium").is_none() {
        eprintln!("not tried: there is no chromium");
        return;
    }
    check("browser-agent", 3, "arguments[\"text\"])", "arguments[\"text\"] + \"0\")");
}
