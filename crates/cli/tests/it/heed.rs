//! Code inside that holds up the first process of its own sandbox: a limit that only that one could enforce still holds,
//! because whoever holds the sandbox ends it, and says why.

use crate::crash::{mark, nothing_is_left};
use crate::each;
use crate::live::Hall;
use cofferdam_testkit::{Site, eventually, processes_with};
use serde_json::Value;

/// Stops every process that it may, as fast as it can: also one that is about to become a command, for which the first
/// process waits.
const STOP_ALL: &str = "import os, signal
while True:
    try: os.kill(-1, signal.SIGSTOP)
    except OSError: pass
";

fn events(site: &Site, id: &str) -> Vec<Value> {
    let events = std::fs::read_to_string(site.events_file(id)).unwrap();
    events.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_guest_that_does_nothing_any_more_is_ended_with_its_sandbox() {
    each(|site| {
        let (hall, mark) = (Hall(site), mark(site));
        let id = hall.create(&["--changes", "discard"]);
        let hostile = format!("{STOP_ALL}# {mark}");
        hall.call(&["exec", "--detach", &id, "--", "python3", "-c", &hostile]).exits(0);
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
