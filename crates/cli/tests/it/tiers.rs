//! One suite over every tier that is here: what people do with a session, once in the process tier and once in a
//! machine of its own. What one tier promises, the other keeps.

use crate::egress::staged_once;
use crate::live::Hall;
use crate::site;
use crate::terminal::at_terminal;
use cofferdam_testkit::{Call, Site, eventually};
use serde_json::Value;
use std::fs;

const TIERS: [&str; 2] = ["process", "microvm"];

fn sh<'a>(site: &'a Site, tier: &str, script: &str) -> Call<'a> {
    site.sh(script).with(&["--isolation", tier])
}

/// Runs a command, with its input, its code, its files, its limits, its terminal and its record.
fn runs(site: &Site, tier: &str) {
    let dir = format!("of-{tier}");
    site.write(format!("{dir}/kept"), "kept\n");
    site.write(format!("{dir}/gone"), "gone\n");
    let script = format!(
        "cd {dir}; cat; rm gone; echo new >made; ln -s made link; chmod 640 kept; mkdir d; mv made d/; exit 7"
    );
    let done = sh(site, tier, &script).input("said from outside\n").exits(7);
    assert_eq!(done.out(), "said from outside\n", "{tier}: {}", done.err());
    assert_eq!(site.read(format!("{dir}/d/made")), "new\n");
    assert!(!site.work().join(&dir).join("gone").exists());
    site.call(&["trace", "verify", "latest"]).exits(0);

    // Refused system calls are on record, with who made them.
    sh(site, tier, "unshare -m true 2>/dev/null; mount -t tmpfs x /tmp 2>/dev/null; true").exits(0);
    let blocked = site.bodies("blocked");
    assert!(blocked.iter().any(|body| body["program"] == "unshare"), "{tier}: {blocked:?}");

    // Limits, each told with its number.
    sh(site, tier, "sleep 1000").with(&["--timeout", "1s"]).exits(124);
    let done = sh(site, tier, "yes").with(&["--output", "100k"]).done();
    assert_ne!(done.code(), 0, "{tier}");
    let hits = site.bodies("limit");
    assert!(hits.iter().any(|hit| hit["limit"] == "output"), "{tier}: {hits:?}");
    let bomb =
        "for i in $(seq 60); do sleep 30 & done 2>/dev/null; jobs | wc -l; kill $(jobs -p) 2>/dev/null; true";
    sh(site, tier, bomb).with(&["--pids", "20"]).done();
    let hits = site.bodies("limit");
    assert!(hits.iter().any(|hit| hit["limit"] == "pids"), "{tier}: {hits:?}");

    let call = sh(site, tier, "stty size; read line; echo got $line").with(&["--changes", "keep"]);
    let acts = "read_until(b'101'); os.write(keyboard, b'typed\\n')";
    let shown = at_terminal(site, acts, &call.words()).exits(0).out();
    assert!(shown.contains("33 101") && shown.contains("got typed"), "{tier}: {shown}");
}

/// Stands still where that can be had, goes on, and takes back what still ran.
fn rests(hall: &Hall<'_>, tier: &str) {
    if !hall.can_pause() && tier != "microvm" {
        return;
    }
    hall.asks(&["pause", "s"]);
    assert_eq!(hall.show("s")["state"], "paused");
    // A machine that stands still cannot tell; nothing is lost by asking.
    let told = hall.call(&["diff", "s", "--brief"]).done();
    assert!(told.code() == 0 || told.err().contains("session resume"), "{tier}: {}", told.err());
    hall.asks(&["resume", "s"]);
    hall.asks(&["begin", "s"]);
    hall.call(&["exec", "-d", "s", "--", "sh", "-c", "while :; do echo x > busy; done"]).exits(0);
    eventually("it to write", || hall.diff("s").iter().any(|one| one["path"] == "busy").then_some(()));
    hall.asks(&["rollback", "--force", "s"]);
    assert_eq!(hall.does("s", "cat file; ls busy 2>/dev/null || echo gone"), "one\ngone\n", "{tier}");
    let (there, here) = (hall.does("s", "date +%s"), std::time::SystemTime::now());
    let here = here.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let there: u64 = there.trim().parse().unwrap();
    assert!(here.abs_diff(there) < 60, "{tier}: the clock went on: {here} and {there}");
}

