"""The world of agent.py, for recording: a model that follows fixed rules, and the desk of server.py by HTTP.

usage: world.py [PORT]. It listens on loopback and prints its port.
"""

import http.server
import json
import re
import sys

import server


def decide(messages: list[dict], tools: list[str]):
    """What a model would ask for next: by the ticket, its tools and what they have answered."""
    ticket = next(message["content"] for message in messages if message["role"] == "user")
    results = [message["content"] for message in messages if message["role"] == "tool"]
    charge = next(iter(re.findall(r"ch_\d+", ticket)), None)
    if "customers" in ticket and "export_customers" not in tools:
        return "I have no tool for that."
    if charge is None:
        return "Which charge is this about?"
    plan = [("lookup", {"charge": charge})]
    if "refund" in ticket and len(results) == 1 and results[0].split()[1].isdigit():
        amount = next((int(number) for number in re.findall(r"(\d+) cents", ticket)), int(results[0].split()[1]))
        plan.append(("refund", {"charge": charge, "amount": amount}))
    if len(results) < len(plan):
        return plan[len(results)]
    return f"The desk says: {results[-1]}"


class World(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        if self.path == "/mcp":
            result = server.answer(body["method"], body.get("params", {}))
            return self.answer({"jsonrpc": "2.0", "id": body["id"], "result": result}, "desk-session")
        said = decide(body["messages"], [tool["function"]["name"] for tool in body["tools"]])
        message = {"role": "assistant", "content": said}
        if isinstance(said, tuple):
            called = {"name": said[0], "arguments": json.dumps(said[1])}
            turn = f"call_{len(body['messages'])}"
            message = {"role": "assistant", "content": None}
            message["tool_calls"] = [{"id": turn, "type": "function", "function": called}]
        length = len(json.dumps(body["messages"])) // 4
        usage = {"prompt_tokens": length, "completion_tokens": 20, "total_tokens": length + 20}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return self.answer({"id": "c", "model": body["model"], "choices": [choice], "usage": usage})

    def answer(self, value: dict, session: str | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    port = next((int(word) for word in sys.argv[1:] if word.isdigit()), 8787)
    listener = http.server.ThreadingHTTPServer(("127.0.0.1", port), World)
    print(listener.server_address[1], flush=True)
    listener.serve_forever()


if __name__ == "__main__":
    main()
