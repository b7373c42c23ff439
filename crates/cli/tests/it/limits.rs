//! Limits hold, and what was reached is told.

use crate::live::Hall;
use crate::{each, site};
use cofferdam_testkit::{Mode, Site, eventually, needs_root, processes_with};
use serde_json::Value;

fn hit(site: &Site, limit: &str) -> Option<Value> {
    site.bodies("limit").into_iter().find(|body| body["limit"] == limit)
}

#[test]
fn time_runs_out() {
    each(|site| {
        let done = site.run(&["sleep", "1000"]).with(&["--timeout", "1s"]).exits(124);
        assert!(done.err().contains("time limit"), "{}", done.err());
        assert!(hit(site, "timeout").is_some());
        assert_eq!(site.bodies("session.ended")[0]["exit"], "timed-out");
        // Nothing that it ignores helps a command.
        let script = "trap '' TERM INT HUP; while :; do sleep 1; done";
        site.sh(script).with(&["--timeout", "300ms"]).exits(124);
    });
}

#[test]
fn a_fork_bomb_ends() {
    const BOMB: &str = "import os, time\nrefused = made = 0\nfor _ in range(10000):\n\
        \x20   try: pid = os.fork()\n    except OSError: refused += 1; continue\n\
        \x20   if pid == 0: time.sleep(600); os._exit(0)\n    made += 1\nprint(made, refused)";
    each(|site| {
        let done = site.run(&["python3", "-c", BOMB, "fork-bomb-mark"]).with(&["--pids", "64"]).exits(0);
        let counts: Vec<u32> = done.out().split_whitespace().map(|n| n.parse().unwrap()).collect();
        assert!(counts[0] < 64 && counts[1] > 9_900, "{counts:?}");
        assert!(processes_with(site.root().to_str().unwrap()).is_empty());
        if site.mode == Mode::Root {
            let told = hit(site, "pids").expect("the limit is recorded");
            assert_eq!(told["allowed"], 64, "{told}");
            assert!(done.err().contains("limit of 64 processes"), "{}", done.err());
        }
    });
}

/// One that replaces itself faster than it could be counted.
#[test]
fn a_fork_bomb_of_a_shell_ends_with_its_time() {
    each(|site| {
        let bomb = "b() { b | b & }; b; sleep 1000";
        site.run(&["bash", "-c", bomb]).with(&["--pids", "64", "--timeout", "2s"]).exits(124);
        site.run(&["true"]).exits(0);
    });
}

#[test]
fn a_memory_hog_ends() {
    const HOG: &str = "hog = bytearray(500 << 20)\nprint(len(hog))";
    if !needs_root("a control group of memory") {
        return;
    }
    let site = site();
    let done = site.run(&["python3", "-c", HOG]).with(&["--memory", "64M"]).exits(137);
    assert!(done.err().contains("memory limit 64 MiB"), "{}", done.err());
    let told = hit(&site, "memory").expect("the limit is recorded");
    assert_eq!(told["allowed"].to_string().trim_matches('"'), (64 << 20).to_string(), "{told}");
    // Files in memory count as well: a sandbox must not grow by its temporary files.
    let done = site.sh("head -c 300000000 /dev/zero > /tmp/big").with(&["--memory", "64M"]).done();
    assert_ne!(done.code(), 0, "{}", done.err());
    assert_eq!(site.run(&["python3", "-c", HOG]).exits(0).out(), "524288000\n", "the control");
}

/// A plain user may have no control group: then a demand is refused, unless a weaker limit is accepted.
#[test]
fn a_memory_limit_is_held_weakened_by_consent_or_refused() {
    const HOG: &str = "hog = bytearray(500 << 20)\nprint(len(hog))";
    each(|site| {
        let strict = site.run(&["python3", "-c", HOG]).with(&["--memory", "200M"]).done();
        assert!([125, 137].contains(&strict.code()), "{} {}", strict.code(), strict.err());
        assert!(strict.code() != 125 || strict.err().contains("--accept rlimits"), "{}", strict.err());
        let flags = ["--memory", "200M", "--accept", "rlimits"];
        let weaker = site.run(&["python3", "-c", HOG]).with(&flags).done();
        assert!([1, 137].contains(&weaker.code()), "{} {}", weaker.code(), weaker.err());
        assert!(weaker.code() != 1 || weaker.err().contains("MemoryError"), "{}", weaker.err());
    });
}

