//! What a command is started with, and how its end is told.

use crate::harness::{Guest, Seen, shell};
use cofferdam_guest::wire::{Exec, Outcome, Stdin, Step, Stream, Target, User};
use std::os::unix::fs::PermissionsExt;

fn run(exec: &Exec<'_>) -> Seen {
    Guest::start().run(exec)
}

#[test]
fn output_and_exit_code() {
    let seen = run(&shell("echo out; echo err >&2; exit 7"));
    assert_eq!(seen.text(), "out\n");
    assert_eq!(seen.stderr, b"err\n");
    assert_eq!(seen.outcome(), Outcome::Code(7));
    assert!(seen.pid.unwrap() > 1 && seen.ended.len() == 2);
}

#[test]
fn a_guest_greets_and_ends_with_the_host() {
    let mut guest = Guest::start();
    let id = guest.exec(&shell("exec sleep 1000"));
    let pid = guest.until(id, |seen| seen.pid.is_some()).pid.unwrap();
    assert!(guest.ready);
    assert_eq!(guest.close().code(), Some(cofferdam_guest::exit::CLOSED));
    // Without a namespace around them the guest ends its commands itself; they are init's to reap then.
    let runs = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.contains("Name:\tsleep") && !status.contains("State:\tZ")
    };
    while runs() {
        std::thread::yield_now();
    }
}

#[test]
fn environment_and_directory() {
    let exec = Exec { env: vec![b"PATH=/usr/bin:/bin", b"A=b c"], cwd: b"/usr", ..shell("env; pwd") };
    let seen = run(&exec);
    let mut lines: Vec<&str> = std::str::from_utf8(&seen.stdout).unwrap().lines().collect();
    lines.sort_unstable();
    // The shell adds PWD.
    assert_eq!(lines, ["/usr", "A=b c", "PATH=/usr/bin:/bin", "PWD=/usr"]);
}

#[test]
fn nothing_of_the_guest_leaks() {
    let script = "ls /proc/self/fd; grep -E 'SigBlk|SigIgn' /proc/self/status; ps -o sid= -p $$";
    for stdin in [Stdin::Null, Stdin::Piped] {
        let mut guest = Guest::start();
        let id = guest.exec(&Exec { stdin, ..shell(script) });
        let seen = guest.finish(id);
        let pid = seen.pid.unwrap();
        let expected = "0\n1\n2\n3\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n";
        let text = seen.text();
        // 3 is the directory that `ls` itself has open.
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(text.lines().last().unwrap().trim(), pid.to_string());
    }
}

#[test]
fn the_end_by_a_signal_is_told() {
    let seen = run(&shell("kill -9 $$"));
    assert_eq!(seen.outcome(), Outcome::Signal { number: 9, core: false });
}

#[test]
fn signals_reach_the_whole_group_or_the_leader_alone() {
    let script = "trap 'echo leader; exit 3' TERM; sh -c 'trap \"echo child; exit\" TERM; echo up; \
        while :; do sleep 0.01; done' & wait; wait";
    for (target, expected) in [(Target::Group, true), (Target::Foreground, true), (Target::Leader, false)] {
        let mut guest = Guest::start();
        let id = guest.exec(&shell(script));
        guest.until(id, |seen| seen.text().contains("up"));
        guest.client.signal(id, 15, target).unwrap();
        let seen = guest.finish(id);
        assert_eq!(seen.outcome(), Outcome::Code(3), "{target:?}");
        if !expected {
            assert!(!seen.text().contains("child"), "{target:?}");
        }
    }
}

#[test]
fn a_signal_to_the_guest_is_passed_on() {
    let mut guest = Guest::start();
    let id = guest.exec(&shell("trap 'exit 9' USR1; echo up; while :; do sleep 0.01; done"));
    guest.until(id, |seen| seen.text().contains("up"));
    let pid = guest.process.id();
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
    assert_eq!(guest.finish(id).outcome(), Outcome::Code(9));
}

#[test]
fn usage_is_told() {
    let seen = run(&shell("i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done"));
    let usage = seen.exited.unwrap().usage;
    assert!(usage.user_us + usage.system_us > 1000, "{usage:?}");
    assert!(usage.max_rss > 500_000 && usage.max_rss < 1 << 30, "{usage:?}");
}

