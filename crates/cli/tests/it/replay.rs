//! Recorded sessions, run again with the world gone: the same requests get the same answers, and what was never
//! asked before is refused with the reason.

use crate::egress::{ALL, Stage, staged_once};
use crate::site;
use cofferdam_testkit::{Call, Done, Site};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const AUTH: &str = r#"-H "Authorization: Bearer $KEY""#;

/// Takes away what a run needed: the policy's file and the credential. The servers stay up, and see nothing.
fn world_gone(stage: &Stage<'_>) -> usize {
    fs::remove_file(stage.policy_file()).unwrap();
    stage.site.call(&["secret", "rm", "key"]).exits(0);
    let opened = stage.site.bodies("egress.opened").pop().unwrap();
    // Only a credential that they know stands in their book.
    stage.server.admit(opened["credentials"][0]["placeholder"].as_str().unwrap());
    asked(stage)
}

/// How many requests the servers, which are everyone's, have seen of this stage: with its credential, or with what
/// stands for it inside.
fn asked(stage: &Stage<'_>) -> usize {
    let opened = stage.site.bodies("egress.opened").pop().unwrap();
    let placeholder = &opened["credentials"][0]["placeholder"];
    assert!(placeholder.is_string(), "{opened}");
    stage
        .server
        .seen(|request| request["credential"] == stage.real.as_str() || request["credential"] == *placeholder)
        .len()
}

fn replay<'s>(stage: &Stage<'s>, trace: &str) -> Call<'s> {
    let path = format!("PYTHONPATH={}", stage.server.packages().display());
    stage.site.call(&["replay", trace]).with(&["--env", &path])
}

