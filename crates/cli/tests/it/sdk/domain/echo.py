"""Inside the sandbox: says what it was asked, and sends back whatever comes by a WebSocket."""
import base64
import hashlib
import http.server
import struct
import threading


def exactly(stream, count):
    data = stream.read(count)
    if len(data) < count:
        raise ConnectionError
    return data


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        key = self.headers.get("Sec-WebSocket-Key")
        if key:
            return self.socket(key)
        body = f"GET {self.path} for {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def socket(self, key):
        digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(digest).decode())
        self.end_headers()
        self.close_connection = True
        while True:
            first, size = exactly(self.rfile, 2)
            size &= 0x7F
            if size == 126:
                size = struct.unpack(">H", exactly(self.rfile, 2))[0]
            elif size == 127:
                size = struct.unpack(">Q", exactly(self.rfile, 8))[0]
            mask = exactly(self.rfile, 4)
            data = exactly(self.rfile, size)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
            kind = first & 0xF
            if kind == 8:
                self.wfile.write(b"\x88\x00")
                return
            length = bytes([len(data)]) if len(data) < 126 else b"\x7f" + struct.pack(">Q", len(data))
            self.wfile.write(bytes([0x80 | (10 if kind == 9 else kind)]) + length + data)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 3000), Echo)
threading.Thread(target=server.serve_forever).start()
print("listens", flush=True)
