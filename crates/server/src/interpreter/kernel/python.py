"""A Python context: code in on stdin, what is to be shown out on descriptor 3. No packages are needed; what richer
ones offer (frames, figures, IPython's way to show itself) is used where it is there."""

import ast
import asyncio
import base64
import builtins
import inspect
import json
import os
import signal
import subprocess
import sys
import traceback
import types

TOLD = os.fdopen(3, "w", buffering=1, encoding="ascii")
REQUESTS = os.fdopen(os.dup(0), "r", encoding="utf-8")
NULL = os.open(os.devnull, os.O_RDONLY)
os.dup2(NULL, 0)
sys.stdin = open(os.devnull)
os.set_inheritable(3, False)
for stream in (sys.stdout, sys.stderr):
    stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
CELL = "<cell>"

MIMES = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
    "image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex",
    "application/json": "json", "application/javascript": "javascript",
}
REPRS = {
    "_repr_html_": "html", "_repr_markdown_": "markdown", "_repr_svg_": "svg", "_repr_png_": "png",
    "_repr_jpeg_": "jpeg", "_repr_pdf_": "pdf", "_repr_latex_": "latex", "_repr_json_": "json",
    "_repr_javascript_": "javascript",
}


def tell(event):
    sys.stdout.flush()
    sys.stderr.flush()
    TOLD.write(json.dumps(event, default=str) + "\n")
    TOLD.flush()


def plain(value):
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def called(value, name):
    method = getattr(value, name, None)
    if method is None or inspect.isclass(value) or not callable(method):
        return None
    try:
        found = method()
    except Exception:
        return None
    return found[0] if isinstance(found, tuple) else found


