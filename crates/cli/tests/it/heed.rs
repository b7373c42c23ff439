//! Code inside that holds up the first process of its own sandbox: a limit that only that one could enforce still holds,
//! because whoever holds the sandbox ends it, and says why.

use crate::crash::{mark, nothing_is_left};
use crate::each;
use crate::live::Hall;
use cofferdam_testkit::{Site, eventually, processes_with};
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// Stops every process that it may, as fast as it can: also one that is about to become a command.
const STOP_ALL: &str = "import os, signal
while True:
    try: os.kill(-1, signal.SIGSTOP)
    except OSError: pass
";

fn events(site: &Site, id: &str) -> Vec<Value> {
    let events = std::fs::read_to_string(site.events_file(id)).unwrap();
    events.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Whoever opens the file waits until this has ended.
const HOLD_BACK: &str = "import fcntl, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open('/tmp/program', 'rb')
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
open('/tmp/held', 'w').close()
time.sleep(1000)
";

/// The first process of a sandbox waits for no command to begin, whatever somebody inside does to it meanwhile.
#[test]
fn a_command_that_cannot_begin_holds_up_nobody() {
    each(|site| {
        let hall = Hall(site);
        let id = hall.create(&["--changes", "discard"]);
        hall.exec(&id, "printf '#!/bin/sh\\necho ran' > /tmp/program; chmod 755 /tmp/program").exits(0);
        assert_eq!(hall.call(&["exec", &id, "--", "/tmp/program"]).exits(0).out(), "ran\n");
        let holder = hall.call(&["exec", &id, "--", "python3", "-c", HOLD_BACK]).start();
        hall.exec(&id, "while ! test -e /tmp/held; do sleep 0.05; done").exits(0);
        let held = hall.call(&["exec", &id, "--", "/tmp/program"]).start();
        let limited = hall.call(&["exec", "--timeout", "1s", &id, "--", "/tmp/program"]).exits(124);
        assert!(limited.err().contains("time limit"), "{}", limited.err());
        assert_eq!(hall.exec(&id, "echo on").exits(0).out(), "on\n");
        let late = held.finish().exits(125);
        assert!(late.err().contains("it was not its program after 8 s"), "{}", late.err());
        holder.signal(Signal::TERM);
        holder.finish();
        assert_eq!(hall.call(&["exec", &id, "--", "/tmp/program"]).exits(0).out(), "ran\n");
        no_watchdog(site, &id);
    });
}

/// Nor does it by stopping all there is.
#[test]
fn limits_hold_where_everything_is_stopped() {
    each(|site| {
        let hall = Hall(site);
        let id = hall.create(&["--changes", "discard"]);
        let hostile = hall.call(&["exec", &id, "--", "python3", "-c", STOP_ALL]).start();
        for _ in 0..5 {
            let done = hall.call(&["exec", "--timeout", "500ms", &id, "--", "true"]).done();
            assert!([0, 124].contains(&done.code()), "{}", done.err());
        }
        hostile.signal(Signal::TERM);
        hostile.finish();
        assert_eq!(hall.exec(&id, "echo on").exits(0).out(), "on\n");
        no_watchdog(site, &id);
    });
}

fn no_watchdog(site: &Site, id: &str) {
    let by_watchdog = events(site, id).into_iter().find(|event| event["body"]["by"] == "watchdog");
    assert_eq!(by_watchdog, None);
}

#[test]
fn a_guest_that_does_nothing_any_more_is_ended_with_its_sandbox() {
    each(|site| {
        let (hall, mark) = (Hall(site), mark(site));
        let id = hall.create(&["--changes", "discard"]);
        hall.call(&["exec", "--detach", &id, "--", "sh", "-c", &format!(": {mark}; sleep 1000; :")]).exits(0);
        stop(parent_of(&mark));
        // Whoever asks for a command now is told something, sooner or later; the session does not stay as it is.
        let lives = || hall.call(&["ls", "--json"]).exits(0).out().contains(id.as_str());
        eventually("the session to be ended", || {
            let _ = hall.call(&["exec", "--timeout", "1s", &id, "--", "true"]).done();
            (!lives()).then_some(())
        });
        let events = events(site, &id);
        let of = |kind: &str| events.iter().filter(|event| event["kind"] == kind).collect::<Vec<_>>();
        let changed = of("session.changed");
        let killed = changed.last().map(|event| event["body"].clone()).unwrap_or_default();
        assert_eq!((&killed["what"], &killed["by"]), (&"kill".into(), &"watchdog".into()), "{events:#?}");
        assert!(killed["detail"].as_str().unwrap().contains("so all of it was ended"), "{killed}");
        assert_eq!(of("exec.started").len(), of("exec.exited").len(), "all that ran is told of");
        site.call(&["trace", "verify", &id]).exits(0);
        assert_eq!(processes_with(&mark), Vec::<String>::new());
        nothing_is_left(site);
    });
}

/// Of a command: the first process of its sandbox, as the machine numbers it.
fn parent_of(mark: &str) -> Pid {
    let found = eventually("the command", || processes_with(&format!(": {mark}; sleep")).into_iter().next());
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", found.split(':').next().unwrap())).unwrap();
    let parent = stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    Pid::from_raw(parent).unwrap()
}

/// As nobody inside can.
fn stop(pid: Pid) {
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
}

/// Time in which nothing can run counts for no limit, however long it is.
#[test]
fn a_time_limit_stands_still_while_its_session_is_paused() {
    each(|site| {
        let hall = Hall(site);
        if !hall.can_pause() {
            return;
        }
        let id = hall.create(&["--changes", "discard"]);
        let script = "touch begun; while ! test -e go; do sleep 0.1; done; echo through";
        let limited = hall.call(&["exec", "--timeout", "10s", &id, "--", "sh", "-c", script]).start();
        hall.exec(&id, "while ! test -e begun; do sleep 0.1; done").exits(0);
        hall.call(&["pause", &id]).exits(0);
        std::thread::sleep(std::time::Duration::from_secs(11));
        hall.call(&["resume", &id]).exits(0);
        hall.exec(&id, "touch go").exits(0);
        assert_eq!(limited.finish().exits(0).out(), "through\n");
    });
}
