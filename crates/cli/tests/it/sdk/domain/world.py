"""A world with a name server: started in network and mount namespaces of its own, it leads every name below `sbx.test`
to the loopback as a real wildcard record would, starts a service with that domain and TLS, and runs clients against it.
Arguments: the service's program, its state directory, the directory of packages, then the clients' commands."""
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading

PORT = 8443
program, home, packages, *clients = sys.argv[1:]

# The loopback of a new network namespace is down.
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    request = struct.pack("16sH14x", b"lo", 0x1 | 0x40)
    fcntl.ioctl(control, 0x8914, request)

place = tempfile.mkdtemp()
with open(f"{place}/resolv.conf", "w") as file:
    file.write("nameserver 127.0.0.1\n")
subprocess.run(["mount", "--bind", f"{place}/resolv.conf", os.path.realpath("/etc/resolv.conf")], check=True)

names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(("127.0.0.1", 53))


def answer():
    """One A record for whatever lies below the domain; no such name for the rest; nothing for other types."""
    while True:
        question, client = names.recvfrom(512)
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode().lower())
            at += 1 + question[at]
        asked, kind = question[12 : at + 5], struct.unpack(">H", question[at + 1 : at + 3])[0]
        ours = labels[-2:] == ["sbx", "test"]
        record = ours and kind == 1
        head = question[:2] + struct.pack(">HHHHH", 0x8580 if ours else 0x8583, 1, int(record), 0, 0)
        found = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton("127.0.0.1") if record else b""
        names.sendto(head + asked + found, client)


threading.Thread(target=answer, daemon=True).start()

with open(f"{place}/serve.toml", "w") as file:
    file.write(f'domain = "sbx.test:{PORT}"\n[tls]\nlocal = true\n')
command = [program, "--home", home, "serve", "--listen", f"127.0.0.1:{PORT}", "--json", "--config", f"{place}/serve.toml"]
service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr)
told = json.loads(service.stdout.readline())
environment = {
    "PATH": os.environ["PATH"],
    "HOME": place,
    "PYTHONPATH": packages,
    "PYTHONDONTWRITEBYTECODE": "1",
    "E2B_API_KEY": told["api_key"],
    "E2B_DOMAIN": told["domain"],
    "SSL_CERT_FILE": told["authority"],
    "NODE_EXTRA_CA_CERTS": told["authority"],
}
try:
    for client in clients:
        interpreter = "node" if client.endswith(".mjs") else "python3"
        subprocess.run([interpreter, client], env=environment, cwd=place, check=True, timeout=240)
finally:
    service.terminate()
    service.wait(timeout=60)
