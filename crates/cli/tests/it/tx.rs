//! Transactions in sessions that live: opened, looked at, kept, dropped, nested, and never half of one.

use crate::crash::nothing_is_left;
use crate::live::Hall;
use crate::{each, site};
use cofferdam_testkit::{Mode, Site, eventually, needs_root};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

/// All of a tree that a rollback must bring back: names, kinds, modes, owners, times, targets, links, contents,
/// attributes.
const PRINT: &str = "find . -mindepth 1 -printf '%p %y %m %U:%G %T@ %n %l\\n' | sort; \
     find . -type f -exec sha256sum {} + | sort; \
     command -v getfattr > /dev/null && getfattr -R -d . 2> /dev/null; :";

impl Hall<'_> {
    #[track_caller]
    pub(crate) fn print(&self, session: &str) -> String {
        self.exec(session, PRINT).exits(0).out()
    }

    #[track_caller]
    pub(crate) fn does(&self, session: &str, script: &str) -> String {
        self.exec(session, script).exits(0).out()
    }

    #[track_caller]
    pub(crate) fn diff(&self, session: &str) -> Vec<Value> {
        let told: Value =
            serde_json::from_str(&self.call(&["diff", session, "--json"]).exits(0).out()).unwrap();
        told["changes"].as_array().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn asks(&self, words: &[&str]) {
        assert_eq!(self.call(words).exits(0).out(), "");
    }
}

/// A work dir with one of everything that an overlay treats in its own way.
pub(crate) fn furnish(site: &Site) {
    site.write("file", "one\ntwo\nthree\n");
    site.write("gone", "to be deleted\n");
    site.write("named", "to be renamed, and long enough to be known again\n");
    site.write("dir/inner/deep", "deep\n");
    site.write("binary", [0u8, 159, 146, 150]);
    site.write(".env", "TOKEN=hidden\n");
}

/// Does something to all of it.
pub(crate) const CHANGE: &str = "echo four >> file; rm gone; mv named renamed; rm -r dir; mkdir dir; echo new > dir/new; \
     chmod 700 file; ln file linked; ln -s /etc/passwd link; truncate -s 1M sparse; printf 'x\\000y' > binary; \
     touch -d '2001-02-03' old; mkfifo pipe";

fn few(site: &Site) -> bool {
    site.mode != Mode::Range
}

#[test]
fn a_rollback_brings_everything_back_and_a_commit_keeps_it() {
    each(|site| {
        furnish(site);
        let hall = Hall(site);
        hall.create(&["--name", "t"]);
        if !few(site) {
            assert!(hall.call(&["begin", "t"]).exits(4).err().contains("--users single"));
            hall.asks(&["kill", "t"]);
            return;
        }
        hall.does("t", "echo session >> file; echo kept > /tmp/apart; echo kept > $HOME/apart");
        let before = hall.print("t");
        hall.asks(&["begin", "t"]);
        assert_eq!(hall.print("t"), before, "a transaction begins with what there is");
        assert_eq!(hall.show("t")["transactions"], 1);
        hall.does("t", CHANGE);
        let after = hall.print("t");
        assert_ne!(after, before);
        hall.asks(&["rollback", "t"]);
        assert_eq!(hall.print("t"), before);
        assert_eq!(
            hall.does("t", "cat /tmp/apart $HOME/apart"),
            "kept\nkept\n",
            "only the work dir is rolled back"
        );
        hall.asks(&["begin", "t"]);
        hall.does("t", CHANGE);
        let made = hall.print("t");
        hall.asks(&["commit", "t"]);
        assert_eq!(hall.print("t"), made);
        assert_eq!(site.read("file"), "one\ntwo\nthree\n", "the host's work dir is the session's to keep");
        hall.asks(&["kill", "t"]);
        assert_eq!(site.read("file"), "one\ntwo\nthree\nsession\nfour\n");
        assert!(!site.work().join("gone").exists() && site.work().join("dir/new").exists());
        nothing_is_left(site);
    });
}

