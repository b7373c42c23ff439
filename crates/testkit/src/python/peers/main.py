"""Servers that real clients speak to in the tests: they check real credentials, and write down what they saw.

Run as `python main.py DIR`. DIR/keys holds the credentials that are admitted, a line each, read anew for every
request; DIR/log.jsonl gets a line for every request; DIR/ca.pem is the authority of all certificates, made now.
One line of JSON on stdout tells the ports. With the end of stdin all ends, and DIR is removed.
"""

import asyncio
import json
import os
import shutil
import socket
import ssl
import sys

import hypercorn.asyncio
import hypercorn.config
import trustme

import packages
import repository
import rpc
import sockets
import web
from book import Book


def listen():
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    return listener, listener.getsockname()[1]


async def end_of_stdin(directory):
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(0)


async def main(directory):
    book = Book(directory)
    authority = trustme.CA()
    leaf = authority.issue_cert(*web.HOSTS)
    authority.cert_pem.write_to_path(book.path("ca.pem"))
    leaf.private_key_pem.write_to_path(book.path("leaf.key"))
    leaf.cert_chain_pems[0].write_to_path(book.path("leaf.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(context)

    packages.make(book.path("packages"))
    repository.make(book.path("repository.git"))
    (secure, secure_port), (plain, plain_port) = listen(), listen()
    config = hypercorn.config.Config()
    config.bind, config.insecure_bind = [f"fd://{secure.fileno()}"], [f"fd://{plain.fileno()}"]
    config.certfile, config.keyfile = book.path("leaf.pem"), book.path("leaf.key")
    config.accesslog = config.errorlog = None
    config.keep_alive_timeout = 600

    ports = {
        "web": secure_port,
        "plain": plain_port,
        "sockets": await sockets.serve(book, context),
        "rpc": await rpc.serve(book, leaf),
    }
    asyncio.ensure_future(end_of_stdin(directory))
    serving = asyncio.ensure_future(
        hypercorn.asyncio.serve(web.application(book), config, shutdown_trigger=asyncio.Event().wait)
    )
    print(json.dumps(ports), flush=True)
    await serving


asyncio.run(main(sys.argv[1]))
