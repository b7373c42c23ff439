"""An agent whose tools are those of an MCP server, which it reaches by streamable HTTP: it shows them to a model, makes
the calls that the model asks for, and answers.

It is an ordinary program of the standard library, and knows nothing of sandboxes, policies, recordings or gates.
"""

import json
import sys
import urllib.error
import urllib.request

MODEL = "http://model.example/v1/chat/completions"
DESK = "http://desk.example/mcp"
TURNS = 8


class Server:
    """An MCP server: one request at a time."""

    def __init__(self) -> None:
        self.number = 0
        self.headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        client = {"name": "example", "version": "1"}
        said = self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        self.headers["MCP-Protocol-Version"] = said["protocolVersion"]

    def ask(self, method: str, **params: object) -> dict:
        self.number += 1
        body = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        request = urllib.request.Request(DESK, json.dumps(body).encode(), self.headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            if session := answer.headers.get("Mcp-Session-Id"):
                self.headers["Mcp-Session-Id"] = session
            message = json.load(answer)
        if "error" in message:
            sys.exit(f"{method}: {message['error']['message']}")
        return message["result"]


def function(tool: dict) -> dict:
    described = {"name": tool["name"], "description": tool["description"], "parameters": tool["inputSchema"]}
    return {"type": "function", "function": described}


def think(messages: list[dict], tools: list[dict]) -> dict:
    body = {"model": "desk-1", "messages": messages, "tools": [function(tool) for tool in tools]}
    asked = urllib.request.Request(MODEL, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)["choices"][0]["message"]
    except urllib.error.HTTPError as refusal:
        sys.exit(f"the model answered {refusal.code}: {refusal.read().decode()[:300]}")


def main() -> None:
    server = Server()
    tools = server.ask("tools/list")["tools"]
    messages = [{"role": "user", "content": sys.stdin.read().strip()}]
    for _ in range(TURNS):
        said = think(messages, tools)
        messages.append(said)
        calls = said.get("tool_calls") or []
        if not calls:
            print(said["content"])
            return
        for asked in calls:
            arguments = json.loads(asked["function"]["arguments"])
            result = server.ask("tools/call", name=asked["function"]["name"], arguments=arguments)
            text = result["content"][0]["text"]
            messages.append({"role": "tool", "tool_call_id": asked["id"], "content": text})
    sys.exit("no answer after so many turns")


if __name__ == "__main__":
    main()
