"""A server that checks signatures of version 4A: the text that was signed is put together here, and checked with the
public key that is derived from the secret. Answers 200 with what it read, or 403."""

import asyncio
import hashlib
import hmac
import json
import urllib.parse

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

ALGORITHM = "AWS4-ECDSA-P256-SHA256"
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def public_key(key_id, secret):
    for counter in range(1, 255):
        text = b"\0\0\0\x01" + ALGORITHM.encode() + b"\0" + key_id.encode() + bytes([counter]) + b"\0\0\x01\0"
        candidate = int.from_bytes(hmac.new(b"AWS4A" + secret.encode(), text, hashlib.sha256).digest(), "big")
        if candidate <= ORDER - 2:
            return ec.derive_private_key(candidate + 1, ec.SECP256R1()).public_key()
    raise SystemExit("no key")


def verify(key, text, signature):
    try:
        key.verify(bytes.fromhex(signature), text.encode(), ec.ECDSA(hashes.SHA256()))
        return True
    except (InvalidSignature, ValueError):
        return False


def check(key, key_id, method, target, fields, body):
    """What was signed, or a word on what is wrong."""
    authorization = fields.get("authorization", "")
    if not authorization.startswith(ALGORITHM + " "):
        return None, "not signed with version 4A"
    told = dict(part.strip().split("=", 1) for part in authorization[len(ALGORITHM) + 1 :].split(","))
    name, scope = told["Credential"].split("/", 1)
    if name != key_id:
        return None, "unknown key"
    signed = told["SignedHeaders"].split(";")
    path, _, query = target.partition("?")
    pairs = sorted(tuple(pair.partition("=")[::2]) for pair in query.split("&") if pair)
    payload = fields.get("x-amz-content-sha256", hashlib.sha256(body).hexdigest())
    canonical = "\n".join(
        [method, urllib.parse.quote(urllib.parse.unquote(path), safe="/~"), "&".join(f"{n}={v}" for n, v in pairs)]
        + [f"{name}:{' '.join(fields[name].split())}" for name in signed]
        + ["", ";".join(signed), payload]
    )
    text = "\n".join([ALGORITHM, fields["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    if not verify(key, text, told["Signature"]):
        return None, "the signature does not fit"
    if payload not in ("UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest()) and not payload.startswith("STREAMING-"):
        return None, "another body"
    if payload.startswith(f"STREAMING-{ALGORITHM}"):
        return check_pieces(key, text, told["Signature"], payload, body)
    return {"regions": fields.get("x-amz-region-set")}, None


def check_pieces(key, head, seed, payload, body):
    time, scope = head.split("\n")[1:3]
    last, inside = seed, b""
    while True:
        line, body = body.split(b"\r\n", 1)
        size, _, signature = line.decode().partition(";chunk-signature=")
        data, body = body[: int(size, 16)], body[int(size, 16) :]
        digests = [hashlib.sha256(b"").hexdigest(), hashlib.sha256(data).hexdigest()]
        text = "\n".join([f"{ALGORITHM}-PAYLOAD", time, scope, last, *digests])
        if len(signature) != 144 or not verify(key, text, signature.rstrip("*")):
            return None, "a piece is not signed"
        last, inside = signature.rstrip("*"), inside + data
        if not data:
            break
        body = body[2:]
    if payload.endswith("-TRAILER"):
        field, _, rest = body.partition(b"\r\n")
        signature = rest.split(b"\r\n")[0].decode().removeprefix("x-amz-trailer-signature:")
        digest = hashlib.sha256(field.strip() + b"\n").hexdigest()
        if not verify(key, "\n".join([f"{ALGORITHM}-TRAILER", time, scope, last, digest]), signature.rstrip("*")):
            return None, "the fields behind the body are not signed"
    return {"inside": hashlib.sha256(inside).hexdigest()}, None


async def read_body(reader, fields):
    if fields.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(fields.get("content-length", 0)))
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


async def serve(context, key_id, secret):
    key = public_key(key_id, secret)

    async def answer(reader, writer):
        try:
            while line := await reader.readline():
                method, target, _ = line.decode().split(" ")
                fields = {}
                while (line := (await reader.readline()).decode("latin-1").rstrip("\r\n")) != "":
                    name, _, value = line.partition(":")
                    fields[name.lower()] = value.strip()
                if "100-continue" in fields.get("expect", ""):
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                told, wrong = check(key, key_id, method, target, fields, await read_body(reader, fields))
                # Clients take an upload for failed whose answer is anything but XML.
                text = b"" if told and method == "PUT" else json.dumps(told or {"wrong": wrong}).encode()
                status = "200 OK" if told else "403 Forbidden"
                writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(text)}\r\netag: \"x\"\r\n\r\n".encode() + text)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context, limit=1 << 22)
    return server.sockets[0].getsockname()[1]
