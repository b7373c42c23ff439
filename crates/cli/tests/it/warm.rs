//! An interpreter that a session keeps: copies of it are processes as any other, and what cannot be one is started.

use crate::each;
use crate::live::Hall;
use cofferdam_testkit::{Mode, Site, eventually};
use rustix::process::Signal;
use std::time::Duration;

/// Whether what runs is a copy: a module that it has not imported is there.
const PROBE: &str = "import sys\nprint('colorsys' in sys.modules)\n";

const LOOK: &str = r#"
"""Words."""
import os, sys
print(sys.argv, sys.orig_argv, __name__, __file__, __package__, __spec__, __doc__, sys.path[0], os.getcwd())
print(sorted(globals()), sys.flags, sys.stdin, sys.stdout, sys.stderr)
print(sorted((n, v) for n, v in os.environ.items() if n != "COFFERDAM_SESSION"))
print(sys.stdin.read(), os.getsid(0) == os.getpid() == os.getpgrp(), os.getppid())
print(sorted(int(n) for n in os.listdir("/proc/self/fd"))[:3], len(os.listdir("/proc/self/fd")))
import signal
print([signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD)])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), os.getgroups(), os.getuid())
held = ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp:", "Seccomp_filters")
print([line for line in open("/proc/self/status") if line.startswith(held)])
try:
    open("/run/cofferdam.probe", "w")
except OSError as error:
    print(error)
import beside
"#;

/// Each with the code that it ends with.
const SCRIPTS: &[(&str, &str, i32)] = &[
    ("look", LOOK, 0),
    (
        "raises",
        "def f():\n    raise ValueError('x')\ntry:\n    f()\nexcept ValueError as e:\n    raise KeyError(1) from e\n",
        1,
    ),
    ("broken", "x = = 1\n", 1),
    ("exits", "import sys\nprint('said')\nsys.exit(3)\n", 3),
    ("says", "import sys\nsys.exit('gone')\n", 1),
    (
        "leaves",
        "import atexit, sys\natexit.register(print, 'bye')\nprint('err', file=sys.stderr)\nraise SystemExit\n",
        0,
    ),
    ("hooked", "import sys\nsys.excepthook = lambda t, v, tb: print('hook', t, v, tb.tb_lineno)\n1/0\n", 1),
];

fn python(hall: &Hall<'_>, id: &str, words: &[&str]) -> (i32, String, String) {
    let words = [&["exec", id, "--", "python3"][..], words].concat();
    let done = hall.call(&words).input("input").done();
    (done.code(), done.out(), done.err())
}

/// Waits until the interpreter has imported everything.
fn warmed(hall: &Hall<'_>, id: &str) {
    eventually("the interpreter to be warm", || {
        (python(hall, id, &["probe.py"]).1 == "True\n").then_some(()).or_else(|| {
            std::thread::sleep(Duration::from_millis(50));
            None
        })
    });
}

fn write(site: &Site) {
    site.write("probe.py", PROBE);
    site.write("sub/beside.py", "print('beside')\n");
    for (name, text, _) in SCRIPTS {
        site.write(format!("sub/{name}.py"), text);
    }
}

#[test]
fn a_copy_is_what_a_new_interpreter_would_be() {
    each(|site| {
        let hall = Hall(site);
        write(site);
        let policy = site.write("p.toml", "");
        let guarded = ["--policy", policy.to_str().unwrap()];
        for flags in [&[][..], &guarded] {
            let plain = hall.create(flags);
            let warm = hall.create(&[flags, &["--warm", "python:colorsys,http.client"]].concat());
            warmed(&hall, &warm);
            assert_eq!(python(&hall, &plain, &["probe.py"]).1, "False\n");
            for (name, _, code) in SCRIPTS {
                let words = [&format!("sub/{name}.py"), "one", "two words"];
                let (new, copy) = (python(&hall, &plain, &words), python(&hall, &warm, &words));
                assert_eq!(copy, new, "{name}");
                assert_eq!(copy.0, *code, "{name}: {copy:?}");
            }
            assert!(
                python(&hall, &warm, &["sub/look.py"])
                    .1
                    .ends_with("Permission denied: '/run/cofferdam.probe'\nbeside\n")
            );
            for id in [&plain, &warm] {
                hall.asks(&["kill", id, "--changes", "discard"]);
                site.call(&["trace", "verify", id]).exits(0);
            }
        }
    });
}

