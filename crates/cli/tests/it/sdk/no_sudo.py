"""A service whose operator said `sudo = false`."""
from e2b import CommandExitException, Sandbox

KNOCK = "python3 -c 'import socket; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(\"\\0cofferdam-sudo\")'"
sandbox = Sandbox.create(timeout=120)
for command in ["sudo -n true", KNOCK]:
    try:
        sandbox.commands.run(command)
        raise AssertionError(f"{command}: somebody answers")
    except CommandExitException as error:
        assert error.exit_code != 0
assert sandbox.commands.run("id -u", user="root").stdout == "0\n"
sandbox.kill()
