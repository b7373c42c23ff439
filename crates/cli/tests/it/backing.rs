//! A limit on a layer on disk: a file system in a file, which holds to the byte and to the file, and of which nothing is
//! left.

use crate::crash::nothing_is_left;
use crate::live::Hall;
use crate::tx::{CHANGE, furnish};
use crate::{each, site};
use cofferdam_testkit::{Mode, Site, eventually, finish, needs_root, program};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

const LIMITED: &[&str] = &["--layer", "disk", "--disk", "8M"];
const DISCARD: &[&str] = &["--changes", "discard"];

fn with(more: &[&'static str]) -> Vec<&'static str> {
    [LIMITED, more].concat()
}

/// Loop devices with a file of this place behind them.
fn attached(site: &Site) -> Vec<String> {
    let behind = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("loop/backing_file")).ok();
    let place = site.root().to_str().unwrap().to_owned();
    let devices = fs::read_dir("/sys/block").unwrap().flatten();
    devices.filter_map(behind).filter(|file| file.starts_with(&place)).collect()
}

/// Devices let go by themselves, when the last process of a sandbox has ended.
fn all_is_gone(site: &Site) {
    eventually("every device to let go", || attached(site).is_empty().then_some(()));
    nothing_is_left(site);
}

/// Never more; less by the blocks that say where a file in many pieces lies.
fn is_nearly(size: &str, limit: u64) -> bool {
    let size: u64 = size.parse().unwrap();
    size <= limit && size + (64 << 10) > limit
}

fn limit_line(site: &Site) -> Value {
    let report = &site.bodies("enforcement")[0];
    let controls = report["controls"].as_array().unwrap();
    controls.iter().find(|control| control["name"] == "limit.disk").unwrap().clone()
}

fn hit(site: &Site, limit: &str) -> Option<Value> {
    site.bodies("limit").into_iter().find(|body| body["limit"] == limit)
}

#[test]
fn bytes_of_a_layer_on_disk_are_limited() {
    if !needs_root("a loop device") {
        return;
    }
    let site = site();
    for place in [".", "/tmp", "/dev/shm", "$HOME"] {
        let script = format!("cd {place}; head -c 100000000 /dev/zero > big; stat -c %s big");
        let done = site.sh(&script).with(&with(DISCARD)).exits(0);
        assert!(is_nearly(done.out().trim(), 8 << 20), "{place}: {}{}", done.out(), done.err());
        assert!(done.err().contains("No space left"), "{place}: {}", done.err());
        assert!(done.err().contains("full: disk limit 8 MiB"), "{place}: {}", done.err());
        assert_eq!(hit(&site, "disk").unwrap()["allowed"], 8 << 20);
    }
    // What is written anywhere counts, and what is removed counts no more.
    let script = "head -c 6M /dev/zero > /tmp/a; head -c 9M /dev/zero > b; stat -c %s b; rm /tmp/a; head -c 5M /dev/zero > c; stat -c %s c";
    let done = site.sh(script).with(&with(DISCARD)).done();
    let sizes: Vec<String> = done.out().lines().map(str::to_owned).collect();
    assert!(is_nearly(&sizes[0], 2 << 20) && sizes[1] == (5 << 20).to_string(), "{sizes:?} {}", done.err());
    // Less than that is kept, and told of as it is in memory.
    site.sh("echo kept > small").with(LIMITED).with(&["--require", "limit.disk"]).exits(0);
    assert_eq!(site.read("small"), "kept\n");
    assert!(hit(&site, "disk").is_none());
    let on_disk = limit_line(&site);
    assert_eq!(
        (&on_disk["state"], &on_disk["value"]["size"]),
        (&"enforced".into(), &"8192k".into()),
        "{on_disk}"
    );
    assert!(on_disk["detail"].as_str().unwrap().starts_with("8 MiB"), "{on_disk}");
    site.run(&["true"]).with(&["--disk", "8M"]).exits(0);
    assert_eq!(limit_line(&site)["value"]["size"], on_disk["value"]["size"], "the same form");
    // The control.
    site.sh("head -c 20000000 /dev/zero > big").with(&["--layer", "disk"]).exits(0);
    assert_eq!(site.read("big").len(), 20_000_000);
    all_is_gone(&site);
}

#[test]
fn files_of_a_layer_on_disk_are_limited() {
    if !needs_root("a loop device") {
        return;
    }
    let site = site();
    const COUNT: &str = "n=0; while true > f$n; do n=$((n + 1)); done 2> /dev/null; echo $n";
    for place in [".", "/tmp", "$HOME"] {
        for most in ["1", "100", "1000"] {
            let flags = ["--layer", "disk", "--inodes", most, "--disk", "64M"];
            let done = site.sh(&format!("cd {place}; {COUNT}")).with(&flags).with(DISCARD).done();
            assert_eq!(done.out().trim(), most, "{place}: {}", done.err());
            assert!(done.err().contains(&format!("limit of {most} files and directories")), "{}", done.err());
        }
    }
    // Of no size that was said, it is as large as there is room.
    let flags = ["--layer", "disk", "--inodes", "50", "--changes", "discard"];
    assert_eq!(site.sh(COUNT).with(&flags).done().out(), "50\n");
    assert_eq!(limit_line(&site)["value"]["inodes"], "50");
    site.sh("head -c 20000000 /dev/zero > big").with(&flags).exits(0);
    // The control.
    let many = "n=0; while [ $n -lt 1200 ]; do n=$((n + 1)); : > f$n || exit 9; done";
    site.sh(many).with(&["--layer", "disk", "--changes", "discard"]).exits(0);
    all_is_gone(&site);
}

/// Everything that an overlay treats in its own way arrives as it does from memory.
#[test]
fn changes_are_kept_from_a_layer_with_a_limit() {
    if !needs_root("a loop device") {
        return;
    }
    let trees = [&["--changes", "keep"][..], LIMITED].map(|flags| {
        let site = site();
        furnish(&site);
        site.sh(CHANGE).with(flags).exits(0);
        let list = "find . -printf '%p %y %m %s %n %l %U\\n' | grep -v '^. ' | sort; md5sum $(find . -type f | sort); stat -c %Y old";
        let mut look = site.command("sh");
        look.args(["-c", list]);
        let told = finish(look.current_dir(site.work())).exits(0).out();
        all_is_gone(&site);
        told
    });
    assert_eq!(trees[0], trees[1]);
    let site = site();
    furnish(&site);
    site.sh(CHANGE).with(&with(DISCARD)).exits(0);
    assert!(site.work().join("gone").exists() && !site.work().join("renamed").exists());
    // What was changed outside meanwhile is not overwritten, and the inside's version is kept.
    let hall = Hall(&site);
    let id = hall.create(LIMITED);
    hall.does(&id, "echo inside > file; echo more > other");
    site.write("file", "outside\n");
    let told = hall.call(&["kill", &id]).exits(0).err();
    assert!(told.contains("file"), "{told}");
    assert_eq!((site.read("file"), site.read("other")), ("outside\n".into(), "more\n".into()));
    let kept = site.call(&["conflict", "ls"]).exits(0).out();
    assert!(kept.contains("1 of"), "{kept}");
    all_is_gone(&site);
}

#[test]
fn transactions_within_a_limit() {
    if !needs_root("a loop device") {
        return;
    }
    let site = site();
    furnish(&site);
    let hall = Hall(&site);
    hall.create(&with(&["--name", "t"]));
    let before = hall.print("t");
    hall.asks(&["begin", "t"]);
    hall.does("t", CHANGE);
    let outer = hall.print("t");
    hall.asks(&["begin", "t"]);
    hall.does("t", "rm -rf dir; echo inner > file");
    assert!(!hall.diff("t").is_empty());
    hall.call(&["rollback", "t"]).exits(0);
    assert_eq!(hall.print("t"), outer);
    hall.asks(&["begin", "t"]);
    hall.does("t", "echo inner > inner");
    hall.call(&["commit", "t"]).exits(0);
    assert_eq!(hall.does("t", "cat inner"), "inner\n");
    hall.call(&["rollback", "t"]).exits(0);
    assert_eq!(hall.print("t"), before, "the exact tree");
    // The limit is one for all of them, and told to whom it concerns.
    hall.asks(&["begin", "t"]);
    let done = hall.exec("t", "head -c 20000000 /dev/zero > big").done();
    assert!(done.code() != 0 && done.err().contains("full: disk limit 8 MiB"), "{}", done.err());
    hall.call(&["rollback", "t"]).exits(0);
    hall.does("t", "head -c 7M /dev/zero > big");
    let written = hall.show("t")["usage"]["disk"].as_u64().unwrap();
    assert!((7 << 20..8 << 20).contains(&written), "{written}");
    hall.does("t", "rm big");
    hall.does("t", CHANGE);
    hall.call(&["commit", "t"]).exits(0);
    assert_eq!(site.read("file"), "one\ntwo\nthree\nfour\n");
    hall.does("t", "head -c 7M /dev/zero > big; rm big; echo again > again");
    hall.asks(&["pause", "t"]);
    hall.asks(&["resume", "t"]);
    hall.asks(&["kill", "t"]);
    assert_eq!(site.read("again"), "again\n");
    all_is_gone(&site);
}

#[test]
fn snapshots_and_forks_of_a_layer_with_a_limit() {
    if !needs_root("a loop device") {
        return;
    }
    let site = site();
    furnish(&site);
    let hall = Hall(&site);
    hall.create(&with(&["--name", "s"]));
    hall.does("s", CHANGE);
    let before = hall.print("s");
    hall.asks(&["snapshot", "s", "good"]);
    assert_eq!(hall.print("s"), before);
    hall.does("s", "echo later > later; rm -rf dir");
    let after = hall.print("s");
    let forks = hall.call(&["fork", "s", "-n", "2"]).exits(0).out();
    for fork in forks.lines() {
        assert_eq!(hall.print(fork), after);
        // Each has the limit for itself.
        let size = hall.does(fork, "head -c 20000000 /dev/zero > big 2> /dev/null; stat -c %s big; rm big");
        let size: u64 = size.trim().parse().unwrap();
        assert!(size > (7 << 20) && size <= 8 << 20, "{size}");
        hall.does(fork, "echo fork > fork");
    }
    let archive = site.root().join("kept.tar.zst");
    hall.call(&["archive", "s", archive.to_str().unwrap()]).exits(0);
    hall.asks(&["restore", "s", "good"]);
    assert_eq!(hall.print("s"), before);
    hall.asks(&["kill", "s", "--changes", "discard"]);
    let mut forks = forks.lines();
    hall.asks(&["kill", forks.next().unwrap(), "--changes", "discard"]);
    hall.asks(&["kill", forks.next().unwrap()]);
    assert_eq!((site.read("fork"), site.read("later")), ("fork\n".into(), "later\n".into()));
    assert!(!site.work().join("dir").exists());
    all_is_gone(&site);
}

/// In memory too, for everybody: a limit is no reason not to be forked.
#[test]
fn a_session_with_a_limit_in_memory_can_be_forked() {
    each(|site| {
        if site.mode == Mode::Range {
            return;
        }
        furnish(site);
        let hall = Hall(site);
        hall.create(&["--name", "m", "--disk", "8M"]);
        hall.does("m", "echo mine > mine; rm gone");
        let before = hall.print("m");
        let fork = hall.call(&["fork", "m"]).exits(0).out().trim().to_owned();
        assert_eq!(hall.print(&fork), before);
        let done = hall.exec(&fork, "head -c 20000000 /dev/zero > big").done();
        assert!(done.code() != 0 && done.err().contains("No space left"), "{}", done.err());
        hall.does(&fork, "rm big; echo fork >> mine");
        hall.asks(&["kill", "m", "--changes", "discard"]);
        hall.asks(&["kill", &fork]);
        assert_eq!(site.read("mine"), "mine\nfork\n");
        assert!(!site.work().join("gone").exists());
        nothing_is_left(site);
    });
}

#[test]
fn a_plain_user_is_refused_a_limit_on_disk_and_told_what_holds() {
    each(|site| {
        for limit in [["--disk", "8M"], ["--inodes", "9"]] {
            let call = site.run(&["echo", "ran"]).with(&["--layer", "disk"]).with(&limit);
            if site.mode == Mode::Root {
                assert_eq!(call.exits(0).out(), "ran\n");
                continue;
            }
            let done = call.exits(125);
            assert_eq!(done.out(), "");
            assert!(done.err().contains("leave `--layer disk` out"), "{}", done.err());
            assert_eq!(site.run(&["echo", "ran"]).with(&limit).exits(0).out(), "ran\n", "the control");
        }
        nothing_is_left(site);
    });
}

/// Neither the device nor the whole of the file system, and nothing in it grants anything.
#[test]
fn the_inside_sees_its_own_directories_and_nothing_of_what_holds_them() {
    if !needs_root("a loop device") {
        return;
    }
    let site = site();
    let script = "ls /dev | grep -c loop; grep -c ballast /proc/self/mountinfo; \
        find / -xdev -name ballast -o -name lost+found 2> /dev/null | wc -l; \
        awk '$(NF-2) == \"ext4\" && $5 ~ \"^(/tmp|/run|/dev/shm)$\" {print $5, $6}' /proc/self/mountinfo | sort; \
        mknod node b 7 0 2> /dev/null || echo no device";
    let done = site.sh(script).with(&with(DISCARD)).done();
    let told = done.out();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[..3], ["0", "0", "0"], "{told}");
    assert_eq!(lines[3..6].len(), 3, "{told}");
    for line in &lines[3..6] {
        assert!(line.contains("nosuid") && line.contains("nodev"), "{told}");
    }
    assert_eq!(lines[6], "no device", "{told}");
    // Nothing of it is mounted where the host could see it, or whoever holds it.
    let hall = Hall(&site);
    let id = hall.create(LIMITED);
    assert_eq!(attached(&site).len(), 1);
    let holder = hall.supervisor().unwrap().as_raw_nonzero().to_string();
    for process in ["self", &holder] {
        let seen = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap();
        assert!(!seen.contains("/dev/loop"), "{seen}");
    }
    hall.asks(&["kill", &id]);
    all_is_gone(&site);
}

