"""Makes Python programs that bring a list of authorities of their own believe the session's one as well.

Python runs this when it starts. Nothing is imported for it: it waits until a program imports `ssl`.
"""

import sys

AUTHORITY = "/.cofferdam/ca.pem"


class Extend:
    """Finds `ssl` where it is, and extends it once it is loaded."""

    def find_spec(self, name, path=None, target=None):
        if name != "ssl":
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                break
        else:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            extend(module)

        spec.loader.exec_module = exec_module
        return spec


def extend(ssl):
    load = ssl.SSLContext.load_verify_locations

    def load_verify_locations(self, cafile=None, capath=None, cadata=None):
        load(self, cafile, capath, cadata)
        load(self, AUTHORITY)

    ssl.SSLContext.load_verify_locations = load_verify_locations


def run_the_one_that_this_hides():
    here = __file__.rpartition("/")[0]
    finder = next((f for f in sys.meta_path if getattr(f, "__name__", "") == "PathFinder"), None)
    spec = finder and finder.find_spec(__name__, [path for path in sys.path if path != here])
    if spec is not None and spec.origin is not None:
        module = type(sys)(__name__)
        module.__spec__, module.__file__ = spec, spec.origin
        spec.loader.exec_module(module)


sys.meta_path.insert(0, Extend())
run_the_one_that_this_hides()