/// A session that stays: commands, files, pause, transactions, snapshots, forks.
fn stays(site: &Site, tier: &str) {
    let hall = Hall(site);
    let layer: &[&str] = if tier == "process" { &["--layer", "disk"] } else { &[] };
    hall.create(&[&["--name", "s", "--isolation", tier], layer].concat());
    assert_eq!(hall.does("s", "echo one >file; cat file"), "one\n");

    let given = site.root().join(format!("given-{tier}"));
    fs::write(&given, "given\n").unwrap();
    site.give(&given);
    hall.call(&["cp", given.to_str().unwrap(), "s:/tmp/given"]).exits(0);
    assert_eq!(hall.does("s", "cat /tmp/given"), "given\n");

    rests(&hall, tier);

    hall.asks(&["begin", "s"]);
    hall.does("s", "echo two >>file; echo x >new");
    let told: Vec<_> =
        hall.diff("s").iter().map(|change| change["path"].as_str().unwrap().to_owned()).collect();
    assert!(told.contains(&"file".to_owned()) && told.contains(&"new".to_owned()), "{tier}: {told:?}");
    hall.asks(&["begin", "s"]);
    hall.does("s", "rm file");
    hall.asks(&["rollback", "s"]);
    assert_eq!(hall.does("s", "cat file"), "one\ntwo\n");
    hall.asks(&["commit", "s"]);
    hall.asks(&["begin", "s"]);
    hall.does("s", "rm file new");
    hall.asks(&["rollback", "s"]);
    assert_eq!(hall.does("s", "cat file; ls file new"), "one\ntwo\nfile\nnew\n");

    hall.asks(&["snapshot", "s", &format!("of-{tier}")]);
    hall.does("s", "echo three >>file");
    let forked = hall.call(&["fork", "s", "--count", "2"]).exits(0).out();
    let forks: Vec<&str> = forked.split_whitespace().collect();
    assert_eq!(forks.len(), 2, "{tier}: {forked}");
    for fork in &forks {
        assert_eq!(hall.does(fork, "cat file; echo own >>file; echo $RANDOM >/tmp/own"), "one\ntwo\nthree\n");
    }
    assert_eq!(hall.does("s", "cat file"), "one\ntwo\nthree\n", "{tier}: forks are apart");
    // A command in a fork of its own, which ends with it: in a machine, another one.
    let before = hall.does("s", "cat /etc/machine-id; hostname");
    let apart =
        hall.call(&["exec", "--apart", "s", "--", "sh", "-c", "cat file; hostname; echo x >>file; exit 5"]);
    let said = apart.exits(5).out();
    assert!(said.starts_with("one\ntwo\nthree\n"), "{tier}: {said}");
    assert_eq!(said.lines().last() != before.lines().last(), tier == "microvm", "{said} {before}");
    assert_eq!(hall.does("s", "cat file"), "one\ntwo\nthree\n", "{tier}: nothing of it is kept");
    let there: Value = serde_json::from_str(&hall.call(&["ls", "--json"]).exits(0).out()).unwrap();
    assert_eq!(there.as_array().unwrap().len(), 3, "{tier}: {there}");
    hall.asks(&["restore", "s", &format!("of-{tier}")]);
    assert_eq!(hall.does("s", "cat file"), "one\ntwo\n", "{tier}");
    if tier == "microvm" {
        // It is another machine, and what runs in it is what ran when it was kept.
        let after = hall.does("s", "cat /etc/machine-id; hostname");
        assert!(before.lines().zip(after.lines()).all(|(before, after)| before != after), "{before} {after}");
        hall.asks(&["restore", "s", &format!("of-{tier}")]);
        assert_ne!(hall.does("s", "cat /etc/machine-id; hostname"), after, "nor is it that one, twice");
    }
    hall.asks(&["begin", "s"]);
    hall.does("s", "echo never >>file");
    hall.asks(&["rollback", "s"]);
    hall.does("s", "echo after >>file");
    for fork in forks {
        hall.asks(&["kill", fork, "--changes", "discard"]);
    }
    hall.asks(&["kill", "s", "--changes", "keep"]);
    assert_eq!(site.read("file"), "one\ntwo\nafter\n", "{tier}");
    site.call(&["trace", "verify", "latest"]).exits(0);
    hall.asks(&["snapshots", "--rm", &format!("of-{tier}")]);
    fs::remove_file(site.work().join("file")).unwrap();
    fs::remove_file(site.work().join("new")).unwrap();
}

