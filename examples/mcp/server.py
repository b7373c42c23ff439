"""A support desk as an MCP server on stdio, in nothing but Python's standard library."""

import json
import sys

CHARGES = {"ch_1": 4200, "ch_2": 90}


def tool(name, description, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "inputSchema": schema}


TOOLS = [
    tool("lookup", "Looks a charge up.", charge={"type": "string"}),
    tool("refund", "Gives money back.", charge={"type": "string"}, amount={"type": "integer"}),
    tool("export_customers", "Writes all customers to a file."),
]


def call(name, args):
    if name == "lookup":
        return f"{args['charge']}: {CHARGES[args['charge']]} cents"
    if name == "refund":
        with open("refunds.log", "a") as log:
            log.write(f"{args['charge']} {args['amount']}\n")
        return f"refunded {args['amount']} cents of {args['charge']}"
    raise KeyError(name)


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "desk", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        try:
            text, failed = call(params["name"], params.get("arguments", {})), False
        except KeyError as missing:
            text, failed = f"there is no {missing}", True
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    return None


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        result = answer(message["method"], message.get("params", {}))
        if result is None:
            reply["error"] = {"code": -32601, "message": "no such method"}
        else:
            reply["result"] = result
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
