"""The code interpreter's door inside the sandbox: port 49999, contexts, streamed executions.

Runs with Python's standard library alone. Each context is a process of its own (Python, JavaScript or bash) that is
given code on its input and tells of it on descriptor 3; what it prints is taken from its own output. All of this is
inside: nothing here protects anything.
"""

import base64
import json
import os
import queue
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 49999
HOME = os.path.expanduser("~")
KEEPALIVE = 5.0
# After an interrupt a context may take so long to come to rest; then it is begun anew.
PATIENCE = 5.0
MOST_CODE = 32 << 20

LANGUAGES = {
    "python": "python", "py": "python", "python3": "python",
    "javascript": "javascript", "js": "javascript", "node": "javascript", "nodejs": "javascript",
    "typescript": "javascript", "ts": "javascript",
    "bash": "bash", "sh": "bash", "shell": "bash",
}


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status
        self.text = text


class Kernel:
    """One process that runs code of one language."""

    def __init__(self, language, cwd):
        self.language = language
        out_read, out_write = os.pipe()
        # The worker finds it as descriptor 3, whatever number it has here, and only there: a second one would be
        # inherited by what a cell leaves running, and the end of the worker would never be seen.
        worker = WORKERS[language]
        moved = 'fd=$0; [ "$fd" = 3 ] || exec 3>&"$fd" {fd}>&-; unset fd; exec "$@"'
        command = ["bash", "-c", moved, str(out_write)] + worker()
        env = dict(os.environ, MPLBACKEND="agg")
        self.process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            pass_fds=[out_write], start_new_session=True,
        )
        os.close(out_write)
        self.told = out_read
        self.events = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        """Output before what is told of it: a result never comes before what was printed."""
        stdout, stderr = self.process.stdout.fileno(), self.process.stderr.fileno()
        names = {stdout: "stdout", stderr: "stderr"}
        decoders = {fd: Decoder() for fd in names}
        held, is_open = b"", {stdout, stderr, self.told}

        def printed(wait):
            ready, _, _ = select.select([fd for fd in names if fd in is_open], [], [], wait)
            for fd in ready:
                data = os.read(fd, 65536)
                if not data:
                    is_open.discard(fd)
                text = decoders[fd].decode(data)
                if text:
                    self.events.put({"type": names[fd], "text": text, "timestamp": now()})
            return bool(ready)

        while self.told in is_open:
            ready, _, _ = select.select(list(is_open), [], [])
            if set(ready) & set(names):
                printed(0)
            if self.told in ready:
                data = os.read(self.told, 65536)
                if not data:
                    break
                while any(fd in is_open for fd in names) and printed(0):
                    pass
                *lines, held = (held + data).split(b"\n")
                for line in lines:
                    try:
                        self.events.put(json.loads(line))
                    except ValueError:
                        pass
        while any(fd in is_open for fd in names) and printed(0.05):
            pass
        os.close(self.told)
        self.events.put({"type": "gone"})

    def send(self, request):
        if self.language == "bash":
            line = base64.b64encode(request["code"].encode())
        else:
            line = json.dumps(request).encode()
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def interrupt(self):
        try:
            os.killpg(self.process.pid, signal.SIGINT)
        except ProcessLookupError:
            pass

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        try:
            self.process.stdin.close()
        except OSError:
            # What a cell's request still had in the buffer.
            pass


class Decoder:
    """Text from bytes that may be cut anywhere."""

    def __init__(self):
        import codecs
        self.inner = codecs.getincrementaldecoder("utf-8")("replace")

    def decode(self, data):
        return self.inner.decode(data, final=not data)


