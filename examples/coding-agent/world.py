"""The world of the coding agent, for recording: a model that follows fixed rules.

usage: world.py [PORT]. It listens on loopback and prints its port.
"""

import http.server
import json
import sys

MEDIAN = '''

def median(numbers):
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return mean(ordered[middle - 1 : middle + 1])
'''
MEDIAN_TESTS = '''

class Median(unittest.TestCase):
    def test_of_an_odd_number(self):
        self.assertEqual(stats.median([3, 1, 2]), 2)

    def test_of_an_even_number(self):
        self.assertEqual(stats.median([4, 1, 2, 3]), 2.5)
'''


def decide(messages: list[dict]):
    """What a model would ask for next: by the task and what the tools have answered."""
    task = next(message["content"] for message in messages if message["role"] == "user")
    results = [message["content"] for message in messages if message["role"] == "tool"]
    plan = [("run_tests", {}), ("read_file", {"path": "stats.py"})]
    if "list" in task:
        plan = [("list_files", {})]
    if "list" not in task and len(results) >= 2:
        code = results[1].replace("(len(numbers) - 1)", "len(numbers)")
        if "median" in task:
            plan += [
                ("write_file", {"path": "stats.py", "text": code + MEDIAN}),
                ("read_file", {"path": "test_stats.py"}),
            ]
            if len(results) >= 4:
                plan.append(("write_file", {"path": "test_stats.py", "text": results[3] + MEDIAN_TESTS}))
        else:
            plan.append(("write_file", {"path": "stats.py", "text": code}))
        if len(results) >= 4 or "median" not in task:
            plan.append(("run_tests", {}))
    if len(results) < len(plan):
        return plan[len(results)]
    if "list" in task:
        return "The project has " + " and ".join(results[0].split()) + "."
    did = "added median with tests and fixed mean" if "median" in task else "fixed mean, which divided by one too few"
    return f"I have {did}; {results[-1]}."


class World(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        said = decide(body["messages"])
        message = {"role": "assistant", "content": said}
        if isinstance(said, tuple):
            called = {"name": said[0], "arguments": json.dumps(said[1])}
            turn = f"call_{len(body['messages'])}"
            message = {"role": "assistant", "content": None}
            message["tool_calls"] = [{"id": turn, "type": "function", "function": called}]
        length = len(json.dumps(body["messages"])) // 4
        usage = {"prompt_tokens": length, "completion_tokens": 40, "total_tokens": length + 40}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        answer = json.dumps({"id": "c", "model": body["model"], "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    port = next((int(word) for word in sys.argv[1:] if word.isdigit()), 8787)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), World)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
