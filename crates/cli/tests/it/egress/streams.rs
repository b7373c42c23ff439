//! What is more than a question and an answer: gRPC, WebSocket, server-sent events. Also with the memory of a client
//! that is seen from outside while it waits.

use super::{Stage, staged, staged_once};
use cofferdam_testkit::{eventually, needs_root};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

#[test]
fn grpc_carries_calls_streams_and_refusals() {
    staged(|stage| {
        let program = r#"
import os, grpc
def call(host, method, message, kind="unary_unary"):
    with grpc.secure_channel(host + ":443", grpc.ssl_channel_credentials()) as channel:
        got = getattr(channel, kind)(method)(message, metadata=auth, timeout=60)
        return [part.decode() for part in got] if kind == "unary_stream" else got.decode()
for auth in [(("authorization", "Bearer " + os.environ["KEY"]),), ()]:
    for host, method in [("rpc.corp.example", "Say"), ("unlisted.corp.test", "Say")]:
        try:
            print(call(host, f"/corp.Echo/{method}", b"hi").replace(os.environ["KEY"], "KEY"))
        except grpc.RpcError as error:
            print(error.code().name, error.details()[:40])
auth = (("authorization", "Bearer " + os.environ["KEY"]),)
print(*call("rpc.corp.example", "/corp.Echo/Count", b"4", kind="unary_stream"))
"#;
        let out = stage.python(program).exits(0).out();
        let denied = "PERMISSION_DENIED cofferdam: denied: no rule allows it; as";
        assert_eq!(
            out,
            format!("you said hi with KEY\n{denied}\nUNAUTHENTICATED who are you?\n{denied}\n0 1 2 3\n")
        );
        let seen = stage.used("rpc.corp.example");
        assert_eq!(
            seen.iter().map(|seen| &seen["path"]).collect::<Vec<_>>(),
            ["/corp.Echo/Say", "/corp.Echo/Count"]
        );
        assert!(stage.site.bodies("egress.ended").iter().any(|ended| ended["scrubbed"] == 2));
    });
}

#[test]
fn a_websocket_talks_both_ways_and_gives_no_secret_back() {
    staged(|stage| {
        let program = r#"
import asyncio, os
# Not the client with threads: two of them in one TLS connection of an older Python lose requests now and then.
from websockets.asyncio.client import connect
key = os.environ["KEY"]
def opened(**more):
    return connect("wss://sockets.corp.example/x", additional_headers={"Authorization": "Bearer " + key}, **more)
async def main():
    for proxy in [True, None]:
        async with opened(proxy=proxy) as socket:
            print((await socket.recv()).replace(key, "KEY"))
            for message in ["hello", b"bytes", "x" * 200_000]:
                await socket.send(message)
                assert await socket.recv() == message
    async with opened() as socket:
        await socket.recv()
        await socket.send("take this: " + key)
        try:
            print("came back:", await socket.recv())
        except Exception as error:
            print(type(error).__name__)
asyncio.run(main())
"#;
        let out = stage.python(program).exits(0).out();
        assert_eq!(out, "opened with KEY\nopened with KEY\nConnectionClosedError\n");
        stage.used("sockets.corp.example");
        let endings: Vec<_> =
            stage.site.bodies("egress.ended").iter().map(|body| body["ending"].clone()).collect();
        assert_eq!(endings, ["complete", "complete", "refused"]);
        assert_eq!(stage.site.bodies("egress.ended")[0]["scrubbed"], 1);
    });
}

/// A client that waits for more of a stream, with everything in it that it will ever have.
pub(super) fn ticking(stage: &Stage<'_>) -> cofferdam_testkit::Running {
    let script = "curl -sSN -H \"Authorization: Bearer $KEY\" https://api.corp.example/ticks > ticks";
    let mut running = stage.sh(script).start();
    eventually("the stream to flow", || (stage.ticks() > 0 || !running.is_running()).then_some(()));
    assert!(running.is_running(), "{}", running.finish().err());
    running
}

impl Stage<'_> {
    /// How many bytes the servers have sent: seen by the record, since what is inside is not kept yet.
    pub(super) fn ticks(&self) -> usize {
        self.server.seen_with(&self.real).iter().filter(|seen| seen["path"] == "/ticks").count()
    }
}

fn children(pid: i32) -> Vec<i32> {
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let direct: Vec<i32> = tasks
        .flat_map(|task| of(task).split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    direct.iter().flat_map(|&child| std::iter::once(child).chain(children(child))).collect()
}

fn memory_holds(pid: i32, sought: &str) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let span = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
    };
    maps.lines().filter_map(span).any(|(start, end)| {
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        memory.read_exact_at(&mut bytes, start).is_ok()
            && bytes.windows(sought.len()).any(|window| window == sought.as_bytes())
    })
}

/// While a request is open that was sent with the real value, no process inside has it, and all that see the
/// environment have the placeholder: the search finds what is there.
#[test]
fn the_memory_of_clients_holds_placeholders() {
    if !needs_root("reading the memory of a process inside") {
        return;
    }
    staged_once(|stage| {
        let running = ticking(stage);
        let inside = children(running.pid().as_raw_nonzero().get());
        let name = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let curl = *inside.iter().find(|pid| name(pid) == "curl\n").expect("curl runs");
        let environment = fs::read(format!("/proc/{curl}/environ")).unwrap();
        let placeholder = String::from_utf8_lossy(&environment);
        let placeholder = placeholder.split('\0').find_map(|entry| entry.strip_prefix("KEY=")).unwrap();
        assert!(memory_holds(curl, placeholder));
        for pid in inside {
            assert!(!memory_holds(pid, &stage.real), "{pid}: {}", name(&pid));
        }
        running.signal(Signal::TERM);
        running.finish();
    });
}

#[test]
fn events_come_one_by_one_and_not_at_the_end() {
    staged_once(|stage| {
        let script = "curl -sSN -H \"Authorization: Bearer $KEY\" https://api.corp.example/ticks | head -n 5 | tail -n 1";
        assert_eq!(stage.sh(script).exits(0).out(), "data: tick 2\n");
        let ended = stage.site.bodies("egress.ended").pop().unwrap();
        assert_eq!((&ended["ending"], &ended["status"]), (&"client-gone".into(), &200.into()));
    });
}
