"""Web services of several hosts in one: model providers, a payment provider, an index of packages, a forge, and
one that gives back whatever it got, in every way that a secret could come back."""

import asyncio
import base64
import gzip
import json
import os

import models
import packages
import repository

HOSTS = [
    "api.anthropic.com",
    "api.openai.com",
    "api.stripe.com",
    "generativelanguage.googleapis.com",
    "git.corp.example",
    "npm.corp.example",
    "open.corp.example",
    "plain.corp.example",
    "pypi.corp.example",
    "rpc.corp.example",
    "sockets.corp.example",
    "api.corp.example",
]

# Needs no credential.
OPEN = "open.corp.example"


class Request:
    def __init__(self, scope, receive, send):
        self.method, self.path = scope["method"], scope["path"]
        self.query = scope["query_string"].decode()
        self.headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        self.version = scope["http_version"]
        self.receive, self.send = receive, send
        self.host = (self.header("host") or "").split(":")[0]

    def header(self, wanted):
        return next((value for name, value in self.headers if name == wanted), None)

    async def body(self):
        parts = []
        while True:
            message = await self.receive()
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return b"".join(parts)

    async def start(self, status=200, headers=()):
        headers = [(name.encode(), value.encode()) for name, value in headers]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def part(self, body, more=True):
        await self.send({"type": "http.response.body", "body": body, "more_body": more})

    async def answer(self, body, status=200, kind="application/json", headers=()):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        fields = [("content-type", kind), ("content-length", str(len(body))), *headers]
        await self.start(status, fields)
        await self.part(body, more=False)


def application(book):
    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        request = Request(scope, receive, send)
        credential = book.admit(request.headers, request.query)
        book.write(
            host=request.host,
            method=request.method,
            path=request.path,
            query=request.query,
            http=request.version,
            credential=credential,
            headers=request.headers,
        )
        if credential is None and request.host != OPEN:
            challenge = [("www-authenticate", 'Basic realm="corp"')]
            return await request.answer({"error": "who are you?"}, status=401, headers=challenge)
        await SERVICES.get(request.host, generic)(book, request, credential)

    return app


async def stripe(book, request, credential):
    await request.body()
    charge = {"id": "ch_1", "object": "charge", "amount": 700}
    listed = {"object": "list", "url": "/v1/charges", "has_more": False, "data": [charge]}
    await request.answer(listed if request.method == "GET" else {"id": "re_1", "object": "refund"})


async def generic(book, request, credential):
    name = request.path.strip("/").split("/")[0]
    if name in STREAMS:
        return await STREAMS[name](book, request)
    body = await request.body()
    if name == "echo":
        return await ECHOES[request.path.split("/")[2]](request, credential or "", body)
    if name == "redirect":
        return await request.answer({}, status=302, headers=[("location", f"https://{OPEN}/landed")])
    await request.answer({"ok": True, "credential": credential is not None, "bytes": len(body)})


async def ticks(book, request):
    """Events without end."""
    await request.start(200, [("content-type", "text/event-stream")])
    for n in range(100_000):
        await request.part(f"data: tick {n}\n\n".encode())
        await asyncio.sleep(0.02)


async def gulps(book, request):
    """Takes a body as slowly as it comes, and notes what came of one that broke off."""
    got = b""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return book.write(host=request.host, path=request.path, broken=got.decode("latin-1"))
        got += message.get("body", b"")
        if not message.get("more_body"):
            return await request.answer({"bytes": len(got)})


STREAMS = {"ticks": ticks, "gulps": gulps}


async def echo_json(request, credential, body):
    await request.answer({"headers": dict(request.headers), "body": body.decode("latin-1"), "saw": credential})


async def echo_fields(request, credential, body):
    fields = [("x-saw", credential), ("set-cookie", f"key={credential}; Path=/"), ("x-hex", credential.encode().hex())]
    await request.answer({}, headers=fields)


async def echo_location(request, credential, body):
    await request.answer({}, status=201, headers=[("location", f"https://{OPEN}/landed?key={credential}")])


async def echo_split(request, credential, body):
    """Byte by byte, each a chunk of its own."""
    await request.start(200, [("content-type", "text/plain")])
    for byte in f"your key is {credential} indeed".encode():
        await request.part(bytes([byte]))
    await request.part(b"", more=False)


async def echo_gzip(request, credential, body):
    packed = gzip.compress(f"your key is {credential} indeed".encode())
    await request.answer(packed, kind="text/plain", headers=[("content-encoding", "gzip")])


async def echo_base64(request, credential, body):
    words = [base64.b64encode(b"x" * n + credential.encode() + b"y").decode() for n in range(3)]
    await request.answer({"words": words})


async def echo_hex(request, credential, body):
    escaped = "".join(f"%{byte:02X}" for byte in credential.encode())
    await request.answer({"hex": credential.encode().hex(), "percent": escaped})


async def echo_error(request, credential, body):
    page = f"<h1>Bad request</h1><pre>Authorization: {request.header('authorization')}</pre>"
    await request.answer(page.encode(), status=500, kind="text/html")


ECHOES = {
    "json": echo_json,
    "fields": echo_fields,
    "location": echo_location,
    "split": echo_split,
    "gzip": echo_gzip,
    "base64": echo_base64,
    "hex": echo_hex,
    "error": echo_error,
}


async def files(book, request, credential):
    """Files below the directory of the host's packages."""
    await request.body()
    path = os.path.normpath(request.path).lstrip("/").replace("%2f", "/")
    root = book.path(os.path.join("packages", request.host))
    found = next((p for p in (path, f"{path}/index.html", f"{path}/index.json") if os.path.isfile(os.path.join(root, p))), None)
    if found is None:
        return await request.answer({}, status=404)
    with open(os.path.join(root, found), "rb") as file:
        await request.answer(file.read(), kind=packages.kind(found))


SERVICES = {
    "api.anthropic.com": models.anthropic,
    "api.openai.com": models.openai,
    "api.stripe.com": stripe,
    "generativelanguage.googleapis.com": models.google,
    "git.corp.example": repository.serve,
    "models.corp.example": models.openai,
    "npm.corp.example": files,
    "pypi.corp.example": files,
}