def unquoted(text):
    """Of a string its content, as clients of E2B's expect."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def shown(value):
    """Every form in which something can be shown."""
    forms = {}
    bundle = called(value, "_repr_mimebundle_")
    if isinstance(bundle, dict):
        for mime, found in bundle.items():
            if mime in MIMES:
                forms[MIMES[mime]] = plain(found)
            else:
                forms.setdefault("extra", {})[mime] = plain(found)
    for name, form in REPRS.items():
        if form not in forms:
            found = called(value, name)
            if found is not None:
                forms[form] = plain(found)
    if "text" not in forms:
        try:
            forms["text"] = unquoted(repr(value))
        except Exception as error:
            forms["text"] = f"<{type(value).__name__} that cannot be shown: {error}>"
    frame = getattr(sys.modules.get("pandas"), "DataFrame", None)
    if frame is not None and isinstance(value, frame):
        try:
            forms["data"] = json.loads(value.to_json(orient="columns"))
            forms["data"] = {str(name): list(column.values()) for name, column in forms["data"].items()}
        except Exception:
            pass
    figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
    if figure is not None and isinstance(value, figure):
        forms.update(drawn(value))
    return forms


def result(value, main):
    tell({"type": "result", **shown(value), "is_main_result": main})


def display(*values, **_):
    for value in values:
        result(value, False)


# Figures.

def number(value):
    value = getattr(value, "item", lambda: value)()
    return value if isinstance(value, (int, float, str)) else str(value)


def of_axis(axis, name):
    ticks = getattr(axis, f"get_{name}ticks")()
    labels = [label.get_text() for label in getattr(axis, f"get_{name}ticklabels")()]
    return {
        f"{name}_label": getattr(axis, f"get_{name}label")() or None, f"{name}_unit": None,
        f"{name}_ticks": [number(tick) for tick in ticks], f"{name}_tick_labels": labels,
        f"{name}_scale": getattr(axis, f"get_{name}scale")(),
    }


def points(xs, ys):
    return [[number(x), number(y)] for x, y in zip(xs, ys)]


def boxes_of(axis, labels):
    """A box is drawn as a closed line of five points; its whiskers, caps, median and what lies outside are the lines after it."""
    drawn_as = [[(float(x), float(y)) for x, y in zip(*line.get_data())] for line in axis.lines]
    starts = [at for at, line in enumerate(drawn_as) if len(line) == 5 and line[0] == line[4] and len({x for x, _ in line}) == 2]
    if not starts or starts[0] != 0:
        return []
    elements = []
    for order, (start, end) in enumerate(zip(starts, starts[1:] + [len(drawn_as)])):
        xs, ys = zip(*drawn_as[start])
        parts = drawn_as[start + 1:end]
        upright = [line for line in parts if len(line) == 2 and line[0][0] == line[1][0]]
        level = [line[0][1] for line in parts if len(line) == 2 and {x for x, _ in line} == set(xs) and line[0][1] == line[1][1]]
        if len(upright) != 2 or not level:
            return []
        reach = [y for line in upright for _, y in line]
        middle = (min(xs) + max(xs)) / 2
        outside = [y for line in parts if line and all(x == middle for x, _ in line) and line not in upright for _, y in line]
        elements.append({
            "label": labels[order] if order < len(labels) else str(order + 1), "min": min(reach), "first_quartile": min(ys),
            "median": level[0], "third_quartile": max(ys), "max": max(reach), "outliers": outside,
        })
    return elements


def chart_of(axis):
    from matplotlib.patches import Rectangle, Wedge
    title = axis.get_title()
    wedges = [patch for patch in axis.patches if isinstance(patch, Wedge)]
    if wedges:
        labels = [text.get_text() for text in axis.texts]
        elements = [
            {"label": labels[at] if at < len(labels) else "", "angle": number(abs(w.theta2 - w.theta1)), "radius": number(w.r)}
            for at, w in enumerate(wedges)
        ]
        return {"type": "pie", "title": title, "elements": elements}
    both = {"title": title, **of_axis(axis, "x"), **of_axis(axis, "y")}
    if axis.containers:
        labels = both["x_tick_labels"]
        elements = []
        for group in axis.containers:
            for at, bar in enumerate(patch for patch in group.patches if isinstance(patch, Rectangle)):
                label = labels[at] if at < len(labels) else str(number(bar.get_x()))
                elements.append({"label": label, "group": group.get_label() or "", "value": number(bar.get_height())})
        if elements:
            return {"type": "bar", **both, "elements": elements}
    boxes = boxes_of(axis, both["x_tick_labels"])
    if boxes:
        return {"type": "box_and_whisker", **both, "elements": boxes}
    if axis.lines:
        elements = [{"label": line.get_label(), "points": points(*line.get_data())} for line in axis.lines]
        return {"type": "line", **both, "elements": elements}
    if axis.collections:
        elements = []
        for collection in axis.collections:
            offsets = collection.get_offsets()
            label = collection.get_label()
            elements.append({"label": label, "points": points([o[0] for o in offsets], [o[1] for o in offsets])})
        return {"type": "scatter", **both, "elements": elements}
    return {"type": "unknown", "title": title, "elements": []}


def drawn(figure):
    import io
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    forms = {"png": base64.b64encode(buffer.getvalue()).decode()}
    try:
        charts = [chart_of(axis) for axis in figure.axes]
        if len(charts) == 1:
            forms["chart"] = charts[0]
        elif charts:
            forms["chart"] = {"type": "superchart", "title": "", "elements": charts}
    except Exception:
        pass
    return forms


def figures():
    """Those that are open are shown at the end of a cell, as notebooks do."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number_of in pyplot.get_fignums():
        figure = pyplot.figure(number_of)
        tell({"type": "result", "text": repr(figure), **drawn(figure), "is_main_result": False})
    pyplot.close("all")


# What notebooks import to show things.

class Shown:
    form = "text"

    def __init__(self, data=None, url=None, filename=None, **_):
        if filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
        self.data = data

    def _repr_mimebundle_(self, **_):
        mime = next(mime for mime, form in MIMES.items() if form == self.form)
        data = self.data
        if isinstance(data, bytes):
            data = base64.b64encode(data).decode()
        return {"text/plain": f"<{type(self).__name__}>", mime: data}


