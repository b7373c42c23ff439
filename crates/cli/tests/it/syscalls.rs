//! System calls on record: what is refused always, what is let through when it is asked for.

use crate::{each, site};
use serde_json::Value;

const WORK: &str = "import os, socket, subprocess\n\
    open('made', 'w').write('x')\n\
    os.rename('made', 'moved')\n\
    os.unlink('moved')\n\
    s = socket.socket()\n\
    try: s.connect(('127.0.0.1', 9))\n\
    except OSError as e: print(e.errno)\n\
    subprocess.run(['/bin/true', 'an argument'], check=True)";

fn about(calls: &[Value], class: &str, word: &str) -> bool {
    calls.iter().any(|call| {
        let told = call["about"].as_array().into_iter().flatten();
        call["class"] == class && told.into_iter().any(|text| text.as_str().unwrap().contains(word))
    })
}

#[test]
fn everything_that_does_something_is_told_when_it_is_asked_for() {
    each(|site| {
        let done = site.run(&["python3", "-c", WORK]).with(&["--syscalls", "all"]).exits(0);
        assert_eq!(done.out().trim(), "111");
        let calls = site.bodies("syscall");
        for (class, word) in [
            ("exec", "an argument"),
            ("exec", "python3"),
            ("open", "made"),
            ("change", "made"),
            ("change", "moved"),
            ("network", "127.0.0.1:9"),
        ] {
            assert!(about(&calls, class, word), "{class} {word}: {calls:#?}");
        }
        let made = calls.iter().find(|call| call["syscall"] == "unlink" || call["syscall"] == "unlinkat");
        let made = made.expect("a file was removed");
        assert_eq!((&made["program"], made["args"].as_array().unwrap().len()), (&"python3".into(), 6));
        assert!(made["pid"].as_u64() < Some(1000), "{made}");
        let report = &site.bodies("enforcement")[0];
        let line =
            report["controls"].as_array().unwrap().iter().find(|line| line["name"] == "seccomp.record");
        assert!(line.unwrap()["detail"].as_str().unwrap().contains("exec, open"), "{line:?}");
        let shown = site.call(&["trace", "show", "latest"]).exits(0).out();
        assert!(shown.contains("program") && shown.contains("an argument"), "{shown}");
        // Unasked there is nothing of it, and the command does the same.
        site.run(&["python3", "-c", WORK]).exits(0);
        assert!(site.bodies("syscall").is_empty());
    });
}

/// Threads, signals and many processes at once: nobody is held up or lost.
#[test]
fn many_callers_at_once_are_all_heard() {
    const MANY: &str = "import os, signal, threading\n\
        signal.signal(signal.SIGALRM, lambda *_: None)\n\
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)\n\
        def work(n):\n\
        \x20   for i in range(50): open(f'many-{n}-{i}', 'w').close(); os.unlink(f'many-{n}-{i}')\n\
        pids = []\n\
        for p in range(4):\n\
        \x20   pid = os.fork()\n\
        \x20   if pid == 0:\n\
        \x20       work(p); os._exit(0)\n\
        \x20   pids.append(pid)\n\
        threads = [threading.Thread(target=work, args=(n,)) for n in range(10, 14)]\n\
        [t.start() for t in threads]; [t.join() for t in threads]\n\
        signal.setitimer(signal.ITIMER_REAL, 0)\n\
        print([os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in pids])";
    let site = site();
    let done = site.run(&["python3", "-c", MANY]).with(&["--syscalls", "all"]).exits(0);
    assert_eq!(done.out().trim(), "[0, 0, 0, 0]");
    let calls = site.bodies("syscall");
    let opened = |path: &str| calls.iter().any(|call| call["class"] == "open" && call["about"][0] == path);
    for n in [0, 1, 2, 3, 10, 11, 12, 13] {
        for i in 0..50 {
            assert!(opened(&format!("many-{n}-{i}")), "many-{n}-{i}");
        }
    }
    let id = site.traces().pop().unwrap();
    site.call(&["trace", "verify", &id]).exits(0);
}

#[test]
fn who_is_refused_is_told_why_and_by_whom() {
    each(|site| {
        let done = site.sh("unshare -U true; echo $?").exits(0);
        assert_ne!(done.out().trim(), "0");
        assert!(
            done.err().contains("cofferdam: `unshare` is refused in this sandbox: no new namespaces")
                || done.err().contains("cofferdam: `clone` is refused in this sandbox: no new namespaces"),
            "{}",
            done.err()
        );
        let blocked = &site.bodies("blocked")[0];
        assert_eq!(blocked["argv"], serde_json::json!(["unshare", "-U", "true"]), "{blocked}");
        // In `--json` too.
        let done = site.sh("unshare -U true; unshare -U true").with(&["--json"]).done();
        let said: Value = serde_json::from_str(done.err().lines().last().unwrap()).unwrap();
        assert_eq!(
            (&said["refused"][0]["syscall"], &said["refused"][0]["times"]),
            (&"unshare".into(), &2.into())
        );
        // What programs try to find out what there is is recorded, and nobody is bothered.
        let quiet = "import ctypes; print(ctypes.CDLL(None, use_errno=True).syscall(425, 1, 0))";
        let done = site.run(&["python3", "-c", quiet]).exits(0);
        assert_eq!((done.out().trim(), done.err().contains("io_uring")), ("-1", false), "{}", done.err());
        assert_eq!(site.bodies("blocked")[0]["syscall"], "io_uring_setup");
    });
}

/// A flood of like attempts is counted, and cannot fill the trace.
#[test]
fn a_flood_is_folded() {
    let site = site();
    let flood = "import ctypes\nc = ctypes.CDLL(None)\nfor _ in range(3000): c.syscall(425, 1, 0)";
    site.run(&["python3", "-c", flood]).exits(0);
    let blocked = site.bodies("blocked");
    let times: u64 = blocked.iter().map(|event| event["times"].as_u64().unwrap()).sum();
    assert_eq!((blocked.len() <= 3, times), (true, 3000), "{} events", blocked.len());
}
