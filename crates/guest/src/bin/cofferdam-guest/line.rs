//! What the first process and whoever attends to an asker say to each other: frames, as between it and the host, over a
//! socket of which nobody else has an end. Bytes alone go over it, so nothing that is closed here can hold anybody up.

use alloc::vec;
use alloc::vec::Vec;
use cofferdam_guest::wire::{self, FrameError, HEADER_LEN, Header, Kind, PLEA_MAX, Side};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use serde::Serialize;

/// What is read at once.
const READ: usize = 16 * 1024;

/// Both kinds of frames go over it, in both directions.
pub(crate) fn header(bytes: [u8; HEADER_LEN]) -> Result<Header, FrameError> {
    Header::decode(bytes, Side::Guest).or_else(|_| Header::decode(bytes, Side::Host))
}

/// The end of the first process. It waits for nothing.
pub(crate) struct Line {
    socket: OwnedFd,
    heard: Vec<u8>,
    unsent: Vec<u8>,
}

impl Line {
    /// With the other end.
    pub(crate) fn open() -> Result<(Self, OwnedFd), Errno> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok((Self { socket: ours, heard: Vec::new(), unsent: Vec::new() }, theirs))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Whoever does not listen hears nothing.
    pub(crate) fn say(&mut self, kind: Kind, id: u32, body: &impl Serialize) {
        if wire::put(&mut self.unsent, kind, id, None, body).is_ok() {
            self.flush();
        }
    }

    pub(crate) fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match send(&self.socket, &self.unsent, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => return,
                Err(_) => self.unsent.clear(),
            }
        }
    }

    /// Reads once: then there may be frames. Once nothing more comes: an error.
    pub(crate) fn read(&mut self) -> Result<(), Errno> {
        let mut part = vec![0; READ];
        match recv(&self.socket, &mut part[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(Errno::PIPE),
            Ok((count, _)) => {
                self.heard.extend_from_slice(part.get(..count).unwrap_or_default());
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// The next frame, if all of it has come. What makes no sense is an error.
    pub(crate) fn frame(&mut self) -> Result<Option<(Header, Vec<u8>)>, Errno> {
        let Some(head) = self.heard.first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let header = header(*head).map_err(|_| Errno::BADMSG)?;
        if header.length > PLEA_MAX {
            return Err(Errno::BADMSG);
        }
        let end = HEADER_LEN + header.length as usize;
        let Some(body) = self.heard.get(HEADER_LEN..end).map(<[u8]>::to_vec) else { return Ok(None) };
        self.heard.drain(..end);
        Ok(Some((header, body)))
    }
}