#[test]
fn a_difference_tells_every_kind_of_change() {
    let site = site();
    furnish(&site);
    let hall = Hall(&site);
    hall.create(&["--name", "t"]);
    hall.does("t", "echo before > mine");
    hall.asks(&["begin", "t"]);
    assert_eq!(hall.diff("t"), Vec::<Value>::new(), "what was before is no part of it");
    hall.does("t", CHANGE);
    let found = hall.diff("t");
    let of = |path: &str| {
        found.iter().find(|change| change["path"] == path).unwrap_or_else(|| panic!("{path}: {found:#?}"))
    };
    let check = |path: &str, op: &str, part: &str| {
        let change = of(path);
        assert_eq!(change["op"], op, "{change}");
        assert!(change.to_string().contains(part), "{change}");
    };
    check("file", "modified", "+four");
    check("file", "modified", "\"mode\"");
    check("gone", "deleted", "-to be deleted");
    check("renamed", "renamed", "\"from\":\"named\"");
    check("dir/new", "created", "+new");
    check("binary", "modified", "\"omitted\":\"binary\"");
    check("link", "created", "symlink");
    check("pipe", "created", "fifo");
    assert!(found.iter().all(|change| change["path"] != "mine" && change["path"] != ".env"), "{found:#?}");
    let text = hall.call(&["diff", "t"]).exits(0).out();
    assert!(text.contains("~ file [content, mode]") && text.contains("+four"), "{text}");
    let brief = hall.call(&["diff", "--brief", "t"]).exits(0).out();
    assert!(brief.contains("> renamed (was named)") && !brief.contains("+four"), "{brief}");
    // A name and a content that would write to the terminal.
    hall.does("t", "printf '\\033[31mred\\n' > \"$(printf 'na\\033me')\"");
    assert!(!hall.call(&["diff", "t"]).exits(0).out().contains('\x1b'));
    hall.asks(&["rollback", "t"]);
    let own = hall.diff("t");
    assert_eq!(own.iter().map(|change| change["path"].as_str().unwrap()).collect::<Vec<_>>(), ["mine"]);
}

/// To look at something is not to change it.
#[test]
fn a_difference_leaves_what_is_closed_closed() {
    each(|site| {
        let hall = Hall(site);
        hall.create(&["--name", "t"]);
        hall.does("t", "mkdir -p shut/in; echo x > shut/in/x; echo y > y; chmod 0 y shut");
        assert_eq!(hall.diff("t").len(), if few(site) { 4 } else { hall.diff("t").len() });
        assert_eq!(hall.does("t", "stat -c '%a %n' y shut"), "0 y\n0 shut\n");
        hall.asks(&["kill", "t", "--changes", "discard"]);
    });
}

#[test]
fn transactions_lie_within_each_other() {
    each(|site| {
        if !few(site) {
            return;
        }
        furnish(site);
        let hall = Hall(site);
        hall.create(&["--name", "t"]);
        hall.asks(&["begin", "t"]);
        hall.does("t", "echo 1 > level; rm gone");
        let first = hall.print("t");
        hall.asks(&["begin", "t"]);
        hall.does("t", "echo 2 > level; echo back > gone; mkdir made");
        hall.asks(&["begin", "t"]);
        hall.does("t", "rm -r level made; chmod 750 dir");
        hall.asks(&["commit", "t"]);
        assert_eq!(hall.does("t", "ls; stat -c %a dir"), "binary\ndir\nfile\ngone\nnamed\n750\n");
        hall.asks(&["rollback", "t"]);
        assert_eq!(hall.print("t"), first);
        hall.asks(&["rollback", "t"]);
        assert_eq!(hall.diff("t"), Vec::<Value>::new());
        // The end of a session drops what was not committed in it.
        hall.does("t", "echo own > own");
        hall.asks(&["begin", "t"]);
        hall.does("t", "echo open > open");
        hall.asks(&["kill", "t"]);
        assert!(site.work().join("own").exists() && !site.work().join("open").exists());
        nothing_is_left(site);
    });
}