#[test]
fn every_tier_runs_commands_and_keeps_sessions() {
    let site = site();
    for tier in TIERS {
        runs(&site, tier);
        stays(&site, tier);
    }
}

/// What runs in a machine is kept with it: a snapshot is begun with where it was, and no two copies are the same.
#[test]
fn a_machine_is_kept_with_all_that_runs_in_it() {
    let site = site();
    let hall = Hall(&site);
    hall.create(&["--name", "m", "--isolation", "microvm"]);
    hall.does("m", "(i=0; while :; do i=$((i+1)); echo $i >/tmp/count; sleep 0.2; done) >/dev/null 2>&1 & echo $! >/tmp/pid");
    let count = |session: &str| hall.does(session, "cat /tmp/count").trim().parse::<u64>().unwrap_or(0);
    eventually("it counts", || (count("m") > 2).then_some(()));
    hall.asks(&["snapshot", "m", "counting"]);
    let later = count("m");
    eventually("the machine itself goes on", || (count("m") > later).then_some(()));
    let forked = hall.call(&["fork", "m", "--count", "2"]).exits(0).out();
    let mut all: Vec<String> = forked.split_whitespace().map(str::to_owned).collect();
    all.push(hall.create(&["--from", "counting", "--isolation", "microvm"]));
    all.push("m".into());
    let mut seen = Vec::new();
    for session in &all {
        hall.does(session, "kill -0 $(cat /tmp/pid)");
        let before = count(session);
        eventually("it counts on", || (count(session) > before).then_some(()));
        seen.push(hall.does(session, "cat /etc/machine-id; hostname; head -c 16 /dev/urandom | od -An -tx1"));
    }
    for part in 0..3 {
        let mut parts: Vec<&str> = seen.iter().map(|said| said.lines().nth(part).unwrap()).collect();
        parts.sort_unstable();
        parts.dedup();
        assert_eq!(parts.len(), all.len(), "each has its own: {seen:?}");
    }
    // One that is damaged is named, and nothing begins with it.
    for session in &all {
        hall.asks(&["kill", session, "--changes", "discard"]);
    }
    let kept = fs::read_dir(site.state().join("frozen")).unwrap().next().unwrap().unwrap().path();
    let ram = kept.join("upper/ram");
    let mut bytes = fs::read(&ram).unwrap();
    let at = bytes.iter().position(|byte| *byte != 0).unwrap();
    bytes[at] ^= 1;
    fs::write(&ram, bytes).unwrap();
    let done = hall.creating(&["--from", "counting"]).done();
    assert!(done.code() != 0 && done.err().contains("damaged"), "{}", done.err());
    hall.asks(&["snapshots", "--rm", "counting"]);
}

/// What leaves a machine meets the same policy, and carries the same credentials.
#[test]
fn what_leaves_a_machine_is_decided_as_elsewhere() {
    staged_once(|stage| {
        let get = |before: &str, url: &str| {
            format!("{before} curl -sS --fail -m 60 -H \"Authorization: Bearer $KEY\" {url}\n")
        };
        let direct = "env -u http_proxy -u HTTP_PROXY -u https_proxy -u HTTPS_PROXY";
        let script = [
            "set -e\n".to_owned(),
            get("", "https://api.corp.example/ok"),
            get(direct, "https://api.corp.example/ok"),
            get(direct, "http://plain.corp.example/ok"),
            "case $KEY in *live*) echo placeholder;; esac\n".to_owned(),
            format!("{direct} curl -sS -m 60 -o /dev/null -w '%{{http_code}}\\n' http://192.0.2.7:8081/\n"),
        ];
        let done = stage.sh(&script.concat()).with(&["--isolation", "microvm"]).exits(0);
        let out = done.out();
        assert_eq!(out.matches("\"credential\": true").count(), 3, "{out} {}", done.err());
        assert!(!out.contains(&stage.real) && out.ends_with("403\n"), "{out}");
        stage.site.call(&["trace", "verify", "latest"]).exits(0);
    });
}