/// As those of pyenv are: a program of the same name that changes the environment and executes the one it chooses.
const SHIM: &str = "#!/bin/bash\nexport PYENV_ROOT=\"${0%/shims/*}\" PYENV_DIR=\"$PWD\" PYENV_VERSION=3\n\
    export PATH=\"$PYENV_ROOT/versions/3/bin:$PATH\"\nexec /usr/bin/python3 \"$@\"\n";

#[test]
fn an_interpreter_behind_a_shim_is_copied_where_the_shim_would_choose_it() {
    let site = crate::site();
    let hall = Hall(&site);
    write(&site);
    let shims = site.work().join("pyenv/shims");
    let path = format!("PATH={}:/usr/bin:/bin", shims.display());
    let shim = |text: &str| {
        let file = site.write(shims.join("python3"), text);
        std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    shim(SHIM);
    let flags = ["--changes", "discard", "--env", &path];
    let plain = hall.create(&flags);
    let warm = hall.create(&[&flags[..], &["--warm", "python:colorsys,http.client"]].concat());
    warmed(&hall, &warm);
    assert_eq!(python(&hall, &plain, &["probe.py"]).1, "False\n");
    for (name, _, _) in SCRIPTS {
        let words = [&format!("sub/{name}.py"), "one", "two words"];
        assert_eq!(python(&hall, &warm, &words), python(&hall, &plain, &words), "{name}");
    }
    // Where another version may be meant, the shim is asked.
    hall.exec(&warm, "mkdir local; cp probe.py local; echo 2 > local/.python-version").exits(0);
    assert_eq!(python(&hall, &warm, &["local/probe.py"]).1, "False\n");
    assert_eq!(python(&hall, &warm, &["probe.py"]).1, "True\n");
    hall.exec(&warm, "echo 2 > pyenv/version").exits(0);
    assert_eq!(python(&hall, &warm, &["probe.py"]).1, "False\n");
    for id in [&plain, &warm] {
        hall.asks(&["kill", id]);
    }
    // One that is not known is not guessed at: every script is started by it.
    shim(&SHIM.replace("exec ", "export OTHER=1\nexec "));
    let warm = hall.create(&[&flags[..], &["--warm", "python:colorsys"]].concat());
    for _ in 0..10 {
        assert_eq!(python(&hall, &warm, &["probe.py"]).1, "False\n");
        std::thread::sleep(Duration::from_millis(50));
    }
    hall.asks(&["kill", &warm]);
}

/// Whatever one script does is its own; whatever cannot be a copy is a new interpreter, and works.
#[test]
fn a_copy_leaves_nothing_and_what_cannot_be_one_is_started() {
    each(|site| {
        let hall = Hall(site);
        write(site);
        site.write(
            "leave.py",
            "import os, sys, colorsys\nos.environ['LEFT'] = 'x'\ncolorsys.left = 1\nos.chdir('/')\n",
        );
        site.write("find.py", "import os, sys, colorsys\nprint(os.environ.get('LEFT'), hasattr(colorsys, 'left'), os.getcwd() == '/')\n");
        site.write("sleeps.py", "import time\nopen('/tmp/up', 'w').close()\ntime.sleep(1000)\n");
        let id = hall.create(&["--changes", "discard", "--warm", "python:colorsys"]);
        warmed(&hall, &id);
        assert_eq!(python(&hall, &id, &["leave.py"]).0, 0);
        assert_eq!(python(&hall, &id, &["find.py"]).1, "None False False\n");
        // Another value of what is read at the start only, other words, and what is not there.
        let unlike = hall.call(&["exec", "--env", "PYTHONUNBUFFERED=1", &id, "--", "python3", "probe.py"]);
        assert_eq!(unlike.exits(0).out(), "False\n");
        assert_eq!(python(&hall, &id, &["-c", "import sys; print('colorsys' in sys.modules)"]).1, "False\n");
        let missing = python(&hall, &id, &["missing.py"]);
        assert!(missing.0 == 2 && missing.2.contains("can't open file"), "{missing:?}");
        // Signals end it as they would any other.
        for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
            let running = hall.call(&["exec", &id, "--", "python3", "sleeps.py"]).start();
            eventually("it to be up", || (hall.exec(&id, "rm /tmp/up").done().code() == 0).then_some(()));
            running.signal(signal);
            assert_eq!(running.finish().code(), code);
        }
        // One that was killed is missed by nobody.
        let kill = "import os, signal\nfor n in os.listdir('/proc'):\n    if n.isdigit() and int(n) not in (1, os.getpid()):\n        os.kill(int(n), signal.SIGKILL)\n";
        site.write("kill.py", kill);
        python(&hall, &id, &["kill.py"]);
        assert_eq!(python(&hall, &id, &["probe.py"]), (0, "False\n".into(), String::new()));
        if site.mode != Mode::Range {
            // Another guest has another one.
            hall.asks(&["begin", &id]);
            warmed(&hall, &id);
            hall.asks(&["rollback", &id]);
        }
        hall.asks(&["kill", &id]);
    });
}

