"""A browser agent: it reads an errand, asks a model what to do, and does it in a browser: opens pages, fills in forms,
clicks, reads.

It is an ordinary program of the standard library, and so is its client of the browser (cdp.py). The model speaks the
usual chat API. It knows nothing of recordings or gates.
"""

import json
import sys
import urllib.error
import urllib.request

import cdp

MODEL = "http://model.example/v1/chat/completions"
SHOP = "http://shop.example"
TURNS = 10

RULES = """You run errands in the web shop. Look before you act, and order nothing that you were not asked to order."""

TOOLS = {
    "open": {"path": "string"},
    "fill": {"field": "string", "text": "string"},
    "submit": {},
    "read": {},
}


def call(page: cdp.Page, name: str, arguments: dict) -> str:
    try:
        match name:
            case "open":
                page.goto(SHOP + arguments["path"])
            case "fill":
                page.fill(f"[name={arguments['field']}]", arguments["text"])
                return "filled in"
            case "submit":
                page.submit("button")
        return page.text()
    except RuntimeError as error:
        return f"error: {error}"


def schema(name: str) -> dict:
    properties = {field: {"type": kind} for field, kind in TOOLS[name].items()}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def think(messages: list[dict]) -> dict:
    body = {"model": "errands-1", "messages": messages, "tools": [schema(name) for name in TOOLS]}
    asked = urllib.request.Request(MODEL, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)["choices"][0]["message"]
    except urllib.error.HTTPError as refusal:
        sys.exit(f"the model answered {refusal.code}: {refusal.read().decode()[:300]}")


def main() -> None:
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": sys.stdin.read().strip()}]
    page = cdp.Page()
    for _ in range(TURNS):
        said = think(messages)
        messages.append(said)
        calls = said.get("tool_calls") or []
        if not calls:
            print(said["content"])
            return
        for asked in calls:
            result = call(page, asked["function"]["name"], json.loads(asked["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": asked["id"], "content": result})
    sys.exit("no answer after so many turns")


if __name__ == "__main__":
    main()
