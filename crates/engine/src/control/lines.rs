//! Lines of JSON over a socket, with the descriptors that come with them. Neither a long line nor a slow one
//! holds anything up but its own connection, and that not for long.

use super::LONGEST;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Input, output and errors of a command.
const DESCRIPTORS: usize = 3;

pub(crate) struct Lines {
    stream: UnixStream,
    buffer: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    hear: Option<Hear>,
}

/// Hears what more somebody says, without waiting for it; false when it is over.
pub(crate) type Hear = Box<dyn FnMut(&mut Lines) -> bool + Send>;

impl Lines {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, buffer: Vec::new(), descriptors: Vec::new(), hear: None }
    }

    /// What is asked here goes on, and no thread has to wait for it.
    pub(crate) fn go_on(&mut self, hear: Hear) {
        self.hear = Some(hear);
    }

    /// Whether something has come that nobody has looked at.
    pub(super) fn has_more(&self) -> bool {
        !self.buffer.is_empty()
    }

    pub(super) fn goes_on(&mut self) -> Option<Hear> {
        self.hear.take()
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Those that came with the lines so far.
    pub(crate) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    /// The next line; nothing once the other side is gone.
    pub(crate) fn next<T: DeserializeOwned>(&mut self, deadline: Option<Instant>) -> io::Result<Option<T>> {
        loop {
            match self.next_now() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(deadline)?,
                done => return done,
            }
        }
    }

    /// The same without waiting: where the line has not come, it would block.
    pub(crate) fn next_now<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            if self.buffer.len() >= LONGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line that is too long"));
            }
            if self.receive()? == 0 {
                return Ok(None);
            }
        }
    }

    /// What can be had without waiting; nothing where that is no whole line.
    pub(crate) fn ready<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        match self.take_line() {
            Some(line) => Ok(Some(serde_json::from_slice(&line)?)),
            None => Ok(None),
        }
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.buffer.iter().position(|byte| *byte == b'\n')?;
        let rest = self.buffer.split_off(end + 1);
        Some(std::mem::replace(&mut self.buffer, rest))
    }

    fn wait(&self, deadline: Option<Instant>) -> io::Result<()> {
        let mut set = [PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::IN)];
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match rustix::event::poll(&mut set, left.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Reads once; nothing is the end.
    pub(crate) fn receive(&mut self) -> io::Result<usize> {
        let mut bytes = [0u8; 16 << 10];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let got =
            match rustix::net::recvmsg(&self.stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)
            {
                Ok(got) => got.bytes,
                Err(Errno::CONNRESET) => 0,
                Err(errno) => return Err(errno.into()),
            };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                // More than a command has are closed again as they come.
                let room = DESCRIPTORS.saturating_sub(self.descriptors.len());
                self.descriptors.extend(descriptors.take(room));
            }
        }
        self.buffer.extend_from_slice(&bytes[..got]);
        Ok(got)
    }
}

fn line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    Ok(text)
}

/// Sends a line, with descriptors that go along with its first byte.
pub(crate) fn ask(
    stream: &mut UnixStream,
    question: &impl Serialize,
    along: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let text = line(question)?;
    if along.is_empty() {
        return stream.write_all(&text);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(along)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = rustix::net::sendmsg(&*stream, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL)?;
    stream.write_all(text.get(sent..).unwrap_or_default())
}

/// Sends a line without waiting: who does not listen has lost it.
pub(crate) fn send(stream: &UnixStream, reply: &impl Serialize) -> io::Result<()> {
    let text = line(reply)?;
    let sent = rustix::net::send(stream, &text, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    if sent == text.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::io::Read;
    use std::time::Duration;

    #[test]
    fn lines_arrive_with_their_descriptors_and_however_they_are_cut() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut lines = Lines::new(theirs);
        let (mut reader, writer) = std::io::pipe().unwrap();
        ask(&mut ours, &json!({"a": 1}), &[writer.as_fd()]).unwrap();
        ours.write_all(b"{\"b\"").unwrap();
        assert_eq!(lines.next::<Value>(None).unwrap(), Some(json!({"a": 1})));
        ours.write_all(b":2}\n3\n").unwrap();
        assert_eq!(lines.next::<Value>(None).unwrap(), Some(json!({"b": 2})));
        assert_eq!(lines.ready::<Value>().unwrap(), Some(json!(3)));
        drop(writer);
        let mut file = std::fs::File::from(lines.take_descriptors().pop().unwrap());
        file.write_all(b"through").unwrap();
        drop(file);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        drop(ours);
        assert_eq!(lines.next::<Value>(None).unwrap(), None);
    }

    #[test]
    fn a_slow_line_a_long_one_and_one_that_is_none_are_errors() {
        let soon = || Some(Instant::now() + Duration::from_millis(50));
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut lines = Lines::new(theirs);
        ours.write_all(b"{\"half\"").unwrap();
        assert_eq!(lines.next::<Value>(soon()).unwrap_err().kind(), io::ErrorKind::TimedOut);
        ours.write_all(b"garbage\n").unwrap();
        assert!(lines.next::<Value>(soon()).is_err());
        let flood = std::thread::spawn(move || {
            let _ = ours.write_all(&vec![b'x'; 3 * LONGEST]);
        });
        assert_eq!(lines.next::<Value>(None).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(lines.buffer.len() < LONGEST + (32 << 10));
        drop(lines);
        flood.join().unwrap();
    }

    proptest::proptest! {
        /// Whatever comes, and however it is cut: a question or an error, and no more held than was sent.
        #[test]
        fn any_bytes_are_questions_or_errors(
            pieces in proptest::collection::vec(proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), 0..20)
        ) {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            let mut lines = Lines::new(theirs);
            for piece in &pieces {
                ours.write_all(piece).unwrap();
            }
            drop(ours);
            let ends = pieces.concat().iter().filter(|byte| **byte == b'\n').count();
            let mut answers = 0;
            while !matches!(lines.next::<super::super::Question>(None), Ok(None)) {
                answers += 1;
            }
            proptest::prop_assert_eq!(answers, ends);
        }
    }
}
