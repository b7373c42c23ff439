"""A coding agent: it reads a task, asks a model what to do, edits files, runs the tests, and says what it did.

It is an ordinary program of the standard library. The model speaks the usual chat API; the tools are its own. It knows
nothing of sandboxes, recordings or gates.
"""

import json
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request

MODEL = "http://model.example/v1/chat/completions"
PROJECT = pathlib.Path("project")
TURNS = 12

RULES = """You work on the Python project in front of you. Run the tests before you change anything and after you have.
Change as little as the task needs. Say at the end what you changed, and whether the tests pass."""

TOOLS = {
    "list_files": {},
    "read_file": {"path": "string"},
    "write_file": {"path": "string", "text": "string"},
    "run_tests": {},
}


def inside(path: str) -> pathlib.Path:
    found = (PROJECT / path).resolve()
    if not found.is_relative_to(PROJECT.resolve()):
        raise ValueError(f"{path} is not in the project")
    return found


def run_tests() -> str:
    done = subprocess.run(
        [sys.executable, "-B", "-m", "unittest", "-q"], cwd=PROJECT, capture_output=True, text=True, timeout=60
    )
    # How long they took is nothing to think about.
    said = [line for line in done.stderr.splitlines() if line and not line.startswith("Ran ")]
    return "all tests pass" if done.returncode == 0 else "\n".join(said)


def call(name: str, arguments: dict) -> str:
    try:
        match name:
            case "list_files":
                return "\n".join(sorted(path.name for path in PROJECT.iterdir() if path.is_file()))
            case "read_file":
                return inside(arguments["path"]).read_text()
            case "write_file":
                return f"{inside(arguments['path']).write_text(arguments['text'])} characters written"
            case "run_tests":
                return run_tests()
    except (OSError, ValueError) as error:
        return f"error: {error}"
    return f"error: there is no tool {name}"


def schema(name: str) -> dict:
    properties = {field: {"type": kind} for field, kind in TOOLS[name].items()}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def think(messages: list[dict]) -> dict:
    body = {"model": "coder-1", "messages": messages, "tools": [schema(name) for name in TOOLS]}
    asked = urllib.request.Request(MODEL, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)["choices"][0]["message"]
    except urllib.error.HTTPError as refusal:
        sys.exit(f"the model answered {refusal.code}: {refusal.read().decode()[:300]}")


def main() -> None:
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": sys.stdin.read().strip()}]
    for _ in range(TURNS):
        said = think(messages)
        messages.append(said)
        calls = said.get("tool_calls") or []
        if not calls:
            print(said["content"])
            return
        for asked in calls:
            result = call(asked["function"]["name"], json.loads(asked["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": asked["id"], "content": result})
    sys.exit("no answer after so many turns")


if __name__ == "__main__":
    main()
