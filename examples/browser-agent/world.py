"""The world of the browser agent, for recording: a model that follows fixed rules, and a web shop.

usage: world.py [PORT]. It listens on loopback and prints its port.
"""

import html
import http.server
import json
import re
import sys
import urllib.parse

PRICES = {"lamp": "39.50", "chair": "85.00"}
FORM = """<form method="post" action="/orders"><input name="item" aria-label="Item"><input name="count" aria-label="Count">
<button>Order</button></form>"""


def decide(messages: list[dict]):
    """What a model would ask for next: by the errand and what the pages say."""
    errand = next(message["content"] for message in messages if message["role"] == "user")
    results = [message["content"] for message in messages if message["role"] == "tool"]
    item = next((item for item in PRICES if item in errand), "lamp")
    count = next(iter(re.findall(r"\d+", errand)), "1")
    plan = [("open", {"path": "/"})]
    if "order" in errand.lower():
        plan += [("open", {"path": "/order"}), ("fill", {"field": "item", "text": item})]
        plan += [("fill", {"field": "count", "text": count}), ("submit", {})]
    if len(results) < len(plan):
        return plan[len(results)]
    if len(plan) > 1:
        return f"Done: {results[-1]}"
    return next(line for line in results[0].splitlines() if item in line)


def page(text: str) -> bytes:
    head = '<meta charset="utf-8"><link rel="icon" href="data:,"><title>shop</title>'
    return f"<!doctype html><html><head>{head}</head><body>{text}</body></html>".encode()


class World(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/":
            prices = "".join(f"<p>The {item} costs {price}.</p>" for item, price in PRICES.items())
            self.answer(200, "text/html", page(f"<h1>Shop</h1>{prices}<a href='/order'>Order</a>"))
        elif self.path == "/order":
            self.answer(200, "text/html", page(f"<h1>Order</h1>{FORM}"))
        else:
            self.answer(404, "text/html", page("There is nothing here."))

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if self.path == "/orders":
            fields = {name: values[0] for name, values in urllib.parse.parse_qs(text).items()}
            said = html.escape(f"{fields.get('count', '?')} of {fields.get('item', '?')} ordered")
            return self.answer(200, "text/html", page(said))
        body = json.loads(text)
        said = decide(body["messages"])
        message = {"role": "assistant", "content": said}
        if isinstance(said, tuple):
            called = {"name": said[0], "arguments": json.dumps(said[1])}
            turn = f"call_{len(body['messages'])}"
            message = {"role": "assistant", "content": None}
            message["tool_calls"] = [{"id": turn, "type": "function", "function": called}]
        length = len(json.dumps(body["messages"])) // 4
        usage = {"prompt_tokens": length, "completion_tokens": 20, "total_tokens": length + 20}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = {"id": "c", "model": body["model"], "choices": [choice], "usage": usage}
        return self.answer(200, "application/json", json.dumps(answer).encode())

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    port = next((int(word) for word in sys.argv[1:] if word.isdigit()), 8787)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), World)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