#[test]
fn the_sessions_own_changes_can_be_kept_or_dropped_while_it_lives() {
    each(|site| {
        if !few(site) {
            return;
        }
        for place in [&[][..], &["--layer", "disk"]] {
            furnish(site);
            let hall = Hall(site);
            let id = hall.create(place);
            hall.does(&id, "echo more >> file; rm gone; echo x > new; echo mine > contested");
            site.write("contested", "theirs\n");
            let told = hall.call(&["commit", &id]).exits(0);
            assert!(told.err().contains("not kept: contested"), "{}", told.err());
            assert_eq!(site.read("file"), "one\ntwo\nthree\nmore\n");
            assert_eq!(site.read("contested"), "theirs\n");
            assert!(!site.work().join("gone").exists());
            assert_eq!(hall.diff(&id), Vec::<Value>::new());
            assert_eq!(hall.does(&id, "cat contested; test ! -e .env; echo again >> file"), "theirs\n");
            hall.asks(&["rollback", &id]);
            assert_eq!(hall.does(&id, "cat file"), "one\ntwo\nthree\nmore\n");
            hall.does(&id, "echo last >> file");
            hall.asks(&["kill", &id]);
            assert_eq!(site.read("file"), "one\ntwo\nthree\nmore\nlast\n");
            site.call(&["trace", "verify", &id]).exits(0);
            let decided: Vec<bool> =
                site.bodies("changes.decided").iter().map(|body| body["kept"] == true).collect();
            assert_eq!(decided, [true, false, true]);
            nothing_is_left(site);
            fs::remove_dir_all(site.work()).unwrap();
            fs::remove_dir_all(site.state().join("traces")).unwrap();
            fs::create_dir(site.work()).unwrap();
            site.give(&site.work());
        }
    });
}

#[test]
fn a_command_can_be_a_transaction_of_its_own() {
    each(|site| {
        if !few(site) {
            return;
        }
        let hall = Hall(site);
        hall.create(&["--name", "t"]);
        let tx = |how: &str, script: &str| hall.call(&["exec", how, "t", "--", "sh", "-c", script]);
        let check = |how: &str, code: i32, kept: bool| {
            let told = tx(how, &format!("rm -f made; echo x > made; exit {code}")).exits(code);
            assert_eq!(told.err(), "");
            assert_eq!(hall.exec("t", "test -e made").done().code() == 0, kept, "{how} {code}");
            hall.does("t", "rm -f made");
        };
        check("--tx", 0, true);
        check("--tx", 3, false);
        check("--tx=commit", 3, true);
        check("--tx=rollback", 0, false);
        // What it leaves running ends with it, and what it has open with a session around it stays open.
        tx("--tx", "setsid sleep 1000 & echo x > kept").exits(0);
        assert_eq!(hall.does("t", "ls; pgrep -c sleep || :"), "kept\n0\n");
        let running = tx("--tx", "echo y > kept; sleep 1000").start();
        eventually("it to run", || (hall.show("t")["running"] == 1).then_some(()));
        let refused = hall.exec("t", "true").exits(125).err();
        assert!(refused.contains("nothing runs beside it"), "{refused}");
        let number = hall.show("t")["execs"].as_array().unwrap().len().to_string();
        hall.asks(&["kill", "t", "--exec", &number]);
        running.finish().exits(137);
        assert_eq!(hall.does("t", "cat kept"), "x\n");
        assert_eq!(hall.show("t")["transactions"], 0);
        hall.asks(&["kill", "t"]);
        nothing_is_left(site);
    });
}

#[test]
fn files_do_not_change_under_what_runs() {
    let site = site();
    let hall = Hall(&site);
    hall.create(&["--name", "t"]);
    let refused = |what: &str| {
        for words in [&["begin", "t"][..], &["commit", "t"], &["rollback", "t"]] {
            let told = hall.call(words).exits(2).err();
            assert!(told.contains(what) && told.contains("--force"), "{words:?}: {told}");
        }
    };
    hall.call(&["exec", "-d", "t", "--", "sh", "-c", "while :; do date > busy; done"]).exits(0);
    eventually("it to write", || (hall.exec("t", "test -s busy").done().code() == 0).then_some(()));
    refused("exec 1 still runs");
    if hall.can_pause() {
        // What is told is of one moment.
        assert_eq!(hall.diff("t").len(), 1);
    }
    hall.asks(&["kill", "t", "--exec", "1"]);
    eventually("it to end", || (hall.show("t")["running"] == 0).then_some(()));
    hall.does("t", "setsid sleep 1000 > /dev/null 2>&1 &");
    refused("something that a command left running");
    hall.asks(&["rollback", "--force", "t"]);
    assert_eq!(hall.does("t", "ls; pgrep -c sleep || :"), "0\n");
    if hall.can_pause() {
        hall.asks(&["pause", "t"]);
        assert!(hall.call(&["begin", "t"]).exits(2).err().contains("resume"));
    }
}

