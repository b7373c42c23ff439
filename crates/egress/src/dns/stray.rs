//! Datagrams to anywhere but the DNS: QUIC, other resolvers, time servers. They are read so that they can be
//! told, and dropped.

use super::serve::PAUSE;
use super::{Stray, Tap};
use crate::quiet::Quiet;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;
use tokio::io::Interest;

/// Reads one datagram's length and where it was meant to go, without waiting. A call of the system's that is not
/// made in this crate: whoever made the socket knows how.
pub type Receive = fn(BorrowedFd<'_>) -> io::Result<(usize, SocketAddr)>;

/// What a datagram is, by the port that it was sent to.
const KNOWN: &[(u16, &str)] = &[
    (53, "DNS to another resolver"),
    (123, "time (NTP)"),
    (443, "QUIC or HTTP/3"),
    (784, "DNS over QUIC"),
    (853, "DNS over TLS or QUIC"),
    (1900, "discovery (SSDP)"),
    (3478, "STUN or TURN"),
    (5353, "multicast DNS"),
    (8853, "DNS over QUIC"),
];

fn what(port: u16) -> &'static str {
    KNOWN.iter().find(|(known, _)| *known == port).map_or("UDP", |(_, what)| what)
}

/// Tells of datagrams until it is dropped. Fails only before the first.
pub async fn stray_udp(socket: UdpSocket, receive: Receive, tap: Arc<dyn Tap>) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let socket = tokio::net::UdpSocket::from_std(socket)?;
    let mut teller = Teller { tap, quiet: Quiet::new() };
    loop {
        match socket.async_io(Interest::READABLE, || receive(socket.as_fd())).await {
            Ok((bytes, to)) => teller.tell(to, bytes, Instant::now()),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

struct Teller {
    tap: Arc<dyn Tap>,
    quiet: Quiet<SocketAddr>,
}

impl Teller {
    fn tell(&mut self, to: SocketAddr, bytes: usize, now: Instant) {
        let heard = self.quiet.hear(to, now);
        self.tell_counted(heard.counted);
        if heard.tell {
            self.tap.stray(Stray { to: Some(to), what: what(to.port()), bytes, times: 1 });
        }
    }

    fn tell_counted(&self, times: u64) {
        if times > 0 {
            self.tap.stray(Stray { to: None, what: "UDP", bytes: 0, times });
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        let rest = self.quiet.rest();
        self.tell_counted(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Query;
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    struct Heard(Mutex<Sender<Stray>>);

    impl Tap for Heard {
        fn named(&self, _: &str, _: std::net::Ipv4Addr) {}
        fn knows(&self, _: &str) -> bool {
            false
        }
        fn query(&self, query: Query) {
            panic!("{query:?}");
        }
        fn stray(&self, stray: Stray) {
            let _ = self.0.lock().unwrap().send(stray);
        }
    }

    /// What a real one reads from the kernel is read from the datagram itself: a port.
    fn receive(socket: BorrowedFd<'_>) -> io::Result<(usize, SocketAddr)> {
        let socket = UdpSocket::from(socket.try_clone_to_owned()?);
        let mut buffer = [0u8; 16];
        let length = socket.recv(&mut buffer)?;
        let port = std::str::from_utf8(&buffer[..length]).unwrap().parse().unwrap();
        Ok((length, SocketAddr::from(([8, 8, 8, 8], port))))
    }

    #[test]
    fn each_destination_is_told_once_and_the_rest_counted_at_the_end() {
        let (send, told) = channel();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let place = socket.local_addr().unwrap();
        let task = runtime.spawn(stray_udp(socket, receive, Arc::new(Heard(Mutex::new(send)))));
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for port in ["443", "443", "443", "53", "9999"] {
            client.send_to(port.as_bytes(), place).unwrap();
        }
        let next = || told.recv_timeout(Duration::from_secs(60)).unwrap();
        for (port, what) in [(443, "QUIC or HTTP/3"), (53, "DNS to another resolver"), (9999, "UDP")] {
            let stray = next();
            assert_eq!((stray.to.unwrap().port(), stray.what, stray.times), (port, what, 1));
        }
        task.abort();
        assert_eq!(next(), Stray { to: None, what: "UDP", bytes: 0, times: 2 });
    }
}
