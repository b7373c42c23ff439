"""The asynchronous SDK: streams, watches that stream, and several at once."""
import asyncio

from e2b import AsyncSandbox


async def main():
    sandbox = await AsyncSandbox.create(timeout=120)
    results = await asyncio.gather(*(sandbox.commands.run(f"sleep 0.1; echo {n}") for n in range(12)))
    assert [r.stdout for r in results] == [f"{n}\n" for n in range(12)], results

    events = []
    watch = await sandbox.files.watch_dir(
        "/home/user", on_event=lambda event: events.append((event.name, event.type.value)), recursive=True)
    await sandbox.files.make_dir("new")
    for _ in range(600):
        if ("new", "create") in events:
            break
        await asyncio.sleep(0.05)
    await sandbox.files.write("new/file", "x")
    for _ in range(600):
        if ("new/file", "create") in events:
            break
        await asyncio.sleep(0.05)
    assert ("new/file", "create") in events, events
    await watch.stop()

    handle = await sandbox.commands.run("for i in 1 2 3; do sleep 0.2; echo $i; done", background=True)
    first, second = await sandbox.commands.connect(handle.pid), await sandbox.commands.connect(handle.pid)
    heard = await asyncio.gather(handle.wait(), first.wait(), second.wait())
    assert all("3\n" in result.stdout for result in heard), heard
    # One that has just ended can still be asked how.
    late = await sandbox.commands.connect(handle.pid)
    assert (await late.wait()).exit_code == 0

    # A sandbox that is ended breaks its streams off.
    handle = await sandbox.commands.run("sleep 1000", background=True)
    assert await sandbox.kill() is True
    try:
        await handle.wait()
    except Exception as error:
        assert "sandbox" in str(error).lower() or "terminated" in str(error).lower(), error
    else:
        raise AssertionError("the command went on without its sandbox")


asyncio.run(main())