#[test]
fn nothing_is_left_of_a_layer_with_a_limit_after_kill() {
    if !needs_root("a loop device") {
        return;
    }
    let site = site();
    for moment in [0, 5, 10, 20, 30, 45, 60, 90, 150, 400] {
        let running = site.sh("head -c 3M /dev/zero > big; sleep 1000").with(LIMITED).start();
        std::thread::sleep(Duration::from_millis(moment));
        running.signal(Signal::KILL);
        running.finish();
    }
    let running = site.sh("sleep 1000").with(LIMITED).start();
    eventually("a device", || (!attached(&site).is_empty()).then_some(()));
    running.signal(Signal::KILL);
    running.finish();
    assert_eq!(fs::read_dir(site.work()).unwrap().count(), 0, "nothing of it was kept");
    eventually("every device to let go", || attached(&site).is_empty().then_some(()));
    site.run(&["true"]).exits(0);
    all_is_gone(&site);
    // As the time runs out.
    site.run(&["sleep", "1000"]).with(LIMITED).with(&["--timeout", "200ms"]).exits(124);
    all_is_gone(&site);
}

fn die(hall: &Hall<'_>) {
    hall.kill_supervisor();
}

#[test]
fn files_within_a_limit_outlive_the_supervisor() {
    if !needs_root("a loop device") {
        return;
    }
    let site = site();
    furnish(&site);
    let hall = Hall(&site);
    let id = hall.create(&with(&["--name", "mine"]));
    hall.does("mine", CHANGE);
    hall.asks(&["snapshot", "mine", "early"]);
    hall.does("mine", "echo two >> file; rm -r dir; ln file again");
    let before = hall.print("mine");
    hall.asks(&["begin", "mine"]);
    hall.does("mine", "echo open >> file");
    die(&hall);
    // Whoever starts next, of whatever kind.
    site.run(&["true"]).exits(0);
    assert_eq!(site.remains(), Vec::<String>::new());
    let lost = format!("lost-{id}");
    assert!(hall.show(&id)["reason"].as_str().unwrap().contains(&lost));
    hall.asks(&["snapshots", "--rm", "early"]);
    hall.create(&[LIMITED, &["--name", "again", "--from", &lost]].concat());
    assert_eq!(hall.print("again"), before, "all but the open transaction");
    hall.does("again", "echo three > three");
    hall.asks(&["kill", "again"]);
    assert_eq!(site.read("three"), "three\n");
    assert!(site.read("file").ends_with("four\ntwo\n"));
    // One that wrote nothing leaves nothing, and one that is given up takes its files along.
    fs::remove_file(site.work().join(".env")).unwrap();
    let empty = hall.create(LIMITED);
    die(&hall);
    site.run(&["true"]).exits(0);
    assert!(!hall.call(&["snapshots"]).exits(0).out().contains(&empty));
    for session in [&id, &empty] {
        hall.asks(&["kill", session]);
    }
    let after = hall.create(&[]);
    hall.asks(&["kill", &after]);
    assert_eq!(fs::read_dir(site.state().join("frozen")).map_or(0, Iterator::count), 0);
    all_is_gone(&site);
}

