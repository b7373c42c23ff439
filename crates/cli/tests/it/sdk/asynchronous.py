"""The asynchronous SDK: streams, watches that stream, and several at once."""
import asyncio

from e2b import AsyncSandbox
from e2b_code_interpreter import AsyncSandbox as Interpreter


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

    # A file that comes and goes in pieces, as they are made.
    async def pieces():
        for number in range(64):
            yield bytes([number]) * 65_536

    await sandbox.files.write("streamed", pieces())
    size = 0
    async for piece in await sandbox.files.read("streamed", format="stream"):
        size += len(piece)
    assert size == 64 * 65_536, size

    # A sandbox that is ended breaks its streams off.
    handle = await sandbox.commands.run("sleep 1000", background=True)
    assert await sandbox.kill() is True
    try:
        await handle.wait()
    except Exception as error:
        assert "sandbox" in str(error).lower() or "terminated" in str(error).lower(), error
    else:
        raise AssertionError("the command went on without its sandbox")

    interpreter = await Interpreter.create(timeout=120)
    lines = []
    done = await interpreter.run_code("print('one')\n6 * 7", on_stdout=lambda message: lines.append(message.line))
    assert (done.text, lines) == ("42", ["one\n"]), (done, lines)
    both = await asyncio.gather(*(interpreter.run_code("1 + 1", language=one) for one in ("python", "js")))
    assert [one.text for one in both] == ["2", "2"], both
    await interpreter.kill()


asyncio.run(main())
