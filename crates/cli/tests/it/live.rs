//! Sessions that stay: made, used by several commands, paused, extended, lost and ended, by every kind of user.

use crate::crash::{mark, nothing_is_left, tree};
use crate::terminal::at_terminal;
use crate::{each, site};
use cofferdam_testkit::{Call, Mode, Site, eventually, processes_with};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A place whose supervisor does not outlive the test.
pub(crate) struct Hall<'s>(pub(crate) &'s Site);

impl Drop for Hall<'_> {
    fn drop(&mut self) {
        if let Some(pid) = self.supervisor() {
            let _ = kill_process(pid, Signal::TERM);
            for _ in 0..1000 {
                if self.supervisor().is_none() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl<'s> Hall<'s> {
    /// The process that holds the sessions of this place, if there is one.
    pub(crate) fn supervisor(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.0.state().join("live/supervisor.lock")).ok()?;
        let pid: i32 = text.trim().parse().ok()?;
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        line.contains("supervise").then(|| Pid::from_raw(pid))?
    }

    /// By a signal that nobody hears. Returns when all that it held open is closed, which is after its memory is gone.
    pub(crate) fn kill_supervisor(&self) {
        let pid = self.supervisor().unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        self.has_ended(pid);
    }

    fn has_ended(&self, pid: Pid) {
        let place = format!("/proc/{}", pid.as_raw_nonzero());
        eventually("it to be gone", || {
            let Ok(stat) = fs::read_to_string(format!("{place}/stat")) else { return Some(()) };
            let threads = fs::read_dir(format!("{place}/task")).map_or(0, Iterator::count);
            (stat.contains(") Z ") && threads <= 1).then_some(())
        });
    }

    pub(crate) fn call(&self, words: &[&str]) -> Call<'s> {
        let words: Vec<&str> = ["session"].iter().chain(words).copied().collect();
        self.0.call(&words)
    }

    pub(crate) fn creating(&self, flags: &[&str]) -> Call<'s> {
        let users: &[&str] = match self.0.mode {
            Mode::Root => &[],
            Mode::Single => &["--users", "single"],
            Mode::Range => &["--users", "range"],
        };
        self.call(&["create"]).with(users).with(flags)
    }

    #[track_caller]
    pub(crate) fn create(&self, flags: &[&str]) -> String {
        self.creating(flags).exits(0).out().trim().to_owned()
    }

    pub(crate) fn exec(&self, session: &str, script: &str) -> Call<'s> {
        self.call(&["exec", session, "--", "sh", "-c", script])
    }

    #[track_caller]
    pub(crate) fn show(&self, session: &str) -> Value {
        serde_json::from_str(&self.call(&["show", session, "--json"]).exits(0).out()).unwrap()
    }

    pub(crate) fn can_pause(&self) -> bool {
        self.0.mode == Mode::Root
    }
}

#[test]
fn commands_of_a_session_share_files_and_processes() {
    each(|site| {
        let (hall, mark) = (Hall(site), mark(site));
        let id = hall.create(&["--name", "build"]);
        let first = hall
            .exec("build", &format!("echo made > file; setsid sh -c ': {mark}; sleep 1000; :' & echo $$"));
        assert_eq!(first.exits(0).err(), "");
        let second =
            hall.exec(&id[..12], &format!("cat file; grep -alz {mark} /proc/[0-9]*/cmdline | wc -l; exit 7"));
        let second = second.exits(7);
        let counted: u32 = second.out().lines().nth(1).unwrap().trim().parse().unwrap();
        assert!(second.out().starts_with("made\n") && counted >= 1, "{}", second.out());
        let info = hall.show("build");
        assert_eq!((&info["state"], &info["running"]), (&"running".into(), &0.into()), "{info}");
        assert_eq!(info["execs"][1]["exit"]["code"], 7, "{info}");
        assert!(hall.call(&["ls"]).exits(0).out().contains("build"));
        site.call(&["trace", "verify", &id]).exits(3);
        assert!(!site.work().join("file").exists(), "nothing is kept before the end");
        hall.call(&["kill", "build"]).exits(0);
        assert_eq!(site.read("file"), "made\n");
        assert_eq!(processes_with(&mark), Vec::<String>::new());
        site.call(&["trace", "verify", &id]).exits(0);
        let parents: Vec<Value> = site
            .events()
            .into_iter()
            .filter(|e| e["kind"] == "exec.exited")
            .map(|e| e["parent"].clone())
            .collect();
        let starts: Vec<Value> = site
            .events()
            .into_iter()
            .filter(|e| e["kind"] == "exec.started")
            .map(|e| e["seq"].clone())
            .collect();
        assert_eq!(parents, starts);
        assert_eq!(hall.call(&["ls", "--json"]).exits(0).out().trim(), "[]");
        nothing_is_left(site);
    });
}

