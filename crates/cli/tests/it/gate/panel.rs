//! Who else is asked about a session: scorers of the suite's own and a model as judge, against real little servers.

use super::{Shop, add, codes, judged_for_its_tone, result, scripts, session};
use crate::site;
use cofferdam_testkit::program;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// Says what is rude, and where.
const TONE: &str = r#"
import json, sys
asked = json.load(sys.stdin)
assert asked["version"] == 1 and asked["scorer"] == "tone" and len(asked["baselines"]) == 1
rude = "idiot" in asked["output"]
answer = {"outcome": "fail" if rude else "pass", "score": 0.0 if rude else 1.0}
if rude:
    answer["reasons"] = [{"text": "it calls someone an idiot", "act": 0}]
json.dump(answer, sys.stdout)
"#;

/// A server for as long as the test runs. `answer` gets the head and the body of each request.
struct Little {
    port: u16,
    seen: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Little {
    fn start(answer: impl Fn(&str, &Value) -> (u16, String) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = Self::serve(stream, &answer, &log);
            }
        });
        Self { port, seen }
    }

    fn serve(
        mut stream: TcpStream,
        answer: &impl Fn(&str, &Value) -> (u16, String),
        log: &Mutex<Vec<(String, Value)>>,
    ) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head)? > 0 {}
        let head = head.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.and_then(|n| n.trim().parse().ok()).unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (status, text) = answer(&head, &body);
        log.lock().unwrap().push((head, body));
        let length = text.len();
        write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}")
    }

    fn asked(&self) -> Vec<(String, Value)> {
        self.seen.lock().unwrap().clone()
    }
}

#[test]
fn a_scorer_of_the_suites_own_decides_with_its_reason() {
    let site = site();
    scripts(&site, &[("polite", "echo hello"), ("other", "echo hello")]);
    site.write("tone.py", TONE);
    add(&site, "[[scorer]]\nname = \"tone\"\ncommand = [\"python3\", \"tone.py\"]\n");
    let entries = judged_for_its_tone(&site);
    for report in ["report.html", "summary.md", "junit.xml", "results.sarif"] {
        let text = site.read(format!("gate-out/{report}"));
        assert!(text.contains("it calls someone an idiot"), "{report}");
    }
    let asked: Value = serde_json::from_str(&site.read("gate-out/asked/polite.1.json")).unwrap();
    assert!(asked["scorers"][0]["answer"].as_str().unwrap().contains("idiot"), "{asked}");
    for name in ["result/asked/polite.1.json", "inputs/scorers/tone.py"] {
        assert!(entries.lines().any(|entry| entry == name), "{name}: {entries}");
    }

    // A suite may let a scorer go no further than review.
    let suite = site.read("suite.toml");
    site.write("suite.toml", suite.replace("name = \"tone\"", "name = \"tone\"\nmost = \"review\""));
    site.call(&["gate", "suite.toml", "-q"]).exits(3);
}