def stand_in():
    """Where the real one is missing; of the real one, what would only print."""
    try:
        import IPython.core.display_functions as real
        import IPython.display
        real.display = IPython.display.display = display
        return
    except Exception:
        pass
    package, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    forms = {"HTML": "html", "Markdown": "markdown", "SVG": "svg", "Latex": "latex", "JSON": "json", "Javascript": "javascript"}
    for name, form in forms.items():
        setattr(module, name, type(name, (Shown,), {"form": form}))

    class Image(Shown):
        form = "png"

        def __init__(self, data=None, filename=None, format="png", **_):
            super().__init__(data, filename=filename)
            self.form = "jpeg" if format in ("jpg", "jpeg") else "png"

    module.Image, module.display, module.clear_output = Image, display, lambda **_: None
    package.display, package.get_ipython = module, lambda: None
    # Others look at these before they leave it alone.
    package.version_info, package.__version__, package.__path__ = (9, 0, 0), "9.0.0", []
    sys.modules.update({"IPython": package, "IPython.display": module})


# Cells.

def shell(command):
    sys.stdout.flush()
    subprocess.run(["bash", "-c", command])


def translated(code):
    """The few lines that are no Python: `!command`, `%pip …`, `%%bash`."""
    if code.lstrip().startswith(("%%bash", "%%sh")):
        body = code.lstrip().split("\n", 1)
        return f"__shell__({body[1] if len(body) > 1 else ''!r})"
    lines = []
    for line in code.split("\n"):
        bare = line.lstrip()
        indent = line[: len(line) - len(bare)]
        if bare.startswith("!"):
            line = f"{indent}__shell__({bare[1:]!r})"
        elif bare.startswith(("%pip ", "%uv ")):
            line = f"{indent}__shell__({('python3 -m ' if bare.startswith('%pip') else '') + bare[1:]!r})"
        elif bare.startswith("%cd "):
            line = f"{indent}__import__('os').chdir(__import__('os').path.expanduser({bare[4:].strip()!r}))"
        elif bare.startswith("%matplotlib"):
            line = f"{indent}pass"
        lines.append(line)
    return "\n".join(lines)


SPACE = types.ModuleType("__main__")
SPACE.__dict__.update(__builtins__=builtins, display=display, __shell__=shell)
sys.modules["__main__"] = SPACE
LOOP = asyncio.new_event_loop()
asyncio.set_event_loop(LOOP)
FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def run_part(tree, mode):
    code = compile(tree, CELL, mode, flags=FLAGS)
    value = eval(code, SPACE.__dict__)
    return LOOP.run_until_complete(value) if inspect.iscoroutine(value) else value


def run(code):
    try:
        tree = ast.parse(code, CELL, "exec")
    except SyntaxError:
        code = translated(code)
        tree = ast.parse(code, CELL, "exec")
    import linecache
    linecache.cache[CELL] = (len(code), None, [line + "\n" for line in code.split("\n")], CELL)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
        last = ast.Expression(tree.body.pop().value)
    if tree.body:
        run_part(tree, "exec")
    if last is not None:
        value = run_part(last, "eval")
        if value is not None:
            SPACE._ = value
            figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
            # A figure that is open is shown as one already.
            if not (figure and isinstance(value, figure)):
                result(value, True)
    figures()


def failed(error):
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != CELL:
        frames = frames.tb_next
    lines = traceback.format_exception(type(error), error, frames)
    tell({"type": "error", "name": type(error).__name__, "value": str(error), "traceback": "".join(lines)})


def interrupted(*_):
    """Once for a cell: a second one would find the part that tells of the first."""
    global running
    if running:
        running = False
        raise KeyboardInterrupt


running = False
signal.signal(signal.SIGINT, interrupted)
stand_in()
sys.argv = [""]
sys.path.insert(0, "")
for line in REQUESTS:
    request = json.loads(line)
    before = dict(os.environ)
    os.environ.update(request.get("envs") or {})
    try:
        try:
            running = True
            run(request["code"])
        finally:
            # An interrupt may still come between the cell's end and this, and must not end the context.
            running = False
    except BaseException as error:
        failed(error)
    for name in request.get("envs") or {}:
        if name in before:
            os.environ[name] = before[name]
        else:
            os.environ.pop(name, None)
    tell({"type": "done"})