/// Ten thousand files, changed in every way: the tree on the host is the same, whichever tier changed it.
#[test]
fn a_large_repository_comes_out_the_same() {
    let site = site();
    let script = "for d in $(seq 0 99); do cd $d; rm 0; echo more >>1; mv 2 two; mkdir deep; echo x >deep/x; chmod 700 3; \
                  ln 4 four; ln -s 5 five; : >6; cd ..; done; rm -r 7; mkdir 7; echo again >7/8";
    let mut trees = Vec::new();
    for tier in TIERS {
        for dir in 0..100 {
            for file in 0..100 {
                site.write(format!("{dir}/{file}"), format!("{dir} {file}\n"));
            }
        }
        sh(&site, tier, script).with(&["--changes", "keep"]).exits(0);
        let list = "find . -printf '%P %y %m %s %n %l\\n' | sort; find . -type f -exec sha256sum {} + | sort";
        let listed = std::process::Command::new("sh").args(["-c", list]).current_dir(site.work()).output();
        trees.push(String::from_utf8(listed.unwrap().stdout).unwrap());
        for dir in 0..100 {
            fs::remove_dir_all(site.work().join(dir.to_string())).unwrap();
        }
    }
    assert!(trees[0].lines().count() > 19_000, "{}", trees[0].lines().count());
    let differ = trees[0].lines().zip(trees[1].lines()).find(|(one, other)| one != other);
    assert_eq!(differ, None, "the same files, one by one");
    assert_eq!(trees[0].len(), trees[1].len());
}

/// A machine that waits for its session is given to the next, once, and is as one that was made for it.
#[test]
fn a_prepared_machine_is_given_out_once() {
    let site = site();
    let hall = Hall(&site);
    let flags = ["--isolation", "microvm"];
    site.call(&["pool", "set", "1"]).exits(0);
    let first = hall.create(&flags);
    let pool =
        || -> Value { serde_json::from_str(&site.call(&["pool", "ls", "--json"]).exits(0).out()).unwrap() };
    let ready = || {
        let pool = pool();
        let kinds = pool["kinds"].as_array().unwrap().clone();
        kinds.iter().any(|kind| kind["tier"] == "microvm" && kind["ready"] == 1).then_some(())
    };
    eventually("a machine to be ready", ready);
    let claimed = pool()["claimed"].as_u64().unwrap();
    let second = hall.create(&flags);
    assert_eq!(pool()["claimed"].as_u64().unwrap(), claimed + 1);
    let of = |session: &str| hall.does(session, "cat /etc/machine-id; ls; echo own >own");
    assert_ne!(of(&first).lines().next(), of(&second).lines().next());
    let named = |session: &str| hall.does(session, "uname -n");
    assert_ne!(named(&first), named(&second));
    // Nothing is left of what it has rehearsed.
    let shows = |session: &str| {
        hall.does(
            session,
            "ls -A /tmp /dev/shm ~; cut -d' ' -f2,3 /proc/mounts | sort; id; ls /proc | grep -c '^[0-9]'",
        )
    };
    assert_eq!(shows(&first), shows(&second));
    // Another one is another machine, however alike they were: its name, its numbers, its time. It sees what is in the work
    // dir by now, and nothing of those before it.
    eventually("another machine to be ready", ready);
    site.write("later", "later\n");
    let third = hall.create(&flags);
    assert_eq!(pool()["claimed"].as_u64().unwrap(), claimed + 2);
    assert_eq!(hall.does(&third, "cat later; ls"), "later\nlater\n");
    let drawn = |session: &str| {
        hall.does(
            session,
            "cat /etc/machine-id; uname -n; od -An -tx1 -N16 /dev/urandom; cat /proc/sys/kernel/random/uuid",
        )
    };
    let all: Vec<String> = [&first, &second, &third].into_iter().map(|session| drawn(session)).collect();
    let mut each: Vec<&str> = all.iter().flat_map(|one| one.lines()).collect();
    let count = each.len();
    each.sort_unstable();
    each.dedup();
    assert_eq!((count, each.len()), (12, 12), "{all:?}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let told: u64 = hall.does(&third, "date +%s").trim().parse().unwrap();
    assert!(now.abs_diff(told) < 60, "the clock is set: {told} and not {now}");
    for session in [&first, &second, &third] {
        hall.asks(&["kill", session, "--changes", "discard"]);
    }
    site.call(&["pool", "set", "0"]).exits(0);
}
