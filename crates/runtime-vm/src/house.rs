//! The host's end of what is said about a machine. Answers come in the order of the questions.

use crate::machine::readable;
use crate::wire::{Ask, FROM_INSIDE, Frame, Tell, receive, send};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// For the rest of a frame that has begun.
const REST: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct House {
    pub(crate) stream: UnixStream,
}

impl House {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(REST))?;
        stream.set_write_timeout(Some(REST))?;
        Ok(Self { stream })
    }

    /// Asks, and waits for the answer. `ended` tells that none will come.
    pub(crate) fn ask(&mut self, ask: &Ask, patience: Duration, ended: BorrowedFd<'_>) -> io::Result<Tell> {
        send(&mut self.stream, ask)?;
        match readable(&[self.stream.as_fd(), ended], Instant::now() + patience)? {
            Some(0) => match receive(&mut self.stream, FROM_INSIDE)? {
                Frame::Message(told) => Ok(told),
                Frame::Piece(_) => {
                    Err(io::Error::new(io::ErrorKind::InvalidData, "bytes that nobody asked for"))
                }
            },
            Some(_) => Err(io::ErrorKind::ConnectionAborted.into()),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}
