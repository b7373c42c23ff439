"""Templates that are built over an image: one that the service has, and one of a registry on this machine."""
import json
import os
import tempfile
import urllib.error
import urllib.request

from e2b import Sandbox, Template

context = tempfile.mkdtemp()
os.makedirs(f"{context}/app")
with open(f"{context}/app/main.sh", "w") as file:
    file.write("echo from a template\n")

for number, image in enumerate(("app", os.environ["TEST_REGISTRY"] + "/team/app:1", "docker://" + os.environ["TEST_REGISTRY"] + "/team/app:1")):
    name = f"over-image-{number}"
    template = (
        Template(file_context_path=context)
        .from_image(image)
        .copy("app", "/opt/app")
        .run_cmd("echo installed > /usr/installed; rm /opt/bin/own-tool; echo worker:x:1001:1001::/:/bin/sh >> /etc/passwd", user="root")
        .set_envs({"KIND": "built"})
        .run_cmd("echo by $(id -un) with $KIND > ~/made; /usr/local/bin/sudo sh -c ': > /usr/by-sudo'")
        .set_workdir("/opt/app")
    )
    Template.build(template, name)
    sandbox = Sandbox.create(name, timeout=120)
    run = sandbox.commands.run
    assert run("pwd; sh main.sh; cat /usr/installed /etc/release ~/made; test -e /usr/by-sudo").stdout == (
        "/opt/app\nfrom a template\ninstalled\nsecond\nby user with built\n"
    )
    assert run("echo $GREETING $KIND; id -u worker; test ! -e /opt/bin/own-tool && test ! -e /etc/debian_version && echo gone").stdout.endswith("gone\n")
    assert run("echo more > /usr/more; cat /usr/more", user="root").stdout == "more\n"
    assert run("PATH=$PATH:/usr/local/bin; sudo id -u; sudo sh -c 'echo by root > /usr/by-root'; sudo -u worker id -u; cat /usr/by-root").stdout == "0\n1001\nby root\n"
    assert sandbox.files.read("/usr/installed") == "installed\n"
    sandbox.files.write("/home/user/file", "text")
    # Paused and back, with its system; and another of the template has nothing of it.
    sandbox.pause()
    sandbox = Sandbox.connect(sandbox.sandbox_id, timeout=120)
    assert sandbox.commands.run("cat /usr/more ~/file").stdout == "more\ntext"
    fresh = Sandbox.create(name, timeout=120)
    assert fresh.commands.run("test ! -e /usr/more && cat /usr/installed").stdout == "installed\n"
    sandbox.kill()
    fresh.kill()

# Who the image says that its commands are.
Template.build(Template().from_image("of-daemon").run_cmd("test $(id -un) = daemon").run_cmd("true", user="root"), "of-daemon")
sandbox = Sandbox.create("of-daemon", timeout=120)
assert sandbox.commands.run("id -u; sudo=/usr/local/bin/sudo; $sudo id -u").stdout == "2\n0\n"
assert sandbox.commands.run("id -un", user="user").stdout == "user\n"
sandbox.kill()

# Templates over templates.
Template.build(Template().from_template("over-image-0").run_cmd("cat /usr/installed > /usr/again", user="root"), "over-both")
sandbox = Sandbox.create("over-both", timeout=120)
assert sandbox.commands.run("cat /usr/again /etc/release").stdout == "installed\nsecond\n"
sandbox.kill()

# What a build has fetched, perhaps with somebody's password, is no image of everybody's: neither by its name nor by its digest. What
# the service was given is, and by REST too.
def asked(image):
    body = json.dumps({"image": image}).encode()
    head = {"authorization": "Bearer " + os.environ["E2B_API_KEY"], "content-type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(os.environ["E2B_API_URL"] + "/v1/sessions", body, head)) as answer:
            return answer.status
    except urllib.error.HTTPError as refusal:
        return refusal.code

fetched = "registry/" + os.environ["TEST_REGISTRY"].replace(":", "-") + "/team/app:1"
digests = os.environ["TEST_DIGESTS"].split()
assert digests and asked("app") == 201
for hidden in [fetched, *digests, "sha256:" + digests[0], digests[0][:12]]:
    assert asked(hidden) == 404, hidden
    try:
        Template.build(Template().from_image(hidden), "hidden")
        raise AssertionError(f"{hidden} was given out")
    except AssertionError:
        raise
    except Exception as refusal:
        assert "there is no image" in str(refusal), refusal
