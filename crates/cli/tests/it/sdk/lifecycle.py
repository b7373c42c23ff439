"""The life of sandboxes, by the synchronous SDK: found by what they are, measured, paused and woken by themselves, kept as
snapshots, copied; and secrets, tags and git's helpers."""
import json
import os
import time
import urllib.request
from datetime import datetime, timedelta, timezone

from e2b import Sandbox, SandboxQuery, SandboxState, Secret, Template
from e2b.exceptions import NotFoundException, SandboxException


def raised(kind, act):
    try:
        act()
    except kind as error:
        return error
    raise AssertionError(f"no {kind}")


def until(act, seconds=60):
    deadline = time.time() + seconds
    while not (found := act()):
        assert time.time() < deadline, "it did not happen"
        time.sleep(0.05)
    return found


def ids(**query):
    pages, found = Sandbox.list(**query), []
    while pages.has_next:
        found += [one.sandbox_id for one in pages.next_items()]
    return found


# Lists: whichever filter, whichever order, however many pages.
first = Sandbox.create(timeout=300, metadata={"n": "1", "kind": "listed"})
between = datetime.now(timezone.utc)
second = Sandbox.create("code-interpreter-v1", timeout=300, metadata={"n": "2", "kind": "listed"})
both = [second.sandbox_id, first.sandbox_id]
listed = SandboxQuery(metadata={"kind": "listed"})
assert ids(query=listed) == both == ids(query=listed, limit=1)
assert ids(query=listed, order="asc") == both[::-1] == ids(query=listed, order="asc", limit=1)
assert ids(query=SandboxQuery(metadata={"kind": "listed", "n": "2"})) == both[:1]
assert ids(query=SandboxQuery(started_after=between)) == both[:1]
# A client whose clock is wrong gets what it asked for, and nothing else.
assert ids(query=SandboxQuery(started_after=between + timedelta(days=1))) == []
assert ids(query=SandboxQuery(started_after=between - timedelta(days=9999))) == both
assert ids(query=SandboxQuery(template="base")) == both[1:]
assert ids(query=SandboxQuery(template="no-such")) == []
first.pause()
assert ids(query=SandboxQuery(state=[SandboxState.PAUSED])) == both[1:]
assert ids(query=SandboxQuery(state=[SandboxState.RUNNING])) == both[:1]
assert ids(query=SandboxQuery(state=[SandboxState.RUNNING, SandboxState.PAUSED])) == both
second.kill()

# What it used, and when.
first = Sandbox.connect(first.sandbox_id, timeout=300)
metric = until(first.get_metrics)[-1]
assert metric.cpu_count > 0 and metric.mem_total >= metric.mem_used > 0 and metric.disk_total > 0, metric
now = datetime.now(timezone.utc)
assert first.get_metrics(start=now - timedelta(minutes=1), end=now + timedelta(minutes=1))
assert first.get_metrics(start=now - timedelta(days=2), end=now - timedelta(days=1)) == []
raised(NotFoundException, lambda: Sandbox.get_info("0" * 20))

# Without its memory: files stay, processes do not.
first.files.write("kept", "1")
first.commands.run("sleep 1000", background=True)
first.pause(keep_memory=False)
first = Sandbox.connect(first.sandbox_id, timeout=300)
assert first.files.read("kept") == "1"
assert not [process for process in first.commands.list() if "sleep 1000" in process.args]

# When its time is over it is paused; it is woken by who connects, …
sleepy = Sandbox.create(timeout=2, lifecycle={"on_timeout": "pause"})
info = sleepy.get_info()
assert (info.lifecycle["on_timeout"], info.lifecycle["auto_resume"]) == ("pause", False), info.lifecycle
sleepy.files.write("kept", "1")
until(lambda: sleepy.get_info().state == SandboxState.PAUSED)
assert not sleepy.is_running()
assert Sandbox.connect(sleepy.sandbox_id, timeout=300).files.read("kept") == "1"
sleepy.kill()
# … or by whoever asks for anything, where that was wanted.
light = Sandbox.create(timeout=2, lifecycle={"on_timeout": "pause", "auto_resume": True})
light.files.write("kept", "1")
until(lambda: light.get_info().state == SandboxState.PAUSED)
assert light.files.read("kept") == "1"
assert light.commands.run("cat kept").stdout == "1"
light.kill()
gone = Sandbox.create(timeout=1)
until(lambda: not gone.is_running())
raised(NotFoundException, lambda: Sandbox.connect(gone.sandbox_id))

