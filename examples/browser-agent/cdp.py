"""Drives a browser by the DevTools protocol, with nothing but the standard library: one page, one command at a time."""

import base64
import json
import os
import socket
import struct
import urllib.parse
import urllib.request


class Line:
    """A WebSocket to one address, for texts."""

    def __init__(self, url: str) -> None:
        at = urllib.parse.urlsplit(url)
        self.socket = socket.create_connection((at.hostname, at.port), timeout=60)
        self.stream = self.socket.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        head = [f"GET {at.path} HTTP/1.1", f"Host: {at.netloc}", "Connection: Upgrade", "Upgrade: websocket"]
        head += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", "", ""]
        self.socket.sendall("\r\n".join(head).encode())
        status = self.stream.readline()
        if b" 101 " not in status:
            raise ConnectionError(status.decode().strip())
        while self.stream.readline().strip():
            pass

    def send(self, text: str) -> None:
        data = text.encode()
        length = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
        if len(data) >= 1 << 16:
            length = b"\xff" + struct.pack(">Q", len(data))
        # A mask of zeroes is one too, and this is loopback.
        self.socket.sendall(b"\x81" + length + bytes(4) + data)

    def receive(self) -> str:
        text = b""
        while True:
            first, length = self.stream.read(2)
            if length >= 126:
                size = 2 if length == 126 else 8
                length = int.from_bytes(self.stream.read(size), "big")
            text += self.stream.read(length)
            if first & 0x80:
                return text.decode()


class Page:
    """A page of the session's browser."""

    def __init__(self) -> None:
        version = urllib.request.urlopen(os.environ["COFFERDAM_CDP_URL"] + "/json/version", timeout=60)
        self.line = Line(json.load(version)["webSocketDebuggerUrl"])
        self.session, self.number, self.events = None, 0, []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")

    def ask(self, method: str, **params: object) -> dict:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.line.send(json.dumps(message))
        while True:
            answer = json.loads(self.line.receive())
            if answer.get("id") == self.number:
                break
            self.events.append(answer.get("method"))
        if "error" in answer:
            raise RuntimeError(answer["error"]["message"])
        return answer["result"]

    def loaded(self) -> None:
        """Waits for the page that is on its way."""
        while "Page.loadEventFired" not in self.events:
            self.events.append(json.loads(self.line.receive()).get("method"))

    def goto(self, url: str) -> None:
        self.events.clear()
        failed = self.ask("Page.navigate", url=url).get("errorText")
        if failed:
            raise RuntimeError(failed)
        self.loaded()

    def value(self, script: str) -> object:
        return self.ask("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def text(self) -> str:
        return str(self.value("document.body.innerText"))

    def press(self, selector: str) -> None:
        """Clicks in the middle of an element, as a person does."""
        box = self.value(
            f"(() => {{ const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        at = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
        for kind in ["mousePressed", "mouseReleased"]:
            self.ask("Input.dispatchMouseEvent", type=kind, **at)

    def fill(self, selector: str, text: str) -> None:
        self.press(selector)
        self.ask("Input.insertText", text=text)

    def submit(self, selector: str) -> None:
        self.events.clear()
        self.press(selector)
        self.loaded()
