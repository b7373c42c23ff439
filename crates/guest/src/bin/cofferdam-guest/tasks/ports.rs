//! Ports of the inside's own network: what listens, and a way to it.

use super::{Done, Failed, input, output, say};
use alloc::vec;
use alloc::vec::Vec;
use cofferdam_guest::wire::Said;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, ipproto, socket_with};

const PIECE: usize = 64 * 1024;

/// On the loopback, whichever of the two families something listens on.
pub(super) fn connect(port: u16) -> Done {
    use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
    let v4 = |socket: &OwnedFd| rustix::net::connect(socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
    let v6 =
        |socket: &OwnedFd| rustix::net::connect(socket, &SocketAddrV6::new(Ipv6Addr::LOCALHOST, port, 0, 0));
    let opened = open(AddressFamily::INET).and_then(|socket| v4(&socket).map(|()| socket));
    let socket = match opened {
        Ok(socket) => socket,
        Err(refused) => {
            let other = open(AddressFamily::INET6).and_then(|socket| v6(&socket).map(|()| socket));
            other.map_err(|_| Failed::from(refused))?
        }
    };
    let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
    say(&Said::Done)?;
    relay(&socket)
}

fn open(family: AddressFamily) -> Result<OwnedFd, Errno> {
    socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))
}

/// Until both directions have ended, or one of them cannot go on.
fn relay(socket: &OwnedFd) -> Done {
    let mut buffer = vec![0; PIECE];
    let (mut sending, mut receiving) = (true, true);
    while receiving {
        let wanted = |on: bool| if on { PollFlags::IN } else { PollFlags::empty() };
        // A negative descriptor cannot be had; one that is not wanted is simply left out.
        let mut set = Vec::from([PollFd::from_borrowed_fd(socket.as_fd(), wanted(receiving))]);
        if sending {
            set.push(PollFd::from_borrowed_fd(input(), PollFlags::IN));
        }
        match poll(&mut set, None) {
            Ok(_) => (),
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<bool> = set.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready.get(1) == Some(&true) && !pass(input(), socket.as_fd(), &mut buffer)? {
            sending = false;
            let _ = rustix::net::shutdown(socket, Shutdown::Write);
        }
        if ready.first() == Some(&true) {
            receiving = pass(socket.as_fd(), output(), &mut buffer)?;
        }
    }
    Ok(())
}

/// One piece; `false` at the end.
fn pass(from: BorrowedFd<'_>, to: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<bool, Failed> {
    let count = match rustix::io::read(from, &mut *buffer) {
        Ok(count) => count,
        Err(Errno::INTR | Errno::AGAIN) => return Ok(true),
        Err(Errno::CONNRESET) => 0,
        Err(errno) => return Err(errno.into()),
    };
    let mut rest = buffer.get(..count).unwrap_or_default();
    while !rest.is_empty() {
        match rustix::io::write(to, rest) {
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => (),
            Err(Errno::PIPE | Errno::CONNRESET) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(count > 0)
}

pub(super) fn list() -> Done {
    let mut found: Vec<(u16, bool)> = Vec::new();
    for table in [c"/proc/net/tcp", c"/proc/net/tcp6"] {
        found.extend(listening(&content(table)));
    }
    found.sort();
    found.dedup();
    for (port, everywhere) in found {
        say(&Said::Port { port, everywhere })?;
    }
    say(&Said::Done)
}

fn content(table: &core::ffi::CStr) -> Vec<u8> {
    let Ok(file) = rustix::fs::open(table, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return Vec::new();
    };
    let (mut all, mut buffer) = (Vec::new(), vec![0; PIECE]);
    while let Ok(count @ 1..) = rustix::io::read(&file, &mut buffer[..]) {
        all.extend_from_slice(buffer.get(..count).unwrap_or_default());
    }
    all
}

/// Lines of `sl local_address rem_address st …`; state 0A listens.
fn listening(table: &[u8]) -> Vec<(u16, bool)> {
    let one = |line: &[u8]| {
        let line = core::str::from_utf8(line).ok()?;
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, state) = (fields.next()?, fields.nth(1)?);
        let (address, port) = local.split_once(':')?;
        let everywhere = address.bytes().all(|byte| byte == b'0');
        (state == "0A").then_some((u16::from_str_radix(port, 16).ok()?, everywhere))
    };
    table.split(|byte| *byte == b'\n').filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_the_kernel() {
        let table = b"  sl  local_address rem_address   st tx_queue\n   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n   1: 00000000:0016 00000000:0000 0A 0\n   2: 0100007F:9999 0100007F:1F90 01 0\n";
        assert_eq!(listening(table), [(8080, false), (22, true)]);
        assert!(listening(b"nonsense\n\n:::").is_empty());
    }
}
