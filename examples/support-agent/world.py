"""The world of the support agent, for recording: a model that follows fixed rules, and a shop with three orders.

usage: world.py [PORT]. It listens on loopback and prints its port.
"""

import http.server
import json
import re
import sys

ORDERS = {
    "A17": {"order": "A17", "item": "lamp", "paid": 39.5, "state": "delivered"},
    "B20": {"order": "B20", "item": "desk", "paid": 240.0, "state": "delivered"},
    "C33": {"order": "C33", "item": "chair", "paid": 85.0, "state": "on its way"},
}
STOCK = {"lamp": 12, "desk": 0, "chair": 3}


def tool(number: int, name: str, **arguments: object) -> dict:
    called = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{number}", "type": "function", "function": called}


def decide(messages: list[dict]) -> dict:
    """What a model would say: by the words of the ticket and what the tools have answered."""
    ticket = next(message["content"] for message in messages if message["role"] == "user")
    results = [json.loads(message["content"]) for message in messages if message["role"] == "tool"]
    order = next(iter(re.findall(r"\b[A-Z]\d\d\b", ticket)), None)
    item = next((item for item in STOCK if item in ticket.lower()), None)
    asks = len(results)
    if order is None:
        if item is None:
            return {"content": "Which order is this about?"}
        if asks == 0:
            return {"tool_calls": [tool(1, "stock", item=item)]}
        return {"content": f"We have {results[0]['left']} of the {item} left."}
    damaged = "broken" in ticket or "damaged" in ticket
    if asks == 0:
        return {"tool_calls": [tool(1, "find_order", order=order)]}
    found = results[0]
    if "error" in found:
        return {"content": f"I cannot find an order {order}."}
    if not damaged:
        return {"content": f"Your {found['item']} (order {order}) is {found['state']}."}
    if asks == 1 and found["paid"] > 100:
        return {"tool_calls": [tool(2, "hand_over", order=order, reason="a refund over 100")]}
    if asks == 1:
        return {"tool_calls": [tool(2, "refund", order=order, amount=found["paid"])]}
    if found["paid"] > 100:
        return {"content": f"I have handed order {order} over to a colleague."}
    return {"content": f"I have refunded {found['paid']} for order {order}."}


class World(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        kind, _, name = self.path.strip("/").partition("/")
        if kind == "orders" and name in ORDERS:
            self.answer(200, ORDERS[name])
        elif kind == "stock" and name in STOCK:
            self.answer(200, {"item": name, "left": STOCK[name]})
        else:
            self.answer(404, {"error": "not found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        if self.path == "/v1/chat/completions":
            message = {"role": "assistant", "content": None} | decide(body["messages"])
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            length = len(json.dumps(body["messages"])) // 4
            usage = {"prompt_tokens": length, "completion_tokens": 20, "total_tokens": length + 20}
            self.answer(200, {"id": "c", "model": body["model"], "choices": [choice], "usage": usage})
        elif self.path in ("/refunds", "/handovers"):
            self.answer(200, {"done": True, **body})
        else:
            self.answer(404, {"error": "not found"})

    def answer(self, status: int, value: dict) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
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
