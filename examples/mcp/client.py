"""Asks the desk for a few things, through `cofferdam mcp wrap`. Run it here: `python3 client.py`."""

import json
import subprocess
import sys

COMMAND = ["cofferdam", "mcp", "wrap", "--policy", "policy.toml", "--", "python3", "server.py"]
server = subprocess.Popen(sys.argv[1:] or COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
number = 0


def ask(method, **params):
    global number
    number += 1
    request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())["result"]


ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "example", "version": "1"})
print("tools:", *(tool["name"] for tool in ask("tools/list")["tools"]))
for name, args in [
    ("lookup", {"charge": "ch_1"}),
    ("refund", {"charge": "ch_2", "amount": 90}),
    ("refund", {"charge": "ch_1", "amount": 420000}),
    ("export_customers", {}),
]:
    print(f"{name} {json.dumps(args)}:", ask("tools/call", name=name, arguments=args)["content"][0]["text"])
server.stdin.close()
server.wait()
