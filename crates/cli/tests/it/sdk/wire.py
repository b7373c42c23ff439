"""What no SDK would send: the daemon's port, spoken to by hand."""
import http.client
import json
import os
import struct
from urllib.parse import urlsplit

from e2b import Sandbox

sandbox = Sandbox.create(timeout=120)
base = urlsplit(os.environ["E2B_API_URL"])
token = sandbox.connection_config.sandbox_headers.get("X-Access-Token") if hasattr(
    sandbox.connection_config, "sandbox_headers") else None
token = token or sandbox._envd_access_token


def ask(method, path, body=b"", headers=None, with_token=True):
    connection = http.client.HTTPConnection(base.hostname, base.port, timeout=60)
    all_headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983", **(headers or {})}
    if with_token:
        all_headers["X-Access-Token"] = token
    connection.request(method, path, body, all_headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def unary(path, body, **more):
    return ask("POST", path, body, {"Content-Type": "application/json"}, **more)


def stream(path, body):
    status, whole = ask("POST", path, body, {"Content-Type": "application/connect+json"})
    assert status == 200, (status, whole)
    flags, size = struct.unpack(">BI", whole[:5])
    assert flags == 2 and len(whole) == 5 + size, whole
    return json.loads(whole[5:])["error"]["code"]


def envelope(body, flags=0):
    return struct.pack(">BI", flags, len(body)) + body


# Who has no token gets nothing, and nothing is done.
for given in (False,):
    assert unary("/process.Process/List", b"{}", with_token=given)[0] == 401
    assert unary("/filesystem.Filesystem/Remove", b'{"path":"/home/user"}', with_token=given)[0] == 401
    assert ask("GET", "/files?path=/etc/passwd", with_token=given)[0] == 401
    assert ask("GET", "/files?path=/etc/passwd&signature=v1_x", with_token=given)[0] == 401
    assert ask("POST", "/files?path=x", b"x", {"Content-Type": "application/octet-stream"}, with_token=given)[0] == 401
    assert ask("GET", "/envs", with_token=given)[0] == 401
    assert ask("GET", "/health", with_token=given)[0] == 204
status, body = ask("GET", "/metrics", headers={"X-Access-Token": token + "x"}, with_token=False)
assert status == 401 and json.loads(body)["code"] == 401, body
assert json.loads(ask("GET", "/metrics")[1])["disk_total"] > 0

# Messages that are none.
assert unary("/process.Process/List", b"{]")[0] == 400
assert unary("/process.Process/List", b"[]")[0] == 400
assert unary("/process.Process/Nothing", b"{}")[0] == 501
assert unary("/no.Such/Thing", b"{}")[0] == 404
assert ask("GET", "/process.Process/List")[0] == 405
assert ask("POST", "/process.Process/List", b"{}", {"Content-Type": "application/proto"})[0] == 415
assert unary("/process.Process/SendSignal", b'{"process":{"pid":1},"signal":"SIGNAL_SIGKILL"}')[0] == 404
assert unary("/process.Process/SendInput", b'{"process":{}}')[0] == 400
start = "/process.Process/Start"
for broken in (b"", b"\0\0", envelope(b"{]"), envelope(b'{"process":5}'), envelope(b"{}"), envelope(b"{}")[:-1],
               b"\0\xff\xff\xff\xff", envelope(b"{}", flags=1), envelope(b"{}", flags=2)):
    assert stream(start, broken) in ("invalid_argument", "resource_exhausted", "internal"), broken
assert stream(start, envelope(b'{"process":{"cmd":"/no/such/program"}}')) == "invalid_argument"
assert stream(start, envelope(b'{"process":{"cmd":"a\\u0000b"}}')) in ("invalid_argument", "failed_precondition", "resource_exhausted")
assert stream("/process.Process/Connect", envelope(b'{"process":{"pid":77777}}')) == "not_found"
assert stream("/filesystem.Filesystem/WatchDir", envelope(b'{"path":"/etc/passwd"}')) == "invalid_argument"

# Paths that are none.
for path in ("a\\u0000b", "~root/x", "x" * 5000):
    assert unary("/filesystem.Filesystem/Stat", ('{"path":"%s"}' % path).encode())[0] == 400, path
assert unary("/filesystem.Filesystem/Stat", b'{"path":"/../../.."}')[0] == 200
assert ask("GET", "/files?path=/home/user")[0] == 400
assert ask("GET", "/files?path=/dev/zero")[0] == 400
assert ask("GET", "/files?path=x&username=nobody-at-all")[0] == 401
assert ask("POST", "/files", b"x", {"Content-Type": "text/plain"})[0] == 400
assert ask("POST", "/files", b"x", {"Content-Type": "application/octet-stream"})[0] == 400
assert ask("POST", "/files", b"--b\r\nbroken", {"Content-Type": "multipart/form-data; boundary=b"})[0] == 400
assert ask("POST", "/files?path=x", b"no gzip", {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"})[0] == 400
assert not sandbox.files.exists("x"), "a file that did not come whole"

# An upload that breaks off leaves nothing; the next one works.
connection = http.client.HTTPConnection(base.hostname, base.port, timeout=60)
connection.putrequest("POST", "/files?path=half")
for name, value in {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983", "X-Access-Token": token,
                    "Content-Type": "application/octet-stream", "Content-Length": "1000"}.items():
    connection.putheader(name, value)
connection.endheaders()
connection.send(b"x" * 100)
connection.close()
sandbox.files.write("whole", "1")
assert [entry.name for entry in sandbox.files.list(".")] == ["whole"]

# What listens inside is told what the request says, and none of our keys and tokens.
sandbox.files.write("tell.py", """
import http.server

class Tell(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(self.headers).encode())

http.server.HTTPServer(("127.0.0.1", 8000), Tell).serve_forever()
""")
sandbox.commands.run("python3 tell.py", background=True)
sandbox.commands.run("until bash -c '</dev/tcp/127.0.0.1/8000' 2>/dev/null; do sleep 0.1; done")
key = os.environ["E2B_API_KEY"]
ours = {"E2b-Sandbox-Port": "8000", "X-API-Key": key, "Authorization": "Bearer " + key, "X-Own": "shown"}
status, told = ask("GET", "/", headers=ours)
assert status == 200 and b"x-own: shown" in told.lower(), (status, told)
assert key.encode() not in told and token.encode() not in told, told
status, told = ask("GET", "/", headers={"E2b-Sandbox-Port": "8000", "Authorization": "Bearer theirs"})
assert status == 200 and b"Bearer theirs" in told, (status, told)

# A sandbox that is not there.
sandbox.kill()
status, body = ask("GET", "/health")
assert status == 502 and "was not found" in json.loads(body)["message"], (status, body)
