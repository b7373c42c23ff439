//! `cofferdam run`: bytes, codes and signals behave as without it; what is ours ends with 125 and says why.

use crate::live::Hall;
use crate::{each, site};
use cofferdam_testkit::{Running, eventually, finish, processes_with};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

#[test]
fn streams_and_code_are_the_commands_own() {
    each(|site| {
        let done = site.sh("cat; echo err >&2; exit 3").input("in").exits(3);
        assert_eq!((done.out(), done.err()), ("in".into(), "err\n".into()));
        let done = site.run(&["true"]).exits(0);
        assert_eq!((done.out(), done.err()), (String::new(), String::new()));
    });
}

#[test]
fn every_code_passes_through() {
    let site = site();
    for code in [1, 2, 99, 124, 125, 200, 255] {
        site.sh(&format!("exit {code}")).exits(code);
    }
}

#[test]
fn a_signal_is_told_as_a_shell_tells_it() {
    each(|site| {
        for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11)] {
            site.sh(&format!("kill -{name} $$")).exits(128 + number);
        }
    });
}

#[test]
fn a_command_that_is_not_there_is_named() {
    each(|site| {
        let done = site.run(&["no-such-program", "x"]).exits(127);
        assert!(done.err().contains("no-such-program"), "{}", done.err());
        site.run(&["./neither"]).exits(127);
    });
}

#[test]
fn a_file_that_cannot_be_executed_is_named() {
    each(|site| {
        site.write("data.txt", "just text\n");
        let done = site.run(&["./data.txt"]).exits(126);
        assert!(done.err().contains("data.txt"), "{}", done.err());
        site.run(&["/etc"]).exits(126);
    });
}

#[test]
fn a_script_without_a_first_line_is_run_by_the_shell() {
    each(|site| {
        let script = site.write("script", "echo from $0\n");
        fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
        // What `execvp` does, and every shell: an unknown format is a script of `sh`.
        assert_eq!(site.run(&["./script"]).exits(0).out(), "from ./script\n");
    });
}

/// Bytes that do not repeat early.
fn noise(size: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

#[test]
fn much_input_arrives_whole() {
    each(|site| {
        let input = noise(20 << 20);
        let done = site.run(&["cat"]).input(input.clone()).exits(0);
        assert!(done.stdout == input, "{} bytes of {} came back", done.stdout.len(), input.len());
    });
}

#[test]
fn much_output_arrives_whole() {
    let site = site();
    let done = site.sh("head -c 100000000 /dev/zero | tr '\\0' x").exits(0);
    assert_eq!(done.stdout.len(), 100_000_000);
    assert!(done.stdout.iter().all(|&byte| byte == b'x'));
    assert_eq!(site.bodies("output")[0]["bytes"], 100_000_000);
}

#[test]
fn both_streams_at_once_do_not_wait_for_each_other() {
    let site = site();
    let script = "head -c 3000000 /dev/zero & head -c 3000000 /dev/zero >&2 & wait";
    let done = site.sh(script).exits(0);
    assert_eq!((done.stdout.len(), done.stderr.len()), (3_000_000, 3_000_000));
}

#[test]
fn a_reader_that_leaves_ends_the_writer() {
    each(|site| {
        let mut command = site.run(&["yes"]).command();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 1000];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let ended = eventually("`yes` to end after its reader", || match child.try_wait().unwrap() {
            None => None,
            Some(status) => status.code(),
        });
        assert_eq!(ended, 128 + 13, "SIGPIPE");
    });
}

#[test]
fn a_pipe_inside_ends_as_it_should() {
    each(|site| {
        let done = site.sh("yes | head -c 50000000 | wc -c").exits(0);
        assert_eq!(done.out().trim(), "50000000");
    });
}

#[test]
fn a_command_may_close_its_streams() {
    each(|site| {
        site.sh("exec 0<&- 1>&- 2>&-; sleep 0.1; exit 7").exits(7);
        site.sh("exec 0<&-; echo still here").input("unread").exits(0);
    });
}

#[test]
fn a_caller_may_close_its_streams() {
    each(|site| {
        let line = format!("{} run -- sh -c 'echo x; exit 5' <&- >&- 2>&-", site.binary().display());
        finish(site.command("sh").args(["-c", &line])).exits(5);
    });
}