#[test]
fn nothing_is_left_when_the_supervisor_of_limited_layers_is_killed() {
    if !needs_root("a loop device") {
        return;
    }
    let site = site();
    let hall = Hall(&site);
    hall.asks(&["kill", &hall.create(&[])]);
    for moment in [0, 10, 25, 50, 100, 300] {
        let asking = hall.creating(LIMITED).start();
        std::thread::sleep(Duration::from_millis(moment));
        if let Some(pid) = hall.supervisor() {
            let _ = kill_process(pid, Signal::KILL);
        }
        drop(asking.finish());
        if let Some(pid) = hall.supervisor() {
            let _ = kill_process(pid, Signal::KILL);
        }
        eventually("it to be gone", || hall.supervisor().is_none().then_some(()));
        eventually("every device to let go", || attached(&site).is_empty().then_some(()));
        let lost: Value = serde_json::from_str(&hall.call(&["ls", "--json"]).exits(0).out()).unwrap();
        for info in lost.as_array().unwrap() {
            hall.asks(&["kill", info["session"].as_str().unwrap()]);
        }
        hall.asks(&["kill", &hall.create(&[])]);
        all_is_gone(&site);
    }
}

/// What is prepared has its scratch space in memory: one with a limit on disk is made from nothing, and takes none.
#[test]
fn a_prepared_one_is_not_taken_for_a_limit_on_disk() {
    if !needs_root("a loop device") {
        return;
    }
    let site = site();
    let hall = Hall(&site);
    site.call(&["pool", "set", "1"]).exits(0);
    let ready = || site.call(&["pool", "ls", "--json"]).exits(0).out().contains("\"ready\": 1");
    eventually("one that is prepared", || ready().then_some(()));
    let id = hall.create(LIMITED);
    assert!(ready(), "it was left for others");
    let size = hall.does(&id, "head -c 20000000 /dev/zero > big 2> /dev/null; stat -c %s big");
    assert!(is_nearly(size.trim(), 8 << 20), "{size}");
    hall.asks(&["kill", &id, "--changes", "discard"]);
    site.call(&["pool", "set", "0"]).exits(0);
    all_is_gone(&site);
}

