"""A little of everything, for a service of a plain user's."""
from e2b_code_interpreter import Sandbox

sandbox = Sandbox.create(timeout=120)
assert sandbox.commands.run("id -un; id -un", user="root").stdout == "root\nroot\n"
assert sandbox.commands.run("id -un; pwd").stdout == "user\n/home/user\n"
assert sandbox.commands.run("sudo id -u; sudo -u user id -un; echo x | sudo tee /root/x").stdout == "0\nuser\nx\n"
sandbox.files.write("a/b.txt", "x")
assert sandbox.files.get_info("a/b.txt").owner == "user"
assert sandbox.commands.run("cat a/b.txt; echo more >> a/b.txt").stdout == "x"
assert sandbox.run_code("open('a/b.txt').read()").text == "xmore\\n"
sandbox.kill()