#[test]
fn changes_are_dropped_when_the_end_says_so() {
    let site = site();
    let hall = Hall(&site);
    for (made, ended, kept) in [
        (&["--changes", "discard"][..], &[][..], false),
        (&["--changes", "discard"], &["--changes", "keep"], true),
        (&[], &["--changes", "discard"], false),
    ] {
        let id = hall.create(made);
        hall.exec(&id, "echo x > file").exits(0);
        hall.call(&["kill", &id]).with(ended).exits(0);
        assert_eq!(site.work().join("file").exists(), kept, "{made:?} {ended:?}");
        let _ = fs::remove_file(site.work().join("file"));
    }
    assert!(hall.creating(&["--changes", "ask"]).exits(2).err().contains("nobody can be asked"));
}

#[test]
fn a_paused_session_uses_no_processor() {
    each(|site| {
        let hall = Hall(site);
        let id = hall.create(&[]);
        hall.call(&["exec", "-d", &id, "--", "sh", "-c", "while :; do :; done"]).exits(0);
        if !hall.can_pause() {
            let refused = hall.call(&["pause", &id]).exits(4);
            assert!(refused.err().contains("cannot be paused"), "{}", refused.err());
            hall.exec(&id, "true").exits(0);
            return;
        }
        let cpu = || hall.show(&id)["usage"]["cpu_us"].as_u64().unwrap();
        let before = cpu();
        eventually("the loop to run", || (cpu() > before).then_some(()));
        hall.call(&["pause", &id]).exits(0);
        let frozen = cpu();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(cpu(), frozen, "it went on");
        assert_eq!(hall.show(&id)["state"], "paused");
        assert!(hall.exec(&id, "true").exits(125).err().contains("resume"), "an exec does not wake it");
        hall.call(&["resume", &id]).exits(0);
        eventually("the loop to go on", || (cpu() > frozen).then_some(()));
        hall.call(&["pause", &id]).exits(0);
        hall.call(&["kill", &id]).exits(0);
        assert_eq!(site.bodies("session.changed").len(), 4);
        nothing_is_left(site);
    });
}

#[test]
fn an_idle_session_pauses_by_itself_and_wakes_for_a_command() {
    each(|site| {
        let hall = Hall(site);
        if !hall.can_pause() {
            assert!(hall.creating(&["--idle", "1s"]).exits(4).err().contains("cannot be paused"));
            nothing_is_left(site);
            return;
        }
        let id = hall.create(&["--idle", "200ms"]);
        let idles = || (hall.show(&id)["state"] == "idle-paused").then_some(());
        eventually("it to be idle", idles);
        assert_eq!(hall.exec(&id, "echo awake").exits(0).out(), "awake\n");
        eventually("it to be idle again", idles);
        hall.call(&["kill", &id]).exits(0);
    });
}

#[test]
fn time_is_over_in_the_middle_of_a_command() {
    each(|site| {
        let (hall, mark) = (Hall(site), mark(site));
        let id = hall.create(&["--ttl", "2s"]);
        let done = hall.exec(&id, &format!("echo kept > file; : {mark}; sleep 1000; :")).exits(137);
        assert!(done.err().contains("its time was over"), "{}", done.err());
        assert_eq!(site.read("file"), "kept\n", "who is told of the end finds what it left");
        eventually("the session to end", || {
            (hall.call(&["ls", "--json"]).done().out().trim() == "[]").then_some(())
        });
        assert_eq!(processes_with(&mark), Vec::<String>::new());
        assert_eq!(site.read("file"), "kept\n");
        site.call(&["trace", "verify", &id]).exits(0);
        assert_eq!(site.bodies("limit")[0]["limit"], "ttl");
        nothing_is_left(site);
    });
}