/// Whoever writes all the time ends before the look that counts: the host gets what is on record, byte by byte, and
/// nothing that the policy has not seen.
#[test]
fn what_is_committed_is_what_is_on_record_whoever_writes_meanwhile() {
    each(|site| {
        if !few(site) {
            return;
        }
        let hall = Hall(site);
        for round in 0..4 {
            let place: &[&str] = if round % 2 == 0 { &[] } else { &["--layer", "disk"] };
            let id = hall.create(place);
            let writer = format!(
                "mkdir d; n=0; while :; do n=$((n+1)); echo {round}-$n > count; echo $n > d/{round}-$n; done"
            );
            hall.call(&["exec", "-d", &id, "--", "sh", "-c", &writer]).exits(0);
            // The count of an earlier round is there already.
            let written = format!("test -s d/{round}-2");
            eventually("it to write", || (hall.exec(&id, &written).done().code() == 0).then_some(()));
            hall.asks(&["commit", "--force", &id]);
            let events = fs::read_to_string(site.events_file(&id)).unwrap();
            let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let recorded: BTreeMap<String, String> = events
                .filter(|event| event["kind"] == "file.changed")
                .map(|mut event| event["body"].take())
                .filter(|body| body["kind"] == "file")
                .map(|body| (body["path"].as_str().unwrap().into(), body["digest"].as_str().unwrap().into()))
                .collect();
            assert!(recorded.len() > 1, "{recorded:?}");
            let sums = std::process::Command::new("sha256sum")
                .args(recorded.keys())
                .current_dir(site.work())
                .output()
                .unwrap();
            let sums = String::from_utf8(sums.stdout).unwrap();
            for ((path, digest), line) in recorded.iter().zip(sums.lines()) {
                assert!(digest.ends_with(line.split(' ').next().unwrap()), "{path}: {line}");
            }
            let own = format!("d/{round}-");
            let made = fs::read_dir(site.work().join("d")).unwrap();
            let made = made.map(|entry| format!("d/{}", entry.unwrap().file_name().to_string_lossy()));
            let made: BTreeSet<String> = made.filter(|path| path.starts_with(&own)).collect();
            let told: BTreeSet<String> = recorded.into_keys().filter(|path| path.starts_with(&own)).collect();
            assert_eq!(made, told, "what is there is on record");
            assert_eq!(hall.show(&id)["running"], 0);
            hall.asks(&["kill", &id]);
        }
        nothing_is_left(site);
    });
}

#[test]
fn what_a_policy_refuses_does_not_slip_in_behind_the_look() {
    each(|site| {
        if !few(site) {
            return;
        }
        let policy = format!(
            "[[rule]]\nid = \"all\"\nreason = \"the code\"\neffect = \"allow\"\n\
             file = {{ path = \"{0}/**\", access = [\"write\", \"delete\"] }}\n\
             [[rule]]\nid = \"no-ci\"\nreason = \"the pipeline is ours\"\neffect = \"deny\"\n\
             file = {{ path = \"{0}/ci\", access = [\"write\", \"delete\"] }}\n",
            site.work().display()
        );
        let policy = site.write(site.home().join("p.toml"), policy).to_string_lossy().into_owned();
        let hall = Hall(site);
        // Now it is there and now it is not.
        let flicker = "n=0; while :; do n=$((n+1)); echo $n > ok; echo x > ci; rm ci; done";
        let id = hall.create(&["--policy", &policy]);
        let (mut kept, mut refused) = (0, 0);
        for _ in 0..20 {
            hall.call(&["exec", "-d", &id, "--", "sh", "-c", flicker]).exits(0);
            eventually("it to write", || (hall.exec(&id, "test -s ok").done().code() == 0).then_some(()));
            let done = hall.call(&["commit", "--force", &id]).done();
            match done.code() {
                0 => kept += 1,
                _ => {
                    assert!(done.err().contains("no-ci"), "{}", done.err());
                    refused += 1;
                    hall.asks(&["rollback", "--force", &id]);
                }
            }
            assert!(!site.work().join("ci").exists(), "kept {kept}, refused {refused}");
        }
        // A no ends nothing, where what runs can be made to stand still.
        hall.call(&["exec", "-d", &id, "--", "sh", "-c", "echo x > ci; exec sleep 1000"]).exits(0);
        eventually("it to write", || (hall.exec(&id, "test -s ci").done().code() == 0).then_some(()));
        assert!(hall.call(&["commit", "--force", &id]).exits(2).err().contains("no-ci"));
        assert_eq!(hall.show(&id)["running"], if hall.can_pause() { 1 } else { 0 });
        hall.asks(&["kill", &id, "--changes", "discard"]);
        nothing_is_left(site);
    });
}