/// The file is sparse: others can take the room that it counts on. Then nothing half is kept.
#[test]
fn a_disk_that_is_full_beneath_the_limit_keeps_nothing_half() {
    if !needs_root("a small file system") {
        return;
    }
    let site = site();
    let state = site.state();
    let script = "mkdir -p $COFFERDAM_HOME/layers; mount -t tmpfs -o size=24m,mode=700 none $COFFERDAM_HOME/layers || exit 99; mkfifo $T/go; \
        $C run --layer disk --disk 64M -- true; echo asked $?; \
        $C run --layer disk --disk 16M -- sh -c 'echo up; read x; head -c 12M /dev/urandom > big; echo small > small' < $T/go > $T/out 2> $T/err & \
        exec 3> $T/go; while ! grep -q up $T/out 2> /dev/null; do sleep 0.1; done; \
        head -c 30M /dev/zero > $COFFERDAM_HOME/layers/fill 2> /dev/null; echo go >&3; exec 3>&-; wait $!; echo code $?; cat $T/err; ls";
    let unshare = program("unshare").expect("unshare is missing: apt-get install util-linux");
    let mut shell = Command::new(unshare);
    shell.args(["--mount", "sh", "-c", script]);
    shell
        .current_dir(site.work())
        .env("C", site.binary())
        .env("COFFERDAM_HOME", &state)
        .env("T", site.root());
    let done = finish(&mut shell);
    let told = done.out();
    assert!(
        told.contains("asked 125") && told.contains("did not all reach the disk"),
        "{told}{}",
        done.err()
    );
    assert!(done.err().contains("are free where changes would be held"), "{}", done.err());
    assert!(
        told.contains("code 125") && !told.lines().any(|line| line == "big" || line == "small"),
        "{told}{}",
        done.err()
    );
}