#[test]
fn lifetimes_and_their_bounds() {
    let site = site();
    let hall = Hall(&site);
    let id = hall.create(&["--lifetime", "ephemeral"]);
    hall.exec(&id, "true").exits(0);
    eventually("it to end with its last command", || {
        hall.call(&["show", &id]).done().code().eq(&2).then_some(())
    });
    assert!(hall.creating(&["--lifetime", "perpetual"]).exits(2).err().contains("operator.toml"));
    assert!(hall.creating(&["--ttl", "1000h"]).exits(2).err().contains("max-ttl"));
    fs::write(
        site.state().join("operator.toml"),
        "[sessions]\nperpetual = true\nmax-ttl = \"2h\"\nmost = 2\n",
    )
    .unwrap();
    let forever = hall.create(&["--lifetime", "perpetual"]);
    assert!(hall.show(&forever)["until_us"].is_null());
    let id = hall.create(&["--ttl", "1h"]);
    let until = |id: &str| hall.show(id)["until_us"].as_u64().unwrap();
    let before = until(&id);
    hall.call(&["extend", &id, "30m"]).exits(0);
    assert!(until(&id) > before + 1_700_000_000);
    hall.call(&["extend", &id, "2h"]).exits(2);
    assert!(hall.creating(&[]).exits(2).err().contains("allows no more"));
    fs::write(site.state().join("operator.toml"), "[sessions]\nperpetul = true\n").unwrap();
    assert!(hall.creating(&[]).exits(2).err().contains("perpetul"));
}

#[test]
fn a_command_is_ended_alone() {
    each(|site| {
        let (hall, mark) = (Hall(site), mark(site));
        let id = hall.create(&["--name", "one"]);
        let done = hall.call(&[
            "exec",
            "--timeout",
            "300ms",
            "one",
            "--",
            "sh",
            "-c",
            &format!(": {mark}; sleep 1000; :"),
        ]);
        assert!(done.exits(124).err().contains("time limit"));
        let done = hall.call(&["exec", "--output", "1000", "one", "--", "yes", &mark]).exits(137);
        assert!(done.err().contains("output limit"), "{}", done.err());
        hall.call(&["exec", "-d", "one", "--", "sh", "-c", &format!("echo begun; : {mark}; sleep 1000; :")])
            .exits(0);
        eventually("its output", || (hall.call(&["logs", "one"]).done().out() == "begun\n").then_some(()));
        hall.call(&["kill", "one", "--exec", "3"]).exits(0);
        assert_eq!(hall.call(&["logs", "-f", "one", "3"]).exits(0).out(), "begun\n");
        let told = hall.call(&["logs", "one", "3", "--json"]).exits(0).out();
        assert_eq!(told, "{\"exec\":3,\"text\":\"begun\\n\"}\n");
        eventually("the commands to be gone", || processes_with(&mark).is_empty().then_some(()));
        assert_eq!(hall.show(&id)["execs"][2]["exit"]["signal"], 9);
        hall.exec("one", "exit 3").exits(3);
        for (words, code) in [(&["no-such-program"][..], 127), (&["/etc/passwd"], 126)] {
            hall.call(&["exec", "one", "--"]).with(words).exits(code);
        }
        assert!(
            hall.call(&["exec", "--cwd", "/nowhere", "one", "--", "true"])
                .exits(125)
                .err()
                .contains("directory")
        );
        hall.exec("one", "exit 4").exits(4);
    });
}

#[test]
fn a_command_whose_caller_is_killed_ends_and_a_detached_one_does_not() {
    let site = site();
    let (hall, mark) = (Hall(&site), mark(&site));
    let id = hall.create(&[]);
    hall.call(&["exec", "-d", &id, "--", "sh", "-c", &format!(": detached-{mark}; sleep 1000; :")]).exits(0);
    let running = hall.exec(&id, &format!("trap '' HUP; : watched-{mark}; sleep 1000; :")).start();
    let inside = |word: &str| processes_with(&format!(": {word}-{mark}")).len();
    // The caller's own line has the mark too.
    eventually("both", || (inside("watched") == 2 && inside("detached") == 1).then_some(()));
    running.signal(Signal::KILL);
    running.finish();
    eventually("the one to end", || (inside("watched") == 0).then_some(()));
    assert_eq!(inside("detached"), 1);
}

