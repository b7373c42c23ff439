//! The end in the machine: takes what comes to the doors there, and says where it was meant to go.

use super::frame::{Kind, MOST, address};
use super::pump::{News, Pump, Stream};
use cofferdam_runtime::Doors;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};

/// So many askers are remembered, to give them their answers.
const ASKERS: usize = 512;
/// What is taken of one door before another gets a turn.
const TURN: usize = 32;

pub(super) struct Near {
    doors: Doors,
    last: u32,
    askers: VecDeque<(u32, SocketAddr)>,
}

impl Near {
    pub(super) fn new(doors: Doors) -> io::Result<Self> {
        Ok(Self { doors, last: 0, askers: VecDeque::new() })
    }

    fn listeners(doors: &Doors) -> Vec<&TcpListener> {
        [&doors.proxy, &doors.dns_tcp].into_iter().chain(&doors.transparent).collect()
    }

    pub(super) fn run(self, pump: &mut Pump) -> io::Result<()> {
        let Self { doors, mut last, mut askers } = self;
        let listeners = Self::listeners(&doors);
        let own = || -> Vec<BorrowedFd<'_>> {
            let tcp = listeners.iter().map(|listener| listener.as_fd());
            tcp.chain([doors.dns_udp.as_fd()]).chain(doors.stray_udp.iter().map(AsFd::as_fd)).collect()
        };
        while pump.turn(own, |pump, news| {
            match news {
                News::Frame(Kind::Answer, id, body) => {
                    let asker = askers.iter().find(|(number, _)| *number == id);
                    if let Some((_, peer)) = asker {
                        let _ = doors.dns_udp.send_to(body, peer);
                    }
                }
                // None of these comes from outside.
                News::Frame(..) => {}
                News::Readable(at) if at < listeners.len() => {
                    if let Some(listener) = listeners.get(at) {
                        accept(pump, listener, &mut last);
                    }
                }
                News::Readable(at) if at == listeners.len() => ask(pump, &doors, &mut last, &mut askers),
                News::Readable(at) => {
                    if let Some(socket) = doors.stray_udp.get(at - listeners.len() - 1) {
                        stray(pump, socket.as_fd());
                    }
                }
            }
            Ok(())
        })? {}
        Ok(())
    }
}

fn accept(pump: &mut Pump, listener: &TcpListener, last: &mut u32) {
    for _ in 0..TURN {
        let Ok((socket, _)) = listener.accept() else { return };
        let Ok(to) = socket.local_addr() else { continue };
        if socket.set_nonblocking(true).is_err() {
            continue;
        }
        *last = last.wrapping_add(1);
        pump.put(Kind::Open, *last, &[&address(to)]);
        pump.streams.insert(*last, Stream::new(socket.into(), false));
    }
}

fn ask(pump: &mut Pump, doors: &Doors, last: &mut u32, askers: &mut VecDeque<(u32, SocketAddr)>) {
    let mut bytes = vec![0; MOST];
    for _ in 0..TURN {
        let Ok((count, peer)) = doors.dns_udp.recv_from(&mut bytes) else { return };
        let Ok(to) = doors.dns_udp.local_addr() else { return };
        let known = askers.iter().find(|(_, asker)| *asker == peer).map(|(id, _)| *id);
        let id = known.unwrap_or_else(|| {
            *last = last.wrapping_add(1);
            if askers.len() == ASKERS {
                askers.pop_front();
            }
            askers.push_back((*last, peer));
            *last
        });
        pump.put(Kind::Ask, id, &[&address(to), bytes.get(..count).unwrap_or_default()]);
    }
}

fn stray(pump: &mut Pump, socket: BorrowedFd<'_>) {
    for _ in 0..TURN {
        let Ok((length, to)) = cofferdam_sys::door::receive(socket) else { return };
        let length = length.min(MOST) as u32;
        pump.put(Kind::Stray, 0, &[&address(to), &length.to_le_bytes()]);
    }
}
