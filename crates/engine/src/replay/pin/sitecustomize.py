"""Holds a Python program's clock and chance still, as far as the program asks the usual modules.

Python runs this when it starts. Waiting, measuring and drawing keys are left alone: `time.monotonic`, `time.sleep`,
`os.urandom` and `secrets` are what they were.
"""

import os
import sys


def fix_clock(us):
    import datetime as module
    import time

    seconds = us / 1_000_000
    strftime, localtime, gmtime = time.strftime, time.localtime, time.gmtime
    time.time = lambda: seconds
    time.time_ns = lambda: us * 1000
    time.localtime = lambda at=None: localtime(seconds if at is None else at)
    time.gmtime = lambda at=None: gmtime(seconds if at is None else at)
    time.ctime = lambda at=None: strftime("%a %b %e %H:%M:%S %Y", localtime(seconds if at is None else at))
    time.asctime = lambda at=None: strftime("%a %b %e %H:%M:%S %Y", localtime(seconds) if at is None else at)
    time.strftime = lambda form, at=None: strftime(form, localtime(seconds) if at is None else at)

    def still(real, methods):
        """A class that passes for the real one and is asked for the time in its place."""

        class Same(type(real)):
            def __instancecheck__(cls, value):
                return isinstance(value, real)

            def __subclasscheck__(cls, other):
                return issubclass(other, real)

        names = {"__slots__": (), "__module__": "datetime", "__qualname__": real.__name__, **methods}
        return Same(real.__name__, (real,), names)

    module.datetime = still(
        module.datetime,
        {
            "now": classmethod(lambda cls, tz=None: cls.fromtimestamp(seconds, tz)),
            "today": classmethod(lambda cls: cls.fromtimestamp(seconds)),
            "utcnow": classmethod(lambda cls: cls(1970, 1, 1) + module.timedelta(microseconds=us)),
        },
    )
    module.date = still(module.date, {"today": classmethod(lambda cls: cls.fromtimestamp(seconds))})


def fix_chance(seed):
    import random
    import uuid

    random.seed(seed)
    chance = random.Random(seed)
    uuid.uuid4 = lambda: uuid.UUID(int=chance.getrandbits(128), version=4)
    if "COFFERDAM_CLOCK" in os.environ:
        uuid.uuid1 = lambda node=None, clock_seq=None: uuid.uuid4()


def run_the_one_that_this_hides():
    here = __file__.rpartition("/")[0]
    finder = next((f for f in sys.meta_path if getattr(f, "__name__", "") == "PathFinder"), None)
    spec = finder and finder.find_spec(__name__, [path for path in sys.path if path != here])
    if spec is not None and spec.origin is not None:
        module = type(sys)(__name__)
        module.__spec__, module.__file__ = spec, spec.origin
        spec.loader.exec_module(module)


if "COFFERDAM_CLOCK" in os.environ:
    fix_clock(int(os.environ["COFFERDAM_CLOCK"]))
if "COFFERDAM_SEED" in os.environ:
    fix_chance(int(os.environ["COFFERDAM_SEED"]))
run_the_one_that_this_hides()
