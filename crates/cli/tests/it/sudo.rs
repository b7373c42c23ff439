//! `sudo` of a box: who has it, and that whoever speaks to its socket directly gets no further than with it.

use crate::each;
use crate::live::Hall;
use cofferdam_testkit::{Mode, Site};
use serde_json::Value;

/// Speaks to the guest as `sudo` does. With what is in `spoil`, as it never would.
const ASK: &str = r#"
import array, os, socket, sys
def number(n):
    out = b""
    while True:
        out += bytes([n & 127 | (128 if n > 127 else 0)])
        n >>= 7
        if n == 0: return out
def text(t):
    t = t.encode() if isinstance(t, str) else t
    return number(len(t)) + t
def texts(all): return number(len(all)) + b"".join(text(t) for t in all)
def ask(argv, uid=0, name="root", home="/root", groups=(), env=(), cwd="/", fds=(0, 1, 2), spoil=None):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect("\0cofferdam-sudo")
        who = text(name) + number(uid) + number(uid) + number(len(groups)) + b"".join(map(number, groups)) + text(home) + text("/bin/sh")
        message = spoil if spoil is not None else texts(argv) + texts(env) + text(cwd) + b"\0" + who
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        s.sendmsg([message], rights)
        return s.recv(4096)
"#;

fn asking(script: &str) -> String {
    format!("{ASK}\n{script}")
}

fn hall_of(site: &Site) -> Option<Hall<'_>> {
    (site.mode != Mode::Single).then(|| Hall(site))
}

fn started(site: &Site, session: &str) -> Vec<Value> {
    let events = std::fs::read_to_string(site.events_file(session)).unwrap();
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["kind"] == "exec.started").map(|event| event["body"].clone()).collect()
}

#[test]
fn sudo_is_for_boxes_that_stay_and_say_so() {
    each(|site| {
        let done = site.run(&["true"]).with(&["--sudo"]).exits(125);
        assert!(done.err().contains("--profile box"), "{}", done.err());
        let Some(hall) = hall_of(site) else { return };
        let done = site.run(&["true"]).with(&["--sudo", "--profile", "box"]).exits(125);
        assert!(done.err().contains("session that stays"), "{}", done.err());
        let knock = asking("ask(['true'])");
        for flags in [&["--profile", "run"][..], &["--profile", "box"]] {
            let id = hall.create(flags);
            let done = hall.call(&["exec", &id, "--", "python3", "-c", &knock]).exits(1);
            assert!(done.err().contains("ConnectionRefused"), "{}", done.err());
            assert_ne!(hall.exec(&id, "sudo -n true").done().code(), 0);
        }
        let id = hall.create(&["--profile", "box", "--sudo"]);
        assert_eq!(
            hall.exec(&id, "id -u; sudo id -u; sudo -u user id -un").exits(0).out(),
            "1000\n0\nuser\n"
        );
        let started = started(site, &id);
        let asked: Vec<_> = started.iter().filter(|body| body["by"] == "sudo").collect();
        assert_eq!(asked.len(), 2, "{started:#?}");
        assert_eq!((&asked[0]["user"], &asked[1]["user"]), (&"root".into(), &"user".into()));
    });
}

/// Whatever is said to the socket, it makes a process of the box, as somebody of the box, on record as who it is.
#[test]
fn the_socket_gives_nothing_beyond_the_box() {
    each(|site| {
        let Some(hall) = hall_of(site) else { return };
        let id = hall.create(&["--profile", "box", "--sudo"]);
        let script = asking(
            r#"
# A name is whatever one says; the record goes by the number.
assert ask(["sh", "-c", "id -u"], uid=0, name="user") == b"\0\0\0"
# Nobody whom the box does not have: the host's root is no number here, and none leads to it.
for uid in (65536, 100000, 2**31, 2**32 - 2):
    answer = ask(["id"], uid=uid)
    assert answer[:2] == b"\0\4", (uid, answer)
# Which the kernel takes for no change at all.
assert ask(["id"], uid=2**32 - 1)[0] == 1
# As little as any root of the box.
assert ask(["sh", "-c", "! cat /etc/shadow && ! mount -t tmpfs x /tmp && ! mknod /tmp/null c 1 3"]) == b"\0\0\0"
assert ask(["sh", "-c", "test $(awk '/^NoNewPrivs/{print $2}' /proc/self/status) = 1"]) == b"\0\0\0"
assert ask(["sh", "-c", "! ls -l /proc/1/fd && ! cat /proc/1/mem"]) == b"\0\0\0"
# What is no question.
for spoil in (b"", b"\xff", b"\xff" * 2000, os.urandom(500), b"\0" * 64):
    answer = ask([], spoil=spoil)
    assert answer == b"" or answer[0] == 1, answer
for fds in ((), (0,), (0, 1), (0, 1, 2, 2)):
    assert ask(["id"], fds=fds) == b"", fds
for wrong in (dict(name="a\nb"), dict(home="x"), dict(cwd="x"), dict(env=["x"]), dict(argv=[]), dict(argv=[b"\xff"]),
              dict(groups=range(65))):
    answer = ask(**{"argv": ["id"], **wrong})
    assert answer[0] == 1, (wrong, answer)
# Who says nothing, or leaves at once, holds up nobody for good.
held = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(40)]
for s in held: s.connect("\0cofferdam-sudo")
assert ask(["true"]) == b"\0\0\0", "who asks goes before who only stands there"
for s in held: s.close()
assert ask(["true"]) == b"\0\0\0"
"#,
        );
        hall.call(&["exec", &id, "--", "python3", "-c", &script]).exits(0);
        let started = started(site, &id);
        let named = started.iter().find(|body| body["by"] == "sudo" && body["argv"][2] == "id -u");
        assert_eq!(named.unwrap()["user"], "root", "the record does not say what those inside say");
        assert_eq!(hall.exec(&id, "sudo id -u").exits(0).out(), "0\n", "and the session goes on");
    });
}

