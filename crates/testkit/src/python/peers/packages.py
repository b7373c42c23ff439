"""A private index of Python packages and a private registry of Node packages, as the files that they consist of."""

import base64
import gzip
import hashlib
import io
import json
import os
import tarfile
import zipfile

INFO = "Metadata-Version: 2.1\nName: corp-tool\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def kind(path):
    return {".html": "text/html", ".json": "application/json"}.get(os.path.splitext(path)[1], "application/octet-stream")


def write(root, path, content):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def make(root):
    pypi, npm = os.path.join(root, "pypi.corp.example"), os.path.join(root, "npm.corp.example")
    write(pypi, "files/corp_tool-1.0-py3-none-any.whl", wheel())
    link = '<a href="/files/corp_tool-1.0-py3-none-any.whl">corp_tool-1.0-py3-none-any.whl</a>'
    write(pypi, "simple/corp-tool/index.html", f"<!DOCTYPE html><html><body>{link}</body></html>")
    packed = tarball()
    write(npm, "corp-tool/-/corp-tool-1.0.0.tgz", packed)
    dist = {
        "tarball": "https://npm.corp.example/corp-tool/-/corp-tool-1.0.0.tgz",
        "integrity": "sha512-" + base64.b64encode(hashlib.sha512(packed).digest()).decode(),
    }
    version = {"name": "corp-tool", "version": "1.0.0", "main": "index.js", "dist": dist}
    told = {"name": "corp-tool", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    write(npm, "corp-tool/index.json", json.dumps(told))


def wheel():
    files = {
        "corp_tool.py": "WORD = 'from the private index'\n",
        "corp_tool-1.0.dist-info/METADATA": INFO,
        "corp_tool-1.0.dist-info/WHEEL": WHEEL,
        "corp_tool-1.0.dist-info/RECORD": "",
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


def tarball():
    files = {
        "package/package.json": json.dumps({"name": "corp-tool", "version": "1.0.0", "main": "index.js"}),
        "package/index.js": "module.exports = 'from the private registry';\n",
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return gzip.compress(packed.getvalue(), mtime=0)