/// Where there is no room for it nothing of it happens, the session goes on, and the record says so.
#[test]
fn a_commit_for_which_there_is_no_room_changes_nothing() {
    if !needs_root("a small file system") {
        return;
    }
    let site = site();
    let hall = Hall(&site);
    let work = site.root().join("small");
    fs::create_dir(&work).unwrap();
    let shell = |script: &str| {
        std::process::Command::new("sh").args(["-c", script]).current_dir(site.root()).status().unwrap()
    };
    assert!(shell("mount -t tmpfs -o size=2m tmpfs small").success());
    fs::write(work.join("file"), "before\n").unwrap();
    let id = hall.create(&["--workdir", work.to_str().unwrap()]);
    hall.does(&id, "echo after > file; echo x > new; head -c 8000000 /dev/urandom > big");
    let refused = hall.call(&["commit", &id]).exits(2).err();
    assert!(refused.contains("No space left") && refused.contains("nothing was changed"), "{refused}");
    assert_eq!((read(&work.join("file")).as_str(), fs::read_dir(&work).unwrap().count()), ("before\n", 1));
    let told = site.bodies("session.changed").pop().unwrap();
    assert!(told["what"] == "commit" && told["detail"].to_string().contains("not done"), "{told}");
    assert_eq!(hall.does(&id, "cat file; ls; rm big"), "after\nbig\nfile\nnew\n");
    hall.asks(&["commit", &id]);
    assert_eq!((read(&work.join("file")), read(&work.join("new"))), ("after\n".into(), "x\n".into()));
    hall.asks(&["kill", &id]);
    assert!(shell("umount small").success());
    nothing_is_left(&site);
}

/// What holds for a command outside of a transaction holds in it: read from inside, and by trying.
#[test]
fn a_transaction_is_held_as_the_session_is() {
    each(|site| {
        if !few(site) {
            return;
        }
        site.write(".env", "TOKEN=hidden\n");
        let policy = site.write("p.toml", "");
        for flags in [&[][..], &["--policy", policy.to_str().unwrap()]] {
            let hall = Hall(site);
            let id = hall.create(flags);
            let look = "grep -E '^(Cap|NoNewPrivs|Seccomp|Uid|Gid|Groups)' /proc/self/status; ls -A; \
                 ls /sys /proc/1 > /dev/null; readlink /proc/self/ns/net /proc/self/ns/user | wc -l; \
                 cat /proc/self/uid_map; cat /proc/self/mountinfo | cut -d' ' -f5,6 | sort; ulimit -a; \
                 for t in 'echo > /run/cofferdam.probe' 'mount -t tmpfs x /tmp' 'unshare -U true' 'touch /usr/x' \
                 'cat .env' 'mkdir /x'; do sh -c \"$t\" > /dev/null 2>&1 && echo \"could: $t\"; done; \
                 cat /proc/self/cgroup; ls /proc/self/fd | wc -l";
            let first = hall.does(&id, look);
            assert!(!first.contains("could:") && first.contains("Seccomp:\t2"), "{first}");
            let net = hall.does(&id, "readlink /proc/self/ns/net");
            hall.asks(&["begin", &id]);
            assert_eq!(hall.does(&id, look), first);
            assert_eq!(hall.does(&id, "readlink /proc/self/ns/net"), net, "one network for all of a session");
            // Attempts are still told.
            hall.exec(&id, "unshare -U true").done();
            hall.asks(&["kill", &id]);
            assert!(!site.bodies("blocked").is_empty());
        }
    });
}

