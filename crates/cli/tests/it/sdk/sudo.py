"""What users of the SDKs write with `sudo`, which is no set-uid program here."""
import time

from e2b import CommandExitException, PtySize, Sandbox


def fails(command, code, *words, **how):
    try:
        run(command, **how)
    except CommandExitException as error:
        assert error.exit_code == code and all(word in error.stderr for word in words), error
        return
    raise AssertionError(f"{command} did not fail")


sandbox = Sandbox.create(timeout=240, envs={"FROM_CREATE": "1"})
run = sandbox.commands.run

assert run("sudo id -u").stdout == "0\n"
assert run("sudo -n true").exit_code == 0
assert run("sudo -u user id -un; sudo -u '#1000' id -u; sudo --user=root id -un").stdout == "user\n1000\nroot\n"
fails("sudo ls /root/none", 2, "none")
fails("sudo sh -c 'exit 7'", 7)
fails("sudo sh -c 'kill -TERM $$'", 128 + 15)
fails("sudo no-such-program", 1, "no-such-program: command not found")
fails("sudo -u nobody-of-that-name id", 1, "unknown user")
fails("sudo --chroot=/x id", 1, "is not an option here")
fails("sudo", 1, "usage")
fails("cat /root/x", 1)

# Its input and output are those of who called it.
assert run("echo x | sudo tee /root/x").stdout == "x\n"
assert run("sudo cat /root/x", user="user").stdout == "x\n"
assert run("seq 200000 | sudo cat | sudo -u user cat | tail -n 1").stdout == "200000\n"
assert run("sudo sh -c 'echo out; echo err >&2' 2>/dev/null").stdout == "out\n"
handle = run("sudo sh -c 'read line; echo got $line'", background=True, stdin=True)
sandbox.commands.send_stdin(handle.pid, "typed\n")
assert handle.wait().stdout == "got typed\n"

# Where it runs, and what it knows.
assert run("cd /tmp && sudo pwd").stdout == "/tmp\n"
assert run("MINE=1 sudo sh -c 'echo \"[$MINE] $HOME $USER $LOGNAME $SUDO_USER $SUDO_UID\"'").stdout == (
    "[] /root root root user 1000\n"
)
assert run("MINE=1 sudo -E sh -c 'echo $MINE $USER'").stdout == "1 root\n"
assert run("MINE=1 OTHER=2 sudo --preserve-env=MINE sh -c 'echo [$MINE] [$OTHER]'").stdout == "[1] []\n"
assert run("sudo MINE=3 sh -c 'echo $MINE; echo $SUDO_COMMAND'").stdout.startswith("3\nsh -c")
assert run("sudo -i pwd; sudo -s echo 'a  b'").stdout == "/root\na  b\n"
assert run("sudo -v && sudo -l").stdout.endswith("NOPASSWD: ALL\n")
assert run("sudo sudo sudo -u user sudo id -u").stdout == "0\n"
# Nothing of it is closed, and it is all the same.
assert run("sudo id -u <&- 2>&-").stdout == "0\n"

# A signal for it is one for the command, and who ends it ends the command.
assert run("sudo sh -c 'trap \"echo heard; exit 5\" TERM; echo ready; sleep 60 & wait' > /tmp/log & "
           "while ! grep -q ready /tmp/log; do sleep 0.02; done; kill -TERM $!; wait $!; echo $?; cat /tmp/log"
           ).stdout == "5\nready\nheard\n"
handle = run("sudo sleep 4321", background=True)


def runs(text):
    return run(f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '{text}' || true").stdout != "0\n"


deadline = time.time() + 60
while not runs("[s]leep 4321"):
    assert time.time() < deadline
    time.sleep(0.05)
assert sandbox.commands.kill(handle.pid) is True
while runs("[s]leep 4321"):
    assert time.time() < deadline, "what was asked for by one that was killed goes on"
    time.sleep(0.05)

# More at once than may wait, and more than are answered at once.
assert run("for n in $(seq 30); do sudo echo $n & done; wait").stdout.count("\n") == 30
# Some who leave before they are answered are counted by nobody twice.
assert run("for n in $(seq 60); do timeout -s KILL 0.05 sudo sleep 100 & done 2>/dev/null; wait; sudo echo well").stdout == "well\n"

# On a terminal, with one of its own.
terminal = sandbox.pty.create(PtySize(rows=31, cols=101))
sandbox.pty.send_stdin(terminal.pid, b"sudo -s; echo back-$(id -u)\n")
sandbox.pty.send_stdin(terminal.pid, b"stty size; tty -s < /dev/tty && echo is-$((40+2))-$(id -u); exit\n")
seen, told = b"", False
for _, _, data in terminal:
    seen += data or b""
    if b"back-1000" in seen and not told:
        # Only now: what is typed before is for whoever has the terminal then.
        told = True
        sandbox.pty.send_stdin(terminal.pid, b"echo after-$((1+1)); exit\n")
assert b"31 101" in seen and b"is-42-0" in seen and b"after-2" in seen, seen

# It is the box's root and no more than that.
as_root = run("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; cat /proc/self/uid_map", user="root").stdout
assert run("sudo sh -c \"grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; cat /proc/self/uid_map\"").stdout == as_root
assert "NoNewPrivs:\t1" in as_root, as_root
assert run("stat -c '%A %u' $(command -v sudo)").stdout.startswith("-rwxr-xr-x "), "a bit that grants something"
fails("sudo touch /usr/local/bin/sudo", 1)
sandbox.kill()
