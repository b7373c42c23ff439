//! The sockets of the DNS: datagrams, and streams with a length before each query.

use super::Desk;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// What one query may be long: far more than a name and its flags take.
const LONGEST: usize = 1_232;
/// Connections at once, queries on each, and how long one may be silent.
const CONNECTIONS: usize = 32;
const QUERIES: usize = 100;
const PATIENCE: Duration = Duration::from_secs(5);

/// After an error, which is the host's (no memory, no descriptors) and never a client's doing.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// Answers datagrams until it is dropped. Fails only before the first.
pub async fn serve_udp(socket: UdpSocket, desk: Arc<Desk>) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let socket = tokio::net::UdpSocket::from_std(socket)?;
    // One byte more, so that what is too long is seen to be.
    let mut buffer = [0u8; LONGEST + 1];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Some(query) = buffer.get(..length).filter(|_| length <= LONGEST) else { continue };
        if let Some(answer) = desk.answer(query, Instant::now()) {
            // Whoever asked may be gone.
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

/// Answers streams until it is dropped. Fails only before the first.
pub async fn serve_tcp(listener: TcpListener, desk: Arc<Desk>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut streams = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        while streams.try_join_next().is_some() {}
        // One too many is closed at once: a client asks again.
        let Ok(place) = room.clone().try_acquire_owned() else { continue };
        let desk = desk.clone();
        streams.spawn(async move {
            let _place = place;
            let _ = converse(stream, &desk).await;
        });
    }
}

async fn converse(mut stream: TcpStream, desk: &Desk) -> io::Result<()> {
    let mut buffer = [0u8; LONGEST];
    for _ in 0..QUERIES {
        let length = timeout(PATIENCE, stream.read_u16()).await??;
        let Some(query) = buffer.get_mut(..length.into()) else { return Ok(()) };
        timeout(PATIENCE, stream.read_exact(query)).await??;
        let Some(answer) = desk.answer(query, Instant::now()) else { return Ok(()) };
        let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        timeout(PATIENCE, stream.write_all(&framed)).await??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Query, Stray, Tap};
    use super::*;
    use crate::names::Names;
    use std::io::{Read, Write};
    use std::net::SocketAddr;

    struct Everything;

    impl Tap for Everything {
        fn knows(&self, _: &str) -> bool {
            true
        }
        fn named(&self, _: &str, _: std::net::Ipv4Addr) {}
        fn query(&self, _: Query) {}
        fn stray(&self, _: Stray) {}
    }

    /// `example.com A`, as a client sends it.
    const QUERY: &[u8] =
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01";
    const ADDRESS: &[u8] = &[198, 18, 0, 2];

    fn serving(test: impl FnOnce(SocketAddr, SocketAddr)) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (udp, tcp) = (UdpSocket::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let places = (udp.local_addr().unwrap(), tcp.local_addr().unwrap());
        let desk = Desk::new(Arc::new(Names::default()), Arc::new(Everything));
        runtime.spawn(serve_udp(udp, desk.clone()));
        runtime.spawn(serve_tcp(tcp, desk));
        test(places.0, places.1);
    }

    #[test]
    fn a_datagram_is_answered_and_rubbish_is_not() {
        serving(|udp, _| {
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client.connect(udp).unwrap();
            let mut padded = QUERY.to_vec();
            padded.resize(LONGEST + 1, 0);
            for junk in [&b""[..], b"x", &padded] {
                client.send(junk).unwrap();
            }
            client.send(QUERY).unwrap();
            let mut answer = [0u8; 512];
            let length = client.recv(&mut answer).unwrap();
            assert_eq!(answer[..2], QUERY[..2]);
            assert!(answer[..length].ends_with(ADDRESS));
        });
    }

    #[test]
    fn a_stream_is_answered_query_by_query() {
        serving(|_, tcp| {
            let mut client = std::net::TcpStream::connect(tcp).unwrap();
            let framed = [&(QUERY.len() as u16).to_be_bytes()[..], QUERY].concat();
            client.write_all(&[&framed[..], &framed].concat()).unwrap();
            for _ in 0..2 {
                let mut length = [0u8; 2];
                client.read_exact(&mut length).unwrap();
                let mut answer = vec![0u8; u16::from_be_bytes(length).into()];
                client.read_exact(&mut answer).unwrap();
                assert!(answer.ends_with(ADDRESS));
            }
            client.write_all(b"\xff\xff too long").unwrap();
            assert_eq!(client.read(&mut [0u8; 16]).unwrap_or(0), 0, "closed");
        });
    }
}
