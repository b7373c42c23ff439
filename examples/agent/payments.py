"""A payment service that runs here: it takes one key and no other, and writes down what it was asked with which.

usage: payments.py CERTIFICATE PRIVATE-KEY LOG, with the key that it takes in PAYMENTS_KEY. It prints its port.
"""

import http.server
import json
import os
import ssl
import sys

KEY = os.environ["PAYMENTS_KEY"]


class Payments(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        form = self.rfile.read(length).decode()
        known = self.headers.get("Authorization") == f"Bearer {KEY}"
        with open(sys.argv[3], "a", encoding="utf-8") as log:
            seen = {"method": self.command, "path": self.path, "form": form, "real_key": known}
            log.write(json.dumps(seen) + "\n")
        # The key comes back in the answer, as careless services do it.
        said = {"ok": known, "sent": self.headers.get("Authorization")}
        body = json.dumps(said).encode() + b"\n"
        self.send_response(200 if known else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Payments)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
