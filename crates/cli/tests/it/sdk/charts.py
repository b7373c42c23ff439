"""What matplotlib draws and pandas holds, as the code interpreter's SDK reads it: with the real ones, put into the sandbox."""
import os
import subprocess

from e2b_code_interpreter import Sandbox

sandbox = Sandbox.create(timeout=600)
packed = subprocess.run(["tar", "-C", os.environ["TEST_INSIDE"], "-cf", "-", "."], stdout=subprocess.PIPE, check=True).stdout
sandbox.files.write("/home/user/lib.tar", packed, request_timeout=0)
sandbox.commands.run("mkdir lib && tar -C lib -xf lib.tar && rm lib.tar", timeout=300)


def run(code):
    done = sandbox.run_code(code, timeout=300, request_timeout=300)
    assert done.error is None, done.error
    return done.results


def chart(code):
    [result] = run(code + "\nplt.show()")
    assert result.png and result.chart, result.formats()
    return result.chart


run("import sys\nsys.path.insert(0, '/home/user/lib')\nimport matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as plt")
line = chart("plt.plot([1, 2, 3], [1, 4, 9], label='squares')\nplt.title('T'); plt.xlabel('x'); plt.ylabel('y')")
assert (line.type.value, line.title, line.x_label, line.y_label) == ("line", "T", "x", "y"), line
assert [(one.label, one.points) for one in line.elements] == [("squares", [(1, 1), (2, 4), (3, 9)])]
bar = chart("plt.bar(['a', 'b'], [3, 5])")
assert (bar.type.value, [(one.label, one.value) for one in bar.elements]) == ("bar", [("a", 3), ("b", 5)]), bar
pie = chart("plt.pie([1, 3], labels=['p', 'q'])")
assert (pie.type.value, [(one.label, one.angle) for one in pie.elements]) == ("pie", [("p", 90), ("q", 270)]), pie
scatter = chart("plt.scatter([1, 2], [3, 4], label='s')")
assert (scatter.type.value, [one.points for one in scatter.elements]) == ("scatter", [[(1, 3), (2, 4)]]), scatter
box = chart("plt.boxplot([[1, 2, 3, 4, 10], [2, 3, 4]], tick_labels=['u', 'v'])")
assert box.type.value == "box_and_whisker", box.type
seen = [(b.label, b.min, b.first_quartile, b.median, b.third_quartile, b.max, b.outliers) for b in box.elements]
assert seen == [("u", 1, 2, 3, 4, 4, [10]), ("v", 2, 2.5, 3, 3.5, 4, [])], seen
several = chart("_, (one, other) = plt.subplots(1, 2)\none.plot([1, 2])\nother.bar(['x'], [2])")
assert (several.type.value, [one.type.value for one in several.elements]) == ("superchart", ["line", "bar"]), several
[frame] = run("import pandas\npandas.DataFrame({'a': [1, 2], 'b': ['x', 'y']})")
assert frame.data == {"a": [1, 2], "b": ["x", "y"]} and "<table" in frame.html, frame.formats()
sandbox.kill()