/// What takes as long to close as its maker likes: a socket with bytes on their way that nobody takes.
const SLOW: &str = r#"
import struct
kept = []
def handed(count, message=b"", after=None, wait=False, hold=False):
    """Hands over one that is slow to close and has no other owner then: who made it has ended, and is not held up."""
    def rights(fds): return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    # It is not heard before those who stand before it have gone: by then nobody else has what it hands over.
    before = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(20)]
    for one in before: one.connect("\0cofferdam-sudo")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect("\0cofferdam-sudo")
        listener = socket.create_server(("127.0.0.1", 0))
        child = os.fork()
        if child == 0:
            one = socket.create_connection(listener.getsockname())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 30000))
            one.setblocking(False)
            try:
                while True: one.send(bytes(1 << 20))
            except BlockingIOError: pass
            if after is not None:
                s.sendmsg([message], rights((0, 1, 2)))
                message = after
            s.sendmsg([message], rights([one.fileno()] * count))
            os._exit(0)
        # Nobody takes what was sent to it.
        kept.extend((listener, listener.accept()[0]))
        os.waitpid(child, 0)
        for one in before: one.close()
        if hold: kept.append(s.dup())
        return s.recv(4096) if wait else None
def question(*argv):
    who = text("root") + number(0) + number(0) + number(0) + text("/root") + text("/bin/sh")
    return texts(argv) + texts(()) + text("/") + b"\0" + who
"#;

/// Nothing that an asker hands over, in any way, is closed by the process that everything inside depends on.
#[test]
fn what_is_slow_to_close_holds_up_nobody() {
    each(|site| {
        let Some(hall) = hall_of(site) else { return };
        let id = hall.create(&["--profile", "box", "--sudo"]);
        let ways = [
            // With a command that ends at once; as no question; with too many and too few; to one that is never read.
            "assert handed(3, question('true'), wait=True) == b'\\0\\0\\0'",
            "handed(3, b'\\xff' * 9, wait=True)",
            "handed(4, question('true'), wait=True)",
            "handed(1, question('true'), wait=True)",
            "handed(3, question('true'))",
            "handed(3, question('no-such-program'), wait=True)",
            "handed(3, question('sleep', '1000'))",
            // Along with a signal; and in the place of one, before there is an answer.
            "handed(1, question('sleep', '1000'), after=b'\\x0f', hold=True)",
            "handed(1, question('sleep', '1000'), after=b'')",
        ];
        for (number, way) in ways.into_iter().enumerate() {
            // It stays: with it would go who does not take the bytes.
            let rest = format!("open('/tmp/done-{number}', 'w').close()\nimport time; time.sleep(1000)");
            let script = asking(&format!("{SLOW}\n{way}\n{rest}"));
            hall.call(&["exec", "-d", &id, "--", "python3", "-c", &script]).exits(0);
            // All else goes on: those inside who ask, and those outside.
            let done = format!("while ! test -e /tmp/done-{number}; do sleep 0.05; done; sudo id -u");
            assert_eq!(hall.exec(&id, &done).exits(0).out(), "0\n", "after {way}");
        }
        assert_eq!(hall.show(&id)["state"], "running");
        let events = std::fs::read_to_string(site.events_file(&id)).unwrap();
        assert!(!events.contains("watchdog"), "{events}");
    });
}

/// Those inside cannot take all that a session can run from those outside, and no command all of it from the others.
#[test]
fn commands_by_sudo_leave_room_for_others() {
    each(|site| {
        let Some(hall) = hall_of(site) else { return };
        let id = hall.create(&["--profile", "box", "--sudo", "--pids", "1000"]);
        // Half of them by another `sudo`: what a command asks for from within one is its own too.
        let fill = "for n in $(seq 40); do sudo sleep 1000 2>> /tmp/said & done; \
             sudo sh -c 'for n in $(seq 40); do sudo sleep 1000 2>> /tmp/said & done; wait' & \
             while ! grep -q 'commands by sudo are running' /tmp/said; do sleep 0.05; done; cat /tmp/said";
        let said = hall.exec(&id, fill).exits(0).out();
        let told = "64 commands by sudo are running for the command that asks, of 64 in all and at most 128: \
             wait for one of them to end";
        assert!(said.contains(told), "{said}");
        assert_eq!(hall.exec(&id, "echo on").exits(0).out(), "on\n");
        assert_eq!(hall.exec(&id, "sudo id -u").exits(0).out(), "0\n", "another command has its own share");
    });
}

/// What they begin is as any process that a command leaves behind: a session that does nothing else is idle.
#[test]
fn commands_by_sudo_keep_no_session_busy() {
    each(|site| {
        let Some(hall) = hall_of(site).filter(Hall::can_pause) else { return };
        let id = hall.create(&["--profile", "box", "--sudo", "--idle", "200ms"]);
        let leave =
            "setsid sudo sleep 1000 > /dev/null 2>&1 & while ! grep -q sleep /proc/[0-9]*/comm; do :; done";
        hall.exec(&id, leave).exits(0);
        cofferdam_testkit::eventually("it to be idle", || {
            (hall.show(&id)["state"] == "idle-paused").then_some(())
        });
        assert_eq!(hall.exec(&id, "grep -l sleep /proc/[0-9]*/comm | wc -l").exits(0).out(), "1\n");
    });
}