#[test]
fn a_rollback_tells_what_it_cannot_take_back() {
    each(|site| {
        if !few(site) {
            return;
        }
        let (upstream, hall) = (greeter(), Hall(site));
        let policy = site.write(
            "p.toml",
            format!(
                "[[upstream]]\nhost = \"api.example.com\"\nconnect = \"{upstream}\"\n\n\
                 [[rule]]\nid = \"one\"\nreason = \"r\"\neffect = \"allow\"\nhost = \"api.example.com\"\n"
            ),
        );
        let id = hall.create(&["--policy", policy.to_str().unwrap()]);
        let fetch = |path: &str| hall.does(&id, &format!("curl -sS http://api.example.com/{path}"));
        fetch("before");
        hall.asks(&["begin", &id]);
        assert_eq!(fetch("within"), "hello");
        hall.exec(&id, "curl -sS http://elsewhere.example/ ; :").exits(0);
        let told = hall.call(&["rollback", &id]).exits(0).err();
        assert!(told.contains("GET http://api.example.com:80/within"), "{told}");
        assert!(!told.contains("before") && !told.contains("elsewhere"), "{told}");
        hall.asks(&["kill", &id]);
    });
}

#[test]
fn nothing_is_left_when_the_supervisor_is_killed_in_a_transaction() {
    each(|site| {
        if !few(site) {
            return;
        }
        let hall = Hall(site);
        for (moment, words) in [(0, "begin"), (2, "begin"), (5, "commit"), (1, "commit"), (3, "rollback")] {
            for place in [&[][..], &["--layer", "disk"]] {
                furnish(site);
                let before = fs::read_to_string(site.work().join("file")).unwrap();
                let id = hall.create(place);
                hall.asks(&["begin", &id]);
                hall.does(&id, "for n in $(seq 300); do echo x > new$n; done; echo more >> file");
                let asking = hall.call(&[words, &id]).start();
                std::thread::sleep(std::time::Duration::from_millis(moment));
                kill_process(hall.supervisor().unwrap(), Signal::KILL).unwrap();
                drop(asking.finish());
                eventually("it to be gone", || hall.supervisor().is_none().then_some(()));
                assert_eq!(
                    site.read("file"),
                    before,
                    "nothing reaches the host but by the session's own commit"
                );
                hall.asks(&["kill", &id]);
                nothing_is_left(site);
            }
        }
    });
}

/// Of a commit onto the host, all or nothing is there after the next start.
#[test]
fn a_commit_that_is_killed_is_whole_or_absent() {
    each(|site| {
        if !few(site) {
            return;
        }
        let hall = Hall(site);
        for moment in [0, 2, 4, 7, 10, 15, 25] {
            let _ = fs::remove_dir_all(site.work());
            fs::create_dir(site.work()).unwrap();
            site.give(&site.work());
            (0..200).for_each(|n| drop(site.write(n.to_string(), "before")));
            let id = hall.create(&["--layer", "disk"]);
            hall.does(&id, "for n in $(seq 0 199); do echo after > $n; done");
            let asking = hall.call(&["commit", &id]).start();
            std::thread::sleep(std::time::Duration::from_millis(moment));
            kill_process(hall.supervisor().unwrap(), Signal::KILL).unwrap();
            drop(asking.finish());
            eventually("it to be gone", || hall.supervisor().is_none().then_some(()));
            site.run(&["true"]).exits(0);
            let after = (0..200).filter(|n| read(&site.work().join(n.to_string())) == "after\n").count();
            assert!(after == 0 || after == 200, "{after} of 200 after {moment} ms");
            hall.asks(&["kill", &id]);
            nothing_is_left(site);
        }
    });
}

