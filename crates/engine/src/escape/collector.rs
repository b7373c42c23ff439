//! What attempts are made to reach: sockets of the host's that answer whoever comes with the planted word. An
//! attempt has got out if and only if it brings the word back.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, PipeWriter, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a caller may take to say what it wants. It is answered in any case.
const PATIENCE: Duration = Duration::from_millis(300);

pub(crate) struct Sockets {
    pub(crate) tcp: Vec<TcpListener>,
    pub(crate) udp: Vec<UdpSocket>,
    pub(crate) unix: Vec<UnixListener>,
}

impl Sockets {
    /// On the host's loopback, at a path and at an abstract name.
    pub(crate) fn on_host(path: &Path, name: &str) -> io::Result<Self> {
        let v4 = TcpListener::bind(("127.0.0.1", 0))?;
        let v6 = TcpListener::bind(("::1", 0)).ok();
        let named = SocketAddr::from_abstract_name(name)?;
        Ok(Self {
            tcp: [v4].into_iter().chain(v6).collect(),
            udp: vec![UdpSocket::bind(("127.0.0.1", 0))?],
            unix: vec![UnixListener::bind(path)?, UnixListener::bind_addr(&named)?],
        })
    }

    /// At every address of a network of our own, on the ports that attempts try.
    pub(crate) fn of_the_world(tcp: &[u16], udp: &[u16]) -> io::Result<Self> {
        Ok(Self {
            tcp: tcp.iter().map(|port| TcpListener::bind(("0.0.0.0", *port))).collect::<Result<_, _>>()?,
            udp: udp.iter().map(|port| UdpSocket::bind(("0.0.0.0", *port))).collect::<Result<_, _>>()?,
            unix: Vec::new(),
        })
    }
}

/// Answers until it is dropped.
pub(crate) struct Collector {
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    pub(crate) fn start(sockets: Sockets, word: Vec<u8>) -> io::Result<Self> {
        let (wake, stop) = io::pipe()?;
        let serve = move || while wait_and_answer(&sockets, &word, &wake) {};
        let thread = std::thread::Builder::new().name("collector".into()).spawn(serve)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether to go on. Who calls badly is not answered; the next one is.
fn wait_and_answer(sockets: &Sockets, word: &[u8], wake: &io::PipeReader) -> bool {
    let all = [wake.as_fd()].into_iter().chain(sockets.tcp.iter().map(AsFd::as_fd));
    let all = all.chain(sockets.udp.iter().map(AsFd::as_fd)).chain(sockets.unix.iter().map(AsFd::as_fd));
    let mut set: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    if poll(&mut set, None::<&Timespec>).is_err() || !set[0].revents().is_empty() {
        return false;
    }
    let mut ready = set.iter().skip(1).map(|fd| !fd.revents().is_empty());
    let answer = [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: ",
        word.len().to_string().as_bytes(),
        b"\r\n\r\n",
        word,
    ]
    .concat();
    for listener in &sockets.tcp {
        if ready.next() == Some(true)
            && let Ok((mut stream, _)) = listener.accept()
        {
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let _ = (stream.read(&mut [0; 8 << 10]), stream.write_all(&answer));
        }
    }
    for socket in &sockets.udp {
        if ready.next() == Some(true)
            && let Ok((_, from)) = socket.recv_from(&mut [0; 2 << 10])
        {
            let _ = socket.send_to(word, from);
        }
    }
    for listener in &sockets.unix {
        if ready.next() == Some(true)
            && let Ok((mut stream, _)) = listener.accept()
        {
            let _ = stream.write_all(word);
        }
    }
    true
}