#[test]
fn a_scorer_that_fails_in_any_way_is_for_review() {
    let site = site();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let escape = format!(
        "import json, socket, sys\ntry:\n    socket.create_connection((\"127.0.0.1\", {port}), 2)\n    out = 'reached'\nexcept OSError:\n    out = 'nothing'\nopen('left', 'w')\njson.dump({{'outcome': 'review', 'reasons': [{{'text': out}}]}}, sys.stdout)\n"
    );
    // Outside it reaches what it wants.
    let python = program("python3").unwrap();
    let outside = Command::new(python).args(["-c", &escape]).current_dir(site.root()).output().unwrap();
    assert!(String::from_utf8_lossy(&outside.stdout).contains("reached"));
    site.write("escape.py", &escape);
    scripts(&site, &[("a", "echo hello")]);
    let scorers = [
        ("hangs", r#"["sleep", "600"]"#, "it had not answered after 2 s"),
        (
            "crashes",
            r#"["sh", "-c", "echo no such model >&2; exit 3"]"#,
            "it ended with code 3 and says `no such model`",
        ),
        ("nonsense", r#"["echo", "looks good to me"]"#, "is not the JSON that is asked for"),
        ("mute", r#"["true"]"#, "is not the JSON that is asked for"),
        ("reasonless", r#"["echo", '{"outcome": "fail"}']"#, "it says `fail` without a reason"),
        ("floods", r#"["sh", "-c", "yes"]"#, "limit"),
        ("missing", r#"["no-such-program"]"#, "was not found"),
        ("sneaks", r#"["python3", "escape.py"]"#, "the scorer `sneaks` says: nothing"),
    ];
    for (name, command, _) in scorers {
        add(&site, &format!("[[scorer]]\nname = \"{name}\"\ncommand = {command}\ntimeout = \"2s\"\n"));
    }
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    site.call(&["gate", "suite.toml", "-q"]).exits(3);
    let reasons = session(&result(&site), "a")["reasons"].to_string();
    for (name, _, expected) in scorers {
        assert!(reasons.contains(expected), "{name}: {reasons}");
    }
    assert!(!site.work().join("left").exists());
}

#[test]
fn a_scorer_behind_an_endpoint_gets_its_own_key_and_no_other_host_does() {
    let site = site();
    scripts(&site, &[("a", "echo hello")]);
    let server = Little::start(|head, body| match head.contains("authorization: bearer s3cr3t-scorer-key") {
        true => (200, json!({ "outcome": "review", "reasons": [{ "text": body["session"] }] }).to_string()),
        false => (401, "who are you?".into()),
    });
    let port = server.port;
    add(
        &site,
        &format!("[[scorer]]\nname = \"far\"\nurl = \"http://127.0.0.1:{port}/score\"\nsecret = \"far\"\n"),
    );
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    // The secret is missing: nothing is run.
    site.call(&["gate", "suite.toml", "-q"]).exits(2);
    let secret = |host: &str| {
        site.call(&["secret", "add", "far", "--for", host, "--as", "bearer", "-q"])
            .input("s3cr3t-scorer-key\n")
            .exits(0);
    };
    secret("scores.example.com");
    site.call(&["gate", "suite.toml", "-q"]).exits(3);
    let reasons = session(&result(&site), "a")["reasons"].to_string();
    assert!(reasons.contains("the secret `far` is not for `127.0.0.1`"), "{reasons}");
    assert!(server.asked().is_empty());
    site.call(&["secret", "rm", "far", "-q"]).exits(0);
    secret("127.0.0.1");
    site.call(&["gate", "suite.toml", "-q"]).exits(3);
    let reasons = session(&result(&site), "a")["reasons"].to_string();
    assert!(reasons.contains("the scorer `far` says: a"), "{reasons}");
    let all = std::fs::read(site.work().join("gate-out/gate.json")).unwrap();
    assert!(!String::from_utf8_lossy(&all).contains("s3cr3t"));
}

/// A judge that says this of everything, as its API does.
fn judge(api: &'static str, says: &'static str) -> Little {
    Little::start(move |head, body| {
        let (path, text) = match api {
            "openai" => ("post /v1/chat/completions ", body["messages"][1]["content"].clone()),
            _ => ("post /v1/messages ", body["messages"][0]["content"].clone()),
        };
        if !head.starts_with(path) || !text.as_str().is_some_and(|text| text.contains("<<<claim>>>")) {
            return (404, "no".into());
        }
        let answer = match api {
            "openai" => json!({ "choices": [{ "message": { "role": "assistant", "content": says } }] }),
            _ => json!({ "content": [{ "type": "text", "text": says }] }),
        };
        (200, answer.to_string())
    })
}

fn table(api: &str, port: u16) -> String {
    format!(
        "\n[judge]\napi = \"{api}\"\nurl = \"http://127.0.0.1:{port}/v1\"\nmodel = \"small\"\ntimeout = \"5s\"\n"
    )
}

#[test]
fn a_judge_doubts_and_its_answers_are_kept_and_served_again() {
    let site = site();
    let shop = Shop::recorded(&site);
    let suite = site.read("suite.toml");
    let gate = |table: &str, flags: &[&str], code: i32| {
        site.write("suite.toml", format!("{suite}{table}"));
        shop.gate(flags).exits(code)
    };
    let agrees = judge("openai", r#"{"opinion": "supported", "why": "passage 1"}"#);
    gate(&table("openai", agrees.port), &[], 0);
    let (head, body) = agrees.asked().into_iter().next().expect("the judge was not asked");
    assert!(!head.contains("authorization"));
    assert_eq!((&body["model"], &body["temperature"]), (&json!("small"), &json!(0)));

    let doubts = judge("anthropic", r#"Well: {"opinion": "unsupported", "why": "no passage says so"}"#);
    gate(&table("anthropic", doubts.port), &[], 3);
    assert!(doubts.asked()[0].0.contains("anthropic-version: 2023-06-01"));
    let told: Vec<_> = result(&site)["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|s| s["reasons"].as_array().cloned().unwrap_or_default())
        .collect();
    let doubt = told.iter().find(|reason| reason["code"] == "judge-doubts").expect("no doubt");
    let text = doubt["text"].as_str().unwrap();
    assert!(text.starts_with("the judge `small` finds nothing that supports `"), "{text}");
    assert!(text.ends_with("`: no passage says so"), "{text}");

    // Its answers are kept, and stand for it where it is not asked again.
    let before = doubts.asked().len();
    std::fs::rename(site.work().join("gate-out"), site.work().join("first")).unwrap();
    gate(&table("anthropic", 1), &["--judged", "first"], 3);
    assert_eq!(doubts.asked().len(), before);
    let codes_of = |file: &str| {
        let result: Value = serde_json::from_str(&site.read(file)).unwrap();
        result["sessions"].as_array().unwrap().iter().map(|s| s["reasons"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(codes_of("gate-out/gate.json"), codes_of("first/gate.json"));
}

#[test]
fn a_judge_clears_nobody_and_one_that_cannot_be_used_is_for_review() {
    let site = site();
    let shop = Shop::recorded(&site);
    let suite = site.read("suite.toml");
    let gate = |table: &str, code: i32| {
        site.write("suite.toml", format!("{suite}{table}"));
        shop.gate(&["--only", "refund-small"]).exits(code);
        session(&result(&site), "refund-small")["reasons"].to_string()
    };
    let nonsense = judge("openai", "Looks good to me!");
    let told = gate(&table("openai", nonsense.port), 3);
    assert!(told.contains("holds no JSON object with an `opinion`"), "{told}");
    let told = gate(&table("anthropic", nonsense.port), 3);
    assert!(told.contains("the judge `small` could not be used: it answers 404"), "{told}");
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let told = gate(&table("openai", gone), 3);
    assert!(told.contains("judge-failed") && told.contains("is it up"), "{told}");
    let told = gate("\n[judge]\napi = \"openai\"\nurl = \"http://judge.example.com/v1\"\nmodel = \"m\"\n", 3);
    assert!(told.contains("would be asked in clear text: use https"), "{told}");

    shop.break_agent();
    let agrees = judge("openai", r#"{"opinion": "supported", "why": "all is well"}"#);
    gate(&table("openai", agrees.port), 1);
    assert!(!codes(&result(&site), "refund-small").is_empty());
}