/// Numbers that look random and are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn path(&mut self) -> String {
        (0..=self.roll(3)).map(|_| ["a", "b", "c"][self.roll(3) as usize]).collect::<Vec<_>>().join("/")
    }

    /// A line of shell that works or fails alike wherever the same files are.
    fn operation(&mut self) -> String {
        let (one, two, n) = (self.path(), self.path(), self.roll(1000));
        match self.roll(9) {
            0 | 1 => format!("echo {n} > {one}"),
            2 => format!("echo {n} >> {one}"),
            3 => format!("mkdir -p {one}"),
            4 => format!("rm -rf {one}"),
            // A copy into itself is whatever the order of its directory makes it.
            5 if !two.starts_with(&one) => format!("cp -r {one} {two} && rm -rf {one}"),
            6 => format!("ln -s to-{n} {one}"),
            7 => format!("chmod {} {one}", ["750", "711", "755", "700"][self.roll(4) as usize]),
            _ => format!("rm -rf {one} && mkdir {one} && echo {n} > {one}/a"),
        }
    }
}

/// Any sequence of file operations, begins, commits and rollbacks, against a plain directory in which the same is
/// done and of which a copy is made at every begin. `COFFERDAM_TEST_SEED` and `COFFERDAM_TEST_CASES` try others.
#[test]
fn any_sequence_is_as_in_a_plain_directory() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let shape =
        "find . -mindepth 1 -printf '%p %y %m %l\\n' | sort; find . -type f -exec sha256sum {} + | sort";
    let (seed, cases) = (number("COFFERDAM_TEST_SEED", 1), number("COFFERDAM_TEST_CASES", 4));
    for case in 0..cases {
        let (site, mut dice) = (site(), Dice(seed.wrapping_mul(1000) + case));
        let (hall, model) = (Hall(&site), site.root().join("model"));
        let at = |depth: usize| model.join(depth.to_string());
        let host = |script: &str, dir: &Path| {
            let mut shell = std::process::Command::new("sh");
            shell.arg("-c").arg(format!("umask 022; {script}")).current_dir(dir).env("LC_ALL", "C");
            String::from_utf8(shell.stderr(std::process::Stdio::null()).output().unwrap().stdout).unwrap()
        };
        fs::create_dir_all(at(0)).unwrap();
        let place: &[&str] = if case % 2 == 0 { &[] } else { &["--layer", "disk"] };
        let id = hall.create(place);
        let mut depth = 0;
        for act in 0..25 {
            match dice.roll(8) {
                0 | 1 => {
                    hall.asks(&["begin", &id]);
                    host(&format!("cp -a {depth} {}", depth + 1), &model);
                    depth += 1;
                }
                2 if depth > 0 => {
                    hall.asks(&["rollback", &id]);
                    fs::remove_dir_all(at(depth)).unwrap();
                    depth -= 1;
                }
                3 if depth > 0 => {
                    hall.asks(&["commit", &id]);
                    fs::remove_dir_all(at(depth - 1)).unwrap();
                    fs::rename(at(depth), at(depth - 1)).unwrap();
                    depth -= 1;
                }
                _ => {
                    let script = (0..6).map(|_| dice.operation()).collect::<Vec<_>>().join("\n");
                    hall.exec(&id, &format!("umask 022; {script}\n:")).exits(0);
                    host(&script, &at(depth));
                }
            }
            let found = hall.exec(&id, &format!("export LC_ALL=C; {shape}")).exits(0).out();
            assert_eq!(found, host(shape, &at(depth)), "seed {seed}, case {case}, act {act}");
        }
        while depth > 0 {
            hall.asks(&["commit", &id]);
            fs::remove_dir_all(at(depth - 1)).unwrap();
            fs::rename(at(depth), at(depth - 1)).unwrap();
            depth -= 1;
        }
        hall.asks(&["kill", &id]);
        assert_eq!(host(shape, &site.work()), host(shape, &at(0)), "seed {seed}, case {case}: on the host");
    }
}

/// Says hello to whoever comes.
fn greeter() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            if stream.read(&mut head).is_ok() {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello");
            }
        }
    });
    at
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}
