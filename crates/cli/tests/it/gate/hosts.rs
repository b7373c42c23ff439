//! What goes wrong around a gate: a disk that is full, a clock that is wrong, baselines of another time or by nobody.

use super::{codes, result, scripts, session};
use crate::site;
use cofferdam_testkit::{Site, needs_root, program};
use std::process::Command;

/// Rewrites the events of a trace so that its chain holds again; what is signed is signed no longer.
const FORGE: &str = r#"
import hashlib, json, sys

path, change = sys.argv[1:]
events = [json.loads(line) for line in open(path)]
if change == "version":
    events[0]["body"]["format"] = 2
else:
    events = [event for event in events if event["kind"] not in ("checkpoint", "head")]
    for event in events:
        event.pop("parent", None)
write = lambda event: json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
prev = "0" * 64
with open(path, "w") as file:
    for seq, event in enumerate(events):
        event |= {"seq": seq, "prev": prev}
        event.pop("hash")
        prev = event["hash"] = hashlib.sha256(write(event).encode()).hexdigest()
        file.write(write(event) + "\n")
"#;

fn forge(site: &Site, trace: &str, change: &str) {
    let script = "set -e\nrm -rf x\nmkdir x\ntar --zstd -xf $1 -C x\nlist=$(tar --zstd -tf $1)\n\
                  python3 -c \"$2\" x/*/events.jsonl $3\n\
                  tar --zstd --format=ustar -cf $1 -C x $list\nrm -r x";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "forge", trace, FORGE, change]).current_dir(site.work());
    let done = shell.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_baseline_of_another_version_or_by_nobody_is_for_review() {
    let site = site();
    scripts(&site, &[("later", "echo a"), ("unsigned", "echo b"), ("good", "echo c")]);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    forge(&site, "baseline/later.1.tar.zst", "version");
    forge(&site, "baseline/unsigned.1.tar.zst", "signatures");
    site.call(&["gate", "suite.toml", "-q"]).exits(3);
    let found = result(&site);
    assert_eq!(codes(&found, "later")[0], "baseline-other-version");
    assert_eq!(codes(&found, "unsigned")[0], "baseline-unsigned");
    for id in ["later", "unsigned"] {
        let text = session(&found, id)["reasons"][0]["text"].as_str().unwrap().to_owned();
        assert!(text.contains("record it again with `cofferdam record`"), "{text}");
    }
    assert_eq!(session(&found, "good")["outcome"], "pass");
}

/// In a mount namespace that goes with the shell, with `place` on a file system of its own.
fn on_a_small_disk(site: &Site, place: &str, size: &str, script: &str) -> (String, String) {
    let prepare =
        format!("mkdir -p {place} && mount -t tmpfs -o size={size},mode=755 none {place} || exit 99");
    let mut shell = Command::new(program("unshare").expect("unshare is missing: apt-get install util-linux"));
    shell.args(["--mount", "sh", "-c", &format!("{prepare}\n{script}")]);
    shell.current_dir(site.work()).env("C", site.binary()).env("COFFERDAM_HOME", site.state());
    let done = shell.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(done.status.success(), "{}", text(&done.stderr));
    (text(&done.stdout), text(&done.stderr))
}

#[test]
fn a_disk_that_is_full_ends_the_gate_without_a_verdict_and_it_goes_on_when_there_is_room() {
    if !needs_root("a small file system") {
        return;
    }
    let site = site();
    let say = "head -c 200000 /dev/urandom | base64";
    scripts(&site, &[("a", "echo a"), ("b", say), ("c", say)]);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    let gate = "$C gate suite.toml --concurrency 1 -q; echo code $?; ls gate-out/gate.json gate-out/gate.dsse.json\n";
    let more = "mount -o remount,size=64m gate-out\n$C gate suite.toml --concurrency 1; echo code $?; $C verify gate-out -q; echo sound $?\n";
    let (out, err) = on_a_small_disk(&site, "gate-out", "160k", &format!("{gate}{more}true"));
    assert!(out.starts_with("code 2\n"), "{out}{err}");
    assert!(err.contains("cannot write") && err.contains("No space left"), "{err}");
    assert!(err.contains("cannot access 'gate-out/gate.json'"), "{err}");
    // What was finished is not run again.
    assert!(!err.contains("pass    a ("), "{err}");
    assert!(out.contains("sound 0"), "{out}{err}");
}

/// Its clock is so many seconds off.
const SKEW: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(id, at);
    if (done == 0 && id == CLOCK_REALTIME) at->tv_sec += atol(getenv("SKEW"));
    return done;
}
"#;

#[test]
fn a_clock_that_is_wrong_changes_no_verdict() {
    let site = site();
    scripts(&site, &[("a", "echo a"), ("b", "echo b > file")]);
    site.write("skew.c", SKEW);
    let library = site.root().join("skew.so");
    let mut cc = Command::new(program("cc").unwrap());
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(site.work().join("skew.c")).arg("-ldl");
    assert!(cc.status().unwrap().success());
    let at = |skew: i64, words: &[&str]| {
        site.call(words).env("LD_PRELOAD", &library).env("SKEW", skew.to_string()).exits(0);
    };
    const YEAR: i64 = 365 * 24 * 3600;
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    // The baseline is of next year, and the gate is of last year.
    at(YEAR, &["record", "suite.toml", "-q"]);
    for skew in [0, -YEAR] {
        at(skew, &["gate", "suite.toml", "-q"]);
        let started = result(&site)["run"]["started_us"].as_i64().unwrap() / 1_000_000;
        assert!((started - now() - skew).abs() < 3600, "{started}");
        at(YEAR, &["verify", "gate-out", "--passed", "-q"]);
        at(-YEAR, &["verify", "gate-out/evidence.tar.zst", "--passed", "-q"]);
    }
}
