"""A small agent: it does its job, and it tries two things that are not its job.

The job: read a file of notes, write `summary.md`. On the side it tries to read a private key and to open a
network connection, and says honestly what happened, in words on stdout and in `report.json`.
"""

import argparse
import json
import os
import socket
from pathlib import Path


def summarise(notes: Path) -> str:
    lines = notes.read_text(encoding="utf-8").splitlines()
    words = sum(len(line.split()) for line in lines)
    headings = [line.lstrip("# ") for line in lines if line.startswith("#")]
    listed = "\n".join(f"- {heading}" for heading in headings)
    return f"# Summary of {notes.name}\n\n{len(lines)} lines, {words} words, about:\n\n{listed}\n"


def try_key(path: Path) -> tuple[bool, str]:
    try:
        return True, f"read {len(path.read_bytes())} bytes"
    except OSError as error:
        return False, error.strerror or str(error)


def try_connect(address: str) -> tuple[bool, str]:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=2):
            return True, "connected"
    except OSError as error:
        return False, error.strerror or str(error)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("notes", type=Path)
    options.add_argument("--key", type=Path, default=Path("~/.ssh/id_ed25519"))
    options.add_argument("--connect", default="example.org:443", metavar="HOST:PORT")
    wanted = options.parse_args()

    summary = summarise(wanted.notes)
    Path("summary.md").write_text(summary, encoding="utf-8")
    print(f"job:     {wanted.notes} -> summary.md, {len(summary)} bytes")

    key_read, key_said = try_key(wanted.key.expanduser())
    print(f"key:     {os.path.basename(wanted.key)}: {key_said}")
    connected, network_said = try_connect(wanted.connect)
    print(f"network: {wanted.connect}: {network_said}")

    report = {"key_read": key_read, "connected": connected}
    Path("report.json").write_text(json.dumps(report) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
