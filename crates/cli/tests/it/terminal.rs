//! A terminal: the command has one of its own, its size follows the caller's, and the caller's is given back.

use crate::each;
use crate::live::Hall;
use cofferdam_testkit::{Done, Site, finish};
use std::ffi::OsString;

/// Plays a person at a terminal of 33 by 101: starts the command on it, types what the script says when the
/// text it waits for has come, and prints all that was shown.
const PERSON: &str = r#"
import fcntl, os, pty, select, signal, struct, subprocess, sys, termios, time
keyboard, screen = pty.openpty()
def resize(rows, columns):
    fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
def own():
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
resize(33, 101)
before = termios.tcgetattr(screen)
child = subprocess.Popen(sys.argv[2:], stdin=screen, stdout=screen, stderr=screen, preexec_fn=own)
shown, deadline = b"", time.monotonic() + 100
def read_until(text):
    global shown
    start = len(shown)
    while text not in shown[start:]:
        if time.monotonic() > deadline:
            child.kill()
            sys.exit("waited for %r in vain; shown: %r" % (text, shown))
        if select.select([keyboard], [], [], 0.1)[0]:
            shown += os.read(keyboard, 65536)
        elif child.poll() is not None and not select.select([keyboard], [], [], 0.2)[0]:
            if text == b"<end>": break
            sys.exit("ended before %r; shown: %r" % (text, shown))
exec(sys.argv[1])
read_until(b"<end>")
code = child.wait()
after = termios.tcgetattr(screen)
sys.stdout.buffer.write(shown)
print("code", code, "restored" if before == after else "NOT RESTORED")
"#;

/// The command at that terminal, with what becomes of its changes left to the person if `asked`.
fn sit(site: &Site, acts: &str, command: &[&str], asked: bool) -> Done {
    let call = site.run(command).with(if asked { &[] } else { &["--changes", "keep"] });
    at_terminal(site, acts, &call.words())
}

/// Any line at that terminal.
pub(crate) fn at_terminal(site: &Site, acts: &str, line: &[OsString]) -> Done {
    finish(site.command("python3").args(["-c", PERSON, acts]).args(line).env("TERM", "xterm"))
}

fn play(site: &Site, acts: &str, command: &[&str]) -> Done {
    sit(site, acts, command, false)
}

#[test]
fn the_command_has_a_terminal_of_the_callers_size() {
    each(|site| {
        let script = "test -t 0 && test -t 1 && test -t 2 && stty size && tty && echo $TERM";
        let out = play(site, "", &["sh", "-c", script]).exits(0).out();
        assert!(out.contains("33 101"), "{out}");
        assert!(out.contains("/dev/pts/0") && out.contains("xterm"), "{out}");
        assert!(out.ends_with("code 0 restored\n"), "{out}");
    });
}

#[test]
fn a_new_size_reaches_the_command() {
    each(|site| {
        let acts = "read_until(b'ready')\nresize(50, 132)\nread_until(b'50 132')\n";
        let script = "trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.05; done";
        let out = play(site, acts, &["sh", "-c", script]).exits(0).out();
        assert!(out.ends_with("code 3 restored\n"), "{out}");
    });
}

#[test]
fn what_is_typed_arrives_and_control_c_interrupts() {
    each(|site| {
        let acts = "read_until(b'name?')\nos.write(keyboard, b'ada\\n')\nread_until(b'hello ada')\n\
            os.write(keyboard, b'\\x03')\n";
        let script = "trap 'echo interrupted; exit 9' INT; echo name?; read n; echo hello $n; while :; do sleep 0.05; done";
        let out = play(site, acts, &["sh", "-c", script]).exits(0).out();
        assert!(out.contains("interrupted"), "{out}");
        assert!(out.ends_with("code 9 restored\n"), "{out}");
    });
}

#[test]
fn a_killed_command_gives_the_terminal_back() {
    each(|site| {
        let acts = "read_until(b'raw')\n";
        let out = play(site, acts, &["sh", "-c", "stty raw -echo; echo raw; kill -KILL $$"]).exits(0).out();
        assert!(out.ends_with("code 137 restored\n"), "{out}");
    });
}

#[test]
fn an_interactive_shell_has_job_control() {
    each(|site| {
        let acts = "read_until(b'$')\nos.write(keyboard, b'sleep 1000\\n')\ntime.sleep(0.5)\n\
            os.write(keyboard, b'\\x03')\nread_until(b'$')\nos.write(keyboard, b\"echo o''ver; exit 4\\n\")\n\
            read_until(b'over')\n";
        let out = play(site, acts, &["sh", "-i"]).exits(0).out();
        assert!(!out.contains("job control turned off"), "{out}");
        assert!(out.ends_with("code 4 restored\n"), "{out}");
    });
}

