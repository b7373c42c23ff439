"""Templates that are built by the SDK, and sandboxes that are made of them."""
import os
import tempfile

from e2b import Sandbox, Template
from e2b.exceptions import BuildException

context = tempfile.mkdtemp()
os.makedirs(f"{context}/app/sub")
with open(f"{context}/app/main.py", "w") as file:
    file.write("print('from a template')\n")
with open(f"{context}/app/sub/data", "w") as file:
    file.write("data\n")

template = (
    Template(file_context_path=context)
    .from_template("base")
    .copy("app", "/home/user/app")
    .run_cmd("echo built by $(id -un) > made")
    .set_envs({"KIND": "built"})
    .run_cmd("echo $KIND >> made", user="root")
    .set_workdir("/home/user/app")
    .set_start_cmd("echo started > /tmp/started; sleep 1000", "test -s /tmp/started")
)
lines = []
assert not Template.exists("built-here")
Template.build(template, "built-here", on_build_logs=lambda entry: lines.append(entry.message))
assert any("is ready" in line for line in lines), lines
assert Template.exists("built-here")

sandbox = Sandbox.create("built-here", timeout=120, envs={"OWN": "1"})
run = sandbox.commands.run
assert run("pwd; python3 main.py; cat sub/data").stdout == "/home/user/app\nfrom a template\ndata\n"
assert run("cat ~/made; echo $KIND $OWN").stdout == "built by user\nbuilt\nbuilt 1\n"
assert run("cat /tmp/started").stdout == "started\n"
assert sandbox.files.get_info("/home/user/app/main.py").owner == "user"
sandbox.kill()

for wrong, said in (
    (Template().from_template("base").run_cmd("exit 3"), "exit status 3"),
    (Template().from_template("base").set_user("root123"), "invalid username: 'root123'"),
    (Template().from_image("debian:12"), "cofferdam image import"),
    (Template().from_image("registry.example.com/debian:12"), "e2b.registries"),
    (Template().from_template("no-such-template"), "not found"),
):
    try:
        Template.build(wrong, "never-built")
        raise AssertionError(f"built, and should say {said}")
    except BuildException as error:
        assert said in str(error), error
assert not Template.exists("never-built")
