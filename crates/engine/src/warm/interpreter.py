"""An interpreter that has imported what a script will want, and waits for it.

It is started before it is known whose it will be, with nothing of anyone's. On descriptor 0 it is told which script to
run, with the arguments, the variables, the directory and the three descriptors of a process that would have been
started for it; it forks, and the copy is that process. What the copy could not be in the way that a new interpreter
would is not tried: the one who asks is told why, and starts a new one.
"""

import gc
import io
import os
import socket
import sys

LONGEST = 192 << 10
# Read once, when an interpreter starts. One that has another value there has to be started.
ONCE = ("LANG", "LANGUAGE", "LC_", "PYTHON", "PYENV_", "PATH", "HOME", "LD_", "GLIBC_")
# This one is read again.
PATHS = "PYTHONPATH"
# What a shim of pyenv adds, the shell that runs it, and an interpreter in the C locale. Whatever else changes the
# environment on the way to an interpreter may go by the script or its directory, which are not known here.
ADDED = (b"PYENV_", b"_PYENV_")
ALSO = (b"PATH", b"PWD", b"SHLVL", b"LC_CTYPE")
# Where a shim looks for the version that is wanted here.
LOCAL = ".python-version"


class Cannot(Exception):
    """Why this is to be left to a new interpreter."""


class Way:
    """How an interpreter came to be that was asked for with these variables: as it is, or by a shim."""

    def __init__(self, asked):
        self.asked = asked
        found = dict(os.environb)
        self.added = {name: value for name, value in found.items() if asked.get(name) != value}
        self.program = sys.orig_argv[0]
        self.is_shim = b"PYENV_VERSION" in self.added
        strange = [name for name in self.added if not (name.startswith(ADDED) or name in ALSO)]
        if strange or any(name not in found for name in asked):
            raise Cannot(f"whatever starts it changes {os.fsdecode(b', '.join(strange))}")
        self.version = self.chosen()

    def chosen(self):
        """Who says which version it is, where nobody says it for a directory."""
        try:
            said = os.stat(os.path.join(os.environ.get("PYENV_ROOT", ""), "version"))
            return said.st_ino, said.st_mtime_ns
        except OSError:
            return None

    def check(self, cwd, script):
        """A shim would choose the same one."""
        if not self.is_shim:
            return
        if self.version != self.chosen():
            raise Cannot("another version was chosen")
        for directory in (cwd, os.path.dirname(os.path.join(cwd, script))):
            directory = os.path.abspath(os.fsdecode(directory))
            while not os.path.lexists(os.path.join(directory, LOCAL)):
                if directory == "/":
                    break
                directory = os.path.dirname(directory)
            else:
                raise Cannot(f"{directory} may want another version")

    def variables(self, wanted, cwd):
        """What a new interpreter would have of those that are wanted."""
        found = dict(wanted)
        for name, value in self.added.items():
            if name == b"SHLVL" and name in wanted:
                continue
            found[name] = cwd if name in (b"PWD", b"PYENV_DIR") else value
        return found


def take(channel):
    text, descriptors, flags, _ = socket.recv_fds(channel, LONGEST, 4)
    if not text:
        os._exit(0)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    fields = text.split(b"\0")
    if flags & socket.MSG_TRUNC or len(descriptors) != 4 or len(fields) < 4:
        raise Cannot("the request is broken")
    tty, cwd, count, *rest = fields
    count = int(count)
    return tty == b"1", cwd, rest[:count], rest[count:], descriptors


def check(way, cwd, argv, entries):
    if len(argv) < 2 or not argv[1].endswith(b".py"):
        raise Cannot("it is no script")
    wanted = dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)
    once = tuple(os.fsencode(name) for name in ONCE)
    for name in wanted.keys() | way.asked.keys():
        if name.startswith(once) and name != PATHS.encode() and wanted.get(name) != way.asked.get(name):
            raise Cannot(f"{os.fsdecode(name)} has another value")
    way.check(cwd, argv[1])
    path = os.path.join(cwd, argv[1])
    try:
        with open(path, "rb") as script:
            source = script.read()
        if not os.access(cwd, os.X_OK):
            raise Cannot("its directory cannot be entered")
    except OSError as error:
        raise Cannot(str(error)) from None
    return way.variables(wanted, cwd), source


