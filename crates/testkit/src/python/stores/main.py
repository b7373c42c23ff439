"""Stores that check signatures, behind TLS: s3s-fs for S3, azurite for Azure blobs, and a server that checks
signatures of version 4A with the public key that belongs to the secret.

Run as `python main.py DIR PACKAGES`, with the keys as one line of JSON on stdin. DIR/ca.pem is the authority of all
certificates, made now. One line of JSON on stdout tells the ports. With the end of stdin all ends, and DIR is removed.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys

import trustme

import regions
import tokens

S3 = "s3.eu-west-1.amazonaws.com"
BLOBS = "blob.core.windows.net"
HOSTS = [S3, f"*.{S3}", f"*.{BLOBS}", "*.mrap.accesspoint.s3-global.amazonaws.com", "sts.eu-west-1.amazonaws.com"]
HOSTS += ["*.googleapis.com", "api.github.com", "*.corp.example"]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def start(command, directory, name, **env):
    log = open(os.path.join(directory, f"{name}.log"), "wb")
    # Ends with us, whatever ends us.
    end = lambda: __import__("ctypes").CDLL(None).prctl(1, signal.SIGKILL)
    env = {"PATH": os.environ["PATH"], "HOME": directory, **env}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, preexec_fn=end)


async def until_open(port, process):
    while True:
        if process.poll() is not None:
            raise SystemExit(f"{process.args[0]} ended with {process.returncode}")
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        except OSError:
            await asyncio.sleep(0.05)


async def pump(reader, writer):
    try:
        while part := await reader.read(1 << 18):
            writer.write(part)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except (OSError, ssl.SSLError):
        writer.close()


async def relay(context, port):
    """TLS on a new port, plain to the other."""

    async def serve(reader, writer):
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))
        inner_writer.close()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context, limit=1 << 20)
    return server.sockets[0].getsockname()[1]


async def main(directory, packages):
    keys = json.loads(sys.stdin.buffer.readline())
    path = lambda name: os.path.join(directory, name)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(path("ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*HOSTS).configure_cert(context)

    os.makedirs(path("s3/bucket"))
    s3_port, blob_port = free_port(), free_port()
    s3 = [os.path.join(packages, "s3s/bin/s3s-fs"), "--host", "127.0.0.1", "--port", str(s3_port)]
    s3 += ["--access-key", keys["aws_id"], "--secret-key", keys["aws_secret"], "--domain", S3, path("s3")]
    blob = ["node", os.path.join(packages, "node_modules/azurite/dist/src/blob/main.js"), "--silent"]
    blob += ["--blobHost", "127.0.0.1", "--blobPort", str(blob_port), "--location", path("azure"), "--skipApiVersionCheck", "--disableTelemetry"]
    running = [start(s3, directory, "s3", RUST_LOG="warn")]
    running += [start(blob, directory, "azure", AZURITE_ACCOUNTS=f"{keys['azure_account']}:{keys['azure_key']}")]
    await asyncio.gather(until_open(s3_port, running[0]), until_open(blob_port, running[1]))

    ports = {"s3": await relay(context, s3_port), "blob": await relay(context, blob_port)}
    ports["regions"] = await regions.serve(context, keys["aws_id"], keys["aws_secret"])
    ports["plain_s3"] = s3_port
    given = tokens.Tokens()
    ports["tokens"] = await tokens.serve(context, given)
    ports["files"] = given.files()
    print(json.dumps(ports), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    for process in running:
        process.kill()
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(0)


asyncio.run(main(*sys.argv[1:]))