#[track_caller]
fn check(argv: &[&str], cwd: &str, path: &str, expected: Outcome) {
    let path = format!("PATH={path}");
    let exec = Exec {
        argv: argv.iter().map(|arg| arg.as_bytes()).collect(),
        env: vec![path.as_bytes()],
        cwd: cwd.as_bytes(),
        ..shell("")
    };
    let seen = run(&exec);
    assert_eq!(seen.outcome(), expected, "{argv:?}");
}

#[test]
fn not_found_and_not_executable_as_in_a_shell() {
    const EACCES: u16 = 13;
    const ENOEXEC: u16 = 8;
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, mode: u32, content: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    };
    write("plain", 0o644, b"echo no");
    write("script", 0o755, b"exit $1");
    write("alien", 0o755, b"\x7fELF\0\0");
    write("lost", 0o755, b"#!/no/such/interpreter\n");
    let here = dir.path().to_str().unwrap();
    check(&["no-such-program"], "/", "/usr/bin:/bin", Outcome::NotFound);
    check(&["/no/such/program"], "/", "", Outcome::NotFound);
    check(&["plain"], "/", here, Outcome::NotExecutable { errno: EACCES });
    check(&["./plain"], here, "", Outcome::NotExecutable { errno: EACCES });
    check(&["./plain/x"], here, "", Outcome::NotFound);
    check(&["script", "42"], "/", here, Outcome::Code(42));
    check(&["./script", "42"], here, "", Outcome::Code(42));
    check(&["script", "42"], here, "", Outcome::Code(42));
    check(&["alien"], "/", here, Outcome::NotExecutable { errno: ENOEXEC });
    check(&["lost"], "/", here, Outcome::NotFound);
    check(&["true"], "/no/such/dir", "/usr/bin", Outcome::Failed { step: Step::Directory, errno: 2 });
}

#[test]
fn a_user_that_cannot_be_become_is_refused() {
    let user = User { uid: 12345, gid: 23456, groups: vec![34567] };
    let seen = run(&Exec { user: Some(user), ..shell("id -u; id -g; id -G") });
    if rustix::process::geteuid().is_root() {
        assert_eq!(seen.text(), "12345\n23456\n23456 34567\n");
    } else {
        assert_eq!(seen.outcome(), Outcome::Failed { step: Step::User, errno: 1 });
    }
}

#[test]
fn orphans_are_reaped() {
    let mut guest = Guest::start();
    let id = guest.exec(&shell("i=0; while [ $i -lt 20 ]; do (sleep 0 &) ; i=$((i+1)); done"));
    guest.finish(id);
    let parent = guest.process.id().as_raw_nonzero();
    let zombies = || -> usize {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
        children.split_whitespace().count()
    };
    // Whatever else is reaped before this one: the guest takes them in the order in which they end.
    while zombies() > 0 {
        guest.run(&shell("true"));
    }
}

#[test]
fn three_at_once() {
    let mut guest = Guest::start();
    let ids: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|name| {
            let script = format!("read -r go; i=0; while [ $i -lt 500 ]; do echo {name}$i; i=$((i+1)); done");
            guest.exec(&Exec { stdin: Stdin::Piped, ..shell(&script) })
        })
        .collect();
    for id in &ids {
        guest.until(*id, |seen| seen.pid.is_some());
    }
    for id in ids.iter().rev() {
        guest.client.input(*id, b"go\n");
    }
    for (id, name) in ids.into_iter().zip(["a", "b", "c"]) {
        let seen = guest.finish(id);
        let expected: String = (0..500).map(|i| format!("{name}{i}\n")).collect();
        assert_eq!(seen.text(), expected);
        assert_eq!(seen.outcome(), Outcome::Code(0));
        assert!(seen.ended.contains(&Stream::Stdout));
    }
}

#[test]
fn a_long_command_line() {
    let long = "x".repeat(100_000);
    let mut exec = shell("echo ${#1} ${#2} $#");
    exec.argv.push(b"sh");
    let words = [long.as_bytes(); 15];
    exec.argv.extend(words);
    let mut guest = Guest::start();
    assert_eq!(guest.run(&exec).text(), "100000 100000 15\n");
    // And one that the kernel refuses: the guest goes on.
    let much = "x".repeat(3 << 20);
    let mut exec = shell("true");
    exec.argv.push(much.as_bytes());
    assert_eq!(guest.run(&exec).outcome(), Outcome::NotExecutable { errno: 7 });
    assert_eq!(guest.run(&shell("true")).outcome(), Outcome::Code(0));
}