#[test]
fn a_daemon_left_behind_does_not_hold_the_run_up_and_is_gone() {
    each(|site| {
        let marker = format!("86{:?}.25", site.mode.ids().0);
        let script =
            format!("setsid sleep {marker} </dev/null >/dev/null 2>&1 & setsid sleep {marker} & echo gone");
        assert_eq!(site.sh(&script).exits(0).out(), "gone\n");
        assert_eq!(processes_with(&format!("sleep {marker}")), Vec::<String>::new());
    });
}

#[test]
fn signals_reach_the_command() {
    each(|site| {
        for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP")] {
            let ready = site.work().join(format!("ready-{name}"));
            let mount = format!("{}:/shared:rw", site.work().display());
            let script =
                format!("trap 'exit 42' {name}; : > /shared/ready-{name}; while :; do sleep 0.05; done");
            let running = site.sh(&script).with(&["--mount", &mount]).start();
            eventually("the command's trap", || ready.exists().then_some(()));
            running.signal(signal);
            running.finish().exits(42);
        }
        let before = site.traces().len();
        let running = site.sh("exec sleep 1000").start();
        eventually("the sleeper's session", || (site.traces().len() > before).then_some(()));
        eventually("its exec", || (!site.bodies("exec.started").is_empty()).then_some(()));
        running.signal(Signal::TERM);
        running.finish().exits(128 + 15);
    });
}

/// Who sends a signal to one process sends it to none of its children, with us as without us.
#[test]
fn a_signal_for_the_command_is_not_its_childrens() {
    let child = "trap 'echo child' TERM; : > /shared/up; for n in 1 2 3 4 5; do sleep 0.1; done";
    let script = format!("trap 'echo leader' TERM; sh -c \"{child}\"; echo over; exit 7");
    each(|site| {
        let (up, mount) = (site.work().join("up"), format!("{}:/shared:rw", site.work().display()));
        let running = site.sh(&script).with(&["--mount", &mount]).start();
        eventually("the child's trap", || up.exists().then_some(()));
        running.signal(Signal::TERM);
        assert_eq!(running.finish().exits(7).out(), "leader\nover\n");
        let hall = Hall(site);
        let id = hall.create(&["--mount", &mount]);
        fs::remove_file(&up).unwrap();
        let running = hall.exec(&id, &script).start();
        eventually("the child's trap", || up.exists().then_some(()));
        running.signal(Signal::TERM);
        assert_eq!(running.finish().exits(7).out(), "leader\nover\n");
    });
}

/// As `nohup` starts a program; and inside, nothing is ignored that its program did not ask for.
#[test]
fn what_we_are_started_to_ignore_does_not_reach_the_command() {
    each(|site| {
        let mount = format!("{}:/shared:rw", site.work().display());
        let inside =
            "grep SigIgn /proc/self/status; : > /shared/up; while [ ! -e /shared/go ]; do sleep 0.02; done";
        let flags = site.mode.flags().join(" ");
        let start = format!("trap '' HUP USR1; exec \"$0\" run {flags} --mount {mount} -- sh -c '{inside}'");
        let running =
            Running::start(site.command("sh").args(["-c", &start]).arg(site.binary()), Some(Vec::new()));
        eventually("its start", || site.work().join("up").exists().then_some(()));
        running.signal(Signal::HUP);
        running.signal(Signal::USR1);
        site.write("go", "");
        assert_eq!(running.finish().exits(0).out(), "SigIgn:\t0000000000000000\n");
    });
}

#[test]
fn a_command_stops_and_goes_on_with_us() {
    each(|site| {
        let mount = format!("{}:/shared:rw", site.work().display());
        let ticks = || std::fs::metadata(site.work().join("ticks")).map_or(0, |found| found.len());
        let ticking = "while :; do echo x >> /shared/ticks; sleep 0.02; done";
        let running = site.sh(ticking).with(&["--mount", &mount]).start();
        stops_and_goes_on(running, ticks);
        let hall = Hall(site);
        let id = hall.create(&["--mount", &mount]);
        fs::remove_file(site.work().join("ticks")).unwrap();
        stops_and_goes_on(hall.exec(&id, ticking).start(), ticks);
    });
}