#[test]
fn a_disk_limit_ends_writing() {
    each(|site| {
        for place in ["big", "/tmp/big", "/dev/shm/big"] {
            let script = format!("echo kept > small; head -c 100000000 /dev/zero > {place}");
            let done = site.sh(&script).with(&["--disk", "8M", "--changes", "discard"]).done();
            assert!(done.code() != 0 && done.err().contains("No space left"), "{place}: {}", done.err());
        }
        let done =
            site.sh("head -c 100000000 /dev/zero > big").with(&["--disk", "8M", "--changes", "discard"]);
        assert!(done.done().err().contains("full: disk limit 8 MiB"));
        assert_eq!(hit(site, "disk").unwrap()["allowed"], 8 << 20);
        site.sh("echo kept > small").with(&["--disk", "8M"]).exits(0);
        assert!(hit(site, "disk").is_none());
        assert_eq!(site.read("small"), "kept\n");
        site.sh("head -c 20000000 /dev/zero > big").exits(0);
    });
}

#[test]
fn only_so_many_files_can_be_made() {
    each(|site| {
        for place in [".", "/tmp", "/dev/shm"] {
            let script =
                format!("cd {place}; n=0; while [ $n -lt 2000 ]; do n=$((n+1)); : > f$n || exit 9; done");
            let done = site.sh(&script).with(&["--inodes", "1000", "--changes", "discard"]).done();
            assert!(done.code() != 0 && done.err().contains("No space left"), "{place}: {}", done.err());
            assert!(done.err().contains("limit of 1000 files and directories"), "{place}: {}", done.err());
            assert!(hit(site, "inodes").is_some());
            let fewer = script.replace("2000", "900");
            site.sh(&fewer).with(&["--inodes", "1000", "--changes", "discard"]).exits(0);
        }
        // Exactly so many, whatever the sandbox itself has there: the last of them is made, and none after it.
        const COUNT: &str = "n=0; while true > f$n; do n=$((n + 1)); done 2> /dev/null; echo $n";
        for place in [".", "/tmp", "/dev/shm", "$HOME"] {
            for most in ["1", "100", "1000"] {
                let script = format!("cd {place}; {COUNT}");
                let made = site.sh(&script).with(&["--inodes", most, "--changes", "discard"]).done().out();
                assert_eq!(made.trim(), most, "{place}");
            }
        }
        let hall = crate::live::Hall(site);
        let id = hall.create(&["--inodes", "100"]);
        assert_eq!(hall.exec(&id, &format!("cd /tmp; {COUNT}")).done().out(), "100\n");
        hall.exec(&id, "cd /tmp; rm f*; mkdir d; cd d; : > a; : > b").exits(0);
        assert_eq!(hall.exec(&id, COUNT).done().out(), "97\n", "what is there counts, wherever it is");
        hall.call(&["kill", &id, "--changes", "discard"]).exits(0);
        // In one that was prepared for nobody, where directories that lead to the work dir are made last.
        site.call(&["pool", "set", "1"]).exits(0);
        for most in ["1", "20"] {
            let ready = || site.call(&["pool", "ls", "--json"]).exits(0).out().contains("\"ready\": 1");
            eventually("one that is prepared", || ready().then_some(()));
            let id = hall.create(&["--inodes", most]);
            assert_eq!(hall.exec(&id, &format!("cd /tmp; {COUNT}")).done().out().trim(), most);
            hall.call(&["kill", &id, "--changes", "discard"]).exits(0);
        }
    });
}

/// As the kernel has it; a weight that cannot be had is refused.
#[test]
fn processors_are_shared_by_weight() {
    each(|site| {
        let run = |share: &str| site.run(&["true"]).with(&["--cpu-share", share]);
        if site.mode != Mode::Root {
            assert!(run("10").exits(125).err().contains("cpu"), "nobody holds it here");
            return;
        }
        for (share, told) in [("10", "a share of 10 beside others' 100"), ("1000", "a share of 1000")] {
            run(share).exits(0);
            let report = &site.bodies("enforcement")[0];
            let controls = report["controls"].as_array().unwrap();
            let line = controls.iter().find(|control| control["name"] == "cgroup.cpu").unwrap();
            assert_eq!(line["state"], "enforced", "{line}");
            assert!(line.to_string().contains(told), "{line}");
        }
        assert!(run("0").exits(125).err().contains("limits.share"));
    });
}

