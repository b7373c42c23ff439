//! What people change while a session runs, by the command line: it holds for the next request on a connection that
//! is kept alive, and for a stream that is open. The trace tells what was done, by whom, and what it cut.

use super::{ALL, Stage, staged, staged_once};
use cofferdam_testkit::{Running, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Asks on a connection that it keeps, reads a stream until it breaks, and asks again on the kept one, until it
/// gets what it wants.
const CLIENT: &str = r#"
import http.client, os, sys, time
auth = {"Authorization": "Bearer " + os.environ["KEY"]}
kept, other = (http.client.HTTPSConnection("api.corp.example", timeout=100) for _ in range(2))
def ask():
    kept.request("GET", "/kept", headers=auth)
    answer = kept.getresponse()
    return answer.status, answer.read().decode().splitlines()[0]
print(ask()[0], flush=True)
first = kept.sock
other.request("GET", "/ticks", headers=auth)
stream = other.getresponse()
try:
    while stream.read1(4096):
        pass
    print("the stream ended")
except (http.client.IncompleteRead, OSError):
    print("the stream broke")
status, text = ask()
print(status, text)
while status != int(sys.argv[1]):
    time.sleep(0.05)
    status, text = ask()
print(status, kept.sock is first)
"#;

/// Starts it, and waits until the stream flows.
fn start(stage: &Stage<'_>, until: &str) -> (Running, String) {
    let mut running = stage.run(&["python3", "-c", CLIENT, until]).start();
    eventually("the stream to flow", || (stage.ticks() > 0 || !running.is_running()).then_some(()));
    assert!(running.is_running(), "{}", running.finish().err());
    let live = stage.site.call(&["session", "ls", "--json"]).exits(0).out();
    let live: Vec<Value> = serde_json::from_str(&live).unwrap();
    assert_eq!(live.len(), 1);
    (running, live[0]["session"].as_str().unwrap().into())
}

/// Does something to the session; says how many exchanges that cut.
fn order(stage: &Stage<'_>, words: &[&str]) -> u64 {
    let told = stage.site.call(&["session"]).with(words).with(&["--json"]).exits(0).out();
    serde_json::from_str::<Value>(&told).unwrap()["cut"].as_u64().unwrap()
}

/// What was changed, and how the stream ended.
#[track_caller]
fn told(stage: &Stage<'_>, what: &[&str], ending: &str) {
    let changed = stage.site.bodies("control.changed");
    assert_eq!(changed.iter().map(|body| body["what"].as_str().unwrap()).collect::<Vec<_>>(), what);
    let by = format!("uid {}", stage.site.mode.ids().0);
    assert!(changed.iter().all(|body| body["by"] == by.as_str()) && changed[0]["cut"] == 1, "{changed:#?}");
    let ended = stage.site.bodies("egress.ended");
    assert_eq!(ended.iter().filter(|body| body["ending"] == ending).count(), 1, "{ended:#?}");
    stage.site.call(&["trace", "verify", "latest"]).exits(0);
}

#[test]
fn a_credential_that_is_taken_back() {
    staged(|stage| {
        let (running, id) = start(stage, "403");
        assert_eq!(order(stage, &["revoke", &id, "key"]), 1);
        let out = running.finish().exits(0).out();
        assert!(out.starts_with("200\nthe stream broke\n403 cofferdam: credential `key`"), "{out}");
        assert!(out.contains("revoked") && out.ends_with("403 True\n"), "{out}");
        told(stage, &["revoke"], "revoked");
        assert_eq!(stage.server.seen_with(&stage.real).len(), 2);
        // Only in that session: the vault still has it.
        stage.sh("curl -sSf -H \"Authorization: Bearer $KEY\" https://api.corp.example/ok").exits(0);
    });
}

#[test]
fn a_policy_that_is_narrowed() {
    staged(|stage| {
        let (running, id) = start(stage, "403");
        let file = stage.policy(&ALL.replace("\"*.corp.example\"", "\"open.corp.example\""));
        let file = file.to_str().unwrap();
        // A file with a mistake changes nothing.
        let broken = stage.site.root().join("broken.toml");
        std::fs::write(&broken, "[[rule]]\nid = 1\n").unwrap();
        stage.site.call(&["session", "policy", "set", &id, broken.to_str().unwrap()]).exits(2);
        assert_eq!(order(stage, &["policy", "set", &id, file]), 1);
        let out = running.finish().exits(0).out();
        assert!(out.starts_with("200\nthe stream broke\n403 cofferdam: denied: no rule allows it"), "{out}");
        told(stage, &["policy"], "policy-changed");
    });
}

#[test]
fn egress_switched_off_and_on_again() {
    staged(|stage| {
        let (running, id) = start(stage, "200");
        assert_eq!(order(stage, &["egress", &id, "off"]), 1);
        eventually("a request to be refused", || (!stage.refused("paused").is_empty()).then_some(()));
        order(stage, &["egress", &id, "on"]);
        let out = running.finish().exits(0).out();
        assert!(out.starts_with("200\nthe stream broke\n503 cofferdam: egress is paused"), "{out}");
        assert!(out.ends_with("\n200 True\n"), "{out}");
        told(stage, &["pause", "resume"], "paused");
    });
}

#[test]
fn a_credential_with_a_new_value() {
    staged(|stage| {
        let (running, id) = start(stage, "200");
        let fresh = super::fresh_value();
        stage.server.admit(&fresh);
        stage.site.call(&["secret", "rotate", "key"]).input(fresh.clone()).exits(0);
        assert_eq!(order(stage, &["rotate", &id, "key"]), 1);
        let out = running.finish().exits(0).out();
        assert_eq!(
            out,
            "200\nthe stream broke\n200 {\"ok\": true, \"credential\": true, \"bytes\": 0}\n200 True\n"
        );
        told(stage, &["rotate"], "revoked");
        let paths: Vec<_> = stage.server.seen_with(&fresh).iter().map(|seen| seen["path"].clone()).collect();
        assert_eq!(paths, ["/kept"]);
        let used: Vec<_> =
            stage.site.bodies("credential.used").iter().map(|body| body["generation"].clone()).collect();
        assert!(used.len() == 3 && used[0] == used[1] && used[1] != used[2], "{used:?}");
    });
}

/// Someone else's session is not ours to change, and one that is not there is named.
#[test]
fn only_who_runs_a_session_changes_it() {
    staged_once(|stage| {
        let done = stage.site.call(&["session", "revoke", "nope", "key"]).exits(2);
        assert!(done.err().contains("nope"), "{}", done.err());
        let (running, id) = start(stage, "403");
        let done = stage.site.call(&["session", "revoke", &id, "other"]).exits(2);
        assert!(done.err().contains("other"), "{}", done.err());
        // From inside there is no way to it: neither the socket nor the state directory is there.
        assert_eq!(order(stage, &["revoke", &id[..20], "key"]), 1);
        running.finish().exits(0);
        let script = format!("ls {} 2>&1; cofferdam session ls 2>&1; true", stage.site.state().display());
        let out = stage.sh(&script).exits(0).out();
        assert!(out.contains("No such file") && !out.contains("live"), "{out}");
    });
}

/// Requests with a body wait for a person.
const REVIEW: &str = r#"
[[rule]]
id = "refunds"
reason = "money leaves"
effect = "review"
host = "api.stripe.com"
methods = ["POST"]
"#;

fn refund(stage: &Stage<'_>) -> Running {
    let curl =
        "curl -sS -u \"$KEY:\" -d charge=ch_1 https://api.stripe.com/v1/refunds -w '\\n%{http_code}\\n'";
    stage.sh(curl).start()
}

#[test]
fn a_request_waits_for_a_person() {
    staged(|stage| {
        stage.policy(&format!("{ALL}{REVIEW}"));
        for (word, status, says, answer, seen) in [
            ("allow", "200", "\"object\": \"refund\"", "allowed", 1),
            ("deny", "403", "; held by rule refunds: money leaves", "denied", 1),
        ] {
            let mut running = refund(stage);
            let waiting = stage.site.held(&mut running);
            assert_eq!(waiting["request"]["rule"], "refunds", "{waiting}");
            assert_eq!(waiting["request"]["url"], "https://api.stripe.com/v1/refunds", "{waiting}");
            let listed = stage.site.call(&["approve", "ls"]).exits(0).out();
            assert!(listed.contains("  POST https://api.stripe.com/v1/refunds\n"), "{listed}");
            assert!(listed.lines().all(|line| line.chars().count() <= 80), "{listed}");
            assert_eq!(stage.server.seen_with(&stage.real).len() + usize::from(word == "allow"), seen);
            stage.site.call(&["approve", word, waiting["id"].as_str().unwrap()]).exits(0);
            let out = running.finish().exits(0).out();
            assert!(out.contains(says) && out.ends_with(&format!("\n{status}\n")), "{out}");
            assert_eq!(stage.server.seen_with(&stage.real).len(), seen);
            let answered = stage.site.bodies("approval.answered");
            assert_eq!((answered.len(), &answered[0]["answer"]), (1, &json!(answer)));
            assert_eq!(answered[0]["by"], format!("uid {}", stage.site.mode.ids().0));
        }
    });
}

/// C5: who asks before it sends its body is not told to send it while the request waits, nor when it is denied.
#[test]
fn a_body_that_asks_first_waits_too() {
    staged_once(|stage| {
        stage.policy(&format!("{ALL}{REVIEW}"));
        let curl = "head -c 300000 /dev/zero > body; curl -sS --http1.1 -o /dev/null --expect100-timeout 100 \
            -H 'Expect: 100-continue' -u \"$KEY:\" --data-binary @body https://api.stripe.com/v1/refunds \
            -w '%{http_code} %{size_upload}\\n'";
        for (word, expected) in [("deny", "403 0\n"), ("allow", "200 300000\n")] {
            let mut running = stage.sh(curl).start();
            let waiting = stage.site.held(&mut running);
            stage.site.call(&["approve", word, waiting["id"].as_str().unwrap()]).exits(0);
            assert_eq!(running.finish().exits(0).out(), expected);
        }
        assert_eq!(stage.server.seen_with(&stage.real).len(), 1);
    });
}

#[test]
fn a_request_whose_client_leaves_is_withdrawn() {
    staged_once(|stage| {
        stage.policy(&format!("{ALL}{REVIEW}"));
        let curl = "curl -s -m 1 -u \"$KEY:\" -d charge=ch_1 https://api.stripe.com/v1/refunds; echo $?";
        assert_eq!(stage.sh(curl).exits(0).out(), "28\n");
        assert_eq!(stage.site.bodies("approval.answered")[0]["answer"], "withdrawn");
        assert!(stage.server.seen_with(&stage.real).is_empty());
    });
}

/// Whatever ends us ends what waits: nothing is sent, and nobody is left.
#[test]
fn a_kill_sends_nothing_that_was_held() {
    staged(|stage| {
        stage.policy(&format!("{ALL}{REVIEW}"));
        let mut running = refund(stage);
        stage.site.held(&mut running);
        running.signal(Signal::KILL);
        assert_eq!(running.finish().code(), -9);
        let marker = stage.site.root().to_str().unwrap().to_owned();
        eventually("all to be gone", || cofferdam_testkit::processes_with(&marker).is_empty().then_some(()));
        assert!(stage.server.seen_with(&stage.real).is_empty());
        assert_eq!(stage.site.call(&["session", "ls"]).exits(0).out(), "");
        stage.site.call(&["trace", "verify", "latest"]).exits(3);
        assert!(stage.site.bodies("credential.used").is_empty());
    });
}

#[test]
fn a_cap_that_is_set_while_it_runs() {
    staged_once(|stage| {
        let (running, id) = start(stage, "429");
        let cap = |words: &[&str]| stage.site.call(&["session", "cap", &id]).with(words);
        let err = cap(&["--spend", "a lot"]).exits(2).err();
        assert!(err.contains("--spend a lot") && err.contains("2.50"), "{err}");
        cap(&["--bytes-down", "10"]).exits(0);
        let out = running.finish().exits(0).out();
        assert!(out.starts_with("200\nthe stream broke\n429 "), "{out}");
        let changed = stage.site.bodies("control.changed");
        assert_eq!(changed[0]["what"], "cap");
        assert_eq!(changed[0]["detail"], "10 bytes down");
    });
}

/// Calls a model until it is told that it may not.
const CALLER: &str = r#"
import openai, os, time
client = openai.OpenAI(api_key=os.environ["KEY"])
while True:
    try:
        client.chat.completions.create(model="gpt-4o", max_tokens=9, messages=[{"role": "user", "content": "ping"}])
        print("answered", flush=True)
        time.sleep(0.05)
    except openai.PermissionDeniedError as error:
        print(error.body["type"], error.body["message"])
        break
"#;

#[test]
fn money_that_is_capped_while_it_runs() {
    staged_once(|stage| {
        let mut running = stage.python(CALLER).start();
        let live = || -> Option<String> {
            assert!(running.is_running());
            let answered = stage.server.seen_with(&stage.real).len() > 1;
            let all = stage.site.call(&["session", "ls", "--json"]).exits(0).out();
            let all: Vec<Value> = serde_json::from_str(&all).unwrap();
            Some(all.first().filter(|_| answered)?["session"].as_str()?.to_owned())
        };
        let id = eventually("the model to be called", live);
        stage.site.call(&["session", "cap", &id, "--spend", "0.0005"]).exits(0);
        let out = running.finish().exits(0).out();
        assert!(
            out.contains("spend-cap the call can cost $") && out.contains("`session cap` has $"),
            "{out}"
        );
        assert_eq!(stage.refused("spend-cap").len(), 1);
        assert_eq!(stage.site.bodies("control.changed")[0]["detail"], "500 millionths of a dollar");
    });
}
