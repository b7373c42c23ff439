//! What a hostile or a busy client may cost.

use crate::harness::{PLACEHOLDER, Proxy, Setup, allow, credential, upstream};
use crate::protocols::{h2_client, runtime};
use crate::upstream::Server;
use cofferdam_testkit::eventually;
use http_body_util::BodyExt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const HOST: &str = "api.example.com";

fn proxy_to(server: &Server, change: impl FnOnce(&mut cofferdam_egress::Limits)) -> Proxy {
    let policy = upstream(HOST, server.address) + &allow("all", HOST, "");
    Setup::new(&policy, &server.ca).credentials(vec![credential(&[HOST])]).limits(change).start()
}

/// Bytes that this process keeps in memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn f1_slow_heads_are_not_waited_for() {
    let server = Server::plain();
    let proxy = proxy_to(&server, |limits| limits.head_time = Duration::from_millis(300));
    for start in [
        "",
        "CONN",
        "GET http://plain.example/ HTTP/1.1\r\nHost: pl",
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(proxy.address).unwrap();
        stream.write_all(start.as_bytes()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut out = Vec::new();
        // It ends by our hand, long before this client would.
        stream.read_to_end(&mut out).unwrap();
    }
    assert_eq!(server.seen.count(), 0);
}

#[test]
fn f1_a_gigabyte_passes_through_flat_memory() {
    let server = Server::tls(&[HOST], &["http/1.1"]);
    let proxy = proxy_to(&server, |_| {});
    let url = format!("https://{HOST}/big");
    let bearer = format!("authorization: Bearer {PLACEHOLDER}");
    let before = resident();
    let mut most = before;
    std::thread::scope(|scope| {
        let client = scope.spawn(|| proxy.curl(&["-o", "/dev/null", "-H", &bearer, &url]));
        while !client.is_finished() {
            most = most.max(resident());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(client.join().unwrap().status, 200);
    });
    let ended = proxy.wait_ended(1);
    assert_eq!(ended[0].received, 1 << 30);
    // The server of the test lives in the same process, and so do other tests.
    assert!(most - before < 128 << 20, "grew by {} MiB", (most - before) >> 20);
    println!("1 GiB down, scrubbed: {} MB/s", (1u64 << 30) / ended[0].total_us);
}

#[test]
fn f1_idle_tunnels_are_cheap_and_bounded() {
    const COUNT: usize = 1500;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // Each tunnel has two ends in this process, and 1,024 descriptors is what many users get.
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let server = Server::plain();
    let proxy = proxy_to(&server, |limits| limits.connections = COUNT);
    let before = resident();
    let open = || {
        let mut stream = TcpStream::connect(proxy.address).unwrap();
        stream.write_all(format!("CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}\r\n\r\n").as_bytes()).unwrap();
        stream
    };
    let mut streams: Vec<_> = (0..COUNT).map(|_| open()).collect();
    for stream in &mut streams {
        stream.read_exact(&mut [0; 19]).unwrap();
    }
    let each = resident().saturating_sub(before) / COUNT;
    println!("{each} bytes per idle tunnel");
    assert!(each < 64 << 10);
    // One more waits until there is room.
    let mut late = open();
    late.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(late.read_exact(&mut [0; 19]).is_err());
    streams.truncate(COUNT - 1);
    late.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    late.read_exact(&mut [0; 19]).unwrap();
}

#[test]
fn f2_revoking_reaches_a_thousand_streams() {
    const COUNT: usize = 1000;
    let server = Server::tls(&[HOST], &["h2"]);
    let proxy = proxy_to(&server, |_| {});
    runtime().block_on(async {
        let mut streams = Vec::new();
        for _ in 0..COUNT / 100 {
            let (sender, connection) = h2_client(&proxy).await;
            tokio::spawn(connection);
            for _ in 0..100 {
                let mut sender = sender.clone();
                streams.push(tokio::spawn(async move {
                    let request = http::Request::get(format!("https://{HOST}/endless"))
                        .header("authorization", format!("Bearer {PLACEHOLDER}"))
                        .body(String::new())
                        .unwrap();
                    let mut body = sender.send_request(request).await.unwrap().into_body();
                    while let Some(Ok(_)) = body.frame().await {}
                    Instant::now()
                }));
            }
        }
        while proxy.handle.stats().open < COUNT as u64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let began = Instant::now();
        let cut = tokio::task::block_in_place(|| proxy.handle.revoke("key", "me").unwrap());
        let called = began.elapsed();
        assert_eq!(cut, COUNT as u64);
        let mut last = began;
        for stream in streams {
            last = last.max(stream.await.unwrap());
        }
        println!(
            "revoke returned after {called:?}; the last of {COUNT} streams ended after {:?}",
            last - began
        );
    });
    eventually("all to end", || (proxy.handle.stats().open == 0).then_some(()));
}

#[test]
fn f1_many_small_events_and_an_upload_pass() {
    let server = Server::tls(&[HOST], &["h2", "http/1.1"]);
    let proxy = proxy_to(&server, |_| {});
    let file = proxy.dir.path().join("upload");
    // A hole in a file takes no room in the memory that another test measures.
    std::fs::File::create(&file).unwrap().set_len(64 << 20).unwrap();
    let file = format!("@{}", file.display());
    for version in ["--http1.1", "--http2"] {
        let got = proxy.curl(&[version, "--data-binary", &file, &format!("https://{HOST}/count")]);
        assert!(got.status == 200 && got.body.ends_with("\n67108864"), "{got:?}");
        assert_eq!(server.seen.body_bytes.swap(0, Relaxed), 64 << 20);
    }
    assert!(proxy.wait_ended(2).iter().all(|ended| ended.sent == 64 << 20));
}
