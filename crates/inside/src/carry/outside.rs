//! The end around the VMM: opens what the machine wants open, in a network where everything leads to the host's
//! doors.

use super::frame::{Kind, MOST, addressed};
use super::pump::{News, Pump, STREAMS, Stream};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// So many who ask are answered at once.
const ASKERS: usize = 64;

#[derive(Default)]
pub(super) struct Outside {
    askers: VecDeque<(u32, Rc<UdpSocket>)>,
}

impl Outside {
    pub(super) fn run(self, pump: &mut Pump) -> io::Result<()> {
        let askers = RefCell::new(self.askers);
        // The sockets live as long as what looks at them: a turn of the loop.
        loop {
            let looked_at: Vec<(u32, Rc<UdpSocket>)> = askers.borrow().iter().cloned().collect();
            let fds = || looked_at.iter().map(|(_, socket)| std::os::fd::AsFd::as_fd(&**socket)).collect();
            let again = pump.turn(fds, |pump, news| {
                match news {
                    News::Frame(Kind::Open, id, body) => open(pump, id, body),
                    News::Frame(Kind::Ask, id, body) => ask(&mut askers.borrow_mut(), id, body),
                    News::Frame(Kind::Stray, _, body) => stray(body),
                    News::Frame(..) => {}
                    News::Readable(at) => {
                        if let Some((id, socket)) = looked_at.get(at) {
                            answer(pump, *id, socket);
                        }
                    }
                }
                Ok(())
            })?;
            if !again {
                return Ok(());
            }
        }
    }
}

fn open(pump: &mut Pump, id: u32, body: &[u8]) {
    let free = pump.streams.len() < STREAMS && !pump.streams.contains_key(&id);
    let opened = addressed(body).filter(|_| free).and_then(|(to, _)| connect(to));
    match opened {
        Some(socket) => _ = pump.streams.insert(id, Stream::new(socket, true)),
        None => pump.reset(id),
    }
}

fn connect(to: SocketAddr) -> Option<OwnedFd> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).ok()?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Some(socket),
        Err(_) => None,
    }
}

fn unbound(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr =
        if to.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn ask(askers: &mut VecDeque<(u32, Rc<UdpSocket>)>, id: u32, body: &[u8]) {
    let Some((to, bytes)) = addressed(body) else { return };
    if !askers.iter().any(|(number, _)| *number == id) {
        let Ok(socket) = unbound(to) else { return };
        if socket.connect(to).is_err() {
            return;
        }
        if askers.len() == ASKERS {
            askers.pop_front();
        }
        askers.push_back((id, Rc::new(socket)));
    }
    if let Some((_, socket)) = askers.iter().find(|(number, _)| *number == id) {
        let _ = socket.send(bytes);
    }
}

fn answer(pump: &mut Pump, id: u32, socket: &UdpSocket) {
    let mut bytes = vec![0; MOST];
    while let Ok(count) = socket.recv(&mut bytes) {
        pump.put(Kind::Answer, id, &[bytes.get(..count).unwrap_or_default()]);
        if !pump.has_room() {
            return;
        }
    }
}

/// As long as it was, and without what was in it: that goes nowhere.
fn stray(body: &[u8]) {
    let Some((to, rest)) = addressed(body) else { return };
    let length = rest.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
    if let Ok(socket) = unbound(to) {
        let _ = socket.send_to(&vec![0; length.min(60 << 10)], to);
    }
}