#[test]
fn a_terminal_can_be_had_and_refused() {
    each(|site| {
        assert_eq!(site.sh("test -t 0 || test -t 1 || echo none").exits(0).out(), "none\n");
        let out = site.sh("test -t 0 && test -t 1 && stty size").with(&["--tty"]).exits(0).out();
        assert_eq!(out.trim(), "24 80");
    });
}

#[test]
fn a_person_is_asked_about_changes() {
    each(|site| {
        for (answer, kept) in [("y", true), ("n", false), ("", false)] {
            let name = format!("made-{answer}");
            let acts = format!("read_until(b'[y/N]')\nos.write(keyboard, b'{answer}\\n')\n");
            let script = format!("echo x > {name}");
            let out = sit(site, &acts, &["sh", "-c", &script], true).exits(0).out();
            assert!(out.contains(&format!("+ {name}")), "{out}");
            assert_eq!(site.work().join(&name).exists(), kept, "{out}");
        }
    });
}

/// At a shell's prompt: starts this line, stops it by Ctrl-Z, uses the terminal for something else, has it go on, and ends
/// it by the end of its input.
const STOPPED: &str = r#"
import shlex
line = LINE
read_until(b"$ ")
os.write(keyboard, shlex.join(line).encode() + b"\n")
read_until(b"ready")
for times in (b"one", b"two"):
    assert not termios.tcgetattr(screen)[3] & termios.ICANON, "the terminal is the command's"
    os.write(keyboard, b"\x1a")
    read_until(b"$ ")
    assert termios.tcgetattr(screen)[3] & termios.ICANON, "the terminal is the shell's again"
    os.write(keyboard, b"jobs; echo mid''dle\n")
    read_until(b"middle")
    resize(20, 60 + len(times))
    os.write(keyboard, b"fg\n")
    time.sleep(0.3)
    os.write(keyboard, times + b"\n")
    read_until(b"got " + times + b" 20 63")
os.write(keyboard, b"\x04")
read_until(b"$ ")
os.write(keyboard, b"echo co''de $?; exit 4\n")
read_until(b"code 7")
"#;

/// Says what it is given, and the size of its terminal.
const GIVEN: &str = "echo re''ady; while read -r line; do echo got $line $(stty size); done; exit 7";

fn stops_and_goes_on(site: &Site, line: &[OsString]) {
    let words: Vec<_> = line.iter().map(|word| word.to_str().unwrap()).collect();
    let acts = STOPPED.replace("LINE", &serde_json::to_string(&words).unwrap());
    let shell = ["env", "PS1=$ ", "sh", "-i"].map(OsString::from);
    let out = at_terminal(site, &acts, &shell).exits(0).out();
    assert!(out.contains("Stopped"), "the shell knows of it: {out}");
    assert!(out.ends_with("code 4 restored\n"), "{out}");
}

#[test]
fn control_z_stops_the_command_with_us_and_both_go_on() {
    each(|site| {
        let call = site.run(&["sh", "-c", GIVEN]).with(&["--changes", "keep"]);
        stops_and_goes_on(site, &call.words());
    });
}

#[test]
fn control_z_stops_a_command_in_a_session_that_stays() {
    each(|site| {
        let hall = Hall(site);
        let id = hall.create(&[]);
        stops_and_goes_on(site, &hall.exec(&id, GIVEN).words());
    });
}

/// The person's own process is the first of its session: there is no shell that could wake us.
#[test]
fn control_z_stops_nothing_where_nobody_could_wake_it() {
    each(|site| {
        let acts = "read_until(b'ready')\nos.write(keyboard, b'\\x1aon\\n')\nread_until(b'got on')\n\
            os.write(keyboard, b'\\x04')\n";
        let out = play(site, acts, &["sh", "-c", GIVEN]).exits(0).out();
        assert!(out.ends_with("code 7 restored\n"), "{out}");
    });
}

/// It would outlive its time limit if it could.
#[test]
fn a_command_that_stops_itself_does_not_stop_us() {
    each(|site| {
        let script = "for i in 1 2 3; do kill -STOP $$; echo on $i; done; exit 6";
        let shell = ["env", "PS1=$ ", "sh", "-i"].map(OsString::from);
        let call = site.run(&["sh", "-c", script]).with(&["--changes", "keep"]).words();
        let words: Vec<_> = call.iter().map(|word| word.to_str().unwrap()).collect();
        let acts = format!(
            "import shlex\nread_until(b'$ ')\nos.write(keyboard, shlex.join({}).encode() + b'\\n')\n\
             read_until(b'on 3\\r\\n$ ')\nos.write(keyboard, b\"echo co''de $?; exit\\n\")\nread_until(b'code 6')\n",
            serde_json::to_string(&words).unwrap()
        );
        let out = at_terminal(site, &acts, &shell).exits(0).out();
        assert!(!out.contains("Stopped"), "{out}");
    });
}
