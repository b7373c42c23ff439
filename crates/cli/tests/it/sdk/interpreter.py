"""The code interpreter, by its own SDK."""
import time

from e2b.exceptions import NotFoundException, TimeoutException
from e2b_code_interpreter import Sandbox

sandbox = Sandbox.create(timeout=240, envs={"FROM_CREATE": "1"})
run = sandbox.run_code

result = run("x = 41\nprint('hé')\nx + 1")
assert (result.text, result.logs.stdout, result.error) == ("42", ["hé\n"], None), result
result = run("x")
assert result.text == "41", result
lines = []
run("import time\nfor n in range(3):\n    print(n)\n    time.sleep(0.2)", on_stdout=lambda m: lines.append(m.line))
assert len(lines) > 1 and "".join(lines) == "0\n1\n2\n", lines
assert run("import sys\nprint('e', file=sys.stderr)").logs.stderr == ["e\n"]
assert run("import os\nos.system('echo below')").logs.stdout == ["below\n"]
error = run("def f():\n    return 1 / 0\nf()").error
assert error.name == "ZeroDivisionError" and "in f" in error.traceback and "kernel" not in error.traceback, error
assert run("this is no python").error.name == "SyntaxError"
assert run("import asyncio\nawait asyncio.sleep(0, 'awaited')").text == "awaited"
assert run("os.environ['FROM_CREATE'], os.environ['ONCE']", envs={"ONCE": "2"}).text == "('1', '2')"
assert run("'ONCE' in os.environ").text == "False"

rich = run("""
class Rich:
    def _repr_html_(self): return "<b>x</b>"
    def _repr_png_(self): return b"\\x89PNG"
    def _repr_json_(self): return {"a": [1, 2]}
    def __repr__(self): return "Rich()"
Rich()
""").results[0]
assert (rich.text, rich.html, rich.json, rich.is_main_result) == ("Rich()", "<b>x</b>", {"a": [1, 2]}, True), rich
assert rich.png == "iVBORw==", rich.png
shown = run("from IPython.display import HTML, display\ndisplay(HTML('<i>y</i>'))\n5").results
assert [(r.html, r.is_main_result) for r in shown] == [("<i>y</i>", False), (None, True)], shown
assert run("!echo from-the-shell").logs.stdout == ["from-the-shell\n"]

assert run("cd /tmp; VAR=kept; echo $ONCE", language="bash", envs={"ONCE": "b"}).logs.stdout == ["b\n"]
assert run("echo $VAR $PWD; ls /nowhere", language="bash").logs.stdout == ["kept /tmp\n"]
javascript = run("const a = 2\nconsole.log('js')\nawait Promise.resolve(a * 21)", language="js")
assert (javascript.text, javascript.logs.stdout) == ("42", ["js\n"]), javascript
assert run("throw new TypeError('bad')", language="js").error.name == "TypeError"

context = sandbox.create_code_context(cwd="/tmp")
assert run("import os\ny = 1\nos.getcwd()", context=context).text == "/tmp"
assert run("y").error.name == "NameError"
known = sandbox.list_code_contexts()
assert {c.language for c in known} >= {"python", "javascript"} and known[-1].id == context.id, known
sandbox.restart_code_context(context)
assert run("y", context=context).error.name == "NameError"
sandbox.remove_code_context(context)
try:
    run("1", context=context)
    raise AssertionError("a context that was removed")
except NotFoundException:
    pass

# Who leaves interrupts what runs, and what was there stays.
try:
    run("import time\nwhile True:\n    time.sleep(0.05)", timeout=2)
    raise AssertionError("no end")
except TimeoutException:
    pass
began = time.time()
assert run("x").text == "41"
assert time.time() - began < 60
assert run("import os\nos._exit(3)").error.name == "KernelDied"
assert run("1 + 1").text == "2"
sandbox.kill()
