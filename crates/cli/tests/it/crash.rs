//! The supervisor killed at any moment, many sessions at once, a disk that is full: what is left is sound, and
//! nothing else is left.

use crate::{each, site};
use cofferdam_testkit::{
    Mode, Site, eventually, finish, groups_of, mounts_below, needs_root, processes_with, program,
};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

/// A word that stands on the command line of every process of a session.
pub(crate) fn mark(site: &Site) -> String {
    format!("mark-{}", site.root().file_name().unwrap().to_string_lossy())
}

/// Processes in groups and sessions of their own, so that only the sandbox itself holds them together.
pub(crate) fn tree(mark: &str) -> String {
    format!(
        "for i in 1 2 3; do setsid sh -c ': {mark}; sleep 1000; :' & (sh -c ': {mark}; sleep 1000; :' &) ; done; \
         echo x > file; : {mark}; wait; sleep 1000"
    )
}

/// A layer on disk is what could be left; only a range of users cannot have one.
fn layer(site: &Site) -> &'static [&'static str] {
    if site.mode == Mode::Range { &[] } else { &["--layer", "disk"] }
}

#[track_caller]
pub(crate) fn nothing_is_left(site: &Site) {
    // A mark without a line may be one that is just being made, by a session that owns nothing yet.
    let is_blank =
        |name: &str| fs::metadata(site.state().join(name)).is_ok_and(|m| m.is_file() && m.len() == 0);
    let remains: Vec<String> = site.remains().into_iter().filter(|name| !is_blank(name)).collect();
    assert_eq!(remains, Vec::<String>::new());
    for id in site.traces() {
        assert_eq!(groups_of(&id), Vec::<std::path::PathBuf>::new());
    }
    assert_eq!(mounts_below(site.root()), Vec::<String>::new());
}

#[test]
fn nothing_is_left_after_kill() {
    each(|site| {
        let mark = mark(site);
        for moment in [0, 3, 6, 10, 15, 25, 40, 70, 150] {
            let running = site.sh(&tree(&mark)).with(layer(site)).start();
            std::thread::sleep(Duration::from_millis(moment));
            running.signal(Signal::KILL);
            running.finish();
            eventually("every process of the session to be gone", || {
                processes_with(&mark).is_empty().then_some(())
            });
        }
        assert_eq!(fs::read_dir(site.work()).unwrap().count(), 0, "nothing of it was kept");
        site.run(&["true"]).exits(0);
        nothing_is_left(site);
    });
}

/// A child is born while the command line is still read. One that is refused, or is for another tier, leaves none.
#[test]
fn nothing_is_left_of_a_command_line_that_is_refused() {
    each(|site| {
        let mark = mark(site);
        for words in [&["--no-such-flag"][..], &["--isolation", "gvisor"], &["--workdir", "/no/such/place"]] {
            site.sh(&tree(&mark)).with(words).exits(125);
            assert_eq!(processes_with(&mark), Vec::<String>::new(), "{words:?}");
        }
        assert_eq!(site.traces().len(), 0, "no session was begun");
    });
}

/// The same once everything is surely up.
#[test]
fn nothing_is_left_after_kill_of_a_session_that_stands() {
    each(|site| {
        let mark = mark(site);
        let running = site.sh(&tree(&mark)).with(layer(site)).start();
        eventually("the tree of processes", || (processes_with(&mark).len() > 6).then_some(()));
        running.signal(Signal::KILL);
        running.finish();
        eventually("every process of the session to be gone", || {
            processes_with(&mark).is_empty().then_some(())
        });
        site.run(&["true"]).exits(0);
        nothing_is_left(site);
    });
}

#[test]
fn nothing_is_left_after_a_run() {
    each(|site| {
        let mark = mark(site);
        site.sh(&format!("(setsid sh -c ': {mark}; sleep 1000; :' &); echo x > file; exit 3")).exits(3);
        site.run(&["sleep", "1000"]).with(&["--timeout", "200ms"]).exits(124);
        site.run(&["no-such-program"]).exits(127);
        site.run(&["true"]).with(&["--isolation", "process", "--floor", "microvm"]).exits(125);
        assert_eq!(processes_with(&mark), Vec::<String>::new());
        nothing_is_left(site);
    });
}

#[test]
fn a_killed_run_leaves_a_sound_trace() {
    each(|site| {
        let running = site.sh("echo said; unshare -U true; exec sleep 1000").start();
        eventually("the refused call", || {
            let there = !site.traces().is_empty() && !site.bodies("blocked").is_empty();
            there.then_some(())
        });
        running.signal(Signal::KILL);
        running.finish();
        let found = site.call(&["trace", "verify", "latest"]).exits(3);
        assert!(found.out().starts_with("incomplete:"), "{}", found.out());
        let told: serde_json::Value =
            serde_json::from_str(&site.call(&["trace", "verify", "latest", "--json"]).exits(3).out())
                .unwrap();
        assert!(told["signed"].as_u64() >= Some(3), "{told}");
        assert!(site.call(&["trace", "ls"]).exits(0).out().contains("incomplete"));
        site.call(&["trace", "show", "latest"]).exits(0);
        site.call(&["trace", "export", "latest", "--format", "bundle", "-o", "half"]).exits(0);
        site.call(&["trace", "verify", "./half"]).exits(3);
    });
}

