"""Volumes by the SDK: made, mounted, written from both sides, and removed when nobody has them."""
from e2b import NotFoundException, Sandbox, SandboxException, Volume

volume = Volume.create("data")
assert [one.name for one in Volume.list()] == ["data"]
assert Volume.get_info(volume.volume_id).name == "data"
volume.write_file("/in/a.txt", "from outside")
volume.make_dir("/empty")
volume.write_file("/in/a.txt", "from outside", uid=1000, gid=1000)
for act in (
    lambda: volume.write_file("/root.txt", "x", uid=0),
    lambda: volume.make_dir("/root", gid=5),
    lambda: volume.update_metadata("/in/a.txt", uid=0),
):
    try:
        act()
        raise AssertionError("nobody else can own it")
    except Exception as error:
        assert "cannot be had" in str(error), error
assert not volume.exists("/root.txt") and not volume.exists("/root")
try:
    Volume.create("data")
    raise AssertionError("there is one already")
except Exception as error:
    assert "already" in str(error), error

one = Sandbox.create(timeout=120, volume_mounts={"/data": volume})
assert one.commands.run("cat /data/in/a.txt").stdout == "from outside"
one.commands.run("echo from inside > /data/b.txt; ln -s /etc/passwd /data/link; id -un > /data/who")
assert volume.read_file("/b.txt") == "from inside\n"
assert volume.read_file("/who") == "user\n"
assert sorted(entry.name for entry in volume.list("/")) == ["b.txt", "empty", "in", "link", "who"]
assert volume.get_info("/b.txt").size == 12 and not volume.exists("/nothing")
for path in ("/link", "/../keys.json", "/in/../../lock"):
    try:
        volume.read_file(path)
        raise AssertionError(f"{path} leads out")
    except Exception as error:
        assert "path" in str(error).lower(), error
two = Sandbox.create(timeout=120, volume_mounts={"/elsewhere": "data"})
assert two.commands.run("cat /elsewhere/b.txt").stdout == "from inside\n"
two.kill()
try:
    Volume.destroy(volume.volume_id)
    raise AssertionError("it is in use")
except Exception as error:
    assert "in use" in str(error), error
one.kill()

# It outlives them.
three = Sandbox.create(timeout=120, volume_mounts={"/data": "data"})
assert three.commands.run("cat /data/b.txt").stdout == "from inside\n"
three.kill()
volume.remove("/in")
assert not volume.exists("/in/a.txt")
assert Volume.destroy("data") and not Volume.destroy("data")
for wrong in ({"/data": "data"}, {"../x": "other"}):
    try:
        Sandbox.create(timeout=120, volume_mounts=wrong)
        raise AssertionError(wrong)
    except (SandboxException, NotFoundException) as error:
        assert "volume" in str(error), error
