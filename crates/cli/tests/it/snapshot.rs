//! Snapshots and forks: files as they were, nothing copied, nothing left.

use crate::crash::nothing_is_left;
use crate::live::Hall;
use crate::site;
use crate::tx::{CHANGE, furnish};
use cofferdam_testkit::{Mode, Site, eventually, for_each_mode};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::time::Duration;

const DISK: &[&str] = &["--layer", "disk"];

/// Those that can have a layer on disk.
fn each(test: impl Fn(&Site)) {
    for_each_mode(crate::BINARY, |site| {
        if site.mode != Mode::Range {
            test(site);
        }
    });
}

fn frozen(site: &Site) -> usize {
    fs::read_dir(site.state().join("frozen")).map_or(0, Iterator::count)
}

#[test]
fn a_snapshot_is_gone_back_to_and_outlives_its_session() {
    each(|site| {
        furnish(site);
        let hall = Hall(site);
        hall.create(&[DISK, &["--name", "s"]].concat());
        hall.does("s", "echo session >> file; rm gone; chmod 750 dir");
        let before = hall.print("s");
        hall.asks(&["snapshot", "s", "good"]);
        assert_eq!(hall.print("s"), before, "it is still there after");
        hall.does("s", CHANGE);
        let between = hall.print("s");
        hall.asks(&["snapshot", "s", "later"]);
        hall.does("s", "rm -r dir file; mkdir file");
        for (name, expected) in [("good", &before), ("later", &between), ("good", &before)] {
            hall.asks(&["restore", "s", name]);
            assert_eq!(&hall.print("s"), expected, "{name}");
            hall.does("s", "echo after >> file; mkdir -p dir/after");
        }
        hall.asks(&["kill", "s", "--changes", "discard"]);
        assert_eq!(frozen(site), 2);
        let listed: Value =
            serde_json::from_str(&hall.call(&["snapshots", "--json"]).exits(0).out()).unwrap();
        assert_eq!(listed[0]["name"], "good", "{listed}");
        hall.create(&["--name", "again", "--from", "good"]);
        assert_eq!(hall.print("again"), before);
        hall.does("again", "echo kept > kept");
        hall.asks(&["snapshots", "--rm", "good"]);
        hall.asks(&["snapshots", "--rm", "later"]);
        assert!(hall.print("again").contains("kept"));
        assert_eq!(frozen(site), 1, "what a session needs stays");
        hall.asks(&["kill", "again"]);
        assert_eq!(site.read("file"), "one\ntwo\nthree\nsession\n");
        assert!(!site.work().join("gone").exists() && site.work().join("kept").exists());
        assert_eq!(frozen(site), 0);
        nothing_is_left(site);
    });
}

#[test]
fn what_lies_in_several_layers_is_told_and_kept_as_one() {
    each(|site| {
        furnish(site);
        let hall = Hall(site);
        hall.create(&[DISK, &["--name", "s"]].concat());
        for (at, script) in [
            "echo 1 > made; echo 1 > twice; mkdir sub; echo 1 > sub/x; rm -r dir",
            "rm made; echo 2 >> twice; ln file linked; mkdir dir; echo 2 > dir/new",
            "rm -r sub; echo 3 > sub; mv named renamed; touch binary; chmod 000 dir",
        ]
        .iter()
        .enumerate()
        {
            hall.does("s", script);
            hall.asks(&["snapshot", "s", &format!("n{at}")]);
        }
        let found: Vec<String> = hall
            .diff("s")
            .iter()
            .map(|change| format!("{} {}", change["op"].as_str().unwrap(), change["path"].as_str().unwrap()))
            .collect();
        let expected = [
            "modified dir",
            "created dir/new",
            "deleted dir/inner",
            "modified file",
            "created linked",
            "renamed renamed",
            "created sub",
            "created twice",
        ];
        let mut sorted = (found.clone(), expected.map(str::to_owned).to_vec());
        sorted.0.sort();
        sorted.1.sort();
        assert_eq!(sorted.0, sorted.1, "{found:?}");
        hall.does("s", "test ! -r dir -o $(id -u) = 0; chmod 755 dir");
        hall.asks(&["commit", "s"]);
        assert_eq!(site.read("twice"), "1\n2\n");
        assert_eq!((site.read("sub").as_str(), site.read("dir/new").as_str()), ("3\n", "2\n"));
        assert!(!site.work().join("made").exists() && !site.work().join("dir/inner").exists());
        assert_eq!(hall.diff("s"), Vec::<Value>::new());
        // A snapshot is what it was, whatever was carried to the host since.
        hall.asks(&["restore", "s", "n0"]);
        assert_eq!(hall.does("s", "cat made twice sub/x"), "1\n1\n1\n");
        hall.asks(&["kill", "s", "--changes", "discard"]);
        nothing_is_left(site);
    });
}