/// A file that nobody can mount is not thrown away, and one that somebody still has is left to them.
#[test]
fn what_cannot_be_read_of_a_lost_session_is_kept_until_it_is_given_up() {
    if !needs_root("a loop device") {
        return;
    }
    let site = site();
    let hall = Hall(&site);
    let lose = || {
        let id = hall.create(LIMITED);
        hall.does(&id, "echo mine > mine");
        die(&hall);
        eventually("every device to let go", || attached(&site).is_empty().then_some(()));
        let file = site.state().join("layers").join(&id).join("layer.ext4");
        (id, fs::File::options().read(true).write(true).open(file).unwrap())
    };
    let (id, file) = lose();
    file.lock().unwrap();
    site.run(&["true"]).exits(0);
    assert!(!site.remains().is_empty(), "somebody has it");
    drop(file);
    site.run(&["true"]).exits(0);
    assert_eq!(site.remains(), Vec::<String>::new());
    assert!(hall.show(&id)["reason"].as_str().unwrap().contains(&format!("lost-{id}")));
    hall.asks(&["kill", &id]);
    let (id, file) = lose();
    file.write_all_at(&[0; 64 << 10], 0).unwrap();
    drop(file);
    for _ in 0..2 {
        site.run(&["true"]).exits(0);
        let reason = hall.show(&id)["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains("layer.damaged") && !reason.contains("snapshot"), "{reason}");
        assert_eq!(site.remains().len(), 1);
    }
    hall.asks(&["kill", &id]);
    site.run(&["true"]).exits(0);
    all_is_gone(&site);
}

#[test]
fn what_is_missing_for_a_limit_on_disk_is_named() {
    if !needs_root("a mount namespace") {
        return;
    }
    let site = site();
    let unshare = program("unshare").expect("unshare is missing: apt-get install util-linux");
    for (missing, told) in [("/usr/sbin/mkfs.ext4", "e2fsprogs"), ("/dev/loop-control", "modprobe loop")] {
        let mut shell = Command::new(&unshare);
        let script = format!(
            "mount --bind /dev/null {missing} || exit 99; $C run --layer disk --disk 8M -- echo ran; echo code $?; \
             $C run --disk 8M -- echo ran; $C doctor | grep -A6 layer-limit"
        );
        shell.args(["--mount", "sh", "-c", &script]);
        shell.current_dir(site.work()).env("C", site.binary()).env("COFFERDAM_HOME", site.state());
        let done = finish(&mut shell);
        assert!(done.out().starts_with("code 125\nran\n  no   layer-limit"), "{}{}", done.out(), done.err());
        assert!(
            done.err().contains(told) && done.err().contains("leave `--layer disk` out"),
            "{}",
            done.err()
        );
    }
    all_is_gone(&site);
}
