//! Those inside who ask for a command as somebody else. The guest decides nothing about it: it takes the question and
//! the descriptors, asks the host, and tells what came of it.
//!
//! Everything that is heard here comes from inside and may be anything. What it can cost is bounded: so many askers, so
//! many bytes each, three descriptors, and nobody is waited for.

use crate::outbox::Outbox;
use alloc::vec;
use alloc::vec::Vec;
use cofferdam_guest::wire::{Answer, Kind, PLEAS_MAX, Plea, REQUEST_MAX, Request, SOCKET};
use core::mem::MaybeUninit;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, recvmsg, send, socket_with,
};

/// What waits to be accepted.
const BACKLOG: i32 = 64;

/// The descriptors that a command is to have.
pub(crate) type Stdio = [OwnedFd; 3];

struct Asker {
    /// Zero until it has asked.
    number: u32,
    /// Until it leaves or is answered. One that has left counts until the host has answered it, who counts it too.
    here: Option<(OwnedFd, Option<Stdio>)>,
    over: bool,
}

impl Asker {
    fn leave(&mut self) {
        self.here = None;
        self.over |= self.number == 0;
    }
}

#[derive(Default)]
pub(crate) struct Pleas {
    most: usize,
    listener: Option<OwnedFd>,
    askers: Vec<Asker>,
    last: u32,
}

impl Pleas {
    pub(crate) fn invite(&mut self, most: u16) {
        self.most = usize::from(most).min(PLEAS_MAX);
        self.open();
    }

    /// The guest before this one may have the name for a moment longer: then the next command tries again.
    pub(crate) fn open(&mut self) {
        if self.most > 0 && self.listener.is_none() {
            self.listener = bound().ok();
        }
    }

    /// Another host knows nothing of what its predecessor was asked.
    pub(crate) fn forget(&mut self) {
        for (socket, _) in self.askers.iter().filter_map(|asker| asker.here.as_ref()) {
            tell(socket.as_fd(), &Answer::Denied(b"the session is another one now: try again"));
        }
        self.askers.clear();
        self.most = 0;
    }

    pub(crate) fn door(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().filter(|_| self.askers.len() < self.most).map(AsFd::as_fd)
    }

    /// By their place in the row, which stays theirs until `settle`.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let all = self.askers.iter().enumerate();
        all.filter_map(|(at, asker)| asker.here.as_ref().map(|(socket, _)| (at, socket.as_fd())))
    }

    pub(crate) fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        if let Ok(socket) = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            self.askers.push(Asker { number: 0, here: Some((socket, None)), over: false });
        }
    }

    /// One of them has said something, or has left. Whoever speaks again before the answer does not want it any more.
    pub(crate) fn hear(&mut self, at: usize, outbox: &mut Outbox) {
        let Some(asker) = self.askers.get_mut(at) else { return };
        let Some((socket, stdio)) = &mut asker.here else { return };
        let heard = match asker.number {
            0 => receive(socket.as_fd()),
            // Whatever it is.
            _ => match signal_of(socket.as_fd()) {
                Err(errno @ (Errno::AGAIN | Errno::INTR)) => Err(errno),
                _ => Err(Errno::PIPE),
            },
        };
        let bytes = match heard {
            Ok((bytes, given)) => {
                *stdio = Some(given);
                bytes
            }
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => return asker.leave(),
        };
        let (Some(request), Ok(who)) = (Request::decode(&bytes), socket_peercred(&*socket)) else {
            tell(socket.as_fd(), &Answer::Denied(b"that is no question"));
            return asker.leave();
        };
        self.last += 1;
        asker.number = self.last;
        let pid = who.pid.as_raw_nonzero().get() as u32;
        outbox.put(Kind::Plea, asker.number, None, &Plea { request, uid: who.uid.as_raw(), pid });
    }

    /// Between two rounds: nobody's place in the row changes during one.
    pub(crate) fn settle(&mut self) {
        self.askers.retain(|asker| !asker.over);
    }

    /// The host has answered this one; who it was, if it still waits.
    pub(crate) fn take(&mut self, number: u32) -> Option<(OwnedFd, Stdio)> {
        let asker = self.askers.iter_mut().find(|asker| asker.number == number && !asker.over)?;
        asker.over = true;
        let (socket, stdio) = asker.here.take()?;
        Some((socket, stdio?))
    }
}

fn bound() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(SOCKET)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// One message, whole, with exactly three descriptors. Whatever else came along is closed again.
fn receive(socket: BorrowedFd<'_>) -> Result<(Vec<u8>, Stdio), Errno> {
    let mut bytes = vec![0; REQUEST_MAX];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut along = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut along, flags)?;
    let mut given = Vec::new();
    for message in along.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            given.extend(descriptors);
        }
    }
    let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
    if received.bytes == 0 || received.flags.intersects(cut) {
        return Err(Errno::PIPE);
    }
    bytes.truncate(received.bytes);
    Ok((bytes, given.try_into().map_err(|_: Vec<OwnedFd>| Errno::INVAL)?))
}

/// Whoever does not listen hears nothing.
pub(crate) fn tell(asker: BorrowedFd<'_>, answer: &Answer<'_>) {
    if let Some(bytes) = answer.encode() {
        let _ = send(asker, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

/// What an asker says while its command runs: signals for it, a byte each; nothing once it has left.
pub(crate) fn signal_of(asker: BorrowedFd<'_>) -> Result<Option<u8>, Errno> {
    let mut bytes = [0u8; 1];
    match rustix::net::recv(asker, &mut bytes, RecvFlags::DONTWAIT) {
        Ok((1, _)) => Ok(Some(bytes[0])),
        Ok(_) => Ok(None),
        Err(errno) => Err(errno),
    }
}
