"""A client that signs its body piece by piece, as SDKs for Java, Go and Rust do; with and without fields behind it.

Run as `pieces.py MODE [FAULT]`; prints the status and the answer's beginning. It signs with what botocore derives."""

import base64
import datetime
import hashlib
import hmac
import http.client
import os
import ssl
import sys
import urllib.parse
import zlib

HOST, REGION = "bucket.s3.eu-west-1.amazonaws.com", "eu-west-1"
ID, SECRET = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
mode, fault = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
trailer = mode == "trailer"
size = int(os.environ.get("SIZE", 300000))
data = bytes(range(256)) * (size // 256)

now = datetime.datetime.now(datetime.timezone.utc)
if fault == "clock":
    now -= datetime.timedelta(days=3)
time = now.strftime("%Y%m%dT%H%M%SZ")
scope = f"{time[:8]}/{REGION}/s3/aws4_request"


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


key = ("AWS4" + SECRET).encode()
for part in scope.split("/"):
    key = mac(key, part)


def sign(*lines):
    return mac(key, "\n".join(lines)).hex()


def digest(body):
    return hashlib.sha256(body).hexdigest()


payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" + ("-TRAILER" if trailer else "")
path = "/pieces/" + urllib.parse.quote(f"{mode} {fault}+ü")
fields = {
    "content-encoding": "aws-chunked",
    "host": HOST,
    "x-amz-content-sha256": payload,
    "x-amz-date": time,
    "x-amz-decoded-content-length": str(len(data)),
}
if trailer:
    fields["x-amz-trailer"] = "x-amz-checksum-crc32"
names = ";".join(sorted(fields))
canonical = "\n".join(["PUT", path, ""] + [f"{n}:{fields[n]}" for n in sorted(fields)] + ["", names, payload])
seed = sign("AWS4-HMAC-SHA256", time, scope, digest(canonical.encode()))
fields["authorization"] = f"AWS4-HMAC-SHA256 Credential={ID}/{scope}, SignedHeaders={names}, Signature={seed}"

body, last = b"", seed
PIECE = 65536
for at in [*range(0, len(data), PIECE), len(data)]:
    piece = data[at : at + PIECE]
    last = sign("AWS4-HMAC-SHA256-PAYLOAD", time, scope, last, digest(b""), digest(piece))
    if fault == "changed" and at == PIECE:
        piece = b"\xff" + piece[1:]
    body += f"{len(piece):x};chunk-signature={last}\r\n".encode() + piece
    if piece or not trailer:
        body += b"\r\n"
if trailer:
    field = f"x-amz-checksum-crc32:{base64.b64encode(zlib.crc32(data).to_bytes(4, 'big')).decode()}"
    last = sign("AWS4-HMAC-SHA256-TRAILER", time, scope, last, digest(f"{field}\n".encode()))
    if fault == "trailer":
        field = field[:-4] + "AAA="
    body += f"{field}\r\nx-amz-trailer-signature:{last}\r\n\r\n".encode()

proxy = urllib.parse.urlparse(os.environ["HTTPS_PROXY"])
connection = http.client.HTTPSConnection(proxy.hostname, proxy.port, context=ssl.create_default_context())
connection.set_tunnel(HOST, 443)
connection.putrequest("PUT", path, skip_host=True, skip_accept_encoding=True)
for name, value in {**fields, "content-length": str(len(body))}.items():
    connection.putheader(name, value)
connection.endheaders()
try:
    connection.send(body)
except OSError:
    pass  # Who refuses early may close early; the answer may have come before.
try:
    answer = connection.getresponse()
    print(answer.status, answer.read().decode()[:300])
except (OSError, http.client.HTTPException):
    print("cut")