fn stops_and_goes_on(running: Running, ticks: impl Fn() -> u64) {
    eventually("its first tick", || (ticks() > 0).then_some(()));
    running.signal(Signal::TSTP);
    let stat = format!("/proc/{}/stat", running.pid().as_raw_nonzero());
    eventually("that we stop", || std::fs::read_to_string(&stat).unwrap().contains(") T ").then_some(()));
    let still = || {
        let before = ticks();
        std::thread::sleep(std::time::Duration::from_millis(300));
        (ticks() == before).then_some(before)
    };
    let stopped = eventually("that it stops too", still);
    running.signal(Signal::CONT);
    eventually("that it goes on", || (ticks() > stopped + 2).then_some(()));
    running.signal(Signal::TERM);
    running.finish().exits(128 + 15);
}

#[test]
fn only_variables_that_were_named_are_there() {
    each(|site| {
        let call = site.sh("echo $GIVEN $PASSED ${SECRET_TOKEN-none} ${AWS_SECRET_ACCESS_KEY-none}");
        let call = call.with(&["--env", "GIVEN=a b", "--env", "PASSED"]).env("PASSED", "p");
        let call = call.env("SECRET_TOKEN", "s3cr3t").env("AWS_SECRET_ACCESS_KEY", "s3cr3t");
        assert_eq!(call.exits(0).out(), "a b p none none\n");
        let done = site.run(&["true"]).with(&["--env", "NOT_SET"]).exits(125);
        assert!(done.err().contains("NOT_SET"), "{}", done.err());
        site.run(&["true"]).with(&["--env", "=x"]).exits(125);
    });
}

#[test]
fn a_work_dir_that_is_not_there_is_ours() {
    each(|site| {
        let done = site.run(&["true"]).with(&["--workdir", "/no/such/dir"]).exits(125);
        assert!(done.err().contains("/no/such/dir"), "{}", done.err());
        let file = site.write("file", "");
        site.run(&["true"]).with(&["--workdir", file.to_str().unwrap()]).exits(125);
        site.run(&["true"]).with(&["--workdir", "/proc"]).exits(125);
    });
}