#[test]
fn input_output_and_signals_are_the_commands_own() {
    each(|site| {
        let hall = Hall(site);
        let id = hall.create(&[]);
        assert_eq!(hall.exec(&id, "cat; echo end >&2").input("a\nb\n").exits(0).out(), "a\nb\n");
        let count = hall.exec(&id, "head -c 100000000 /dev/zero | tr '\\0' x").exits(0).stdout;
        assert!(count.len() == 100_000_000 && count.iter().all(|byte| *byte == b'x'));
        let running = hall
            .exec(&id, "trap 'echo told; exit 9' TERM; echo ready > ready; while :; do sleep 0.02; done")
            .start();
        eventually("the trap", || (hall.exec(&id, "cat ready").done().out() == "ready\n").then_some(()));
        running.signal(Signal::TERM);
        assert_eq!(running.finish().exits(9).out(), "told\n");
        let bytes: Vec<u64> = hall.show(&id)["execs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["output"].as_u64().unwrap())
            .collect();
        assert_eq!(bytes[..2], [8, 100_000_000]);
    });
}

#[test]
fn a_terminal_follows_the_callers() {
    each(|site| {
        let hall = Hall(site);
        let id = hall.create(&[]);
        let acts = "read_until(b'33 101')\nresize(50, 132)\nread_until(b'50 132')\nos.write(keyboard, b'ada\\n')\n\
            read_until(b'hello ada')\nos.write(keyboard, b'\\x03')\n";
        let script = "test $TERM = xterm || exit 1; trap 'stty size' WINCH; trap 'exit 3' INT; stty size; while ! read n; do :; done; echo hello $n; \
            while :; do sleep 0.02; done";
        let out = at_terminal(site, acts, &hall.exec(&id, script).words()).exits(0).out();
        assert!(out.ends_with("code 3 restored\n"), "{out}");
    });
}

#[test]
fn a_policy_and_a_secret_hold_for_every_command() {
    each(|site| {
        let hall = Hall(site);
        let real = "sk_live_4eC39HqLyjWDarjtT1zdp7dc";
        let policy = site.write(
            "p.toml",
            "[[rule]]\nid = \"one\"\nreason = \"r\"\neffect = \"allow\"\nhost = \"api.example.com\"\n",
        );
        site.call(&["secret", "add", "key", "--for", "api.example.com"]).input(real).exits(0);
        let id = hall.create(&["--policy", policy.to_str().unwrap(), "--secret", "key"]);
        let first = hall.exec(&id, "printenv KEY").exits(0).out();
        assert!(first.starts_with("sk_live_") && first.trim() != real, "{first}");
        assert_eq!(hall.exec(&id, "printenv KEY").exits(0).out(), first, "the same for all of a session");
        assert!(
            hall.call(&["exec", "--env", "KEY=mine", &id, "--", "true"])
                .exits(125)
                .err()
                .contains("placeholder")
        );
        hall.call(&["exec", "--env", "OTHER=mine", &id, "--", "sh", "-c", "test $OTHER = mine"]).exits(0);
        hall.call(&["revoke", &id, "key"]).exits(0);
        hall.call(&["egress", &id, "off"]).exits(0);
        hall.call(&["kill", &id]).exits(0);
        site.call(&["trace", "verify", &id]).exits(0);
        assert!(!fs::read_to_string(site.events_file(&id)).unwrap().contains(real));
    });
}

#[test]
fn a_first_use_by_many_at_once_makes_one_supervisor() {
    each(|site| {
        let hall = Hall(site);
        let creating: Vec<_> =
            (0..20).map(|n| hall.creating(&["--name", &format!("s{n}")]).start()).collect();
        let ids: Vec<String> =
            creating.into_iter().map(|one| one.finish().exits(0).out().trim().to_owned()).collect();
        let home = site.state();
        eventually("one supervisor", || {
            (processes_with(&format!("supervise --home {}", home.display())).len() == 1).then_some(())
        });
        let running: Vec<_> = (0..20)
            .map(|n| hall.exec(&format!("s{n}"), &format!("echo {n} > file-{n}; exit {n}")).start())
            .collect();
        for (n, running) in running.into_iter().enumerate() {
            running.finish().exits(n as i32);
        }
        let listed: Value = serde_json::from_str(&hall.call(&["ls", "--json"]).exits(0).out()).unwrap();
        assert_eq!(listed.as_array().unwrap().len(), 20);
        assert!(hall.creating(&["--name", "s7"]).exits(2).err().contains("already"));
        let ending: Vec<_> = ids.iter().map(|id| hall.call(&["kill", id]).start()).collect();
        ending.into_iter().for_each(|one| drop(one.finish().exits(0)));
        for (n, id) in ids.iter().enumerate() {
            site.call(&["trace", "verify", id]).exits(0);
            assert_eq!(site.read(format!("file-{n}")), format!("{n}\n"));
        }
        nothing_is_left(site);
    });
}

#[test]
fn nothing_is_left_when_the_supervisor_is_killed() {
    each(|site| {
        let (hall, mark) = (Hall(site), mark(site));
        for moment in [0, 5, 15, 40, 100] {
            let creating = hall.creating(&[]).start();
            let pid = eventually("the supervisor", || hall.supervisor());
            std::thread::sleep(Duration::from_millis(moment));
            let _ = kill_process(pid, Signal::KILL);
            // It starts another, or its session is lost; either way it comes back.
            drop(creating.finish());
            if let Some(pid) = hall.supervisor() {
                let _ = kill_process(pid, Signal::KILL);
            }
            eventually("it to be gone", || hall.supervisor().is_none().then_some(()));
        }
        let id = hall.create(&["--name", "mine"]);
        let running = hall.exec("mine", &tree(&mark)).start();
        eventually("the tree of processes", || (processes_with(&mark).len() > 7).then_some(()));
        if hall.can_pause() {
            hall.call(&["pause", "mine"]).exits(0);
        }
        kill_process(hall.supervisor().unwrap(), Signal::KILL).unwrap();
        let done = running.finish().exits(125);
        assert!(done.err().contains("was lost"), "{}", done.err());
        eventually("every process of the session to be gone", || {
            processes_with(&mark).is_empty().then_some(())
        });
        let found = hall.call(&["ls"]).exits(0).out();
        assert!(found.contains("lost") && found.contains("supervisor"), "{found}");
        assert_eq!(hall.show("mine")["state"], "lost");
        assert!(hall.exec("mine", "true").exits(125).err().contains("is lost"));
        site.call(&["trace", "verify", &id]).exits(3);
        let again = hall.create(&["--name", "mine"]);
        hall.exec("mine", "true").exits(0);
        hall.call(&["kill", &id]).exits(0);
        hall.call(&["kill", &again]).exits(0);
        assert!(!hall.call(&["ls"]).exits(0).out().contains("mine"));
        nothing_is_left(site);
    });
}

/// The files of a session outlive the supervisor, wherever they lie on disk and whatever lies beneath them.
#[test]
fn files_on_disk_outlive_the_supervisor() {
    each(|site| {
        if site.mode == Mode::Range {
            return;
        }
        let hall = Hall(site);
        let die = || {
            hall.kill_supervisor();
        };
        site.write("file", "before\n");
        site.write(".env", "TOKEN=hidden\n");
        let id = hall.create(&["--name", "mine", "--layer", "disk"]);
        hall.does("mine", "echo one >> file; mkdir d; echo x > d/x; chmod 640 d/x");
        hall.asks(&["snapshot", "mine", "early"]);
        hall.does("mine", "echo two >> file; rm -r d; ln file linked");
        hall.asks(&["begin", "mine"]);
        hall.does("mine", "echo open >> file");
        hall.asks(&["rollback", "mine"]);
        let before = hall.print("mine");
        hall.asks(&["begin", "mine"]);
        hall.does("mine", "echo open >> file");
        die();
        // Whoever starts next, of whatever kind.
        site.run(&["true"]).exits(0);
        assert_eq!(site.remains(), Vec::<String>::new());
        let lost = format!("lost-{id}");
        assert!(hall.call(&["snapshots"]).exits(0).out().contains(&lost));
        assert!(hall.show(&id)["reason"].as_str().unwrap().contains(&lost));
        hall.asks(&["snapshots", "--rm", "early"]);
        let again = hall.create(&["--name", "again", "--from", &lost]);
        assert_eq!(hall.print("again"), before, "all but the open transaction");
        assert_eq!(hall.exec("again", "cat .env").done().code(), 1, "what is hidden stays hidden");
        // Once more, over what lies beneath now; and what was committed is not told again.
        hall.does("again", "echo three >> file");
        hall.asks(&["commit", "again"]);
        hall.does("again", "echo four > new");
        die();
        let third = hall.create(&["--from", &format!("lost-{again}")]);
        assert_eq!(hall.does(&third, "cat file new"), "before\none\ntwo\nthree\nfour\n");
        assert_eq!(hall.diff(&third).len(), 1);
        hall.asks(&["kill", &third]);
        assert_eq!(site.read("new"), "four\n");
        assert_eq!(site.read("file"), "before\none\ntwo\nthree\n");
        // One that is given up takes its files along, and one that ends leaves none.
        for session in [&id, &again] {
            hall.asks(&["kill", session]);
        }
        let last = hall.create(&["--layer", "disk"]);
        hall.does(&last, "echo x > x");
        hall.asks(&["kill", &last, "--changes", "discard"]);
        assert_eq!(hall.call(&["snapshots", "--json"]).exits(0).out().trim(), "[]");
        nothing_is_left(site);
    });
}

/// Second by second, adding up to what the kernel counts, and still there when the supervisor is killed.
#[test]
fn what_is_used_is_written_down_every_second() {
    let site = site();
    let hall = Hall(&site);
    let id = hall.create(&[]);
    let usage = |id: &str| -> Value {
        serde_json::from_str(&site.call(&["usage", id, "--json"]).exits(0).out()).unwrap()
    };
    hall.exec(&id, "timeout 3 sh -c 'while :; do :; done'; :").exits(0);
    let records = usage(&id)["records"].as_array().unwrap().clone();
    assert!(records.len() >= 2, "{records:?}");
    if hall.can_pause() {
        let busiest = records.iter().map(|record| record["cpu_us"].as_u64().unwrap()).max().unwrap();
        assert!(busiest > 0, "{records:?}");
        // Nothing runs any more: the next line brings both to the same.
        hall.call(&["pause", &id]).exits(0);
        let counted = hall.show(&id)["usage"]["cpu_us"].as_u64().unwrap();
        let written = usage(&id)["total"]["cpu_us"].as_u64().unwrap();
        assert!(counted.abs_diff(written) * 100 <= counted, "{counted} counted, {written} written");
        hall.call(&["resume", &id]).exits(0);
    }
    let before = usage(&id)["records"].as_array().unwrap().len();
    hall.kill_supervisor();
    assert!(usage(&id)["records"].as_array().unwrap().len() >= before);
    assert!(site.call(&["usage"]).exits(0).out().contains(&id));
}

#[test]
fn a_hostile_client_stops_nobody() {
    let site = site();
    let hall = Hall(&site);
    let id = hall.create(&[]);
    for socket in ["supervisor.sock".to_owned(), format!("{id}.sock")] {
        let connect = || UnixStream::connect(site.state().join("live").join(&socket)).unwrap();
        let answer = |bytes: &[u8]| {
            let mut stream = connect();
            // It may be hung up on before it has said everything.
            let _ = stream.write_all(bytes);
            let mut line = String::new();
            let _ = BufReader::new(stream).read_line(&mut line);
            line
        };
        let slow: Vec<UnixStream> = (0..40).map(|_| connect()).collect();
        slow.iter().for_each(|mut stream| stream.write_all(b"{\"ask\":").unwrap());
        for garbage in ["garbage\n", "\0\0\0\n", "[]\n", "{\"ask\":\"exec\"}\n", "{\"ask\":\"no-such\"}\n"] {
            assert!(answer(garbage.as_bytes()).contains("refused"), "{garbage}");
        }
        answer(&vec![b'x'; 5 << 20]);
        assert!(answer(b"{\"ask\":\"exec\",\"argv\":[\"true\"],\"env\":{},\"cwd\":null,\"user\":null,\"tty\":null,\"timeout\":null,\"output\":null,\"stdin\":false,\"detach\":false}\n").contains("refused"));
        hall.exec(&id, "exit 5").exits(5);
        let other = hall.create(&[]);
        hall.call(&["kill", &other]).exits(0);
        drop(slow);
    }
    assert_eq!(hall.exec(&id, "echo still").exits(0).out(), "still\n");
}

#[test]
fn what_is_not_there_is_said() {
    let site = site();
    let hall = Hall(&site);
    assert!(hall.call(&["pause", "nosuch"]).exits(2).err().contains("nosuch"));
    hall.exec("nosuch", "true").exits(125);
    assert_eq!(hall.call(&["ls"]).exits(0).out(), "");
    assert!(hall.creating(&["--name", "Not A Name"]).exits(2).err().contains("live.name"));
    assert!(hall.creating(&["--workdir", "/nowhere"]).exits(2).err().contains("/nowhere"));
    hall.creating(&["--isolation", "process", "--floor", "microvm"]).exits(4);
    let running = site.run(&["sleep", "1000"]).start();
    let listed = eventually("the run to be listed", || {
        let out = hall.call(&["ls"]).exits(0).out();
        out.contains("(run)").then_some(out)
    });
    let id = listed.lines().last().unwrap().split_whitespace().next().unwrap().to_owned();
    eventually("its command", || {
        hall.call(&["show", &id]).exits(0).out().contains("sleep 1000").then_some(())
    });
    hall.call(&["kill", &id]).exits(2);
    running.signal(Signal::KILL);
}