/// What a replay says of itself with `--json`.
#[track_caller]
fn said(done: &Done) -> Value {
    let err = done.err();
    let line = err.lines().rfind(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{err}"));
    serde_json::from_str(line).unwrap()
}

#[test]
fn the_same_requests_get_the_same_answers_with_everything_gone() {
    staged_once(|stage| {
        let script = format!(
            "curl -sS {AUTH} https://api.corp.example/one; echo\n\
             curl -sS --http2 -u \"$KEY:\" -d '{{\"a\": 1}}' https://api.corp.example/two; echo\n\
             curl -sS {AUTH} https://api.corp.example/echo/gzip --compressed; echo\n\
             curl -sS {AUTH} https://api.corp.example/echo/split; echo\n\
             curl -sS -I {AUTH} https://api.corp.example/head | grep -c '^HTTP'\n\
             curl -sS -o /dev/null -w '%{{http_code}}\\n' https://api.corp.example/who\n\
             echo \"$KEY\" made > made.txt\n\
             exit 7"
        );
        let recorded = stage.sh(&script).exits(7).out();
        let id = stage.site.traces().pop().unwrap();
        fs::remove_file(stage.site.work().join("made.txt")).unwrap();
        let seen = world_gone(stage);
        let done = replay(stage, &id).exits(7);
        assert_eq!(done.out(), recorded);
        let summary = done.err();
        assert!(summary.contains("6 of 6 answers served; same exit code, same output"), "{summary}");
        assert_eq!(asked(stage), seen, "a server was asked");
        assert!(!stage.site.work().join("made.txt").exists(), "changes are not kept");
        // It leaves a trace like any other, in which the recorded one is named.
        let started = stage.site.bodies("replay.started").pop().unwrap();
        assert_eq!((&started["of"], &started["exchanges"]), (&id.clone().into(), &6.into()));
        assert_eq!(stage.site.bodies("replay.served").len(), 6);
        assert_eq!(stage.site.bodies("exchange.recorded").len(), 6);
        assert!(stage.site.bodies("replay.missed").is_empty());
        stage.site.call(&["trace", "verify", "latest"]).exits(0);
        let trace = fs::read_to_string(stage.site.events_file(&stage.site.traces().pop().unwrap())).unwrap();
        assert!(!trace.contains(&stage.real));
        // What was replayed can be replayed.
        assert_eq!(replay(stage, "latest").exits(7).out(), recorded);
    });
}

#[test]
fn real_sdks_do_not_notice() {
    staged_once(|stage| {
        let program = r#"
import os, anthropic, openai, stripe
key = os.environ["KEY"]
ask = {"messages": [{"role": "user", "content": "ping"}]}
client = openai.OpenAI(api_key=key)
print(client.chat.completions.create(model="gpt-5", **ask).choices[0].message.content)
print(*(part.choices[0].delta.content for part in client.chat.completions.create(model="gpt-5", stream=True, **ask)))
print(anthropic.Anthropic(api_key=key).messages.create(model="claude", max_tokens=9, **ask).content[0].text)
stripe.api_key = key
print(stripe.Charge.list(limit=3).data[0].amount, stripe.Refund.create(charge="ch_1").id)
"#;
        let recorded = stage.python(program).exits(0).out();
        assert_eq!(recorded, "pong\npo ng\npong\n700 re_1\n");
        let seen = world_gone(stage);
        for flags in [&["--mode", "normalised"][..], &["--speed", "recorded"]] {
            assert_eq!(replay(stage, "latest").with(flags).exits(0).out(), recorded);
        }
        assert_eq!(asked(stage), seen);
        let calls = stage.site.bodies("model.called");
        assert_eq!(calls.len(), 3, "what is replayed is understood like what is sent");
        // A trace holds no values of variables.
        let done = stage.site.call(&["replay", "latest"]).exits(125);
        assert!(done.err().contains("--env PYTHONPATH=VALUE"), "{}", done.err());
    });
}

/// A server of one test's own, which can be killed.
struct Own(Child, u16);

impl Own {
    fn start() -> Self {
        const PROGRAM: &str = r#"
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    count = 0
    def do_GET(self):
        Handler.count += 1
        body = f"{self.path} {Handler.count}\n".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"#;
        let mut child = Command::new("python3").args(["-c", PROGRAM]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line.trim().parse().unwrap())
    }

    fn policy(&self, site: &Site, rules: &str) -> String {
        let path = site.root().join("own.toml");
        let upstream = format!("[[upstream]]\nhost = \"own.example\"\nconnect = \"127.0.0.1:{}\"\n", self.1);
        let rule = "[[rule]]\nid = \"own\"\nreason = \"r\"\neffect = \"allow\"\nhost = \"own.example\"\n";
        fs::write(&path, format!("{upstream}\n{rule}\n{rules}")).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records a script against a server that is gone afterwards.
fn recorded(site: &Site, script: &str, flags: &[&str]) -> Done {
    let own = Own::start();
    let policy = own.policy(site, "");
    let done = site.sh(script).with(&["--policy", &policy]).with(flags).exits(0);
    drop(own);
    fs::remove_file(policy).unwrap();
    done
}

#[test]
fn a_bundle_file_is_enough_and_leaves_another() {
    let site = site();
    let script = "for n in 1 2 3; do curl -sS http://own.example/$n; done; node -e 'fetch(\"http://own.example/node\").then(async a => console.log(await a.text()))'";
    let bundle = site.root().join("run.bundle");
    let again = site.root().join("again.bundle");
    let done = recorded(&site, script, &["--trace-out", bundle.to_str().unwrap()]);
    fs::remove_dir_all(site.state().join("traces")).unwrap();
    let flags = ["--trace-out", again.to_str().unwrap(), "--mode", "strict"];
    assert_eq!(site.call(&["replay", bundle.to_str().unwrap()]).with(&flags).exits(0).out(), done.out());
    assert_eq!(site.call(&["replay", again.to_str().unwrap()]).exits(0).out(), done.out());
}

#[test]
fn calls_may_come_in_another_order_and_at_once() {
    let site = site();
    // The answers count, so that a mixed-up one would show.
    let script =
        "for n in $ORDER; do curl -sS http://own.example/$n & [ -n \"$AT_ONCE\" ] || wait; done | sort; wait";
    let flags = ["--env", "ORDER=1 2 3 4 5 6", "--env", "AT_ONCE="];
    let then = recorded(&site, script, &flags).out();
    for flags in [
        ["--env", "ORDER=6 2 4 1 5 3", "--env", "AT_ONCE="],
        ["--env", "ORDER=3 1 2 6 5 4", "--env", "AT_ONCE=1"],
    ] {
        let done = site.call(&["replay"]).with(&flags).with(&["--json", &site.traces()[0]]).exits(0);
        assert_eq!(done.out(), then);
        assert_eq!(said(&done)["served"], 6);
    }
    // Fewer are told as unused; one more than there was is not served twice, unless that is declared.
    let fewer =
        site.call(&["replay", &site.traces()[0], "--json", "--env", "ORDER=2", "--env", "AT_ONCE="]).exits(0);
    assert_eq!(said(&fewer)["unused"].as_array().unwrap().len(), 5);
    let twice = ["--env", "ORDER=1 1", "--env", "AT_ONCE="];
    let done = site.call(&["replay", &site.traces()[0], "--json"]).with(&twice).exits(0);
    assert_eq!(said(&done)["missed"][0]["why"], "used-up");
    let rules = site.write("rules.toml", "[replay]\nrepeat = [\"GET\"]\n");
    let done = site
        .call(&["replay", &site.traces()[0], "--json", "--rules", rules.to_str().unwrap()])
        .with(&twice)
        .exits(0);
    assert_eq!((said(&done)["served"].clone(), done.out()), (2.into(), "/1 1\n/1 1\n".into()));
}

#[test]
fn a_request_that_changed_is_refused_with_the_nearest_and_the_difference() {
    let site = site();
    let script = r#"curl -sS -H 'content-type: application/json' -d "{\"q\": \"$Q\", \"n\": [1, 2]}" http://own.example/search"#;
    recorded(&site, script, &["--env", "Q=cats"]);
    let id = site.traces().pop().unwrap();
    let now = |flags: &[&str]| site.call(&["replay", &id, "--env", "Q=dogs"]).with(flags);
    let done = now(&[]).exits(0);
    assert!(done.out().contains("not recorded") && done.out().contains("body.q"), "{}", done.out());
    assert!(done.err().contains("body.q: `cats` then, `dogs` now"), "{}", done.err());
    let missed = site.bodies("replay.missed").pop().unwrap();
    assert_eq!(missed["why"], "different");
    assert_eq!(missed["nearest"]["differences"][0]["at"], "body.q");
    let exchange = site.events_file(&id);
    let seq = missed["nearest"]["recorded"].as_u64().unwrap();
    let event = fs::read_to_string(exchange).unwrap().lines().nth(seq as usize).unwrap().to_owned();
    assert!(event.contains("exchange.recorded") && event.contains("/search"), "{event}");
    now(&["--fallback", "review"]).exits(3);
    // The order of names is of no account, but for who insists on bytes.
    let script = r#"curl -sS -H 'content-type: application/json' -d "$BODY" http://own.example/search"#;
    recorded(&site, script, &["--env", r#"BODY={"a": 1, "b": 2}"#]);
    let id = site.traces().pop().unwrap();
    let body = ["--env", r#"BODY={"b":2,"a":1}"#];
    assert_eq!(said(&site.call(&["replay", &id, "--json"]).with(&body).exits(0))["normalised"], 1);
    let strict = site.call(&["replay", &id, "--json", "--mode", "strict"]).with(&body).exits(0);
    assert_eq!(said(&strict)["missed"][0]["why"], "different");
}

#[test]
fn streams_are_streams_again() {
    staged_once(|stage| {
        let script = format!("curl -sSN {AUTH} https://api.corp.example/ticks | head -n 7");
        let then = stage.sh(&script).exits(0).out();
        let parts = |body: &Value| body["answer"]["parts"].as_array().map_or(0, Vec::len);
        assert!(parts(&stage.site.bodies("exchange.recorded")[0]) > 1);
        world_gone(stage);
        for speed in ["full", "recorded"] {
            assert_eq!(replay(stage, &stage.site.traces()[0]).with(&["--speed", speed]).exits(0).out(), then);
            assert!(parts(&stage.site.bodies("exchange.recorded")[0]) > 1, "{speed}");
        }
    });
}

#[test]
fn placeholders_are_the_recorded_ones_and_others_are_not() {
    staged_once(|stage| {
        let show = stage.sh("echo $KEY").exits(0).out();
        assert_ne!(stage.sh("echo $KEY").exits(0).out(), show, "every session has its own");
        world_gone(stage);
        assert_eq!(replay(stage, &stage.site.traces()[0]).exits(0).out(), show);
    });
}

#[test]
fn a_trace_that_cannot_be_believed_is_refused() {
    let site = site();
    recorded(&site, "curl -sS http://own.example/1", &[]);
    let id = site.traces().pop().unwrap();
    let bundle = site.root().join("run.bundle");
    site.call(&["trace", "export", &id, "--format", "bundle", "-o", bundle.to_str().unwrap()]).exits(0);
    let (file, whole) = (site.events_file(&id), fs::read_to_string(site.events_file(&id)).unwrap());
    let refused = |expected: &str, trace: &str| {
        let done = site.call(&["replay", trace]).exits(125);
        assert!(done.err().contains(expected), "{expected}: {}", done.err());
    };
    fs::write(&file, whole.replace("own.example", "own.exbmple")).unwrap();
    refused("not what its signer wrote", &id);
    // Cut off: sound as far as it goes, and taken only by who says so.
    let cut: String = whole.lines().take(whole.lines().count() - 2).map(|line| format!("{line}\n")).collect();
    fs::write(&file, cut).unwrap();
    refused("--allow-incomplete", &id);
    site.call(&["replay", &id, "--allow-incomplete"]).exits(0);
    // A payload that is not there.
    fs::write(&file, &whole).unwrap();
    let blobs = site.state().join("traces").join(&id).join("blobs");
    fs::rename(&blobs, site.root().join("kept")).unwrap();
    refused("not what its signer wrote", &id);
    fs::rename(site.root().join("kept"), &blobs).unwrap();
    site.call(&["replay", &id]).exits(0);
    refused("events without their payloads", file.to_str().unwrap());
    // Signed by nobody who is known here.
    let stranger = crate::site();
    let theirs = stranger.root().join("run.bundle");
    fs::copy(&bundle, &theirs).unwrap();
    let key = stranger.write("key.pem", site.call(&["key", "show"]).exits(0).out());
    let done = stranger.call(&["replay", theirs.to_str().unwrap()]).exits(125);
    assert!(done.err().contains("--key"), "{}", done.err());
    let work = stranger.work();
    let flags = ["--key", key.to_str().unwrap(), "--workdir", work.to_str().unwrap()];
    assert_eq!(stranger.call(&["replay", theirs.to_str().unwrap()]).with(&flags).exits(0).out(), "/1 1\n");
}

/// The sandbox is shown to be offline by what no tap sees: a connection that is passed through.
#[test]
fn nothing_is_dialled() {
    staged_once(|stage| {
        stage.policy(&format!("[tls]\npass_through = [\"open.corp.example\"]\n{ALL}"));
        let ca = stage.server.authority();
        // The servers are everyone's: a path that nobody else asks for.
        let path = format!("/through/{}", stage.real);
        let script = format!(
            "curl -sS --cacert ca.pem -o /dev/null -w '%{{http_code}}' https://open.corp.example{path} || echo none"
        );
        stage.site.write("ca.pem", fs::read(ca).unwrap());
        let through = || stage.server.seen(|request| request["path"] == path.as_str()).len();
        assert_eq!((stage.sh(&script).exits(0).out().as_str(), through()), ("200", 1));
        world_gone(stage);
        assert!(replay(stage, "latest").exits(0).out().ends_with("none\n"));
        assert_eq!(through(), 1);
        let ended = stage.site.bodies("egress.ended").pop().unwrap();
        assert!(ended["detail"].as_str().unwrap().contains("nothing is reached"), "{ended}");
    });
}

#[test]
fn what_was_not_recorded_goes_out_only_where_that_is_said() {
    staged_once(|stage| {
        let script = format!("curl -sS {AUTH} https://api.corp.example/$WHAT");
        stage.sh(&script).with(&["--env", "WHAT=then"]).exits(0);
        let id = stage.site.traces().pop().unwrap();
        let count =
            |path: &str| stage.server.seen_with(&stage.real).iter().filter(|r| r["path"] == path).count();
        let done = replay(stage, &id).with(&["--env", "WHAT=now"]).exits(0);
        assert!(done.out().contains("not recorded"), "{}", done.out());
        assert_eq!(count("/now"), 0);
        let policy = stage.policy_file();
        let live = ["--live-fallback", "--policy", policy.to_str().unwrap(), "--env", "WHAT=now"];
        let done = replay(stage, &id).with(&live).exits(0);
        assert!(done.out().contains("\"credential\": true"), "{}", done.out());
        assert_eq!((count("/now"), count("/then")), (1, 1));
        let done = stage.site.call(&["replay", &id, "--live-fallback"]).exits(125);
        assert!(done.err().contains("--policy"), "{}", done.err());
    });
}

#[test]
fn a_clock_and_chance_that_stand_still() {
    let site = site();
    let python = "import time, datetime, random, uuid; print(time.time(), datetime.datetime.now(datetime.UTC).isoformat(), isinstance(datetime.datetime.now(), datetime.date), time.strftime('%Y', time.gmtime()), random.random(), uuid.uuid4(), hash('x'))";
    let node = "console.log(new Date().toISOString(), Date.now(), new Date(0) instanceof Date, Math.random(), crypto.randomUUID())";
    let script = format!("python3 -c \"{python}\"; node -e '{node}'");
    site.sh(&script).exits(0);
    let id = site.traces().pop().unwrap();
    let run = |flags: &[&str]| site.call(&["replay", &id]).with(flags).exits(0).out();
    let fixed = ["--clock", "fixed:2026-01-01T00:00:00Z", "--seed", "7"];
    let first = run(&fixed);
    assert_eq!(first, run(&fixed));
    assert!(first.starts_with("1767225600.0 2026-01-01T00:00:00+00:00 True 2026 "), "{first}");
    assert!(first.contains("\n2026-01-01T00:00:00.000Z 1767225600000 true "), "{first}");
    assert_ne!(first, run(&["--clock", "fixed:2026-01-01T00:00:00Z", "--seed", "8"]));
    assert_eq!(run(&["--clock", "recorded", "--seed", "7"]), run(&["--clock", "recorded", "--seed", "7"]));
    // Without it, chance is chance.
    assert_ne!(run(&[]), run(&[]));
    let done = site.call(&["replay", &id, "--clock", "noon"]).exits(125);
    assert!(done.err().contains("is no clock"), "{}", done.err());
}

/// What a person was asked then is answered as the person did; what nobody was asked then is a no.
#[test]
fn people_answer_as_they_did() {
    let site = site();
    let own = Own::start();
    let rules = "[[rule]]\nid = \"ask\"\nreason = \"money leaves\"\neffect = \"review\"\nhost = \"own.example\"\npaths = [\"/pay/**\"]\n";
    let policy = own.policy(&site, rules);
    let script =
        "for n in $WHAT; do curl -sS -o /dev/null -w \"$n %{http_code}\\n\" http://own.example/pay/$n; done";
    let mut running = site.sh(script).with(&["--policy", &policy, "--env", "WHAT=yes no"]).start();
    for verb in ["allow", "deny"] {
        let waiting = site.held(&mut running);
        site.call(&["approve", verb, waiting["id"].as_str().unwrap()]).exits(0);
    }
    assert_eq!(running.finish().exits(0).out(), "yes 200\nno 403\n");
    drop(own);
    let id = site.traces().pop().unwrap();
    let done = site.call(&["replay", &id, "--env", "WHAT=yes no never"]).exits(0);
    assert_eq!(done.out(), "yes 200\nno 403\nnever 403\n");
    let answers: Vec<String> = site
        .bodies("approval.answered")
        .iter()
        .map(|body| format!("{} {}", body["answer"].as_str().unwrap(), body["by"].as_str().unwrap()))
        .collect();
    assert!(answers[0].starts_with("allowed ") && answers[0].ends_with(", as recorded"), "{answers:?}");
    assert!(answers[1].starts_with("denied ") && answers[1].ends_with(", as recorded"), "{answers:?}");
    assert_eq!(answers[2], "denied the replay: nobody is asked");
}

/// Words that the agent makes up differ from run to run, and what the world answers is about the new ones.
#[test]
fn ids_that_the_agent_makes_up_may_differ_and_others_may_not() {
    staged_once(|stage| {
        let program = r#"
import json, os, sys, urllib.request, uuid
def post(path, **fields):
    data = json.dumps(fields).encode()
    headers = {"x-api-key": os.environ["KEY"], "content-type": "application/json"}
    asked = urllib.request.Request("https://api.corp.example/echo/json" + path, data, headers)
    try:
        return json.loads(json.load(urllib.request.urlopen(asked))["body"])
    except urllib.error.HTTPError as error:
        return {"refused": error.code}
thread = str(uuid.uuid4())
print(post("", thread=thread, text="hello") == {"thread": thread, "text": "hello"})
print(post("", thread=thread, text="again") == {"thread": thread, "text": "again"})
print(post("", customer=os.environ["CUSTOMER"] or sys.argv[1]))
"#;
        let customer = |n: u8| format!("{n}0000000-0000-4000-8000-000000000000");
        let command = ["python3", "-c", program, &customer(1)];
        let then = stage.run(&command).with(&["--env", "CUSTOMER="]).exits(0).out();
        assert!(then.starts_with("True\nTrue\n{'customer': '1000"), "{then}");
        let id = stage.site.traces().pop().unwrap();
        world_gone(stage);
        assert_eq!(replay(stage, &id).with(&["--env", "CUSTOMER="]).exits(0).out(), then);
        // The first customer was given to the agent, so this is another one and not another word.
        let env = format!("CUSTOMER={}", customer(2));
        let other = replay(stage, &id).with(&["--env", &env]).exits(0).out();
        assert_eq!(other, "True\nTrue\n{'refused': 403}\n");
    });
}

/// Another place on disk, told as the recorded one to the world and as this one to the agent.
#[test]
fn a_work_dir_may_be_another() {
    staged_once(|stage| {
        let script = format!(
            "curl -sS {AUTH} -d \"dir=$PWD\" https://api.corp.example/echo/json | grep -c \"dir=$PWD\""
        );
        assert_eq!(stage.sh(&script).exits(0).out(), "1\n");
        let other = stage.site.root().join("elsewhere");
        fs::create_dir(&other).unwrap();
        stage.site.give(&other);
        world_gone(stage);
        let done = replay(stage, "latest").with(&["--mode", "strict", "--workdir", other.to_str().unwrap()]);
        assert_eq!(done.exits(0).out(), "1\n");
    });
}

#[test]
fn another_input_is_told() {
    let site = crate::site();
    site.run(&["cat"]).input("then").exits(0);
    let id = site.traces().pop().unwrap();
    let same = site.call(&["replay", &id]).input("then").exits(0).err();
    assert!(same.contains("same output") && !same.contains("input is not"), "{same}");
    let other = site.call(&["replay", &id]).input("now").exits(0).err();
    assert!(other.contains("its input is not what it was then"), "{other}");
    let told = said(&site.call(&["replay", &id, "--json"]).input("later").exits(0));
    assert_eq!(told["same_input"], false, "{told}");
}