#[test]
fn endless_output_ends() {
    each(|site| {
        let done = site.run(&["yes"]).with(&["--output", "1M"]).exits(137);
        assert!(done.stdout.len() < 16 << 20, "{}", done.stdout.len());
        assert!(done.err().contains("output limit"), "{}", done.err());
        assert!(hit(site, "output").is_some());
        let out = site.sh("head -c 500000 /dev/zero").with(&["--output", "1M"]).exits(0).stdout;
        assert_eq!(out.len(), 500_000);
    });
}

#[test]
fn open_files_are_limited() {
    each(|site| {
        let script = "import os\nopened = []\ntry:\n    while True: opened.append(os.dup(0))\nexcept OSError: print(len(opened) + 3 <= 100)";
        assert_eq!(site.run(&["python3", "-c", script]).with(&["--files", "100"]).exits(0).out(), "True\n");
    });
}

#[test]
fn limits_stand_in_the_report() {
    if !needs_root("control groups") {
        return;
    }
    let site = site();
    site.run(&["true"]).with(&["--memory", "128M", "--pids", "99", "--cpu", "0.5", "--disk", "16M"]).exits(0);
    let report = &site.bodies("enforcement")[0];
    let controls = report["controls"].as_array().unwrap();
    for (name, detail) in [
        ("cgroup.memory", "128 MiB"),
        ("cgroup.pids", "99"),
        ("cgroup.cpu", "0.5 cores"),
        ("limit.disk", "16 MiB"),
    ] {
        let line = controls.iter().find(|control| control["name"] == name).unwrap();
        assert_eq!(line["state"], "enforced", "{line}");
        assert!(line["detail"].as_str().unwrap().starts_with(detail), "{line}");
    }
}

/// In a session that stays, who waits for a command hears at its end what stopped it, and once.
#[test]
fn a_command_of_a_session_that_stays_is_told_which_limit_it_reached() {
    each(|site| {
        let hall = Hall(site);
        let group: &[&str] = if hall.can_pause() { &["--memory", "64M", "--pids", "40"] } else { &[] };
        let id = hall.create(&[&["--disk", "8M", "--changes", "discard"], group].concat());
        if hall.can_pause() {
            let hog = ["exec", &id, "--", "python3", "-c", "x = bytearray(200 << 20)"];
            let done = hall.call(&hog).exits(137).err();
            assert!(done.contains("killed: memory limit 64 MiB"), "{done}");
            assert_eq!(hall.exec(&id, "false").exits(1).err(), "", "what is not its doing is not told to it");
        }
        if site.mode != Mode::Range {
            let done = hall.exec(&id, "head -c 20000000 /dev/zero > big").done().err();
            assert!(done.contains("full: disk limit 8 MiB"), "{done}");
            hall.exec(&id, "rm big").exits(0);
        }
        if hall.can_pause() {
            let bomb = "n=0; while [ $n -lt 60 ]; do n=$((n+1)); sleep 1000 & done; wait";
            assert!(hall.exec(&id, bomb).done().err().contains("limit of 40 processes"));
        }
        let told = |limit: &str| site.bodies("limit").iter().filter(|body| body["limit"] == limit).count();
        let before = ["memory", "pids", "disk"].map(told);
        hall.asks(&["kill", &id]);
        assert_eq!(["memory", "pids", "disk"].map(told), before, "the end adds nothing");
        assert_eq!(before[0] > 0, hall.can_pause());
    });
}

/// Also where nobody has looked since: the command still runs when its session is ended.
#[test]
fn what_was_reached_just_before_the_end_is_on_record() {
    if !needs_root("a control group of processes") {
        return;
    }
    let site = site();
    let hall = Hall(&site);
    let id = hall.create(&["--pids", "40", "--changes", "discard"]);
    const BOMB: &str = "import os, time\nfor _ in range(60):\n\
        \x20   try: pid = os.fork()\n    except OSError: break\n\
        \x20   if pid == 0: time.sleep(600)\ntime.sleep(600)";
    let running = hall.call(&["exec", &id, "--", "python3", "-c", BOMB]).start();
    eventually("as many processes as there may be", || {
        (hall.show(&id)["usage"]["processes"].as_u64() >= Some(40)).then_some(())
    });
    hall.asks(&["kill", &id]);
    running.finish();
    assert_eq!(hit(&site, "pids").expect("the limit is recorded")["allowed"], 40);
}
