//! HTTP/2 as no client sends it, frame by frame with Python's hpack and hyperframe: what is malformed reaches nobody,
//! and a flood of frames costs neither memory nor the next client's answer.

use super::staged_once;
use serde_json::Value;

/// One connection each: what came back, as a word, and how many frames went out before it was closed.
const CLIENT: &str = r#"
import hpack, os, socket, ssl, sys
from hyperframe import frame as f

HOST = "api.corp.example"
KEY = os.environ["KEY"]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

class Peer:
    def __init__(self):
        context = ssl.create_default_context()
        context.set_alpn_protocols(["h2"])
        self.tls = context.wrap_socket(socket.create_connection((HOST, 443)), server_hostname=HOST)
        self.tls.settimeout(20)
        self.coder, self.rest, self.sent = hpack.Encoder(), b"", 0
        self.tls.sendall(PREFACE + f.SettingsFrame().serialize())

    def send(self, *frames):
        self.tls.sendall(b"".join(frame.serialize() for frame in frames))
        self.sent += len(frames)

    def head(self, stream, fields, flags=("END_HEADERS", "END_STREAM")):
        frame = f.HeadersFrame(stream, self.coder.encode(fields))
        for flag in flags:
            frame.flags.add(flag)
        return frame

    def frames(self):
        while True:
            while len(self.rest) >= 9:
                frame, length = f.Frame.parse_frame_header(memoryview(self.rest[:9]))
                if len(self.rest) < 9 + length:
                    break
                frame.parse_body(memoryview(self.rest[9:9 + length]))
                self.rest = self.rest[9 + length:]
                yield frame
            more = self.tls.recv(65536)
            if not more:
                return
            self.rest += more

    def verdict(self, stream):
        decoder = hpack.Decoder()
        try:
            for frame in self.frames():
                if isinstance(frame, f.GoAwayFrame) and frame.error_code:
                    return "goaway"
                if isinstance(frame, f.RstStreamFrame) and frame.stream_id == stream:
                    return "reset"
                if isinstance(frame, f.HeadersFrame):
                    status = dict(decoder.decode(frame.data))[":status"]
                    if frame.stream_id == stream:
                        return status
                if isinstance(frame, f.SettingsFrame) and "ACK" not in frame.flags:
                    self.send(f.SettingsFrame(flags=["ACK"]))
            return "closed"
        except (ConnectionError, ssl.SSLError):
            return "closed"

def basic(path, method="GET"):
    return [(":method", method), (":scheme", "https"), (":authority", HOST), (":path", path),
            ("authorization", "Bearer " + KEY)]

def one(name, fields, body=None):
    peer = Peer()
    try:
        if body is None:
            peer.send(peer.head(1, fields))
        else:
            data = f.DataFrame(1, body)
            data.flags.add("END_STREAM")
            peer.send(peer.head(1, fields, ["END_HEADERS"]), data)
        print(name, peer.verdict(1))
    except (ConnectionError, ssl.SSLError):
        print(name, "closed")

def plain(name, path):
    one(name, basic(path))

plain("plain", "/frames/plain")
one("post", basic("/frames/post", "POST") + [("content-length", "4")], b"body")
one("value-with-a-line", basic("/frames/line") + [("x-a", "b\r\nx-c: d")])
one("name-with-a-line", basic("/frames/name") + [("x-a\r\nx-c", "d")])
one("upper-case", basic("/frames/upper") + [("X-A", "b")])
one("pseudo-behind", [("x-a", "b")] + basic("/frames/behind"))
one("pseudo-twice", [(":path", "/frames/first")] + basic("/frames/twice"))
one("pseudo-unknown", [(":secret", "x")] + basic("/frames/unknown"))
one("path-with-a-line", basic("/frames/x HTTP/1.1\r\nhost: other.example\r\n\r\n"))
one("transfer-encoding", basic("/frames/te", "POST") + [("transfer-encoding", "chunked")], b"0\r\n\r\nGET /frames/smuggled HTTP/1.1\r\n\r\n")
one("connection", basic("/frames/connection") + [("connection", "x-a"), ("x-a", "b")])
one("length-too-small", basic("/frames/small", "POST") + [("content-length", "2")], b"body")
one("length-too-large", basic("/frames/large", "POST") + [("content-length", "9")], b"body")
one("length-twice", basic("/frames/lengths", "POST") + [("content-length", "4"), ("content-length", "9")], b"body")
one("connect-by-protocol", [(":method", "CONNECT"), (":protocol", "websocket")] + basic("/frames/extended")[1:])
one("head-too-large", basic("/frames/huge") + [(f"x-{n}", "y" * 4000) for n in range(40)])

def flood(name, frames):
    peer = Peer()
    try:
        for chunk in frames(peer):
            peer.send(*chunk)
        print(name, peer.verdict(10**9), peer.sent)
    except (ConnectionError, ssl.SSLError):
        print(name, "closed", peer.sent)
    plain(name + "-after", "/frames/after-" + name)

def continued(peer):
    yield [peer.head(1, basic("/frames/continued"), [])]
    for n in range(20000):
        yield [f.ContinuationFrame(1, peer.coder.encode([("x-more", "z" * 200)])) for _ in range(16)]

def resets(peer):
    for n in range(20000):
        stream = 2 * n + 1
        yield [peer.head(stream, basic("/frames/reset")), f.RstStreamFrame(stream, 8)]

flood("continuations", continued)
flood("resets", resets)
"#;

#[test]
fn c2_c6_frames_that_no_client_sends() {
    staged_once(|stage| {
        let out = stage.python(CLIENT).exits(0).out();
        let said: Vec<(&str, &str)> = out.lines().filter_map(|line| line.split_once(' ')).collect();
        let of = |name: &str| said.iter().find(|(of, _)| *of == name).map_or("nothing", |(_, said)| *said);
        for fine in ["plain", "post", "continuations-after", "resets-after"] {
            assert_eq!(of(fine), "200", "{fine}: {out}");
        }
        let malformed = [
            "value-with-a-line",
            "name-with-a-line",
            "upper-case",
            "pseudo-behind",
            "pseudo-twice",
            "pseudo-unknown",
            "path-with-a-line",
            "transfer-encoding",
            "connection",
            "length-too-small",
            "length-too-large",
            "length-twice",
            "connect-by-protocol",
            "head-too-large",
        ];
        for name in malformed {
            let said = of(name);
            assert!(["reset", "goaway", "closed"].contains(&said) || said.starts_with('4'), "{name}: {out}");
        }
        // A flood is cut off long before its end: nothing of it piles up.
        for (name, whole) in [("continuations", 320_000), ("resets", 40_000)] {
            let (how, sent) = of(name).split_once(' ').unwrap_or_else(|| panic!("{name}: {out}"));
            assert!(["goaway", "closed"].contains(&how), "{name}: {out}");
            assert!(sent.parse::<u32>().unwrap() < whole / 2, "{name}: {out}");
        }
        let seen: Vec<Value> = stage.server.seen_with(&stage.real);
        let paths: Vec<&str> = seen.iter().filter_map(|seen| seen["path"].as_str()).collect();
        let fine = |path: &&str| {
            ["/frames/plain", "/frames/post", "/frames/reset"].contains(path)
                || path.starts_with("/frames/after-")
        };
        assert!(paths.iter().all(fine), "{paths:?}");
        // Requests that are taken back as soon as they are made reach the server as few times as the limit says.
        assert!(paths.iter().filter(|path| **path == "/frames/reset").count() < 200, "{}", paths.len());
        stage.site.call(&["trace", "verify", "latest"]).exits(0);
    });
}