class Context:
    def __init__(self, language, cwd, name=None):
        self.id = name or str(uuid.uuid4())
        self.language, self.cwd = language, cwd
        # One cell after the other.
        self.lock = threading.Lock()
        # Which process is this context's. Not the lock of cells: a restart does not wait for the cell that it ends.
        # Whoever looks whether there is one also begins it, or two begin one each and what a cell left behind is in
        # the one that is forgotten.
        self.life = threading.Lock()
        self.kernel = None
        self.removed = False
        self.count = 0

    def told(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd}

    def _ready(self):
        if self.removed:
            raise OSError("the context was removed")
        if self.kernel is None or self.kernel.process.poll() is not None:
            self.kernel = Kernel(self.language, self.cwd)
            self.count = 0
        return self.kernel

    def _end(self):
        kernel, self.kernel = self.kernel, None
        if kernel:
            kernel.end()
        self.count = 0

    def ready(self):
        with self.life:
            return self._ready()

    def restart(self):
        with self.life:
            self._end()
            self._ready()

    def remove(self):
        with self.life:
            self.removed = True
            self._end()

    def ended(self, kernel):
        """That one is of no more use, and only that one: somebody may have begun another meanwhile."""
        with self.life:
            if self.kernel is kernel:
                self._end()


CONTEXTS = {}
BOOKS = threading.Lock()


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + ".%06dZ" % (time.time() % 1 * 1e6)


def language_of(text):
    language = LANGUAGES.get((text or "python").strip().lower())
    if language is None:
        known = ", ".join(sorted(set(LANGUAGES.values())))
        raise Refused(400, f"Language {text} is not supported here: use one of {known}")
    if language == "javascript" and not shutil.which("node"):
        raise Refused(500, "JavaScript needs node, which this sandbox does not have")
    return language


def default(language):
    with BOOKS:
        for context in CONTEXTS.values():
            if context.id == language:
                return context
        context = Context(language, HOME, language)
        CONTEXTS[context.id] = context
        return context


def find(name):
    with BOOKS:
        context = CONTEXTS.get(name)
    if context is None:
        raise Refused(404, f"Context {name} not found")
    return context


def make(asked):
    language = language_of(asked.get("language"))
    cwd = asked.get("cwd") or HOME
    if not os.path.isdir(cwd):
        raise Refused(400, f"cwd {cwd} is not a directory")
    context = Context(language, cwd)
    try:
        context.ready()
    except OSError as error:
        raise Refused(500, f"the context could not be started: {error}")
    with BOOKS:
        CONTEXTS[context.id] = context
    return context


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def with_envs(code, envs):
    """For bash: they are there for this once."""
    lines, after = [], []
    for name, value in envs.items():
        if not name.replace("_", "a").isalnum() or name[0].isdigit():
            continue
        keep = f"__e2b_{name}"
        lines.append(f"if [ -n \"${{{name}+x}}\" ]; then {keep}=\"${name}\"; fi; export {name}={quoted(value)}")
        after.append(f"if [ -n \"${{{keep}+x}}\" ]; then export {name}=\"${keep}\"; unset {keep}; else unset {name}; fi")
    return "\n".join(lines + [code] + after)


def execute(context, code, envs, say, is_there):
    """Runs it to its end. `is_there` tells whether anyone still listens; if not, it is interrupted."""
    kernel = context.ready()
    while not kernel.events.empty():
        kernel.events.get_nowait()
    request = {"code": code, "envs": envs}
    if context.language == "bash" and envs:
        request = {"code": with_envs(code, envs)}
    try:
        kernel.send(request)
    except (OSError, ValueError):
        # It ended after we had looked: a broken pipe, or one that whoever ended it has closed.
        context.ended(kernel)
        kernel = context.ready()
        kernel.send(request)
    context.count += 1
    say({"type": "number_of_executions", "execution_count": context.count})
    last, interrupted = time.monotonic(), None
    while True:
        try:
            event = kernel.events.get(timeout=0.25)
        except queue.Empty:
            event = None
        if event is not None and event["type"] == "done":
            break
        if event is not None and event["type"] == "gone":
            context.ended(kernel)
            name = "KernelDied" if interrupted is None else "KeyboardInterrupt"
            say({"type": "error", "name": name, "value": "the context ended", "traceback": "the context ended"})
            break
        if event is not None:
            last = time.monotonic()
            if not say(event) and interrupted is None:
                kernel.interrupt()
                interrupted = time.monotonic()
            continue
        if interrupted is None and not is_there():
            kernel.interrupt()
            interrupted = time.monotonic()
        elif interrupted is not None and time.monotonic() - interrupted > PATIENCE:
            context.ended(kernel)
            break
        if time.monotonic() - last > KEEPALIVE:
            last = time.monotonic()
            say({"type": "keepalive"})
    say({"type": "end_of_execution"})


class Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "cofferdam"

    def log_message(self, *_):
        pass

    def body(self):
        if "chunked" in (self.headers.get("Transfer-Encoding") or "").lower():
            whole = b""
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                whole += self.rfile.read(size)
                self.rfile.readline()
                if size == 0:
                    break
                if len(whole) > MOST_CODE:
                    raise Refused(413, "the request is too large")
        else:
            size = int(self.headers.get("Content-Length") or 0)
            if size > MOST_CODE:
                raise Refused(413, "the request is too large")
            whole = self.rfile.read(size)
        if not whole:
            return {}
        try:
            found = json.loads(whole)
        except ValueError as error:
            raise Refused(400, f"the request is no JSON: {error}")
        if not isinstance(found, dict):
            raise Refused(422, "the request is no object")
        return found

    def answer(self, status, content, kind):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def json(self, value):
        self.answer(200, json.dumps(value).encode(), "application/json")

    def handle_with(self, act):
        try:
            act()
        except Refused as refused:
            self.answer(refused.status, refused.text.encode(), "text/plain; charset=utf-8")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def path_parts(self):
        return [part for part in self.path.split("?")[0].split("/") if part]

    def do_GET(self):
        self.handle_with(self.get)

    def do_POST(self):
        self.handle_with(self.post)

    def do_DELETE(self):
        self.handle_with(self.delete)

    def get(self):
        match self.path_parts():
            case ["health"]:
                self.answer(200, b'"OK"', "application/json")
            case ["contexts"]:
                for language in ("python", "javascript"):
                    default(language)
                with BOOKS:
                    self.json([context.told() for context in CONTEXTS.values()])
            case _:
                raise Refused(404, "there is nothing here")

    def post(self):
        body = self.body()
        match self.path_parts():
            case ["execute"]:
                self.execute(body)
            case ["contexts"]:
                self.json(make(body).told())
            case ["contexts", name, "restart"]:
                context = find(name)
                try:
                    context.restart()
                except OSError as error:
                    raise Refused(500, f"the context could not be started: {error}")
                self.json(context.told())
            case _:
                raise Refused(404, "there is nothing here")

    def delete(self):
        match self.path_parts():
            case ["contexts", name]:
                context = find(name)
                with BOOKS:
                    CONTEXTS.pop(name, None)
                context.remove()
                self.json({})
            case _:
                raise Refused(404, "there is nothing here")

    def is_there(self):
        ready, _, _ = select.select([self.connection], [], [], 0)
        if not ready:
            return True
        try:
            return bool(self.connection.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def execute(self, asked):
        code = asked.get("code")
        if not isinstance(code, str):
            raise Refused(422, "`code` is missing")
        if asked.get("context_id") and asked.get("language"):
            raise Refused(400, "Only one of context_id or language can be provided")
        if asked.get("context_id"):
            context = find(asked["context_id"])
        else:
            context = default(language_of(asked.get("language")))
        envs = {str(name): str(value) for name, value in (asked.get("env_vars") or {}).items()}
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        there = True

        def say(event):
            nonlocal there
            if not there:
                return False
            # ASCII alone: a reader may cut it anywhere.
            line = json.dumps(event, ensure_ascii=True).encode() + b"\n"
            try:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            except OSError:
                there = False
            return there

        with context.lock:
            if self.is_there():
                try:
                    execute(context, code, envs, say, self.is_there)
                except (OSError, ValueError) as error:
                    say({"type": "error", "name": "KernelError", "value": str(error), "traceback": str(error)})
                    say({"type": "end_of_execution"})
        if there:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.close_connection = True


def python_worker():
    return [sys.executable, "-c", SOURCES["python"]]


def node_worker():
    return ["node", "--no-warnings", "-e", SOURCES["node"]]


def bash_worker():
    return ["bash", "--norc", "--noprofile", "-c", SOURCES["bash"]]


WORKERS = {"python": python_worker, "javascript": node_worker, "bash": bash_worker}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main():
    server = Server(("127.0.0.1", PORT), Door)
    # The usual one is ready before it is asked for.
    threading.Thread(target=lambda: default("python").ready(), daemon=True).start()
    server.serve_forever()


main()
