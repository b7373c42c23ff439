"""A support agent: it reads a ticket, asks a model what to do, calls the tools that the model asks for, and answers.

It is an ordinary program of the standard library. The model speaks the usual chat API; the tools are requests to the
shop. It knows nothing of sandboxes, recordings or gates.
"""

import json
import sys
import urllib.error
import urllib.request

MODEL = "http://model.example/v1/chat/completions"
SHOP = "http://shop.example"
TURNS = 8

RULES = """You are the support agent of a small shop. Look an order up before you say anything about it.
Refund only what arrived damaged, and never more than was paid. Anything over 100 needs a person."""

TOOLS = {
    "find_order": ("GET", "/orders/{order}"),
    "stock": ("GET", "/stock/{item}"),
    "refund": ("POST", "/refunds"),
    "hand_over": ("POST", "/handovers"),
}


def schema(name: str) -> dict:
    fields = {
        "find_order": {"order": "string"},
        "stock": {"item": "string"},
        "refund": {"order": "string", "amount": "number"},
        "hand_over": {"order": "string", "reason": "string"},
    }[name]
    properties = {field: {"type": kind} for field, kind in fields.items()}
    parameters = {"type": "object", "properties": properties, "required": list(fields)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def request(method: str, url: str, body: dict | None = None) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def call(name: str, arguments: dict) -> str:
    method, path = TOOLS[name]
    body = arguments if method == "POST" else None
    status, text = request(method, SHOP + path.format(**arguments), body)
    return text if status < 400 else json.dumps({"error": status, "said": text[:200]})


def think(messages: list[dict]) -> dict:
    body = {"model": "shop-support-1", "messages": messages, "tools": [schema(name) for name in TOOLS]}
    status, text = request("POST", MODEL, body)
    if status != 200:
        sys.exit(f"the model answered {status}: {text[:300]}")
    return json.loads(text)["choices"][0]["message"]


def main() -> None:
    ticket = sys.stdin.read().strip()
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": ticket}]
    for _ in range(TURNS):
        said = think(messages)
        messages.append(said)
        calls = said.get("tool_calls") or []
        if not calls:
            print(said["content"])
            return
        for asked in calls:
            name, arguments = asked["function"]["name"], json.loads(asked["function"]["arguments"])
            result = call(name, arguments)
            messages.append({"role": "tool", "tool_call_id": asked["id"], "content": result})
    sys.exit("no answer after so many turns")


if __name__ == "__main__":
    main()