# Snapshots: by id and by name, in pages, until they are deleted.
first.files.write("state", "then")
first.create_snapshot(name="then")
unnamed = first.create_snapshot()
first.files.write("state", "now")
pages, found = first.list_snapshots(limit=1), []
while pages.has_next:
    page = pages.next_items()
    assert len(page) == 1, page
    found += page
assert unnamed.snapshot_id in [one.snapshot_id for one in found] and len(found) == 2, found
assert [len(Sandbox.list_snapshots(name="then").next_items()), len(Sandbox.list_snapshots(name="never").next_items())] == [1, 0]
for origin in ("then", unnamed.snapshot_id):
    copy = Sandbox.create(origin, timeout=60)
    assert copy.files.read("state") == "then"
    copy.kill()
assert Sandbox.delete_snapshot(unnamed.snapshot_id)
raised(SandboxException, lambda: Sandbox.create(unnamed.snapshot_id))
forks = first.fork(count=3, timeout=60)
assert len({fork.sandbox_id for fork in forks}) == 3
forks[0].files.write("state", "its own")
assert [fork.files.read("state") for fork in forks] == ["its own", "now", "now"] and first.files.read("state") == "now"
for fork in forks:
    fork.kill()

# Both ways in which the SDKs of different years ask for one.
def post(path, body, method="POST"):
    head = {"X-API-Key": os.environ["E2B_API_KEY"], "Content-Type": "application/json"}
    data = json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(os.environ["E2B_API_URL"] + path, data, head, method=method)) as answer:
        return answer.status, json.loads(answer.read() or b"null")


for path in ("/sandboxes", "/v2/sandboxes"):
    status, made = post(path, {"templateID": "base", "timeout": 60})
    assert status == 201 and made["envdAccessToken"] and made["clientID"], made
    assert post(f"{path}/{made['sandboxID']}/connect", {"timeout": 60})[0] == 200
    assert Sandbox.kill(made["sandboxID"])
raised(urllib.error.HTTPError, lambda: post("/sandboxes", {"templateID": "base", "timeout": -1}))

# Secrets are made, found, changed and removed; never told.
made = Secret.create(name="Model-Key", value="sk-lifecycle-value-0123456789", metadata={"hosts": "api.example.com"})
assert made.name == "model-key" and made.version == 1, made
assert Secret.get_info("model-key").secret_id == made.secret_id == Secret.get_info(made.secret_id).secret_id
assert Secret.update("model-key", value="sk-other-value-0123456789").version == 2
assert [secret.name for secret in Secret.list().next_items()] == ["model-key"]
assert "value-0123" not in str([Secret.get_info("model-key"), Secret.list().next_items()])
assert Secret.exists("model-key") and Secret.destroy("model-key") and not Secret.destroy("model-key")
assert not Secret.exists("model-key")

# Tags of a template.
Template.build(Template().from_template("base").run_cmd("echo 1 > made"), "tagged")
Template.assign_tags("tagged", ["stable", "v1"])
assert {"stable", "v1"} <= {tag.tag for tag in Template.get_tags("tagged")}
assert Sandbox.create("tagged:stable", timeout=60).files.read("made") == "1\n"
Template.remove_tags("tagged", ["v1"])
assert "v1" not in {tag.tag for tag in Template.get_tags("tagged")}

# Git's helpers, with a remote that is a directory.
git, run = first.git, first.commands.run
run("git init -q --bare /home/user/remote.git")
git.init("/home/user/one", initial_branch="main")
git.configure_user("Ada", "ada@example.com")
assert git.get_config("user.name", scope="global") == "Ada"
first.files.write("/home/user/one/file", "1")
git.add("/home/user/one", all=True)
assert [change.name for change in git.status("/home/user/one").file_status] == ["file"]
git.commit("/home/user/one", "first")
git.remote_add("/home/user/one", "origin", "/home/user/remote.git")
git.push("/home/user/one", remote="origin", branch="main", set_upstream=True)
git.clone("/home/user/remote.git", "/home/user/two", branch="main")
git.create_branch("/home/user/two", "topic")
assert git.branches("/home/user/two").current_branch == "topic"
git.checkout_branch("/home/user/two", "main")
git.delete_branch("/home/user/two", "topic", force=True)
first.files.write("/home/user/one/file", "2")
git.restore("/home/user/one", ["file"])
first.files.write("/home/user/one/file", "3")
git.add("/home/user/one")
git.commit("/home/user/one", "second")
git.push("/home/user/one")
git.pull("/home/user/two")
assert first.files.read("/home/user/two/file") == "3"
git.reset("/home/user/two", mode="hard", target="HEAD~1")
assert first.files.read("/home/user/two/file") == "1"
first.kill()
