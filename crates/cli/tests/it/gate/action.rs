//! The GitHub Action, carried out step by step as a runner does: its own shell and flags, outputs and summary in files,
//! expressions filled in. Only the upload is left to GitHub.

use super::{Shop, scripts};
use crate::{BINARY, site};
use cofferdam_testkit::{Server, Site, program};
use serde_json::Value;
use std::path::PathBuf;

/// Reads the action, and runs it with the inputs of the command line. What it does not understand is an error.
const RUNNER: &str = r#"
import json, os, re, subprocess, sys, yaml

action = yaml.safe_load(open(sys.argv[1]))
inputs = {name: str(spec.get("default", "")) for name, spec in action["inputs"].items()}
given = json.loads(sys.argv[2])
assert set(given) <= set(inputs), given
inputs |= given
missing = [name for name, spec in action["inputs"].items() if spec.get("required") and name not in given]
assert not missing, missing
outputs, folder = {}, sys.argv[3]

def value(path):
    match path.split("."):
        case ["inputs", name]: return inputs[name]
        case ["steps", step, "outputs", name]: return outputs.get(step, {}).get(name, "")
        case ["github", "action_path"]: return os.path.dirname(os.path.abspath(sys.argv[1]))
    raise SystemExit(f"unknown: {path}")

def filled(text):
    return re.sub(r"\$\{\{\s*(.*?)\s*\}\}", lambda found: value(found[1]), str(text))

def holds(condition):
    for part in re.fullmatch(r"\$\{\{ (.*) \}\}", condition)[1].split(" && "):
        left, sign, right = re.fullmatch(r"(\S+) (==|!=) '(\w+)'", part).groups()
        if (value(left) == right) != (sign == "=="):
            return False
    return True

assert action["runs"]["using"] == "composite"
summary, kept, code = os.path.join(folder, "summary"), [], 0
open(summary, "w").close()
for step in action["runs"]["steps"]:
    if "if" in step and not holds(step["if"]):
        continue
    if "uses" in step:
        kept.append({name: filled(text) for name, text in step["with"].items()})
        continue
    assert step["shell"] == "bash"
    script, told = os.path.join(folder, "step.sh"), os.path.join(folder, "output")
    open(script, "w").write(filled(step["run"]))
    open(told, "w").close()
    env = dict(os.environ) | {name: filled(text) for name, text in step.get("env", {}).items()}
    env |= {"GITHUB_OUTPUT": told, "GITHUB_STEP_SUMMARY": summary, "RUNNER_TEMP": folder}
    code = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", script], env=env, stdout=sys.stderr).returncode
    outputs[step.get("id", "")] = dict(line.split("=", 1) for line in open(told).read().splitlines())
    if code:
        break
results = {name: filled(spec["value"]) for name, spec in action["outputs"].items()}
print(json.dumps({"code": code, "outputs": results, "summary": open(summary).read(), "kept": kept}))
"#;

fn act(site: &Site, server: &Server, inputs: &Value) -> (Value, String) {
    let folder = site.work().join("runner");
    std::fs::create_dir_all(&folder).unwrap();
    let action = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../action.yml");
    let mut python = site.command(program("python3").unwrap());
    python.args(["-c", RUNNER]).arg(action).arg(inputs.to_string()).arg(folder);
    python.env("PYTHONPATH", server.packages()).env("PYTHONDONTWRITEBYTECODE", "1");
    let done = python.output().unwrap();
    let log = String::from_utf8_lossy(&done.stderr).into_owned();
    (serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{log}")), log)
}

#[test]
fn the_action_passes_fails_and_asks_for_review() {
    let Some(server) = Server::shared() else { return };
    let site = site();
    let shop = Shop::recorded(&site);
    let inputs = serde_json::json!({ "suite": "suite.toml", "binary": BINARY, "args": "-q --concurrency 2" });
    let check = |inputs: &Value, code: i32, verdict: &str, annotation: &str| {
        let (told, log) = act(&site, server, inputs);
        assert_eq!((&told["code"], &told["outputs"]["verdict"]), (&code.into(), &verdict.into()), "{log}");
        assert!(log.contains(annotation), "{log}");
        assert_eq!(told["kept"][0]["path"], "gate-out");
        assert!(told["summary"].as_str().unwrap().starts_with(&format!("# Gate: {verdict}")), "{told}");
        assert!(site.work().join(told["outputs"]["attestation-path"].as_str().unwrap()).is_file());
    };
    check(&inputs, 0, "pass", "");
    shop.break_agent();
    check(&inputs, 1, "fail", "::error title=Gate::");
    std::fs::remove_dir_all(site.work().join("baseline")).unwrap();
    check(&inputs, 3, "review", "::warning title=Gate::");
    let mut lenient = inputs.clone();
    lenient["review"] = "pass".into();
    check(&lenient, 0, "review", "::warning title=Gate::");
}

#[test]
fn an_action_without_a_verdict_fails_and_keeps_nothing() {
    let Some(server) = Server::shared() else { return };
    let site = site();
    scripts(&site, &[]);
    let inputs = serde_json::json!({ "suite": "suite.toml", "binary": BINARY });
    let (told, log) = act(&site, server, &inputs);
    assert_eq!(told["code"], 2, "{log}");
    assert_eq!(told["outputs"]["verdict"], "error");
    assert_eq!(told["kept"], serde_json::json!([]));
    assert!(log.contains("::error title=Gate::there is no verdict"), "{log}");
}

/// What the example files for other systems call is what there is.
#[test]
fn the_examples_of_other_systems_are_right() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/ci");
    let site = site();
    let mut seen = 0;
    for name in ["gitlab.yml", "Jenkinsfile", "buildkite.yml"] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        for line in text.lines().filter_map(|line| Some(&line[line.find("cofferdam gate")?..])) {
            let line = line.split(['\'', ';']).next().unwrap();
            let words: Vec<&str> = line.split_whitespace().skip(1).collect();
            let flags: Vec<&str> = words.iter().filter(|word| word.starts_with("--")).copied().collect();
            let is_merge = words.get(1) == Some(&"merge");
            let help: &[&str] =
                if is_merge { &["gate", "merge", "--help"] } else { &["gate", "run", "--help"] };
            let told = site.call(help).exits(0).out();
            assert!(flags.iter().all(|flag| told.contains(flag)), "{name}: {line}");
            seen += 1;
        }
    }
    assert_eq!(seen, 4);
}
