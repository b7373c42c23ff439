"""What every version of the SDK is asked for: a sandbox made, used, found, given another time, paused and ended."""
import time

import e2b
import httpcore
from e2b import CommandExitException, NotFoundException, Sandbox

sandbox = Sandbox.create(timeout=120, metadata={"of": "core"}, envs={"NAME": "world"})
result = sandbox.commands.run('echo "hello $NAME"; echo err >&2')
assert (result.stdout, result.stderr, result.exit_code) == ("hello world\n", "err\n", 0)
try:
    sandbox.commands.run("exit 3")
    raise AssertionError("it ended with 3")
except CommandExitException as error:
    assert error.exit_code == 3
try:
    sandbox.commands.run("sleep 60", timeout=1)
    raise AssertionError("its time was over")
except (e2b.TimeoutException, httpcore.ReadTimeout):
    # The client's clock and the command's are the same; before 2.50 the client told its own as it was.
    pass
handle = sandbox.commands.run("sleep 1000", background=True)
assert any(process.pid == handle.pid for process in sandbox.commands.list())
assert sandbox.commands.kill(handle.pid)
try:
    handle.wait()
    raise AssertionError("it was ended")
except CommandExitException:
    pass
assert not sandbox.commands.kill(handle.pid)
assert sandbox.commands.run("id -un", user="root").stdout == "root\n"

sandbox.files.write("dir/a.txt", "text")
assert sandbox.files.read("dir/a.txt") == "text"
assert sandbox.files.read("dir/a.txt", format="bytes") == b"text"
assert [entry.name for entry in sandbox.files.list("dir")] == ["a.txt"]
assert sandbox.files.exists("dir/a.txt") and not sandbox.files.exists("dir/b.txt")
sandbox.files.make_dir("made")
sandbox.files.rename("dir/a.txt", "made/b.txt")
sandbox.files.remove("dir")
try:
    sandbox.files.read("dir/a.txt")
    raise AssertionError("it is not there")
except NotFoundException:
    pass
watch = sandbox.files.watch_dir("made")
sandbox.files.write("made/new", "1")
seen, until = [], time.time() + 60
while not seen and time.time() < until:
    seen = watch.get_new_events()
assert seen[0].name == "new", seen
watch.stop()

paginator = Sandbox.list()
assert sandbox.sandbox_id in [one.sandbox_id for one in paginator.next_items()]
info = sandbox.get_info()
assert info.metadata == {"of": "core"} and info.template_id == "base"
sandbox.set_timeout(300)
assert sandbox.get_info().end_at > info.end_at
assert sandbox.is_running()

again = Sandbox.connect(sandbox.sandbox_id)
assert again.files.read("made/b.txt") == "text"
(again.pause if hasattr(again, "pause") else again.beta_pause)()
woken = Sandbox.connect(sandbox.sandbox_id)
assert woken.files.read("made/b.txt") == "text"
assert woken.kill() and not woken.kill()
assert not woken.is_running()
try:
    woken.commands.run("true")
    raise AssertionError("it is gone")
except e2b.TimeoutException as error:
    assert "not found" in str(error) or "sandbox" in str(error), error
