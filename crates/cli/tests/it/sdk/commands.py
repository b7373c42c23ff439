"""Commands and terminals, by the synchronous SDK."""
import time

from e2b import CommandExitException, PtySize, Sandbox, TimeoutException
from e2b.exceptions import AuthenticationException, InvalidArgumentException


def raised(kind, act):
    try:
        act()
    except kind as error:
        return error
    raise AssertionError(f"no {kind}")


sandbox = Sandbox.create(timeout=120, envs={"FROM_CREATE": "1"}, metadata={"a": "b"})
run = sandbox.commands.run

result = run("echo out; echo err >&2; echo to-be-recorded")
assert (result.stdout, result.stderr, result.exit_code) == ("out\nto-be-recorded\n", "err\n", 0), result
assert run("id -un; pwd").stdout == "user\n/home/user\n"
assert run("id -un; id -u; pwd", user="root").stdout == "root\n0\n/root\n"
assert run("pwd", cwd="/tmp").stdout == "/tmp\n"
assert run("pwd", cwd="~").stdout == "/home/user\n"
seen = run("echo $FROM_CREATE $MINE $E2B_SANDBOX $E2B_SANDBOX_ID", envs={"MINE": "2"}).stdout
assert seen == f"1 2 true {sandbox.sandbox_id}\n", seen
assert "bash" in run("which bash git curl python3").stdout

error = raised(CommandExitException, lambda: run("echo partly; exit 3"))
assert (error.exit_code, error.stdout) == (3, "partly\n"), error
assert "does not exist" in str(raised(InvalidArgumentException, lambda: run("true", cwd="/nowhere")))
assert "invalid username" in str(raised(AuthenticationException, lambda: run("true", user="root123")))
raised(TimeoutException, lambda: run("sleep 60", timeout=1))
deadline = time.time() + 60
while any("sleep 60" in process.args for process in sandbox.commands.list()):
    assert time.time() < deadline, "a command that ran out of time goes on"
    time.sleep(0.05)

# In pieces, as they come.
pieces = []
run("for i in 1 2 3; do echo $i; sleep 0.1; done", on_stdout=pieces.append)
assert "".join(pieces) == "1\n2\n3\n" and len(pieces) > 1, pieces
size = len(run("head -c 3000000 /dev/zero | tr '\\0' x").stdout)
assert size == 3_000_000, size

# Input, in the background; listened to again, and ended.
handle = run("read line; echo got $line; cat", background=True, stdin=True)
sandbox.commands.send_stdin(handle.pid, "hello\n")
again = sandbox.commands.connect(handle.pid)
sandbox.commands.send_stdin(handle.pid, "rest\n")
sandbox.commands.close_stdin(handle.pid)
assert "rest" in again.wait().stdout
assert handle.wait().stdout == "got hello\nrest\n"
handle = run("sleep 1000", background=True)
assert [p.pid for p in sandbox.commands.list() if "sleep 1000" in p.args] == [handle.pid]
assert sandbox.commands.kill(handle.pid) is True
error = raised(CommandExitException, handle.wait)
assert error.exit_code == -1, error
assert sandbox.commands.kill(handle.pid) is False
assert sandbox.commands.kill(999_999) is False

# A terminal.
terminal = sandbox.pty.create(PtySize(rows=30, cols=100))
sandbox.pty.send_stdin(terminal.pid, b"stty size; tty -s && echo is-$((40+2))\n")
seen = b""
for _, _, data in terminal:
    seen += data or b""
    if b"is-42" in seen and b"30 100" in seen:
        break
sandbox.pty.resize(terminal.pid, PtySize(rows=50, cols=120))
again = sandbox.pty.connect(terminal.pid)
sandbox.pty.send_stdin(terminal.pid, b"stty size; exit\n")
seen = b""
for _, _, data in again:
    seen += data or b""
assert b"50 120" in seen, seen

# Nothing inside gains what it does not have.
assert run("grep NoNewPrivs /proc/self/status").stdout.split() == ["NoNewPrivs:", "1"]

# What git's helpers run.
git = sandbox.git
git.init("/home/user/repo")
git.configure_user("Ada", "ada@example.com")
sandbox.files.write("/home/user/repo/file", "1")
git.add("/home/user/repo")
git.commit("/home/user/repo", "first")
assert not git.status("/home/user/repo").file_status

assert sandbox.kill() is True
assert sandbox.is_running() is False
