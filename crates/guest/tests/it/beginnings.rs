//! A process that does not become its program: somebody holds back the file that it would be, or has stopped it.

use crate::harness::{Guest, Seen, shell};
use cofferdam_guest::host::ExecId;
use cofferdam_guest::wire::{Exec, Outcome, Stdin, Step, Stream, Target};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Whoever opens the file waits until this says that it may, or has ended.
const HOLDER: &str = "import fcntl, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = open(sys.argv[1], 'rb')
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
time.sleep(1000)
";

struct Stage {
    guest: Guest,
    holder: ExecId,
    program: PathBuf,
    _dir: tempfile::TempDir,
}

fn stage() -> Stage {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    std::fs::write(&program, "#!/bin/sh\ncat; echo ran\n").unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let mut guest = Guest::start();
    let path = program.to_str().unwrap();
    let argv = [b"python3".as_slice(), b"-c", HOLDER.as_bytes(), path.as_bytes()].to_vec();
    let holder = guest.exec(&Exec { argv, ..shell("") });
    guest.until(holder, |seen| seen.text() == "held\n");
    Stage { guest, holder, program, _dir: dir }
}

fn of(program: &Path) -> Exec<'_> {
    Exec { argv: vec![program.to_str().unwrap().as_bytes()], ..shell("") }
}

impl Stage {
    fn kill(&mut self, id: ExecId) -> Seen {
        self.guest.client.signal(id, 9, Target::Group).unwrap();
        self.guest.finish(id)
    }
}

#[test]
fn one_that_is_held_up_holds_up_nobody() {
    let mut stage = stage();
    let program = stage.program.clone();
    let held = stage.guest.exec(&of(&program));
    assert_eq!(stage.guest.run(&shell("echo on")).text(), "on\n");
    assert_eq!(stage.guest.seen[&held].pid, None, "it is not its program yet");
    let killed = stage.kill(held);
    assert_eq!(killed.outcome(), Outcome::Signal { number: 9, core: false });
    assert_eq!(stage.guest.run(&shell("echo on")).text(), "on\n");
}

#[test]
fn what_it_is_given_meanwhile_is_there_when_it_begins() {
    let mut stage = stage();
    let program = stage.program.clone();
    let held = stage.guest.exec(&Exec { stdin: Stdin::Piped, ..of(&program) });
    stage.guest.feed(held, b"given\n");
    assert_eq!(stage.guest.run(&shell("echo on")).text(), "on\n");
    let holder = stage.holder;
    stage.kill(holder);
    let ran = stage.guest.finish(held);
    assert_eq!((ran.outcome(), ran.text().as_str()), (Outcome::Code(0), "given\nran\n"));
    assert!(ran.ended.contains(&Stream::Stdout) && ran.pid.is_some());
}

/// Stopped, by whoever may send it signals: not even the kernel gets an answer from it, but for a kill.
#[test]
fn one_that_does_not_begin_in_time_is_ended() {
    let mut stage = stage();
    let program = stage.program.clone();
    let held = stage.guest.exec(&of(&program));
    // Which it is: the one that has the guest's own program still, and is its child.
    let guest = stage.guest.process.id().as_raw_nonzero();
    let stop = format!(
        "for p in $(cat /proc/{guest}/task/{guest}/children); do \
         cmp -s /proc/{guest}/cmdline /proc/$p/cmdline && kill -STOP $p && echo $p; done"
    );
    let stopped = stage.guest.run(&shell(&stop)).text();
    assert_eq!(stopped.lines().count(), 1, "{stopped}");
    assert_eq!(stage.guest.run(&shell("echo on")).text(), "on\n");
    let late = stage.guest.finish(held);
    assert_eq!((late.pid, late.outcome()), (None, Outcome::Failed { step: Step::Late, errno: 110 }));
    assert_eq!(stage.guest.run(&shell("echo on")).text(), "on\n");
}
