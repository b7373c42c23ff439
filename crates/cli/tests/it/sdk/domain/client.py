"""The SDK by domain alone: no address is told but `E2B_DOMAIN`."""
import asyncio
import os
import ssl
import urllib.error
import urllib.request

from e2b import Sandbox
from e2b_code_interpreter import Sandbox as Interpreter
from websockets.asyncio.client import connect

ECHO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "echo.py")
trust = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])

sandbox = Sandbox.create(timeout=120)
assert sandbox.commands.run("echo by name").stdout == "by name\n"
sandbox.files.write("a.txt", "x" * 100_000)
assert len(sandbox.files.read("a.txt")) == 100_000
with urllib.request.urlopen(sandbox.download_url("a.txt"), context=trust) as answer:
    assert len(answer.read()) == 100_000

host = sandbox.get_host(3000)
assert host == f"3000-{sandbox.sandbox_id}.{os.environ['E2B_DOMAIN']}", host
try:
    urllib.request.urlopen(f"https://{host}/", context=trust)
    raise AssertionError("nothing listens there")
except urllib.error.HTTPError as error:
    assert error.code == 502 and b"port is not open" in error.read()

with open(ECHO) as file:
    sandbox.files.write("echo.py", file.read())
server = sandbox.commands.run("python3 echo.py", background=True)
for line, _, _ in server:
    assert line.strip() == "listens", line
    break
with urllib.request.urlopen(f"https://{host}/path?q=1", context=trust) as answer:
    assert answer.read() == f"GET /path?q=1 for {host}".encode()


async def talk():
    """The client with threads reads and writes one TLS connection at once, by which Python loses a request now and then."""
    async with connect(f"wss://{host}/socket", ssl=trust) as socket:
        for said in ("hello", "é" * 10_000, b"\x00\xff" * 50_000):
            await socket.send(said)
            assert await socket.recv() == said


asyncio.run(talk())
sandbox.kill()

with Interpreter.create(timeout=120) as interpreter:
    assert interpreter.run_code("6 * 7").text == "42"