/// At whatever byte the writer is killed, what was written before is sound.
#[test]
fn a_trace_is_sound_whenever_its_writer_is_killed() {
    let site = site();
    let script = "i=0; while :; do unshare -U true; i=$((i+1)); done 2>/dev/null";
    for moment in [20, 35, 60, 110, 180] {
        let running = site.sh(script).start();
        std::thread::sleep(Duration::from_millis(moment));
        running.signal(Signal::KILL);
        running.finish();
    }
    for id in site.traces() {
        let found = site.call(&["trace", "verify", &id]).done();
        // Killed before the first signature, there is nothing yet that could be believed.
        let early = fs::read_to_string(site.events_file(&id)).unwrap_or_default().lines().count() < 4;
        assert!(found.code() == 3 || (early && found.code() != 0), "{id}: {}{}", found.out(), found.err());
    }
}

#[test]
fn many_sessions_at_once_do_not_disturb_each_other() {
    each(|site| {
        let running: Vec<_> =
            (0..20).map(|n| site.sh(&format!("echo {n} > file-{n}; sleep 0.1; exit {n}")).start()).collect();
        for (n, running) in running.into_iter().enumerate() {
            running.finish().exits(n as i32);
        }
        let ids = site.traces();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 20);
        for id in &ids {
            site.call(&["trace", "verify", id]).exits(0);
        }
        for n in 0..20 {
            assert_eq!(site.read(format!("file-{n}")), format!("{n}\n"));
        }
        let listed = site.call(&["trace", "ls", "--json"]).exits(0).out();
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(listed.as_array().unwrap().len(), 20);
        nothing_is_left(site);
    });
}

#[test]
fn a_first_use_by_many_at_once_makes_one_key() {
    each(|site| {
        let running: Vec<_> = (0..8).map(|_| site.run(&["true"]).start()).collect();
        running.into_iter().for_each(|running| drop(running.finish().exits(0)));
        let key = site.call(&["key", "show", "--json"]).exits(0).out();
        let key: serde_json::Value = serde_json::from_str(&key).unwrap();
        for id in site.traces() {
            let told = site.call(&["trace", "verify", &id, "--json"]).exits(0).out();
            assert!(told.contains(key["id"].as_str().unwrap()), "{told}");
        }
    });
}

/// A state directory on a file system of its own size, in a mount namespace that goes with the shell.
fn on_a_small_disk(site: &Site, size: &str, script: &str) -> cofferdam_testkit::Done {
    let unshare = program("unshare").expect("unshare is missing: apt-get install util-linux");
    let mut shell = Command::new(unshare);
    let state = site.state();
    let prepare = format!("mount -t tmpfs -o size={size},mode=700 none {}", state.display());
    shell.args(["--mount", "sh", "-c", &format!("{prepare} || exit 99; {script}")]);
    finish(shell.current_dir(site.work()).env("C", site.binary()).env("COFFERDAM_HOME", state))
}

#[test]
fn a_full_disk_fails_the_run() {
    if !needs_root("a small file system") {
        return;
    }
    let site = site();
    // The command fills the disk that its trace is on, and then has something to say.
    let script = "$C run --layer disk --changes discard -- sh -c 'head -c 50000000 /dev/zero > big; echo said; exit 0'; \
        echo code $?; $C trace verify latest; echo verify $?; $C trace show latest";
    let done = on_a_small_disk(&site, "3m", script).exits(0);
    assert!(done.out().contains("code 125"), "{}{}", done.out(), done.err());
    assert!(done.err().contains("trace could not be written"), "{}", done.err());
    // With the sandbox its layer goes, and then there may be room to say how it ended.
    let sound = ["verify 0", "verify 3"].iter().any(|line| done.out().contains(line));
    assert!(sound, "what was written is not lost: {}", done.out());
    assert!(!done.out().contains("verify 0") || done.out().contains("the run was ended"), "{}", done.out());
    // Full before it begins.
    let script =
        "head -c 5000000 /dev/zero > $COFFERDAM_HOME/fill 2>/dev/null; $C run -- echo ran; echo code $?";
    let done = on_a_small_disk(&site, "1m", script).exits(0);
    assert_eq!(done.out(), "code 125\n", "{}", done.err());
    assert!(!done.err().is_empty());
}

#[test]
fn a_full_disk_while_events_are_written_ends_the_command() {
    if !needs_root("a small file system") {
        return;
    }
    let site = site();
    let script = "$C run -- python3 -c 'import ctypes\nn = 0\nwhile True:\n    n += 1\n    ctypes.CDLL(None).syscall(250, n, n)'; \
        echo code $?; $C trace verify latest; echo verify $?";
    let done = on_a_small_disk(&site, "1m", script).exits(0);
    assert!(
        done.out().contains("code 125") && done.out().contains("verify 3"),
        "{}{}",
        done.out(),
        done.err()
    );
    assert!(done.err().contains("trace could not be written"), "{}", done.err());
}

/// A layer whose session is dead goes with the next start; what is no session's, and what is not ours, stays.
#[test]
fn a_dead_sessions_layer_is_removed_and_nothing_else() {
    let site = site();
    site.run(&["true"]).exits(0);
    let layers = site.state().join("layers");
    let (dead, foreign) = (layers.join(&site.traces()[0]), layers.join("not-a-session"));
    for dir in [&dead, &foreign] {
        fs::create_dir_all(dir.join("upper/deep")).unwrap();
        std::os::unix::fs::symlink(site.work(), dir.join("upper/link")).unwrap();
    }
    let precious = site.write("precious", "x");
    site.run(&["true"]).exits(0);
    assert!(!dead.exists() && foreign.exists() && precious.exists());
    fs::remove_dir_all(foreign).unwrap();
}
