"""A model for agent.py that follows fixed rules: it has a program written and run, and says what came of it.

usage: model.py [PORT]. It listens on loopback and prints its port.
"""

import http.server
import json
import sys

PROGRAM = "print(sum(n * n for n in range(1, 101)))\n"
PEEK = "python3 -c 'import urllib.request as r; r.urlopen(\"http://example.com/\", timeout=5)' 2>/dev/null || echo no way out"


def decide(messages: list[dict]):
    results = [message["content"] for message in messages if message["role"] == "tool"]
    plan = [
        ("write_file", {"path": "/home/user/squares.py", "text": PROGRAM}),
        ("run", {"command": "python3 /home/user/squares.py"}),
        ("run", {"command": PEEK}),
    ]
    if len(results) < len(plan):
        return plan[len(results)]
    return f"The squares of 1 to 100 add up to {results[1].strip()}; the network: {results[2].strip().splitlines()[-1]}."


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        said = decide(body["messages"])
        message = {"role": "assistant", "content": said}
        if isinstance(said, tuple):
            called = {"name": said[0], "arguments": json.dumps(said[1])}
            message = {"role": "assistant", "content": None}
            turn = f"call_{len(body['messages'])}"
            message["tool_calls"] = [{"id": turn, "type": "function", "function": called}]
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        whole = {"id": "c", "object": "chat.completion", "created": 0, "model": body["model"]}
        answer = json.dumps(whole | {"choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    port = next((int(word) for word in sys.argv[1:] if word.isdigit()), 8788)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Model)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
