"""The published SDK against a service on loopback, measured from outside: what a program waits for. Prints one JSON
object. `bwrap` runs in the same rounds, for what the machine takes for a sandbox from nothing.

Arguments: rounds, live sessions, mebibytes; the service's pid and what the SDK needs are in the environment."""
import asyncio
import io
import json
import os
import shutil
import subprocess
import sys
import time

from e2b import AsyncSandbox, Sandbox

rounds, many, mebibytes = (int(word) for word in sys.argv[1:4])
service = os.environ["SERVICE_PID"]
# The same command, with a home that is as empty as that of a new sandbox.
BWRAP = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--unshare-all"]
BWRAP += ["--die-with-parent", "--clearenv", "--setenv", "HOME", "/tmp", "--setenv", "PATH", "/usr/bin:/bin"]
BWRAP += ["--", "/bin/bash", "-l", "-c", "echo x"]
out = {}


def timed(act):
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000


def bwrap():
    subprocess.run(BWRAP, stdout=subprocess.DEVNULL, check=True)


def memory():
    """Kibibytes of the service's own, and of every process of its sandboxes. One that waits to be a sandbox's shares the
    service's memory, which is counted once."""
    total = {"service": 0, "children": 0}
    parents = {}
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit():
                with open(f"/proc/{entry}/stat") as file:
                    parents[entry] = file.read().rsplit(")", 1)[1].split()[1]
        except OSError:
            pass

    def below(pid):
        while pid in parents and pid != "1":
            if parents[pid] == service:
                return True
            pid = parents[pid]
        return False

    for pid in parents:
        if pid == service or below(pid):
            try:
                if pid != service and os.readlink(f"/proc/{pid}/exe") == os.readlink(f"/proc/{service}/exe"):
                    continue
                with open(f"/proc/{pid}/smaps_rollup") as file:
                    pss = sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
                total["service" if pid == service else "children"] += pss
            except OSError:
                pass
    return total


async def first_output(at_once):
    """From the order to the first output, each of so many at a time, until there are enough."""
    took, left = [], [max(rounds, at_once * 4)]

    async def one():
        while left[0] > 0:
            left[0] -= 1
            began = time.perf_counter()
            sandbox = await AsyncSandbox.create(timeout=300)
            result = await sandbox.commands.run("echo x")
            took.append((time.perf_counter() - began) * 1000)
            assert result.stdout == "x\n"
            await sandbox.kill()

    await asyncio.gather(*(one() for _ in range(at_once)))
    return took


def alone():
    sandbox = Sandbox.create(timeout=300)
    assert sandbox.commands.run("echo x").stdout == "x\n"
    return sandbox


out["idle service KiB"] = memory()
has_bwrap = shutil.which("bwrap") is not None
made, rival, warm, again = [], [], [], []
alone().kill()
for _ in range(rounds):
    kept = []
    made.append(timed(lambda: kept.append(alone())))
    kept[0].kill()
    if has_bwrap:
        rival.append(timed(bwrap))
out["create to first output, 1 at a time"], out["bwrap, from nothing"] = made, rival
for at_once in (10, 50):
    out[f"create to first output, {at_once} at a time"] = asyncio.run(first_output(at_once))

sandbox = alone()
for _ in range(rounds):
    warm.append(timed(lambda: sandbox.commands.run("echo x")))
    if has_bwrap:
        again.append(timed(bwrap))
out["exec in a warm session"], out["bwrap, in the same rounds"] = warm, again


class Zeros(io.RawIOBase):
    """So many bytes, of which none is held."""

    def __init__(self, size):
        self.left = size

    def readable(self):
        return True

    def readinto(self, buffer):
        count = min(len(buffer), self.left)
        buffer[:count] = bytes(count)
        self.left -= count
        return count


size = mebibytes << 20
out[f"{mebibytes} MiB up"] = [timed(lambda: sandbox.files.write("large", io.BufferedReader(Zeros(size), 1 << 20), request_timeout=0))]


def down():
    got = sum(len(piece) for piece in sandbox.files.read("large", format="stream", request_timeout=0))
    assert got == size, got


out[f"{mebibytes} MiB down"] = [timed(down)]
sandbox.kill()


async def live():
    before = memory()
    sandboxes, took = [], []
    for _ in range(many // 10):
        began = time.perf_counter()
        sandboxes += await asyncio.gather(*(AsyncSandbox.create(timeout=3600) for _ in range(10)))
        took.append((time.perf_counter() - began) * 100)
    after = memory()
    some = sandboxes[:: max(1, len(sandboxes) // 20)]
    said = await asyncio.gather(*(one.commands.run("echo x") for one in some))
    assert all(one.stdout == "x\n" for one in said)
    out[f"a session of {len(sandboxes)} that live, 10 at a time"] = took
    out["per idle session KiB"] = {name: (after[name] - before[name]) / len(sandboxes) for name in after}
    for at in range(0, len(sandboxes), 10):
        await asyncio.gather(*(one.kill() for one in sandboxes[at : at + 10]))


asyncio.run(live())
print(json.dumps(out))