#[test]
fn forks_begin_alike_and_go_their_own_ways() {
    each(|site| {
        furnish(site);
        let hall = Hall(site);
        hall.create(&[DISK, &["--name", "s", "--env", "WHO=me"]].concat());
        hall.does("s", CHANGE);
        let before = hall.print("s");
        let made = hall.call(&["fork", "s", "-n", "3"]).exits(0).out();
        let forks: Vec<&str> = made.lines().collect();
        assert_eq!((forks.len(), frozen(site)), (3, 1));
        for fork in &forks {
            assert_eq!(hall.print(fork), before);
            let own = site.state().join("layers").join(fork).join("upper");
            let content = fs::read_dir(own).unwrap().flatten().filter(|e| e.file_type().unwrap().is_file());
            assert_eq!(content.count(), 0, "nothing is copied");
            assert_eq!(hall.does(fork, "echo $WHO"), "me\n");
        }
        hall.does(forks[0], "echo zero > own; rm file");
        hall.does(forks[1], "echo one > own");
        hall.does("s", "echo parent > own");
        assert_eq!(hall.does(forks[2], "ls own 2> /dev/null; cat linked | tail -1"), "four\n");
        assert_eq!(hall.does(forks[1], "cat own; tail -1 file"), "one\nfour\n");
        // The parent goes first, and a fork of a fork has all of it.
        hall.asks(&["kill", "s", "--changes", "discard"]);
        let grandchild = hall.call(&["fork", forks[0]]).exits(0).out();
        let grandchild = grandchild.trim();
        assert_eq!(hall.does(grandchild, "cat own; tail -1 linked; ls file 2> /dev/null; :"), "zero\nfour\n");
        hall.asks(&["kill", forks[1]]);
        assert_eq!(site.read("own"), "one\n");
        // What another one has carried to the host meanwhile is a conflict like any other.
        let told = hall.call(&["kill", grandchild]).exits(0).err();
        assert!(told.contains("not kept: own"), "{told}");
        assert_eq!(site.read("own"), "one\n");
        for fork in [forks[0], forks[2]] {
            hall.asks(&["kill", fork, "--changes", "discard"]);
        }
        assert_eq!(frozen(site), 0);
        nothing_is_left(site);
    });
}

/// A change outside between the parent's beginning and the fork's is seen by who keeps the fork.
#[test]
fn a_conflict_is_dated_from_where_the_layers_began() {
    let site = site();
    furnish(&site);
    let hall = Hall(&site);
    hall.create(&[DISK, &["--name", "s"]].concat());
    hall.does("s", "echo inside >> file");
    site.write("file", "outside\n");
    let fork = hall.call(&["fork", "s"]).exits(0).out();
    hall.asks(&["kill", "s", "--changes", "discard"]);
    let told = hall.call(&["kill", fork.trim(), "--changes", "keep"]).exits(0).err();
    assert!(told.contains("not kept: file"), "{told}");
    assert_eq!(site.read("file"), "outside\n");
}

#[test]
fn what_cannot_be_had_is_said() {
    let site = site();
    let hall = Hall(&site);
    let refused = |words: &[&str], code: i32, part: &str| {
        let told = hall.call(words).exits(code).err();
        assert!(told.contains(part), "{words:?}: {told}");
    };
    hall.create(&[DISK, &["--name", "s"]].concat());
    refused(&["snapshot", "--processes", "s", "one"], 4, "criu");
    refused(&["snapshot", "s", "../x"], 2, "no name");
    refused(&["restore", "s", "none"], 2, "no snapshot `none`");
    refused(&["snapshots", "--rm", "../../keys"], 2, "no snapshot");
    refused(&["fork", "s", "-n", "0"], 2, "between 1 and 64");
    refused(&["fork", "s", "-n", "1000"], 2, "between 1 and 64");
    hall.asks(&["snapshot", "s", "one"]);
    refused(&["snapshot", "s", "one"], 2, "already");
    hall.asks(&["begin", "s"]);
    refused(&["snapshot", "s", "two"], 4, "transaction is open");
    hall.asks(&["rollback", "s"]);
    hall.call(&["exec", "-d", "s", "--", "sleep", "1000"]).exits(0);
    refused(&["snapshot", "s", "two"], 2, "exec 1 still runs");
    refused(&["fork", "s"], 2, "exec 1 still runs");
    let elsewhere = site.root().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    site.give(&elsewhere);
    hall.call(&["create", "--from", "one"]).with(&["--workdir", elsewhere.to_str().unwrap()]).exits(2);
}