#[test]
fn what_cannot_be_imported_stops_nobody_and_what_is_no_module_is_refused() {
    let site = crate::site();
    let hall = Hall(&site);
    site.write("probe.py", PROBE);
    let id = hall.create(&["--changes", "discard", "--warm", "python:no_such_module"]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(python(&hall, &id, &["probe.py"]).1, "False\n");
    hall.asks(&["kill", &id]);
    for bad in ["openai", "python:", "python:os;x"] {
        assert!(hall.creating(&["--warm", bad]).exits(2).err().contains("python:openai,requests"), "{bad}");
    }
    let run = site.call(&["run", "--warm", "python:json", "--", "true"]).done();
    assert!(run.code() == 125 && run.err().contains("sessions that stay"), "{}", run.err());
}

/// The interpreter that is kept is a program that is started, and the policy is asked.
#[test]
fn an_interpreter_that_the_policy_forbids_is_not_kept() {
    let site = crate::site();
    let hall = Hall(&site);
    site.write("probe.py", PROBE);
    let rule = |id: &str, effect: &str, exec: &str| {
        format!("[[rule]]\nid = \"{id}\"\nreason = \"r\"\neffect = \"{effect}\"\nexec = \"{exec}\"\n")
    };
    let policy =
        |name: &str, text: String| site.write(site.home().join(name), text).to_string_lossy().into_owned();
    let warm = ["--warm", "python:colorsys"];
    let script = rule("script", "allow", "python3 probe.py");
    for (name, text, says) in [
        ("no.toml", rule("no-python", "deny", "python3 **") + &rule("rest", "allow", "**"), "no-python"),
        ("only.toml", script.clone(), "no rule"),
    ] {
        let policy = policy(name, text);
        let refused = hall.creating(&[&warm[..], &["--policy", &policy]].concat()).exits(4).err();
        assert!(refused.contains(says) && refused.contains("not allowed"), "{refused}");
        // What was tried is on record, and the record is whole.
        let blocked = site.bodies("blocked");
        assert_eq!(blocked[0]["argv"], serde_json::json!(["python3", "-c", "import", "colorsys"]));
        site.call(&["trace", "verify", "latest"]).exits(0);
        std::fs::remove_dir_all(site.state().join("traces")).unwrap();
    }
    // Allowed by its own words, which allow nothing else.
    let both = policy("both.toml", script.clone() + &rule("kept", "allow", "python3 -c import colorsys"));
    let id = hall.create(&[&warm[..], &["--policy", &both, "--changes", "discard"]].concat());
    warmed(&hall, &id);
    assert_eq!(python(&hall, &id, &["-c", "import colorsys"]).0, 125);
    // What it comes to forbid later is not kept beyond the next guest, and the session goes on.
    let later = policy("later.toml", script);
    hall.call(&["policy", "set", &id, &later]).exits(0);
    hall.asks(&["begin", &id]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(python(&hall, &id, &["probe.py"]).1, "False\n");
    hall.asks(&["kill", &id]);
}