def become(way, tty, cwd, argv, wanted, descriptors):
    """All that a new process would find."""
    os.setsid()
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if tty:
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(cwd)
    old = os.environ.get(PATHS, "")
    os.environb.clear()
    os.environb.update(wanted)
    if "time" in sys.modules:
        sys.modules["time"].tzset()
    raw = io.FileIO(0, "rb", closefd=False)
    raw.name = "<stdin>"
    encoding, errors = sys.__stdin__.encoding, sys.__stdin__.errors
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(raw), encoding, errors)
    sys.stdin.mode = "r"
    for stream in (sys.__stdout__, sys.__stderr__):
        stream.reconfigure(line_buffering=stream.isatty() or stream is sys.__stderr__)
    argv = [os.fsdecode(word) for word in argv]
    sys.argv = argv[1:]
    sys.orig_argv = [way.program, *argv[1:]]
    sys.path[:0] = [os.path.dirname(os.path.realpath(argv[1]))]
    follow(old)
    # Whatever draws numbers by itself does not draw the same ones in two copies.
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()


def follow(old):
    """The directories of PYTHONPATH, and what a new interpreter would have run of them."""
    known = [entry for entry in old.split(":") if entry]
    named = [os.path.abspath(entry) for entry in os.environ.get(PATHS, "").split(":") if entry]
    sys.path[1:] = named + [entry for entry in sys.path[1:] if entry not in known]
    for entry in named:
        start = os.path.join(entry, "sitecustomize.py")
        if entry not in known and os.path.exists(start):
            module = type(sys)("sitecustomize")
            module.__file__ = start
            with open(start, "rb") as text:
                exec(compile(text.read(), start, "exec"), module.__dict__)
            # Ours waits for a module that may be there already.
            if hasattr(module, "extend") and "ssl" in sys.modules:
                module.extend(sys.modules["ssl"])
            sys.modules["sitecustomize"] = module
            break


def run(source):
    """As an interpreter runs the file that it was started for."""
    from importlib.machinery import SourceFileLoader

    path = os.path.abspath(sys.argv[0])
    main = type(sys)("__main__")
    main.__dict__.update(
        __file__=path,
        __cached__=None,
        __loader__=SourceFileLoader("__main__", path),
        __builtins__=sys.modules["builtins"],
        __package__=None,
    )
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    try:
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        # Without the frames of ours that are around it.
        trace = error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        if isinstance(error, KeyboardInterrupt):
            sys.excepthook = lambda *told: None
            raise
        raise SystemExit(1) from None


def fork(way, request, source, wanted):
    """The copy's number. It is nobody's child but that of whoever reaps what is left behind."""
    tty, cwd, argv, _, descriptors = request
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        copy = os.fork()
        if copy != 0:
            os.write(writer, str(copy).encode())
            os._exit(0)
        os.close(writer)
        # Not before it is known to whoever asked: a process that nobody knows of does nothing.
        if os.read(descriptors[3], 1) != b"g":
            os._exit(0)
        become(way, tty, cwd, argv, wanted, descriptors)
        return None, source
    os.close(writer)
    os.waitpid(between, 0)
    number = os.read(reader, 32)
    os.close(reader)
    if not number:
        raise Cannot("it could not be copied")
    return number, None


def alone():
    """A thread is not copied: a module that has started one would wait for it for ever."""
    running = len(os.listdir("/proc/self/task"))
    if running != 1:
        raise Cannot(f"what it has imported runs {running - 1} threads")


def serve(words):
    """Returns in a copy, with what it is to run. Before the modules come the variables that it was asked for with."""
    asked = [word for word in words if "=" in word]
    modules = words[len(asked) :]
    channel = socket.socket(fileno=os.dup(0))
    # Nothing is imported from where it happens to stand.
    sys.path[:] = [entry for entry in sys.path if entry]
    try:
        way = Way(dict(os.fsencode(word).split(b"=", 1) for word in asked))
        for module in modules:
            __import__(module)
        alone()
    except BaseException as error:
        channel.send(b"x" + f"{type(error).__name__}: {error}".encode()[:1000])
        os._exit(1)
    gc.collect()
    gc.freeze()
    channel.send(b"r")
    while True:
        descriptors = []
        try:
            request = take(channel)
            descriptors = request[4]
            wanted, source = check(way, *request[1:4])
            alone()
            number, source = fork(way, request, source, wanted)
            if number is None:
                return source
            channel.send(b"p" + number)
        except Cannot as why:
            channel.send(b"x" + str(why).encode()[:1000])
        for descriptor in descriptors:
            os.close(descriptor)


run(serve(sys.argv[1:]))
