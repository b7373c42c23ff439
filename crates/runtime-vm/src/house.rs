//! The host's end of what is said about a machine. Answers come in the order of the questions.

use crate::machine::readable;
use cofferdam_inside::wire::{Ask, FROM_INSIDE, Frame, Renewal, Tell, receive, send, send_renewal};
use cofferdam_inside::{Mark, Search};
use rustix::net::RecvFlags;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// For the rest of a frame that has begun.
const REST: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct House {
    pub(crate) stream: UnixStream,
    /// Why an answer did not come, or was none: whatever comes next may be another question's.
    lost: Option<io::ErrorKind>,
}

impl House {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(REST))?;
        stream.set_write_timeout(Some(REST))?;
        Ok(Self { stream, lost: None })
    }

    /// Asks, and waits for the answer. `ended` tells that none will come.
    pub(crate) fn ask(&mut self, ask: &Ask, patience: Duration, ended: BorrowedFd<'_>) -> io::Result<Tell> {
        self.say(ask)?;
        self.told(patience, ended)
    }

    /// Asks, to be told later.
    pub(crate) fn say(&mut self, ask: &Ask) -> io::Result<()> {
        self.is_heard()?;
        send(&mut self.stream, ask)
    }

    /// The same for who the machine is to be.
    pub(crate) fn renew(&mut self, renewal: &Renewal) -> io::Result<()> {
        self.is_heard()?;
        send_renewal(&mut self.stream, renewal)
    }

    fn is_heard(&self) -> io::Result<()> {
        let lost = |kind| io::Error::new(kind, "an answer before this one did not come, or was none");
        self.lost.map_or(Ok(()), |kind| Err(lost(kind)))
    }

    /// Waits for more of an answer.
    pub(crate) fn told(&mut self, patience: Duration, ended: BorrowedFd<'_>) -> io::Result<Tell> {
        let told = self.hear(patience, ended);
        self.lost = self.lost.or(told.as_ref().err().map(io::Error::kind));
        told
    }

    fn hear(&mut self, patience: Duration, ended: BorrowedFd<'_>) -> io::Result<Tell> {
        match readable(&[self.stream.as_fd(), ended], Instant::now() + patience)? {
            Some(0) => match receive(&mut self.stream, FROM_INSIDE)? {
                Frame::Message(told) => Ok(told),
                Frame::Piece(_) | Frame::Entry(_) | Frame::Renewal(_) => {
                    Err(io::Error::new(io::ErrorKind::InvalidData, "bytes that nobody asked for"))
                }
            },
            Some(_) => Err(io::ErrorKind::ConnectionAborted.into()),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Asks for another guest, and waits for it. What the one before has said and nobody has heard is over with the
    /// mark that comes by its channel; what was said to it and not heard ends with the same mark, sent back.
    pub(crate) fn exchange(
        &mut self,
        ask: &Ask,
        mark: Mark,
        channel: &UnixStream,
        patience: Duration,
        ended: BorrowedFd<'_>,
    ) -> io::Result<Tell> {
        let until = Instant::now() + patience;
        self.say(ask)?;
        let mut search = mark.search();
        loop {
            match readable(&[channel.as_fd(), self.stream.as_fd(), ended], until)? {
                Some(0) if discard(channel, &mut search)? => break,
                Some(0) => {}
                // It says why there is no other, or has nothing more to say.
                Some(1) => return self.told(patience, ended),
                Some(_) => return Err(io::ErrorKind::ConnectionAborted.into()),
                None => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        let mut back = channel.try_clone()?;
        back.set_nonblocking(false)?;
        back.write_all(&mark.0)?;
        self.told(patience, ended)
    }
}

/// Takes what there is, up to and with the mark; whether that was there.
fn discard(channel: &UnixStream, search: &mut Search) -> io::Result<bool> {
    let mut bytes = vec![0; 64 << 10];
    let (there, _) = rustix::net::recv(channel, &mut bytes, RecvFlags::PEEK)?;
    if there == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let seen = bytes.get(..there).unwrap_or_default();
    let after = search.feed(seen).map(<[u8]>::len);
    let taken = there - after.unwrap_or(0);
    rustix::net::recv(channel, bytes.get_mut(..taken).unwrap_or_default(), RecvFlags::empty())?;
    Ok(after.is_some())
}

/// Says the first word to a guest that may have spoken to others.
pub(crate) fn hail(channel: &UnixStream, hello: &[u8]) -> io::Result<()> {
    let mut to = channel.try_clone()?;
    to.set_nonblocking(false)?;
    to.write_all(hello)
}

/// Waits until what it said to them is over.
pub(crate) fn begun_anew(
    channel: &UnixStream,
    mark: Mark,
    patience: Duration,
    ended: BorrowedFd<'_>,
) -> io::Result<()> {
    let until = Instant::now() + patience;
    let mut search = mark.search();
    loop {
        match readable(&[channel.as_fd(), ended], until)? {
            Some(0) if discard(channel, &mut search)? => return Ok(()),
            Some(0) => {}
            Some(_) => return Err(io::ErrorKind::ConnectionAborted.into()),
            None => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
}