/// A layer in memory is copied when it is frozen, and is told and kept with those beneath it as one.
#[test]
fn a_layer_in_memory_can_be_kept_too() {
    each(|site| {
        furnish(site);
        let hall = Hall(site);
        hall.create(&["--name", "s"]);
        hall.does("s", CHANGE);
        let before = hall.print("s");
        hall.asks(&["snapshot", "s", "one"]);
        assert_eq!(hall.print("s"), before);
        hall.does("s", "echo later > later; rm -rf dir");
        let fork = hall.call(&["fork", "s"]).exits(0).out().trim().to_owned();
        let after = hall.print("s");
        assert_eq!(hall.print(&fork), after);
        hall.asks(&["restore", "s", "one"]);
        assert_eq!(hall.print("s"), before);
        hall.asks(&["kill", "s", "--changes", "discard"]);
        hall.does(&fork, "echo fork > fork");
        let told = hall.call(&["diff", &fork, "--brief"]).exits(0).out();
        assert!(told.contains("fork") && told.contains("later"), "{told}");
        hall.asks(&["kill", &fork, "--changes", "keep"]);
        assert_eq!((site.read("later"), site.read("fork")), ("later\n".into(), "fork\n".into()));
        assert!(!site.work().join("dir").exists());
        hall.asks(&["snapshots", "--rm", "one"]);
        assert_eq!(frozen(site), 0);
        assert_eq!(site.remains(), Vec::<String>::new());
    });
}

/// Wherever the supervisor is killed, the next one finds whole snapshots and removes everything else.
#[test]
fn nothing_is_left_when_the_supervisor_is_killed_over_a_snapshot_or_a_fork() {
    each(|site| {
        let hall = Hall(site);
        for (at, moment) in [0, 1, 3, 5, 9, 20].into_iter().enumerate() {
            furnish(site);
            let id = hall.create(DISK);
            hall.does(&id, "for n in $(seq 50); do echo x > new$n; done");
            let name = format!("n{at}");
            let words: &[&str] =
                if at % 2 == 0 { &["snapshot", &id, &name] } else { &["fork", &id, "-n", "4"] };
            let asking = hall.call(words).start();
            std::thread::sleep(Duration::from_millis(moment));
            kill_process(hall.supervisor().unwrap(), Signal::KILL).unwrap();
            drop(asking.finish());
            // Who orders a fork and finds nobody starts another, which would wait for half a minute.
            if let Some(pid) = hall.supervisor() {
                let _ = kill_process(pid, Signal::KILL);
            }
            eventually("it to be gone", || hall.supervisor().is_none().then_some(()));
            let listed: Value =
                serde_json::from_str(&hall.call(&["snapshots", "--json"]).exits(0).out()).unwrap();
            let whole = listed.as_array().unwrap().iter().any(|one| one["name"] == name.as_str());
            if whole {
                let again = hall.create(&["--from", &name]);
                assert_eq!(hall.does(&again, "ls new* | wc -l"), "50\n");
                hall.asks(&["kill", &again, "--changes", "discard"]);
                hall.asks(&["snapshots", "--rm", &name]);
            }
            let lost: Value = serde_json::from_str(&hall.call(&["ls", "--json"]).exits(0).out()).unwrap();
            for info in lost.as_array().unwrap() {
                hall.asks(&["kill", info["session"].as_str().unwrap()]);
            }
            // Another start.
            let after = hall.create(&[]);
            hall.asks(&["kill", &after]);
            assert_eq!(frozen(site), 0, "after {moment} ms");
            nothing_is_left(site);
        }
    });
}
