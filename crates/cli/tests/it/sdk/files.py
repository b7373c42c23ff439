"""Files, by the synchronous SDK."""
import os
import time
import urllib.error
import urllib.request

from e2b import FileType, FilesystemEventType, Sandbox
from e2b.exceptions import FileNotFoundException, InvalidArgumentException


def raised(kind, act):
    try:
        act()
    except kind as error:
        return error
    raise AssertionError(f"no {kind}")


def status(url, headers=None, data=None):
    request = urllib.request.Request(url, headers=headers or {}, data=data)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


sandbox = Sandbox.create(timeout=120)
files = sandbox.files

written = files.write("a.txt", "hello")
assert (written.path, written.name) == ("/home/user/a.txt", "a.txt"), written
assert files.read("a.txt") == "hello" == files.read("/home/user/a.txt") == files.read("~/a.txt")
info = files.get_info("a.txt")
assert (info.type, info.size, info.mode, info.permissions) == (FileType.FILE, 5, 0o644, "-rw-r--r--"), info
assert (info.owner, info.group) == ("user", "user"), info
files.write("/root/secret", "s", user="root")
assert files.get_info("/root/secret", user="root").owner == "root"
assert files.exists("a.txt") and not files.exists("b.txt")
raised(FileNotFoundException, lambda: files.read("b.txt"))
assert files.make_dir("dir/sub") is True and files.make_dir("dir/sub") is False
raised(InvalidArgumentException, lambda: files.list("a.txt"))
files.write_files([{"path": "dir/one", "data": "1"}, {"path": "dir/sub/two", "data": b"2"}])
assert [e.path for e in files.list("dir", depth=2)] == [
    "/home/user/dir/one", "/home/user/dir/sub", "/home/user/dir/sub/two"], files.list("dir", depth=2)
moved = files.rename("a.txt", "made/on/the/way.txt")
assert moved.path == "/home/user/made/on/the/way.txt" and files.read(moved.path) == "hello"
sandbox.commands.run("ln -s way.txt made/on/the/link")
link = files.get_info("made/on/the/link")
assert link.symlink_target == "/home/user/made/on/the/way.txt" and link.permissions == "Lrwxrwxrwx", link
files.remove("dir")
files.remove("dir")
assert not files.exists("dir")
assert files.read(files.write("empty", "").path) == ""

# Large ones, as they are and packed; text and streams.
big = os.urandom(6_000_000)
files.write("big", big)
assert bytes(files.read("big", format="bytes")) == big
assert b"".join(files.read("big", format="stream")) == big
text = "some text that packs well\n" * 100_000
files.write("packed", text, gzip=True)
assert files.read("packed", gzip=True) == text
files.write("noted", "x", metadata={"Colour": "blue"})
assert files.get_info("noted").metadata == {"colour": "blue"}, files.get_info("noted")

# Nothing leads out: links and dots end at the sandbox's own root.
outside = os.path.abspath(__file__)
assert not files.exists(outside) and not files.exists("../../../../../.." + outside)
sandbox.commands.run(f"ln -s {outside} out; ln -s /proc/1/root/etc/hostname out2")
raised(FileNotFoundException, lambda: files.read("out"))

# What is watched: what is written is made, given away and written.
watch = files.watch_dir("/home/user")
files.write("seen.txt", "x")
events, deadline = [], time.time() + 60
while len(events) < 3 and time.time() < deadline:
    events += watch.get_new_events()
    time.sleep(0.02)
kinds = [event.type for event in events if event.name == "seen.txt"]
assert kinds == [FilesystemEventType.CREATE, FilesystemEventType.CHMOD, FilesystemEventType.WRITE], events
watch.stop()
raised(FileNotFoundException, lambda: files.watch_dir("/no/such/place"))

# Links that are signed, and parts.
url = sandbox.download_url("seen.txt")
assert status(url)[2] == b"x"
assert status(url + "x")[0] in (401, 404)
assert status(sandbox.download_url("seen.txt", use_signature_expiration=1000))[0] == 200
expired = sandbox.download_url("seen.txt", use_signature_expiration=1)
deadline = time.time() + 60
while (found := status(expired))[0] == 200 and time.time() < deadline:
    time.sleep(0.2)
assert found[0] == 401 and found[2].replace(b" ", b"") == b'{"code":401,"message":"signatureisalreadyexpired"}', found
part = status(sandbox.download_url("big"), {"Range": "bytes=10-19"})
assert (part[0], part[2], part[1]["Content-Range"]) == (206, big[10:20], "bytes 10-19/6000000"), part[:2]
assert status(sandbox.download_url("big"), {"Range": "bytes=6000000-"})[0] == 416
assert status(sandbox.download_url("empty"))[1]["Content-Length"] == "0"
sent = status(sandbox.upload_url("sent.txt"), {"Content-Type": "application/octet-stream"}, b"by link")
assert sent[0] == 200 and files.read("sent.txt") == "by link", sent

sandbox.kill()