#[test]
fn another_work_dir_is_where_the_command_starts() {
    each(|site| {
        site.write("deep/er/file", "found");
        let done = site.sh("pwd; cat file").with(&["--workdir", "deep/er"]).exits(0);
        assert_eq!(done.out(), format!("{}\nfound", site.work().join("deep/er").display()));
    });
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_floor_that_is_not_met_is_refused() {
    each(|site| {
        let done =
            site.run(&["echo", "ran"]).with(&["--isolation", "process", "--floor", "microvm"]).exits(125);
        assert!(done.out().is_empty() && done.err().contains("microvm"), "{}", done.err());
        let done = site
            .run(&["echo", "ran"])
            .with(&["--isolation", "process", "--floor", "microvm", "--json"])
            .exits(125);
        let told = json(&done.err());
        assert_eq!((&told["error"]["kind"], &told["exit"]), (&"refused".into(), &125.into()));
        assert!(told["error"]["message"].as_str().unwrap().contains("microvm"));
        site.run(&["true"]).with(&["--isolation", "gvisor"]).exits(125);
        let done = site.run(&["true"]).with(&["--require", "no-such-control"]).exits(125);
        assert!(done.err().contains("no-such-control"), "{}", done.err());
    });
}

#[test]
fn mistakes_on_the_command_line_are_ours() {
    let site = site();
    for args in [
        &["run", "--no-such-flag", "--", "true"][..],
        &["run", "--memory", "lots", "--", "true"],
        &["run", "--timeout", "0s", "--", "true"],
        &["run", "--pids", "0", "--", "true"],
        &["run"],
        &["run", "--"],
        &["run", "--", ""],
        &["--json", "run", "--changes", "maybe", "--", "true"],
        &["--home", "/tmp", "run", "--no-such-flag", "--", "true"],
    ] {
        let done = site.call(args).exits(125);
        assert!(!done.err().is_empty(), "{args:?}");
    }
    site.call(&["no-such-command"]).exits(2);
    site.call(&["trace", "show", "zzzz"]).exits(2);
}

#[test]
fn a_spec_file_is_read_and_its_mistakes_are_named_with_their_line() {
    let site = site();
    let run = |name: &str, text: &str| {
        site.write(name, text);
        site.call(&["run", "--spec", name]).done()
    };
    let done =
        run("good.toml", "command = [\"sh\", \"-c\", \"echo $A\"]\n[env]\nA = \"from spec\"\n").exits(0);
    assert_eq!(done.out(), "from spec\n");
    for (name, text, expected) in [
        ("key.toml", "command = [\"true\"]\n\n[limits]\nmemry = \"1G\"\n", "key.toml:4:"),
        ("type.toml", "command = 7\n", "type.toml:1:"),
        ("syntax.toml", "command = [\"true\"\n", "syntax.toml:"),
        ("key.json", "{\n\"comand\": []\n}", "key.json:2:"),
        ("empty.toml", "", "command"),
    ] {
        let done = run(name, text).exits(125);
        assert!(done.err().contains(expected), "{name}: {}", done.err());
    }
    let done = site.call(&["run", "--spec", "missing.toml"]).exits(125);
    assert!(done.err().contains("missing.toml"), "{}", done.err());
    let done = site.call(&["run", "--spec", "good.toml", "--env", "A=flag"]).exits(0);
    assert_eq!(done.out(), "flag\n");
}

#[test]
fn a_policy_that_cannot_be_enforced_is_refused() {
    let site = site();
    site.write("bad.toml", "[[rule]]\nid = \"a\"\neffect =\n");
    site.write("good.toml", "[[rule]]\nid = \"a\"\n");
    for (file, expected) in
        [("missing.toml", "missing.toml"), ("bad.toml", "bad.toml:3"), ("good.toml", "refused")]
    {
        let done = site.run(&["echo", "ran"]).with(&["--policy", file]).exits(125);
        assert!(done.out().is_empty() && done.err().contains(expected), "{file}: {}", done.err());
    }
}

#[test]
fn a_mount_is_read_only_unless_asked_otherwise() {
    each(|site| {
        let data = site.root().join("data");
        fs::create_dir(&data).unwrap();
        site.give(&data);
        fs::write(data.join("given"), "given").unwrap();
        let source = data.to_str().unwrap();
        let script = "cat /data/given; echo x > /data/made";
        let done = site.sh(script).with(&["--mount", &format!("{source}:/data")]).done();
        assert!(done.code() != 0 && done.out() == "given" && !data.join("made").exists(), "{done:?}");
        site.sh(script).with(&["--mount", &format!("{source}:/data:rw")]).exits(0);
        assert_eq!(fs::read_to_string(data.join("made")).unwrap(), "x\n");
        let done = site.run(&["true"]).with(&["--mount", "/no/such:/data"]).exits(125);
        assert!(done.err().contains("/no/such"), "{}", done.err());
    });
}

#[test]
fn a_run_tells_about_itself_in_json() {
    each(|site| {
        let done = site.sh("exit 4").with(&["--json"]).exits(4);
        let told = json(&done.err());
        assert_eq!((&told["exit"], &told["tier"]), (&4.into(), &"process".into()));
        assert_eq!(told["session"].as_str(), site.traces().last().map(String::as_str));
        site.sh("exit 0").with(&["--trace-out", "out.jsonl"]).exits(0);
        site.sh("exit 0").with(&["--trace-out", "out.bundle"]).exits(0);
        for file in ["out.jsonl", "out.bundle"] {
            site.call(&["trace", "verify", site.work().join(file).to_str().unwrap()]).exits(0);
        }
    });
}

#[test]
fn what_a_command_was_given_is_on_record_by_its_digest() {
    let site = site();
    let input = "sk_live_somebody_piped_a_key\n".repeat(9_000);
    let out = site.run(&["sha256sum"]).input(input.clone()).exits(0).out();
    let given: Vec<_> = site.bodies("output").into_iter().filter(|body| body["stream"] == "stdin").collect();
    assert_eq!((given.len(), &given[0]["bytes"]), (1, &serde_json::json!(input.len())));
    assert_eq!(given[0]["digest"].as_str(), out.split(' ').next());
    // No byte of it is kept. What a command says is, which shows that the search would find it.
    let told = || site.call(&["trace", "show", "latest", "--full"]).exits(0).out().contains("somebody_piped");
    assert!(!told() && given[0]["head"].is_null() && given[0]["tail"].is_null(), "{given:?}");
    site.run(&["cat"]).input(input).exits(0);
    assert!(told());
    site.run(&["true"]).exits(0);
    assert!(site.bodies("output").is_empty());
}
