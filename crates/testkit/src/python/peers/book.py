"""What is admitted, and what was seen."""

import base64
import binascii
import json
import os
import urllib.parse


class Book:
    def __init__(self, directory):
        self.directory = directory
        self.log = open(self.path("log.jsonl"), "a", buffering=1)

    def path(self, name):
        return os.path.join(self.directory, name)

    def keys(self):
        with open(self.path("keys")) as file:
            return file.read().split("\n")

    def admit(self, headers, query=""):
        """The credential of a request that is admitted, or None."""
        known = set(filter(None, self.keys()))
        return next((value for value in presented(headers, query) if value in known), None)

    def write(self, **seen):
        self.log.write(json.dumps(seen) + "\n")


def presented(headers, query):
    """All that a request may mean as its credential."""
    for name, value in headers:
        if name == "authorization":
            scheme, _, rest = value.partition(" ")
            yield rest
            if scheme.lower() == "basic":
                try:
                    yield from base64.b64decode(rest, validate=True).decode().split(":")
                except (binascii.Error, UnicodeDecodeError):
                    pass
        elif name in ("x-api-key", "x-goog-api-key"):
            yield value
    yield from (value for _, value in urllib.parse.parse_qsl(query))
