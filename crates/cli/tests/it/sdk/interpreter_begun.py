"""The usual context is begun before anybody asks for it. However long that takes, a cell that comes meanwhile waits for
it: what one cell leaves behind is there for the next."""
import time

from e2b_code_interpreter import Sandbox

# Read by every Python inside: the first process that one begins is long in coming, and then says so.
SLOW = """
import subprocess, time
begin, begun = subprocess.Popen.__init__, []
def slowly(self, *given, **named):
    begun.append(self)
    first = len(begun) == 1
    if first:
        time.sleep(2)
    begin(self, *given, **named)
    if first:
        open("/tmp/begun", "w").close()
subprocess.Popen.__init__ = slowly
"""

sandbox = Sandbox.create(timeout=120)
place = sandbox.commands.run("python3 -m site --user-site").stdout.strip()
sandbox.files.write(f"{place}/usercustomize.py", SLOW)
assert sandbox.run_code("x = 41\nx + 1").text == "42"
deadline = time.time() + 60
while not sandbox.files.exists("/tmp/begun"):
    assert time.time() < deadline, "nothing was slow: the test tries nothing"
    time.sleep(0.05)
time.sleep(0.5)
result = sandbox.run_code("x")
assert result.text == "41", result

# What a cell leaves running does not hide that its context has ended.
assert sandbox.run_code("import os\nos.system('sleep 1000 &')\nos._exit(3)", timeout=60).error.name == "KernelDied"
assert sandbox.run_code("1 + 1").text == "2"
sandbox.kill()
